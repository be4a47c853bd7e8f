"""The dialogues that other tests use, and the table that describes the format."""

import re
from pathlib import Path

import pytest

from agent.scripted import dialogue
from agent.scripted.dialogue import parse_dialogue, read_dialogue

FOLDER = Path(__file__).parents[3] / "fixtures" / "dialogues"


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.txt")), ids=lambda path: path.stem)
def test_every_dialogue_is_one(path: Path) -> None:
    assert read_dialogue(path).scenes


def test_the_readme_names_every_verb_and_no_other() -> None:
    table = re.findall(r"^\| (`.*?) \|", (FOLDER / "README.md").read_text(), re.MULTILINE)
    named = {name for row in table for name in re.findall(r"`([a-z]+|---)", row)}
    assert named == dialogue.VERBS


def test_the_readme_s_example_is_a_dialogue() -> None:
    text = (FOLDER / "README.md").read_text()
    example = "\n".join(re.findall(r"^    (.*)$", text, re.MULTILINE))
    said = parse_dialogue(example)
    assert [step.verb for step in said.reply(["a story"], 0)] == ["pace", "text", "gate", "text"]
    assert said.reply(["anything"], 0) == parse_dialogue("turn\necho").reply(["anything"], 0)
