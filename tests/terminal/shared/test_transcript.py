"""Updates become blocks: which are finished when, and what the tail is."""

from typing import Any

from acp_bridge.core.updates.notices import notice
from acp_bridge.terminal.view.blocks import (
    Block,
    Card,
    Content,
    Diff,
    Extent,
    Line,
    Paragraph,
    Plan,
    Step,
    Voice,
)
from acp_bridge.terminal.view.transcript import Transcript


class Told(Transcript):
    """A transcript that is told what an agent does."""

    def update(self, _kind: str, **fields: Any) -> None:
        self.add_update({"update": {"sessionUpdate": _kind, **fields}})

    def say(self, text: Any, **fields: Any) -> None:  # type: ignore[override]
        self.update("agent_message_chunk", content={"type": "text", "text": text}, **fields)

    def tool(self, call_id: str, **fields: Any) -> None:
        self.update("tool_call", toolCallId=call_id, **fields)

    def tool_update(self, call_id: str, **fields: Any) -> None:
        self.update("tool_call_update", toolCallId=call_id, **fields)


def texts(blocks: list[Block]) -> list[str]:
    return [block.text.strip() for block in blocks if isinstance(block, Paragraph | Line)]


def cards(blocks: list[Block]) -> list[tuple[str, str]]:
    return [(block.title, block.status) for block in blocks if isinstance(block, Card)]


def test_finished_paragraphs_come_once_and_the_unfinished_one_is_the_tail() -> None:
    told = Told()
    told.say("one\n\ntw")
    assert texts(told.take_finished()) == ["one"]
    assert texts(told.tail()) == ["tw"]
    told.say("o")
    assert told.take_finished() == []
    assert texts(told.tail()) == ["two"]
    told.end_turn()
    assert texts(told.take_finished()) == ["two"]
    assert told.tail() == []


def test_only_the_first_paragraph_of_a_message_is_marked_as_such() -> None:
    told = Told()
    told.say("a\n\nb\n\nc")
    told.end_turn()
    firsts = [block.first for block in told.take_finished() if isinstance(block, Paragraph)]
    assert firsts == [True, False, False]


def test_prompts_in_a_row_are_messages_and_a_link_stands_within_one() -> None:
    told = Told()
    link = {"type": "resource_link", "uri": "file:///a", "name": "a"}
    for content in ("failed", "look at ", link, " again"):
        text = {"type": "text", "text": content} if isinstance(content, str) else content
        told.update("user_message_chunk", content=text)
    told.end_turn()
    shown = told.take_finished()
    assert len(shown) == 2
    assert texts(shown)[0] == "failed"
    assert texts(shown)[1].startswith("look at ")


def test_thoughts_notices_and_messages_are_told_apart() -> None:
    told = Told()
    told.update("agent_thought_chunk", content={"type": "text", "text": "hm"})
    told.say("ah")
    told.add_update(notice("[acp-bridge] Going on."))
    told.update("user_message_chunk", content={"type": "text", "text": "and?"})
    told.end_turn()
    voices = [block.voice for block in told.take_finished() if isinstance(block, Paragraph)]
    assert voices == [Voice.THOUGHT, Voice.AGENT, Voice.BRIDGE, Voice.USER]


def test_a_card_is_finished_when_its_call_has_ended_and_what_follows_waits_for_it() -> None:
    told = Told()
    told.tool("1", title="ls", status="in_progress")
    told.say("meanwhile\n\nmore")
    assert told.take_finished() == []
    assert cards(told.tail()) == [("ls", "in_progress")]
    told.tool_update("1", status="completed")
    finished = told.take_finished()
    assert cards(finished) == [("ls", "completed")]
    assert texts(finished) == ["meanwhile"]
    assert texts(told.tail()) == ["more"]


def test_a_card_that_holds_up_too_much_is_let_go_and_its_end_is_a_card_of_its_own() -> None:
    told = Told()
    told.tool("1", title="serve", status="in_progress")
    told.say("".join(f"{number}\n\n" for number in range(100)))
    finished = told.take_finished()
    assert cards(finished) == [("serve", "in_progress")]
    assert len(told.tail()) <= 31
    told.tool_update("1", status="completed")
    told.end_turn()
    assert cards(told.take_finished()) == [("serve", "completed")]


def test_an_update_without_a_change_of_a_finished_card_shows_nothing() -> None:
    told = Told()
    told.tool("1", title="ls", status="completed")
    told.take_finished()
    told.tool_update("1", status="completed")
    told.end_turn()
    assert told.take_finished() == []


def test_a_card_has_the_places_the_diff_and_the_output_of_its_call() -> None:
    told = Told()
    told.tool(
        "1",
        title="edit",
        kind="edit",
        status="completed",
        locations=[{"path": "/a.py", "line": 3}, {"path": "/b.py"}],
        content=[
            {"type": "diff", "path": "/a.py", "oldText": "a", "newText": "b"},
            {"type": "content", "content": {"type": "text", "text": "done"}},
            {"type": "terminal", "terminalId": "t"},
        ],
    )
    (card,) = told.take_finished()
    assert card == Card(
        title="edit",
        kind="edit",
        status="completed",
        locations=("/a.py:3", "/b.py"),
        content=(Diff("/a.py", "a", "b"), Content("text", "done")),
    )


def test_what_is_asked_is_shown_whole_at_once_and_its_content_not_again() -> None:
    told = Told()
    diff = {"type": "diff", "path": "a", "oldText": None, "newText": "x"}
    told.tool("1", title="write a", status="pending", rawInput={"path": "a"})
    told.tool("2", title="other", status="in_progress")
    assert told.ask({"toolCallId": "1", "content": [diff], "rawInput": {"why": "it"}}) == "write a"
    finished = [block for block in told.take_finished() if isinstance(block, Card)]
    assert [(card.title, card.extent) for card in finished] == [
        ("other", Extent.SHORT),
        ("write a", Extent.ASKED),
    ]
    assert finished[1].content == (Content("text", "why: it"), Diff("a", None, "x"))
    told.tool_update("1", status="completed", content=[diff])
    (after,) = told.take_finished()
    assert isinstance(after, Card)
    assert (after.status, after.content) == ("completed", ())


def test_what_is_asked_says_its_input_unless_the_title_or_a_diff_does() -> None:
    told = Told()
    told.ask({"title": "run it", "rawInput": {"command": "it", "why": "it", "more": {"a": [1]}}})
    told.ask({"title": "`ls -l`", "toolCallId": "2", "rawInput": {"command": "ls -l"}})
    first, second = told.take_finished()
    assert isinstance(first, Card)
    assert isinstance(second, Card)
    assert first.content == (Content("text", 'command: it\nwhy: it\nmore: {"a": [1]}'),)
    assert second.content == ()


def test_the_plan_is_in_the_tail_until_its_turn_ends() -> None:
    told = Told()
    told.update("plan", entries=[{"content": "a", "status": "pending"}])
    told.update("plan", entries=[{"content": "a", "status": "completed"}, {"content": "b"}])
    told.say("x\n\n")
    plan = Plan(((Step.COMPLETED, "a"), (Step.PENDING, "b")))
    assert told.tail()[-1] == plan
    told.end_turn()
    assert told.take_finished()[-1] == plan
    assert told.tail() == []


def test_the_words_of_another_client_end_what_stood_before() -> None:
    told = Told()
    told.tool("1", title="ls", status="in_progress")
    told.update("user_message_chunk", content={"type": "text", "text": "next"})
    assert cards(told.take_finished()) == [("ls", "in_progress")]


def test_whatever_shape_an_update_has_nothing_breaks() -> None:
    told = Told()
    odd: Any
    for odd in (None, 1, "x", [], {}, {"update": None}, {"update": {"sessionUpdate": []}}):
        told.add_update(odd if isinstance(odd, dict) else {"update": odd})
    told.say(None)
    told.say(7)
    told.update("agent_message_chunk", content="text")
    told.tool("1", title=7, status={}, content=[7, {"type": "diff"}, {}], locations="x")
    told.tool_update("1", locations=[{}, {"path": 7}, 5], rawOutput={"a": 1}, rawInput=[1])
    told.update("plan", entries=[7, {"content": None, "status": 4}])
    told.ask({})
    told.end_turn()
    told.take_finished()


def test_escape_sequences_in_a_message_are_shown() -> None:
    told = Told()
    bad = "\x1b]0;owned\x07\x1b[2J\u202e\x9b31m"
    told.say(bad)
    told.begin_turn([{"type": "text", "text": bad}])
    told.end_turn()
    shown = "".join(texts(told.take_finished()))
    assert shown.count("owned") == 2
    assert not set(shown) & {"\x1b", "\x07", "\u202e", "\x9b"}
