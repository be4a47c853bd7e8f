"""A Stop that a client writes in an odd way: it is never lost when it is clear what it means."""

from pathlib import Path
from typing import Any

import pytest

from tests.core.bridge.test_stops import Busy, busy
from tests.core.sessions.agent import until

ODD: list[Any] = [
    {},
    {"sessionId": ""},
    {"sessionId": None},
    {"sessionId": 5},
    {"session_id": "x"},
    [],
    None,
]


async def stopped(here: Busy) -> None:
    """Wait until the agent was told to stop, and see that its turn is cancelled."""
    await until(lambda: here.cancelled)
    here.gate.open()
    assert await here.first.stop_reason(here.running) == "cancelled"


@pytest.mark.hazard("C1.10")
@pytest.mark.parametrize("params", ODD)
async def test_a_stop_that_names_no_session_is_for_the_only_one(
    tmp_path: Path, params: Any
) -> None:
    async with busy(tmp_path) as here:
        here.first.notify("session/cancel", params)
        await stopped(here)


@pytest.mark.hazard("C1.10")
async def test_of_several_sessions_such_a_stop_is_for_the_one_that_is_at_work(
    tmp_path: Path,
) -> None:
    async with busy(tmp_path) as here:
        await here.it.new()
        here.first.notify("session/cancel", {})
        await stopped(here)


@pytest.mark.hazard("C1.10", "C1.11", "V4")
async def test_of_several_at_work_such_a_stop_is_for_the_client_s_own_or_for_none(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with busy(tmp_path) as here:
        second = await here.it.new()
        here.first.prompt(second, "runs, too")
        await until(lambda: here.gate.reached == 2)
        with caplog.at_level("INFO"):
            here.first.notify("session/cancel", {})
            await here.first.handled()
        assert not here.cancelled
        assert "a Stop that names no session" in caplog.text
        watcher = await here.it.attached(second)
        own = watcher.prompt(second, "waits")
        await watcher.handled()
        watcher.notify("session/cancel", {})
        assert await watcher.stop_reason(own) == "cancelled"
        assert not here.cancelled


@pytest.mark.hazard("C1.11", "V4")
async def test_such_a_stop_of_a_client_without_a_session_ends_nothing(tmp_path: Path) -> None:
    async with busy(tmp_path) as here:
        stranger = await here.it.joined()
        stranger.notify("session/cancel", {})
        await stranger.handled()
        assert not here.cancelled


@pytest.mark.hazard("C1.9")
@pytest.mark.parametrize("method", ["$/cancel_request", "$/cancelRequest"])
@pytest.mark.parametrize("name", ["requestId", "id", "request_id"])
@pytest.mark.parametrize("form", [int, str])
async def test_a_cancel_of_the_prompt_s_request_is_a_stop_however_it_is_spelled(
    tmp_path: Path, method: str, name: str, form: Any
) -> None:
    async with busy(tmp_path) as here:
        here.first.notify(method, {name: form(here.running)})
        await stopped(here)


@pytest.mark.parametrize("params", [{"requestId": "999"}, {"id": [1]}, {}, None, {"id": None}])
async def test_a_cancel_of_no_open_request_ends_nothing(tmp_path: Path, params: Any) -> None:
    async with busy(tmp_path) as here:
        here.first.notify("$/cancelRequest", params)
        await here.first.handled()
        assert not here.cancelled


SPELLED = [
    "Session/Cancel",
    "session/cancel ",
    "/session/cancel",
    "session.cancel",
    "sessionCancel",
]


@pytest.mark.hazard("C1.8")
@pytest.mark.parametrize("method", [*SPELLED, "session/cancel\u200b", "session_cancel"])
@pytest.mark.parametrize("asks", [False, True])
async def test_a_stop_is_known_in_any_spelling_of_its_method(
    tmp_path: Path, method: str, *, asks: bool
) -> None:
    async with busy(tmp_path) as here:
        if asks:
            assert await here.first.ask(method, {"sessionId": here.id}) is None
        else:
            here.first.notify(method, {"sessionId": here.id})
        await stopped(here)


@pytest.mark.hazard("C1.9")
async def test_a_cancel_of_a_session_that_names_no_request_is_a_stop(tmp_path: Path) -> None:
    async with busy(tmp_path) as here:
        here.first.notify("$/cancel_request", {"sessionId": here.id})
        await stopped(here)


@pytest.mark.parametrize("method", ["session/canceled", "cancel", "session/cancel/x", "session/"])
async def test_what_is_not_the_method_of_a_stop_ends_nothing(tmp_path: Path, method: str) -> None:
    async with busy(tmp_path) as here:
        here.first.notify(method, {"sessionId": here.id})
        await here.first.handled()
        assert not here.cancelled
