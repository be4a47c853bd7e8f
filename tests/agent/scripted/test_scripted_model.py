"""The scripted model: what it says, and what it records of what it was given."""

import json
from pathlib import Path

import anyio
import pytest

from agent.conversation.history import History
from agent.model import Completion, Message, ModelError, ModelInfo, Part, ToolCall, Usage
from agent.scripted.dialogue import parse_dialogue
from agent.scripted.scripted_model import ScriptedModel
from tests.agent.support import Tokens, scripted
from tests.support.gates import Gates


async def say(dialogue: str, *messages: Message) -> tuple[Completion, Tokens]:
    tokens = Tokens()
    with anyio.fail_after(5):
        completion = await scripted(dialogue).complete(messages, [], tokens)
    return completion, tokens


def ask(text: str) -> Message:
    return {"role": "user", "content": text}


async def test_text_is_streamed_word_by_word_and_lines_are_joined_by_a_space() -> None:
    completion, tokens = await say("turn\ntext: one two\ntext: three", ask("x"))
    assert tokens.texts == ["one", " two", " three"]
    assert completion.text == "one two three"


async def test_reasoning_is_told_apart_from_text() -> None:
    completion, tokens = await say("turn\nthink: hm\ntext: well", ask("x"))
    assert tokens.told == [Part("reasoning", "hm"), Part("text", "well")]
    assert (completion.reasoning, completion.text) == ("hm", "well")


async def test_a_token_line_is_one_token_exactly() -> None:
    _, tokens = await say('turn\ntoken: " a\\nb "\ntoken: ""\ntoken: null', ask("x"))
    assert tokens.told == [Part("text", " a\nb "), Part("text", ""), None]


async def test_escapes_and_placeholders_are_filled_in() -> None:
    dialogue = "turn\nrepeat: 2\ntext: {i}\\n{user}\ntext: {unknown}"
    completion, _ = await say(dialogue, ask("hey"))
    assert completion.text == "0\nhey 1\nhey {unknown}"


async def test_remember_lists_what_the_user_said_before() -> None:
    answer: Message = {"role": "assistant", "content": "ok"}
    completion, _ = await say("turn\nremember", ask("I am Ann"), answer, ask("Who am I?"))
    assert completion.text == "You told me: I am Ann"


async def test_a_call_is_part_of_the_completion_and_its_result_can_be_said() -> None:
    dialogue = 'turn\ncall: shell {"command": "ls"}\n---\ntext: It is {result}'
    first, _ = await say(dialogue, ask("x"))
    assert first.tool_calls == (ToolCall("call_1", "shell", '{"command": "ls"}'),)
    assistant: Message = {"role": "assistant", "content": "", "tool_calls": [{}]}
    result: Message = {"role": "tool", "tool_call_id": "call_1", "content": "empty"}
    second, _ = await say(dialogue, ask("x"), assistant, result)
    assert second.text == "It is empty"


async def test_a_call_is_told_in_pieces_that_make_up_its_arguments() -> None:
    dialogue = 'turn\ncall: shell {"command": "ls"}\ncall: plan'
    completion, tokens = await say(dialogue, ask("x"))
    parts = [part for part in tokens.told if isinstance(part, Part)]
    assert {part.kind for part in parts} == {"tool_call"}
    for index, call in enumerate(completion.tool_calls):
        pieces = [part for part in parts if part.index == index]
        assert "".join(part.text for part in pieces) == call.arguments
        assert [part.name for part in pieces] == [call.name, *[""] * (len(pieces) - 1)]
    assert len(parts) > 2


async def test_ids_of_calls_differ_within_a_conversation() -> None:
    dialogue = "turn\ncall: a\ncall: b"
    first, _ = await say(dialogue, ask("x"))
    earlier: Message = {"role": "assistant", "content": "", "tool_calls": [{}, {}]}
    second, _ = await say(dialogue, ask("x"), earlier, ask("y"))
    ids = [call.id for call in (*first.tool_calls, *second.tool_calls)]
    assert ids == ["call_1", "call_2", "call_3", "call_4"]


async def test_the_words_of_a_message_in_parts_are_its_text() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}
    parts: Message = {"role": "user", "content": [{"type": "text", "text": "a cat?"}, image]}
    completion, _ = await say("when: a cat\necho", parts)
    assert completion.text == "a cat?"


async def test_the_system_prompt_chooses_no_scene() -> None:
    system: Message = {"role": "system", "content": "story"}
    completion, _ = await say("when: story\ntext: A\nturn\ntext: B", system, ask("x"))
    assert completion.text == "B"


async def test_images_of_tools_are_no_prompt() -> None:
    history = History()
    history.fold({"t": "user", "blocks": [{"type": "text", "text": "look"}]})
    card = {"toolCallId": "call-1", "title": "Read"}
    history.fold({"t": "call", "id": "c", "name": "read_file", "arguments": "{}", "card": card})
    result = {"t": "result", "card": "call-1", "status": "completed", "text": "an image"}
    history.fold({**result, "images": ["data:image/png;base64,aGk="]})
    messages = history.messages()
    assert messages[-1]["role"] == "user"
    dialogue = "when: look\ncall: read_file\n---\ntext: {user} {result}"
    completion, _ = await say(dialogue, *messages)
    assert completion.text == "look an image"


async def test_what_it_says_of_itself_stands_in_the_dialogue_or_is_given() -> None:
    dialogue = parse_dialogue("window: 500\nimages\nturn\necho")
    assert await ScriptedModel(dialogue).info() == ModelInfo(500, takes_images=True)
    given = ModelInfo(thought_levels=("low", "high"))
    model = ScriptedModel(dialogue, "other", given)
    assert (model.id, await model.info()) == ("other", given)


async def test_usage_counts_the_words_of_all_messages_and_of_the_answer() -> None:
    system: Message = {"role": "system", "content": "be kind"}
    completion, _ = await say("turn\nthink: hm\ntext: one two", system, ask("well well well"))
    assert completion.usage == Usage(input=5, output=3)


@pytest.mark.parametrize(
    ("line", "kind", "message"),
    [
        ("error: context too long", "context", "too long"),
        ("error: rate_limit", "rate_limit", "rate_limit"),
        ("error: too busy", "other", "too busy"),
        ("error: refusedly so", "other", "refusedly so"),
    ],
)
async def test_an_error_s_kind_is_its_first_word_if_that_is_one(
    line: str, kind: str, message: str
) -> None:
    with pytest.raises(ModelError) as raised:
        await say(f"turn\n{line}", ask("x"))
    assert (raised.value.kind, str(raised.value)) == (kind, message)


async def test_an_error_line_fails_the_completion_after_what_was_said() -> None:
    tokens = Tokens()
    with pytest.raises(ModelError, match="too busy"):
        await scripted("turn\ntext: so\nerror: too busy").complete([ask("x")], [], tokens)
    assert tokens.texts == ["so"]


async def test_a_stop_line_sets_the_stop_reason() -> None:
    completion, _ = await say("turn\ntext: no\nstop: refusal", ask("x"))
    assert completion.stop == "refusal"


async def test_bench_in_the_prompt_streams_numbered_words_whatever_the_dialogue() -> None:
    _, tokens = await say("turn\ntext: never", ask("BENCH n=3 gap=0 tag=A"))
    assert [text.partition("@")[0] for text in tokens.texts] == ["A0", "A1", "A2"]
    assert all(text.endswith(" ") and text[3:-1].isdecimal() for text in tokens.texts)


async def test_each_call_is_logged_with_what_the_model_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "model.log"
    monkeypatch.setenv("ACP_BRIDGE_MODEL_LOG", str(log))
    await say("turn\necho", ask("one"))
    await say("turn\necho", ask("two"))
    calls = [json.loads(line) for line in log.read_text().splitlines()]
    assert [call["messages"][0]["content"] for call in calls] == ["one", "two"]


async def test_a_gate_holds_the_model_until_it_is_opened(
    gates: Gates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACP_BRIDGE_GATES", gates.path)
    tokens = Tokens()
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            model = scripted("turn\ntext: before\ngate: g\ntext: after")
            tasks.start_soon(model.complete, [ask("x")], [], tokens)
            await gates.reached("g")
            assert tokens.texts == ["before"]
            gates.open("g")
    assert tokens.texts == ["before", " after"]


async def test_without_a_gate_keeper_gates_are_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ACP_BRIDGE_GATES", raising=False)
    completion, _ = await say("turn\ngate: g\ntext: after", ask("x"))
    assert completion.text == "after"


async def test_a_deaf_reply_is_said_to_its_end_although_it_is_cancelled(
    gates: Gates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACP_BRIDGE_GATES", gates.path)
    tokens = Tokens()
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            model = scripted("turn\ndeaf\ngate: g\ntext: after")
            tasks.start_soon(model.complete, [ask("x")], [], tokens)
            await gates.reached("g")
            tasks.cancel_scope.cancel()
            gates.open("g")
    assert tokens.texts == ["after"]
