"""The text format of dialogues."""

import pytest

from agent.scripted.dialogue import DialogueError, Step, demo_dialogue, parse_dialogue


def test_the_first_scene_whose_pattern_is_found_is_chosen() -> None:
    dialogue = parse_dialogue("when: sto+ry\ntext: A\nwhen: story\ntext: B\nturn\ntext: C")
    assert dialogue.reply(["a STORY, please"], 0) == (Step("text", "A"),)


def test_scenes_without_a_pattern_are_taken_in_turn_and_the_last_is_repeated() -> None:
    dialogue = parse_dialogue("turn\ntext: one\nwhen: x\ntext: X\nturn\ntext: two")
    said = [dialogue.reply(["a", "x", "b", "c"][:n], 0)[0].argument for n in (1, 2, 3, 4)]
    assert said == ["one", "X", "two", "two"]


def test_without_a_scene_for_it_the_prompt_is_echoed() -> None:
    assert parse_dialogue("when: x\ntext: X").reply(["hello"], 0) == (Step("text", "{user}"),)


def test_replies_of_a_scene_follow_each_other_within_a_turn() -> None:
    dialogue = parse_dialogue("turn\ncall: shell {}\n---\ntext: done")
    assert dialogue.reply(["a"], 0) == (Step("call", "shell {}"),)
    assert dialogue.reply(["a"], 1) == (Step("text", "done"),)
    assert dialogue.reply(["a"], 2) == ()


def test_repeat_is_for_the_next_line_only() -> None:
    reply = parse_dialogue("turn\nrepeat: 3\ntext: a\ntext: b").reply(["x"], 0)
    assert reply == (Step("text", "a", 3), Step("text", "b"))


def test_the_header_says_what_the_model_is() -> None:
    dialogue = parse_dialogue("# mine\nwindow: 4000\nimages\n\nturn\necho")
    assert (dialogue.window, dialogue.images) == (4000, True)
    assert dialogue.reply(["x"], 0) == (Step("text", "{user}"),)
    plain = parse_dialogue("turn\necho")
    assert (plain.window, plain.images) == (None, False)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("text: too early", 1),
        ("# a comment\n\nwhen: (", 3),
        ("turn\nsing: la", 2),
        ("turn\ndelay: soon", 2),
        ("turn\ntoken: 7", 2),
        ("turn\ntoken: nonsense", 2),
        ("turn\ncall: shell {", 2),
        ("turn\nstop: here", 2),
        ("turn\nrepeat: often", 2),
        ("window: large", 1),
        ("turn\nwindow: 9", 2),
        ("turn\nimages", 2),
    ],
)
def test_what_is_no_dialogue_is_refused_with_its_line(text: str, line: int) -> None:
    with pytest.raises(DialogueError, match=f"line {line}:"):
        parse_dialogue(text)


def test_the_demo_has_a_long_story_a_command_and_a_memory() -> None:
    dialogue = demo_dialogue()
    story = dialogue.reply(["Tell me a story"], 0)
    words = sum(len(step.argument.split()) for step in story if step.verb == "text")
    assert words >= 200
    assert Step("pace", "15") in story
    assert [s.verb for s in dialogue.reply(["list the files"], 0)][-1] == "call"
    assert "{result}" in dialogue.reply(["list the files"], 1)[-1].argument
    assert "{history}" in dialogue.reply(["My cat is Tom", "What did I tell you?"], 0)[-1].argument
