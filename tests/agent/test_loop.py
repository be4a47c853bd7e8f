"""A turn: tokens, tools, permission, cancellation; no process and no wire."""

import errno
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest
from pydantic import BaseModel

from agent import loop
from agent.client import ClientError
from agent.history import INTERRUPTED, Record
from agent.model import Completion, Message, ModelError, OnToken, Part, Token, ToolCall, ToolSpec
from agent.permissions import PromptCancelled
from agent.tools import Toolbox, ToolContext, ToolError, ToolResult
from tests.agent.support import Bench, MemoryClient, Tokens, user


class NoteArgs(BaseModel):
    text: str


class Note:
    """A tool of the test's, which asks first and runs `work`."""

    name = "note"
    description = "Keep a note."
    kind = "other"
    Args = NoteArgs
    needs_permission = True

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.started = anyio.Event()
        self.blocks = False
        self.problem: Exception | None = None

    def title(self, args: NoteArgs) -> str:
        return f"Note {args.text}"

    def locations(self, args: NoteArgs, cwd: Path) -> list[dict[str, Any]]:
        return []

    async def run(self, args: NoteArgs, context: ToolContext) -> ToolResult:
        self.started.set()
        if self.blocks:
            await anyio.sleep_forever()
        if self.problem:
            raise self.problem
        self.notes.append(args.text)
        return ToolResult("kept", {"n": len(self.notes)})


NOTE = 'when: note\ncall: note {"text": "a"}\ncall: note {"text": "b"}\n---\ntext: Kept.\n'


def states(*pairs: str) -> list[tuple[str, str]]:
    """`states("1 pending", ...)`"""
    return [(f"call-{p.split()[0]}", p.split()[1]) for p in pairs]


async def run(bench: Bench, text: str, *on_token: OnToken, tool: Note | None = None) -> str:
    with anyio.fail_after(5):
        tools = Toolbox([tool]) if tool else None
        return await bench.turn(*on_token, tools=tools).run(user(text))


# tokens


@pytest.mark.hazard("T1")
async def test_every_callback_is_told_every_token_in_order(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "turn\nthink: hm\ntext: one two")
    first, second = Tokens(), Tokens()
    assert await run(bench, "x", first, second) == "end_turn"
    assert first.told == second.told
    assert first.texts == ["hm", "one", " two"]
    assert bench.client.texts() == ["one", " two"]
    assert bench.client.texts("agent_thought_chunk") == ["hm"]


class Saying:
    """A model that tells just these tokens."""

    def __init__(self, *tokens: Token) -> None:
        self.tokens = tokens

    async def complete(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], on_token: OnToken
    ) -> Completion:
        for token in self.tokens:
            await on_token(token)
        return Completion()


@pytest.mark.hazard("T1")
async def test_a_token_is_a_string_or_a_part_empty_ones_pass_and_none_is_dropped(
    tmp_path: Path,
) -> None:
    bench = Bench(tmp_path, Saying("a", None, "", Part("reasoning", "b"), Part("text", "")))
    tokens = Tokens()
    await run(bench, "x", tokens)
    assert tokens.told == [
        Part("text", "a"),
        Part("text", ""),
        Part("reasoning", "b"),
        Part("text", ""),
    ]
    assert bench.client.texts() == ["a", "", ""]


@pytest.mark.hazard("T1")
async def test_a_failing_callback_ends_neither_stream_nor_turn_and_is_not_silent(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def fails(token: Token) -> None:
        raise RuntimeError("out of order")

    bench, after = Bench(tmp_path, "turn\ntext: one two three"), Tokens()
    assert await run(bench, "x", fails, after) == "end_turn"
    assert after.texts == ["one", " two", " three"]
    shown = "".join(bench.client.texts())
    assert shown.count("see the log") == 1
    assert "out of order" not in shown
    assert "out of order" in caplog.text
    assert bench.transcript.history.messages()[-1]["content"] == "one two three"


@pytest.mark.hazard("T2", "K1")
async def test_what_is_shown_was_recorded_first(tmp_path: Path) -> None:
    bench = Bench(tmp_path, NOTE + "turn\ntext: one two", MemoryClient("allow_once"))
    on_disk: list[bool] = []
    update = bench.client.update

    async def compare(shown: dict[str, Any]) -> None:
        await update(shown)
        if shown.get("status") != "in_progress":
            replayed = str(bench.reloaded().history.replay(running=True))
            on_disk.append(str(shown.get("toolCallId", shown.get("messageId"))) in replayed)
            if shown["sessionUpdate"] == "agent_message_chunk":
                on_disk.append("".join(bench.client.texts()) in replayed)

    bench.client.update = compare  # type: ignore[method-assign,assignment]
    await run(bench, "x")
    bench.client.updates.clear()
    await run(bench, "note", tool=Note())
    assert len(on_disk) > 6
    assert all(on_disk)


async def test_a_full_disk_ends_no_turn_and_the_user_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench(tmp_path, "turn\ntext: one two")
    append = bench.transcript.append

    def full(record: Record) -> None:
        bench.transcript.history.fold(record)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(bench.transcript, "append", full)
    assert await run(bench, "x") == "end_turn"
    shown = "".join(bench.client.texts())
    assert shown.count("can't be written to disk") == 1
    assert shown.endswith("one two")
    assert bench.transcript.history.messages()[-1]["content"] == "one two"
    monkeypatch.setattr(bench.transcript, "append", append)


# how a turn ends


async def test_the_model_s_stop_reason_is_the_turn_s(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "turn\nstop: max_tokens\nturn\nstop: refusal")
    assert await run(bench, "x") == "max_tokens"
    assert await run(bench, "x") == "refusal"


async def test_an_error_of_the_model_leaves_what_was_said_and_the_next_turn_works(
    tmp_path: Path,
) -> None:
    bench = Bench(tmp_path, "turn\ntext: well\nerror: down\nturn\nremember")
    with pytest.raises(ModelError):
        await run(bench, "first")
    assert await run(bench, "second") == "end_turn"
    contents = [m["content"] for m in bench.reloaded().history.messages()]
    assert contents == ["first", "well", "second", "You told me: first"]


async def test_a_model_that_calls_tools_for_ever_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Forever:
        calls = 0

        async def complete(
            self, messages: Sequence[Message], tools: Sequence[ToolSpec], on_token: OnToken
        ) -> Completion:
            self.calls += 1
            return Completion(tool_calls=(ToolCall("same", "nothing", "{}"),))

    monkeypatch.setattr(loop, "MAX_MODEL_CALLS", 3)
    model = Forever()
    bench = Bench(tmp_path, model)
    assert await run(bench, "x") == "max_turn_requests"
    assert model.calls == 3
    cards = [card for card, status in bench.client.card_states() if status == "pending"]
    assert cards == ["call-1", "call-2", "call-3"]


# tools


async def test_tools_are_run_in_order_and_their_results_go_to_the_model(tmp_path: Path) -> None:
    bench, tool = Bench(tmp_path, NOTE, MemoryClient("allow_once")), Note()
    assert await run(bench, "note", tool=tool) == "end_turn"
    assert tool.notes == ["a", "b"]
    assert bench.client.card_states() == states(
        "1 pending",
        "2 pending",
        "1 in_progress",
        "1 completed",
        "2 in_progress",
        "2 completed",
    )
    roles = [m["role"] for m in bench.transcript.history.messages()]
    assert roles == ["user", "assistant", "tool", "tool", "assistant"]
    assert bench.client.texts() == ["Kept."]


async def test_a_card_shows_kind_title_and_raw_input_and_output(tmp_path: Path) -> None:
    bench = Bench(tmp_path, NOTE, MemoryClient("allow_once"))
    await run(bench, "note", tool=Note())
    start = bench.client.updates[0]
    assert start["sessionUpdate"] == "tool_call"
    assert (start["kind"], start["title"], start["rawInput"]) == ("other", "Note a", {"text": "a"})
    end = next(u for u in bench.client.updates if u.get("status") == "completed")
    assert end["rawOutput"] == {"n": 1}
    assert end["content"][0]["content"] == {"type": "text", "text": "kept"}


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("dance {}", "no tool named dance"),
        ("note {}", "text: Field required"),
        ('note {"text": 7}', "text: "),
    ],
)
async def test_a_call_that_can_t_be_run_is_told_to_the_model(
    tmp_path: Path, call: str, said: str
) -> None:
    bench, tool = Bench(tmp_path, f"turn\ncall: {call}\n---\ntext: oh"), Note()
    assert await run(bench, "x", tool=tool) == "end_turn"
    assert said in bench.transcript.history.messages()[2]["content"]
    assert bench.client.card_states() == states("1 pending", "1 failed")
    assert bench.client.asked == []


async def test_a_tool_s_error_is_told_and_a_bug_s_text_is_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bench, tool = Bench(tmp_path, NOTE, MemoryClient("allow_always")), Note()
    tool.problem = ToolError("the book is closed")
    await run(bench, "note", tool=tool)
    tool.problem = RuntimeError("/secret/path")
    await run(bench, "note", tool=tool)
    told = [m["content"] for m in bench.transcript.history.messages() if m["role"] == "tool"]
    assert told == ["the book is closed"] * 2 + ["The tool failed; see the agent's log."] * 2
    assert "/secret/path" not in str(bench.client.updates)
    assert "/secret/path" in caplog.text


# permission


@pytest.mark.hazard("C18")
@pytest.mark.parametrize("choice", ["reject_once", "unknown", "", "ALLOW_ONCE", ClientError()])
async def test_only_a_chosen_allow_option_allows(tmp_path: Path, choice: str | Exception) -> None:
    bench, tool = Bench(tmp_path, NOTE, MemoryClient(choice)), Note()
    assert await run(bench, "note", tool=tool) == "end_turn"
    assert tool.notes == []
    assert len(bench.client.asked) == 2
    assert bench.client.card_states()[-1] == ("call-2", "failed")


@pytest.mark.hazard("C18")
async def test_allow_once_is_asked_again_and_allow_always_is_not(tmp_path: Path) -> None:
    bench, tool = Bench(tmp_path, NOTE, MemoryClient("allow_once")), Note()
    await run(bench, "note", tool=tool)
    assert len(bench.client.asked) == 2
    bench.client.choice = "allow_always"
    await run(bench, "note", tool=tool)
    assert len(bench.client.asked) == 3
    assert tool.notes == ["a", "b"] * 2


async def test_in_mode_auto_nobody_is_asked(tmp_path: Path) -> None:
    bench, tool = Bench(tmp_path, NOTE), Note()
    bench.permissions.mode = "auto"
    await run(bench, "note", tool=tool)
    assert (bench.client.asked, tool.notes) == ([], ["a", "b"])


@pytest.mark.hazard("C18", "C16", "C3")
async def test_a_cancelled_permission_ends_the_turn_and_its_cards(tmp_path: Path) -> None:
    bench, tool = Bench(tmp_path, NOTE, MemoryClient(None)), Note()
    with pytest.raises(PromptCancelled):
        await run(bench, "note", tool=tool)
    assert tool.notes == []
    assert bench.client.card_states() == states("1 pending", "2 pending", "1 failed", "2 failed")
    assert bench.client.texts() == []


# cancellation


@pytest.mark.hazard("C15", "C16", "C17")
async def test_cancelled_while_asking_every_card_is_ended_and_every_call_has_a_result(
    tmp_path: Path,
) -> None:
    bench, tool = Bench(tmp_path, NOTE), Note()
    bench.client.answers_permission = False
    await cancelled(bench, tool, bench.client.was_asked)
    assert bench.client.card_states() == states("1 pending", "2 pending", "1 failed", "2 failed")


@pytest.mark.hazard("C16", "C17")
async def test_cancelled_in_a_tool_every_card_is_ended_and_every_call_has_a_result(
    tmp_path: Path,
) -> None:
    bench, tool = Bench(tmp_path, NOTE, MemoryClient("allow_once")), Note()
    tool.blocks = True
    await cancelled(bench, tool, tool.started)
    assert bench.client.card_states() == states(
        "1 pending", "2 pending", "1 in_progress", "1 failed", "2 failed"
    )


@pytest.mark.hazard("C16")
async def test_cancelled_while_a_card_is_being_opened_that_card_is_ended(tmp_path: Path) -> None:
    class Stuck(MemoryClient):
        async def update(self, update: dict[str, Any]) -> None:
            await super().update(update)
            if update.get("status") == "pending":
                self.was_asked.set()
                await anyio.sleep_forever()

    bench = Bench(tmp_path, NOTE, Stuck())
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(bench.turn(tools=Toolbox([Note()])).run, user("note"))
            await bench.client.was_asked.wait()
            tasks.cancel_scope.cancel()
    assert bench.client.card_states() == states("1 pending", "1 failed")


async def cancelled(bench: Bench, tool: Note, when: anyio.Event) -> None:
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(bench.turn(tools=Toolbox([tool])).run, user("note"))
            await when.wait()
            tasks.cancel_scope.cancel()
    assert tool.notes == []
    results = [m["content"] for m in bench.transcript.history.messages() if m["role"] == "tool"]
    assert results == [INTERRUPTED, INTERRUPTED]
    assert bench.reloaded().history.messages() == bench.transcript.history.messages()


@pytest.mark.hazard("C3")
async def test_a_turn_that_is_cancelled_before_it_starts_calls_no_model(tmp_path: Path) -> None:
    bench, tokens = Bench(tmp_path, "turn\ntext: never"), Tokens()
    with anyio.CancelScope() as scope:
        scope.cancel()
        await bench.turn(tokens).run(user("x"))
    assert tokens.told == []
    assert [m["content"] for m in bench.transcript.history.messages()] == ["x"]
