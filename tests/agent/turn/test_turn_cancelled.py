"""A turn that is cancelled: in every state, and what has to hold after it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest

from agent.conversation.entries import INTERRUPTED
from agent.model import Completion, Message, ModelInfo, OnToken, ToolCall, ToolSpec
from agent.tools import ToolResult
from tests.agent.support import NOTES, Bench, MemoryClient, Note, Tokens, cancelled, run
from tests.agent.turn.support import Saying, allowing, calls, states, with_room

# in the model


@pytest.mark.hazard("C3.2")
async def test_a_turn_that_is_cancelled_before_it_starts_calls_no_model(tmp_path: Path) -> None:
    bench, tokens = Bench(tmp_path, "turn\ntext: never"), Tokens()
    room = with_room(bench)
    with anyio.CancelScope() as scope:
        scope.cancel()
        await run(bench, "x", tokens)
    assert tokens.told == []
    assert room.fitted == 0  # which may ask a model, too
    assert [m["content"] for m in bench.history.messages()] == ["x"]


class Waiting:
    """Says `words`, then waits for ever."""

    id = "waiting"

    def __init__(self, *words: str) -> None:
        self.words = words
        self.waits = anyio.Event()
        self.ended = False

    async def info(self) -> ModelInfo:
        return ModelInfo()

    async def complete(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], on_token: OnToken
    ) -> Completion:
        try:
            for word in self.words:
                await on_token(word)
            self.waits.set()
            await anyio.sleep_forever()
        finally:
            self.ended = True
        return Completion()


@pytest.mark.hazard("C3.2", "C10", "C17")
@pytest.mark.parametrize("words", [(), ("one", " two")])
async def test_cancelled_before_or_after_the_first_token_the_model_stops_and_its_words_stay(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    model = Waiting(*words)
    bench = Bench(tmp_path, model)
    await cancelled(bench, model.waits)
    assert model.ended
    assert bench.client.texts() == list(words)
    contents = [m["content"] for m in bench.history.messages()]
    assert contents == ["note", *(["one two"] if words else [])]


@pytest.mark.hazard("C3.2")
async def test_cancelled_while_room_is_made_no_model_is_called(tmp_path: Path) -> None:
    model = Saying("never")
    bench, making = Bench(tmp_path, model), anyio.Event()

    async def make() -> None:
        making.set()
        await anyio.sleep_forever()

    with_room(bench).work = make
    await cancelled(bench, making)
    assert model.given == []


class Looked(Saying):
    """Its `info` doesn't notice a cancel, as nothing does that waits for a thread."""

    def __init__(self) -> None:
        super().__init__("never")
        self.looking, self.known = anyio.Event(), anyio.Event()

    async def info(self) -> ModelInfo:
        self.looking.set()
        with anyio.CancelScope(shield=True):
            await self.known.wait()
        return await super().info()


@pytest.mark.hazard("C3.2")
async def test_cancelled_while_the_model_is_looked_up_it_is_not_called(tmp_path: Path) -> None:
    model = Looked()
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run, Bench(tmp_path, model), "x")
            await model.looking.wait()
            tasks.cancel_scope.cancel()
            model.known.set()
    assert model.given == []


@pytest.mark.hazard("C3.2")
async def test_cancelled_in_the_last_tool_the_model_is_not_called_again(tmp_path: Path) -> None:
    model = Saying(completion=Completion(tool_calls=(ToolCall("c", "note", '{"text": "a"}'),)))
    bench, tool = Bench(tmp_path, model), Note("read")
    tool.gate = anyio.Event()
    await cancelled(bench, tool.started, tool)
    assert len(model.given) == 1


async def test_after_a_cancelled_turn_the_next_one_knows_what_was_said(tmp_path: Path) -> None:
    model = Waiting("half")
    bench = Bench(tmp_path, model)
    await cancelled(bench, model.waits)
    bench.model = after = Saying("whole")
    assert await run(bench, "go on") == "end_turn"
    assert [m["content"] for m in after.given[0]] == ["note", "half", "go on"]


# in the tools


@pytest.mark.hazard("C15", "C16", "C17")
@pytest.mark.parametrize("access", ["execute", "read"])
async def test_cancelled_while_asking_nothing_runs(tmp_path: Path, access: Any) -> None:
    bench, tool = Bench(tmp_path, NOTES), Note(access)
    tool.outside = True
    bench.client.answers_permission = False
    await cancelled(bench, bench.client.was_asked, tool)
    assert tool.notes == []
    assert bench.client.card_states() == states("1 pending", "2 pending", "1 failed", "2 failed")
    assert bench.told() == [INTERRUPTED] * 2


@pytest.mark.hazard("C3.2", "C10.3", "C16", "C17")
async def test_cancelled_in_a_tool_the_next_one_does_not_begin(tmp_path: Path) -> None:
    bench, tool = allowing(tmp_path), Note()
    tool.gate = anyio.Event()
    await cancelled(bench, tool.started, tool)
    assert tool.prepared == ["a"]
    assert bench.client.card_states() == states(
        "1 pending", "2 pending", "1 in_progress", "1 failed", "2 failed"
    )
    assert bench.told() == [INTERRUPTED] * 2


@pytest.mark.hazard("C3.2", "C10", "C16", "C17")
async def test_cancelled_between_calls_that_run_at_once_those_that_ended_keep_their_result(
    tmp_path: Path,
) -> None:
    class First(Note):
        async def _run(self, text: str, show: Any) -> ToolResult:
            if text == "a":
                return ToolResult("kept a")
            return await super()._run(text, show)

    bench, tool = allowing(tmp_path, calls(*"abcdefghijkl")), First("read")
    tool.gate = anyio.Event()
    ended, update = anyio.Event(), bench.client.update

    async def watch(shown: dict[str, Any]) -> None:
        await update(shown)
        if shown.get("status") == "completed":
            ended.set()

    bench.client.update = watch  # type: ignore[method-assign,assignment]
    await cancelled(bench, ended, tool)
    assert bench.told() == ["kept a"] + [INTERRUPTED] * 11
    assert tool.notes == []
    assert len(tool.prepared) <= 9  # what had no room yet never began


@pytest.mark.hazard("C3.2")
async def test_cancelled_while_a_call_is_looked_at_it_is_not_run(tmp_path: Path) -> None:
    class Slow(Note):
        async def prepare(self, args: Any, context: Any) -> Any:
            self.started.set()
            await anyio.sleep_forever()

    bench, tool = allowing(tmp_path), Slow()
    await cancelled(bench, tool.started, tool)
    assert tool.notes == []
    assert bench.client.card_states() == states("1 pending", "2 pending", "1 failed", "2 failed")


@pytest.mark.hazard("C3.2")
async def test_cancelled_by_what_happens_right_before_a_tool_begins_it_does_not(
    tmp_path: Path,
) -> None:
    bench, tool = allowing(tmp_path), Note()
    update = bench.client.update
    with anyio.CancelScope() as scope:

        async def cancel(shown: dict[str, Any]) -> None:
            await update(shown)
            if shown.get("status") == "in_progress":
                scope.cancel()

        bench.client.update = cancel  # type: ignore[method-assign,assignment]
        await run(bench, "note", tool=tool)
    assert scope.cancelled_caught
    assert not tool.started.is_set()


class Stuck(MemoryClient):
    """Takes an update of that status, and then nothing for ever."""

    def __init__(self, status: str) -> None:
        super().__init__("allow_once")
        self.status = status
        self.stuck = anyio.Event()

    async def update(self, update: dict[str, Any]) -> None:
        await super().update(update)
        if update.get("status") == self.status:
            self.stuck.set()
            await anyio.sleep_forever()


@pytest.mark.hazard("C16")
async def test_cancelled_while_a_card_is_being_opened_that_card_is_ended(tmp_path: Path) -> None:
    client = Stuck("pending")
    bench, tool = Bench(tmp_path, NOTES, client), Note()
    await cancelled(bench, client.stuck, tool)
    assert bench.client.card_states() == states("1 pending", "1 failed")


@pytest.mark.hazard("C16")
async def test_cancelled_while_a_result_is_being_shown_the_card_is_ended_once(
    tmp_path: Path,
) -> None:
    client = Stuck("completed")
    bench, tool = Bench(tmp_path, NOTES, client), Note()
    await cancelled(bench, client.stuck, tool)
    assert bench.client.card_states()[-2:] == states("1 completed", "2 failed")
    assert bench.told() == ["kept a", INTERRUPTED]


@pytest.mark.hazard("C16", "C17", "C21")
async def test_a_client_that_takes_nothing_holds_up_no_cancelled_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent.turn.tool_calls._CARD_SECONDS", 0)
    client = Stuck("failed")
    bench, tool = Bench(tmp_path, NOTES, client), Note()
    tool.gate = anyio.Event()
    await cancelled(bench, tool.started, tool)
    assert bench.client.card_states()[-2:] == states("1 failed", "2 failed")
    assert bench.reloaded().history.messages() == bench.history.messages()
