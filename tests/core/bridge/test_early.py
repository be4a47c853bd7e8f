"""What a client asks behind `initialize`, before that is answered: it waits, and loses its place
to nothing.
"""

from pathlib import Path

import pytest

from acp_bridge.core.clients import waiting_requests
from acp_bridge.core.wire.jsonrpc import encode
from tests.core.sessions.agent import Json, until
from tests.core.sessions.bench import HELLO, Bench, Served, bench
from tests.core.sessions.world import SETUP

CANCELLED, REFUSED = -32800, -32600


def line(request_id: str, method: str, params: Json) -> bytes:
    return encode({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params})


async def waits(it: Bench, *requests: tuple[str, Json]) -> list[int]:
    """Send requests that nothing has answered yet, and see them read; returns their ids."""
    ids = [it.editor.send(*request) for request in requests]
    assert "already" in (await it.editor.refused("initialize", HELLO)).message
    assert [it.editor.answers(each) for each in ids] == [[] for _ in ids]
    return ids


async def test_what_follows_initialize_waits_for_its_answer_and_is_taken_in_order(
    tmp_path: Path,
) -> None:
    async with bench(tmp_path, initialized=False) as it:
        gate = it.agent.stops_at("initialize")
        hello = it.editor.send("initialize", HELLO)
        folders = [f"/w/{number}" for number in range(3)]
        news = await waits(it, *(("session/new", {**SETUP, "cwd": each}) for each in folders))
        (listed,) = await waits(it, ("session/list", {}))
        gate.open()
        for each in (hello, *news):
            await it.editor.result(each)
        assert await it.editor.result(listed) == {"sessions": []}
        assert [each["cwd"] for each in it.agent.params("session/new")] == folders
        answered = [message["id"] for message in it.editor.messages if "method" not in message]
        assert answered.index(hello) < min(answered.index(each) for each in (*news, listed))


@pytest.mark.parametrize("builtin", [True, False])
async def test_all_of_it_may_come_in_one_piece(tmp_path: Path, builtin: bool) -> None:
    async with bench(tmp_path, initialized=False, builtin=builtin) as it:
        it.editor.read.give(line("a", "initialize", HELLO) + line("b", "session/new", SETUP))
        await it.editor.result("a")
        session_id = (await it.editor.result("b"))["sessionId"]
        assert await it.editor.stop_reason(it.editor.prompt(session_id, "hello")) == "end_turn"


async def test_what_is_read_behind_the_answer_comes_behind_what_waited(tmp_path: Path) -> None:
    async with bench(tmp_path, initialized=False) as it:
        it.agent.script |= {f"_x/{each}": {} for each in ("one", "two", "three", "four")}
        gate = it.agent.stops_at("initialize")
        it.editor.send("initialize", HELLO)
        await waits(it, ("_x/one", {}), ("_x/two", {}))
        gate.open()
        it.editor.send("_x/three", {})
        await it.editor.ask("_x/four", {})
        said = [m["method"] for m in it.agent.processes[0].received if m["method"][:3] == "_x/"]
        assert said == ["_x/one", "_x/two", "_x/three", "_x/four"]


@pytest.mark.hazard("Q9.1")
@pytest.mark.parametrize("how", ["fails", "cancelled"])
async def test_an_initialize_that_comes_to_nothing_refuses_what_waited_and_can_be_repeated(
    tmp_path: Path, how: str
) -> None:
    async with bench(tmp_path, initialized=False) as it:
        gate = it.agent.stops_at("initialize")
        hello = it.editor.send("initialize", HELLO)
        waiting = await waits(it, ("session/new", SETUP), ("session/list", {}), ("_x/y", {}))
        await until(lambda: gate.reached)
        if how == "fails":
            it.agent.unstartable = OSError(24, "too many files")
            it.agent.processes[0].dies()
        else:
            it.editor.cancel_request(hello)
        await it.editor.refusal(hello)
        assert [(await it.editor.refusal(each)).code for each in waiting] == [REFUSED] * 3
        it.agent.unstartable = None
        gate.open()
        await it.editor.ask("initialize", HELLO)
        await it.new()
        assert len(it.agent.params("session/new")) == 1


async def test_one_that_waits_is_cancelled_at_once_and_the_others_go_on(tmp_path: Path) -> None:
    async with bench(tmp_path, initialized=False) as it:
        gate = it.agent.stops_at("initialize")
        it.editor.send("initialize", HELLO)
        first, second = await waits(it, ("session/new", SETUP), ("session/new", SETUP))
        it.editor.cancel_request(first)
        assert (await it.editor.refusal(first)).code == CANCELLED
        gate.open()
        await it.editor.result(second)
        assert len(it.agent.params("session/new")) == 1


@pytest.mark.hazard("C1.1")
async def test_a_stop_meanwhile_is_about_the_oldest_prompt_of_its_session(tmp_path: Path) -> None:
    async with bench(tmp_path, initialized=False) as it:
        gate = it.agent.stops_at("initialize")
        it.editor.send("initialize", HELLO)
        given: list[Json] = [{"sessionId": each, "prompt": []} for each in ("other", "s", "s")]
        waiting = await waits(it, *(("session/prompt", each) for each in given))
        it.editor.notify("session/cancel", {"sessionId": "s"})
        assert await it.editor.stop_reason(waiting[1]) == "cancelled"
        it.editor.notify("session/cancel", {})
        gate.open()
        for each in (waiting[0], waiting[2]):
            assert "unknown session" in (await it.editor.refusal(each)).message


@pytest.mark.hazard("C1.10")
async def test_a_stop_meanwhile_that_names_no_session_is_for_the_only_one(tmp_path: Path) -> None:
    async with bench(tmp_path, initialized=False) as it:
        gate = it.agent.stops_at("initialize")
        it.editor.send("initialize", HELLO)
        given: Json = {"sessionId": "s", "prompt": []}
        waiting = await waits(it, ("session/prompt", given), ("session/prompt", given))
        it.editor.notify("session/cancel", {})
        assert await it.editor.stop_reason(waiting[0]) == "cancelled"
        gate.open()
        assert "unknown session" in (await it.editor.refusal(waiting[1])).message


@pytest.mark.hazard("Q9", "P2")
@pytest.mark.parametrize("keep", [0, 60])
async def test_what_waits_when_the_client_leaves_comes_to_nothing(
    tmp_path: Path, keep: float
) -> None:
    async with bench(tmp_path, initialized=False, keep=keep) as it:
        it.agent.stops_at("initialize")
        it.editor.send("initialize", HELLO)
        waiting = await waits(it, ("session/new", SETUP), ("session/delete", {"sessionId": "s"}))
        it.editor.leaves()
        if keep:
            await until(lambda: it.editor.answers(waiting[-1]))
            it.bridge._ended.set()
        await it.ended.wait()
    answers = [answer for each in waiting for answer in it.editor.answers(each)]
    assert [answer["error"]["code"] for answer in answers] == [CANCELLED] * 2
    assert it.agent.params("session/new") == []


async def test_no_more_of_them_wait_than_a_client_has_reason_to_send(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting_requests, "MOST", 2)
    async with bench(tmp_path, initialized=False) as it:
        gate = it.agent.stops_at("initialize")
        it.editor.send("initialize", HELLO)
        waiting = await waits(it, ("session/list", {}), ("session/list", {}))
        assert (await it.editor.refused("session/list", {})).code == REFUSED
        gate.open()
        for each in waiting:
            await it.editor.result(each)


@pytest.mark.hazard("V4")
async def test_a_client_on_a_socket_may_send_all_at_once_and_may_do_no_more_by_it(
    tmp_path: Path,
) -> None:
    async with bench(tmp_path) as it:
        session_id, other = await it.new(), Served()
        it.context.tasks.start_soon(it.bridge.join, other.read, other.way)
        other.read.give(
            line("a", "initialize", HELLO)
            + line("b", "_acp_bridge/attach", {"sessionId": session_id})
            + line("c", "session/new", SETUP)
        )
        await other.result("b")
        assert "only the client that started" in (await other.refusal("c")).message
        assert await other.stop_reason(other.prompt(session_id, "hello")) == "end_turn"
        other.leaves()
        await until(lambda: other.way.ended)
