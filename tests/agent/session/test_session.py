"""A session's prompts and their cancellation, at moments that only a test can choose."""

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from agent.conversation.transcript import Transcript
from agent.model import Completion, Message, ModelError, ModelInfo, OnToken, ToolSpec
from agent.secrets import Secrets
from agent.session.session import Session
from agent.session.session_client import SessionClient
from agent.session.session_params import SessionParams
from agent.session.shared_parts import SharedParts
from agent.settings import Settings
from tests.agent.support import OneModel, user


class Doing:
    """A model that does what the test says."""

    id = "doing"

    def __init__(self, work: Callable[[], Awaitable[None]]) -> None:
        self._work = work

    async def info(self) -> ModelInfo:
        return ModelInfo()

    async def complete(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], on_token: OnToken
    ) -> Completion:
        await self._work()
        return Completion()


async def ignore(method: str, params: dict[str, Any]) -> None:
    pass


def session_of(folder: Path, work: Callable[[], Awaitable[None]]) -> Session:
    shared = SharedParts(
        models=OneModel(Doing(work)),
        settings=Settings(folder, folder / "keys.env"),
        tools=[],
        secrets=Secrets(),
        environment={},
        request=ignore,
        notify=ignore,
    )
    transcript = Transcript.create(folder, "s1", str(folder))
    return Session(shared, "s1", transcript, SessionParams(folder))


@pytest.mark.hazard("C5.1")
async def test_a_cancel_that_the_turn_s_end_did_not_notice_still_answers_cancelled(
    tmp_path: Path,
) -> None:
    async def cancelled_at_the_end() -> None:
        session.cancel()

    session = session_of(tmp_path, cancelled_at_the_end)
    session._titled = True  # no title is sent: nothing awaits after the cancel
    assert await session.prompt(user("x")) == "cancelled"


@pytest.mark.hazard("C5")
async def test_an_error_of_a_cancelled_turn_is_not_shown(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def fails_when_cancelled() -> None:
        session.cancel()
        try:
            await anyio.lowlevel.checkpoint()
        finally:
            raise ModelError("closed in the middle")

    session = session_of(tmp_path, fails_when_cancelled)
    assert await session.prompt(user("x")) == "cancelled"
    assert "closed in the middle" in caplog.text


@pytest.mark.hazard("Q8", "C2.2")
async def test_after_an_error_and_after_a_cancel_the_next_prompt_runs(tmp_path: Path) -> None:
    work = [ModelError("no"), None, None]

    async def next_work() -> None:
        if problem := work.pop(0):
            raise problem

    session = session_of(tmp_path, next_work)
    with pytest.raises(ModelError):
        await session.prompt(user("x"))
    session.cancel()
    assert await session.prompt(user("y")) == "end_turn"
    session.cancel()
    assert await session.prompt(user("z")) == "end_turn"


@pytest.mark.hazard("Q9.1", "Q8.1")
async def test_a_prompt_whose_task_is_cancelled_holds_up_no_other(tmp_path: Path) -> None:
    started = anyio.Event()

    async def first_blocks() -> None:
        if not started.is_set():
            started.set()
            await anyio.sleep_forever()

    session = session_of(tmp_path, first_blocks)
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(session.prompt, user("x"))
            await started.wait()
            tasks.cancel_scope.cancel()
        assert await session.prompt(user("y")) == "end_turn"


@pytest.mark.hazard("C20.1", "C20.2", "C3.1")
async def test_a_waiting_prompt_that_is_cancelled_never_starts(tmp_path: Path) -> None:
    started: list[anyio.Event] = [anyio.Event()]
    answers: dict[str, str] = {}

    async def blocks() -> None:
        started[0].set()
        await anyio.sleep_forever()

    async def ask(text: str) -> None:
        answers[text] = await session.prompt(user(text))

    session = session_of(tmp_path, blocks)
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask, "first")
            await started[0].wait()
            tasks.start_soon(ask, "second")
            await anyio.lowlevel.checkpoint()
            await session.cancel_all()
    assert answers == {"first": "cancelled", "second": "cancelled"}
    messages = session.transcript.history.messages()
    assert [m["content"] for m in messages if m["role"] == "user"] == ["first"]


@pytest.mark.hazard("R4.3")
async def test_updates_of_a_running_turn_wait_behind_a_replay() -> None:
    sent: list[str] = []
    first_sent, go_on = anyio.Event(), anyio.Event()

    async def slowly(method: str, params: dict[str, Any]) -> None:
        sent.append(params["update"]["n"])
        first_sent.set()
        await go_on.wait()

    client = SessionClient("s1", request=ignore, notify=slowly, reads_files=False)
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client.replay, lambda: [{"n": "old 1"}, {"n": "old 2"}])
            await first_sent.wait()
            await client.update({"n": "new 1"})
            await client.update({"n": "new 2"})
            go_on.set()
    await client.update({"n": "new 3"})
    assert sent == ["old 1", "old 2", "new 1", "new 2", "new 3"]
