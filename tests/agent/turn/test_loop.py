"""A turn: tokens, ends, limits, what it costs, making room, cancellation; no process, no wire."""

import errno
from pathlib import Path
from typing import Any

import pytest

from agent.conversation.compaction import Compactor
from agent.conversation.entries import Record
from agent.model import (
    Completion,
    ModelError,
    Part,
    Token,
    ToolCall,
    Usage,
)
from agent.tools import Toolbox, ToolResult
from tests.agent.support import NOTES, Bench, MemoryClient, Note, Tokens, run
from tests.agent.turn.support import Saying, with_room

# tokens


@pytest.mark.hazard("T1.1")
async def test_every_callback_is_told_every_token_in_order(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "turn\nthink: hm\ntext: one two")
    first, second = Tokens(), Tokens()
    assert await run(bench, "x", first, second) == "end_turn"
    assert first.told == second.told
    assert first.texts == ["hm", "one", " two"]
    assert bench.client.texts() == ["one", " two"]
    assert bench.client.texts("agent_thought_chunk") == ["hm"]


@pytest.mark.hazard("T1.1", "T1.2")
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
    assert bench.client.texts() == ["a"], "an empty chunk is no message"
    assert all(u["content"]["text"] for u in bench.history.replay() if "content" in u)


async def test_a_notice_is_shown_and_is_no_part_of_the_answer(tmp_path: Path) -> None:
    bench, tokens = Bench(tmp_path, Saying(Part("notice", "Wait."), "a")), Tokens()
    await run(bench, "x", tokens)
    assert bench.client.texts() == ["\n\n[acp-bridge] Wait.\n\n", "a"]
    assert tokens.told == [Part("text", "a")]
    assert "Wait" not in str(bench.reloaded().history.replay())


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (Saying(), "The model has ended its answer without a word and without a call."),
        (Saying(Part("reasoning", "Hm")), "The model has ended its answer without a word"),
        (Saying(" ", stop="max_tokens"), "was cut off at its limit before it had said a word."),
        (Saying(stop="refusal"), "The model has refused to answer, without a word."),
    ],
)
async def test_an_answer_with_neither_text_nor_calls_says_so(
    tmp_path: Path, said: Saying, told: str
) -> None:
    bench = Bench(tmp_path, said)
    await run(bench, "x")
    assert told in bench.client.texts()[-1]
    assert told not in str(bench.reloaded().history.replay())


async def test_pieces_of_a_tool_call_are_told_and_neither_shown_nor_kept_as_text(
    tmp_path: Path,
) -> None:
    piece = Part("tool_call", "{half", 0, "note")
    bench, tokens = Bench(tmp_path, Saying("a", piece)), Tokens()
    await run(bench, "x", tokens)
    assert tokens.told == [Part("text", "a"), piece]
    assert bench.client.texts() == ["a"]
    assert [m["content"] for m in bench.reloaded().history.messages()] == ["x", "a"]
    assert piece.text not in (bench.folder / "s1.jsonl").read_text()


@pytest.mark.hazard("T1.3")
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
    assert bench.history.messages()[-1]["content"] == "one two three"


@pytest.mark.hazard("T2.1", "K1.3")
async def test_what_is_shown_was_recorded_first(tmp_path: Path) -> None:
    bench = Bench(tmp_path, NOTES + "turn\ntext: one two", MemoryClient("allow_once"))
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

    def full(record: Record) -> None:
        bench.history.fold(record)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(bench.transcript, "append", full)
    assert await run(bench, "x") == "end_turn"
    shown = "".join(bench.client.texts())
    assert shown.count("can't be written to disk") == 1
    assert shown.endswith("one two")
    assert bench.history.messages()[-1]["content"] == "one two"


# how a turn ends


async def test_the_model_s_stop_reason_is_the_turn_s(tmp_path: Path) -> None:
    scenes = ["when: long\nstop: max_tokens", "when: bad\nstop: refusal", "turn\ntext: so"]
    bench = Bench(tmp_path, "\n".join(scenes))
    assert await run(bench, "long") == "max_tokens"
    assert await run(bench, "bad") == "refusal"
    assert await run(bench, "x") == "end_turn"


@pytest.mark.parametrize("stop", ["max_tokens", "refusal"])
async def test_the_calls_of_an_answer_that_was_cut_off_are_not_run(
    tmp_path: Path, stop: str
) -> None:
    bench, tool = Bench(tmp_path, NOTES.replace("---", f"stop: {stop}\n---")), Note("read")
    assert await run(bench, "note", tool=tool) == stop
    assert (tool.prepared, bench.client.texts()) == ([], [])
    shown = [u["content"][0]["content"]["text"] for u in bench.client.updates if "content" in u]
    assert len(shown) == 2
    assert all("Not run" in text for text in shown)
    assert bench.told() == (shown if stop == "max_tokens" else [])
    assert [status for _, status in bench.client.card_states()] == ["pending"] * 2 + ["failed"] * 2


async def test_an_error_of_the_model_leaves_what_was_said_and_the_next_turn_works(
    tmp_path: Path,
) -> None:
    bench = Bench(tmp_path, "turn\ntext: well\nerror: down\nturn\nremember")
    with pytest.raises(ModelError):
        await run(bench, "first")
    assert await run(bench, "second") == "end_turn"
    contents = [m["content"] for m in bench.reloaded().history.messages()]
    assert contents == ["first", "well", "second", "You told me: first"]


async def test_a_provider_that_refuses_ends_the_turn_with_its_sentence(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "turn\nerror: refused The provider will not answer this.")
    assert await run(bench, "x") == "refusal"
    assert "The provider will not answer this." in "".join(bench.client.texts())
    assert bench.reloaded().history.messages() == []


async def test_a_turn_that_the_model_refused_is_not_part_of_the_next_request(
    tmp_path: Path,
) -> None:
    bench = Bench(tmp_path, "turn\ntext: hello\nturn\ntext: No.\nstop: refusal\nturn\nremember")
    for prompt in ("first", "second"):
        await run(bench, prompt)
    assert [m["content"] for m in bench.reloaded().history.messages()] == ["first", "hello"]
    assert "No." in str(bench.reloaded().history.replay())


async def test_a_model_that_calls_tools_for_ever_is_stopped(tmp_path: Path) -> None:
    model = Saying(completion=Completion(tool_calls=(ToolCall("same", "nothing", "{}"),)))
    bench = Bench(tmp_path, model)
    bench.max_calls = 3
    assert await run(bench, "x") == "max_turn_requests"
    assert len(model.given) == 3
    cards = [card for card, status in bench.client.card_states() if status == "pending"]
    assert cards == ["call-1", "call-2", "call-3"]


# the model


async def test_the_model_is_told_the_mode_that_it_is_asked_in(tmp_path: Path) -> None:
    model = Saying()
    bench = Bench(tmp_path, model)
    for bench.permissions.mode in ("ask", "plan", "edit"):
        await run(bench, "x")
    said = [str(given[-1]["content"]) for given in model.given]
    assert said[0] == "x"
    assert "in plan mode" in said[1]
    assert "no longer in plan mode" in said[2]


async def test_another_model_takes_over_at_the_next_call(tmp_path: Path) -> None:
    bench, tool = Bench(tmp_path, NOTES), Note("read")
    after = Saying("I go on.")

    async def change(token: Token) -> None:
        bench.model = after

    assert await run(bench, "note", change, tool=tool) == "end_turn"
    assert bench.client.texts() == ["I go on."]
    assert [m["role"] for m in after.given[0]] == ["user", "assistant", "tool", "tool"]


async def test_a_model_that_takes_images_is_given_them_and_another_is_not(tmp_path: Path) -> None:
    image = {"type": "image", "mimeType": "image/png", "data": "aGk="}
    model = Saying()
    bench = Bench(tmp_path, model)
    for model.takes_images in (True, False):
        await bench.turn(tools=Toolbox([])).run([image])
    assert isinstance(model.given[0][0]["content"], list)
    assert isinstance(model.given[1][0]["content"], str)


async def test_what_the_provider_wants_back_is_kept_with_the_answer(tmp_path: Path) -> None:
    call = ToolCall("c1", "note", '{"text": "a"}')
    model = Saying("so", completion=Completion(tool_calls=(call,), provider={"signed": "abc"}))
    bench = Bench(tmp_path, model)
    bench.max_calls = 1
    await run(bench, "x", tool=Note("read"))
    answer = bench.reloaded().history.messages()[1]
    assert (answer["provider"], answer["content"]) == ({"signed": "abc"}, "so")
    assert answer["tool_calls"][0]["id"] == "c1"


async def test_the_window_s_use_and_the_cost_so_far_are_shown_after_each_call(
    tmp_path: Path,
) -> None:
    bench = Bench(tmp_path, Saying("a", completion=Completion(usage=Usage(100, 20, 5, 0.25))))
    await run(bench, "x")
    await run(bench, "y")
    shown = bench.client.of_kind("usage_update")
    assert [(u["used"], u["size"]) for u in shown] == [(120, 1000)] * 2
    costs = [{"amount": 0.25, "currency": "USD"}, {"amount": 0.5, "currency": "USD"}]
    assert [u["cost"] for u in shown] == costs
    assert bench.reloaded().history.spent == bench.history.spent


async def test_a_cost_that_is_not_known_is_not_shown(tmp_path: Path) -> None:
    bench = Bench(tmp_path, Saying(completion=Completion(usage=Usage(100, 20))))
    await run(bench, "x")
    assert "cost" not in bench.client.of_kind("usage_update")[0]


async def test_without_a_known_window_usage_is_kept_and_not_shown(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "turn\ntext: one")
    await run(bench, "x")
    assert bench.client.of_kind("usage_update") == []
    assert bench.history.spent.context > 0


# room


async def test_room_is_made_before_each_model_call(tmp_path: Path) -> None:
    bench = Bench(tmp_path, NOTES)
    room = with_room(bench)
    await run(bench, "note", tool=Note("read"))
    assert room.fitted == 2


async def test_a_request_that_does_not_fit_is_made_smaller_until_it_does(tmp_path: Path) -> None:
    model = Saying("fits")
    model.instead = [ModelError("too long", "context")] * 2
    bench = Bench(tmp_path, model)
    bench.max_calls = 1
    with_room(bench, True, True)
    assert await run(bench, "x") == "end_turn"
    assert len(model.given) == 3
    assert bench.client.texts() == ["fits"]


async def test_it_fails_once_there_is_nothing_left_to_go(tmp_path: Path) -> None:
    model = Saying()
    model.instead = [ModelError("too long", "context")] * 3
    bench = Bench(tmp_path, model)
    with_room(bench, True, False)
    with pytest.raises(ModelError, match="too long"):
        await run(bench, "x")
    assert len(model.given) == 2


@pytest.mark.parametrize(
    "dialogue", ["turn\nerror: auth no key", "turn\ntext: so\nerror: context too long"]
)
async def test_other_errors_and_those_after_a_token_are_not_tried_again(
    tmp_path: Path, dialogue: str
) -> None:
    bench = Bench(tmp_path, dialogue)
    room = with_room(bench, True)
    with pytest.raises(ModelError):
        await run(bench, "x")
    assert room.room == [True]


async def test_tokens_of_an_earlier_answer_do_not_count(tmp_path: Path) -> None:
    bench = Bench(tmp_path, NOTES.replace("call", "text: first\ncall", 1))
    after = Saying("fits")
    after.instead = [ModelError("too long", "context")]

    async def change(token: Token) -> None:
        bench.model = after

    with_room(bench, True)
    assert await run(bench, "note", change, tool=Note("read")) == "end_turn"
    assert bench.client.texts() == ["first", "fits"]


async def nothing_said(text: str) -> None:
    raise AssertionError(text)


async def test_a_turn_goes_on_after_its_results_were_too_much(tmp_path: Path) -> None:
    rounds = 'call: note {"text": "a"}\n---\n' * 4
    bench = Bench(tmp_path, f"window: 1000\nwhen: note\n{rounds}text: Kept.")
    tool = Note("read")
    tool.result = ToolResult("word " * 300)
    bench.compactor = Compactor(bench.transcript, None, nothing_said)
    assert await run(bench, "note", tool=tool) == "end_turn"
    assert bench.client.texts() == ["Kept."]
    assert any("left out" in told for told in bench.told())
