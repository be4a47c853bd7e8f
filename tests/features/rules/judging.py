"""Judges calls by rules that stand in a test."""

from pathlib import Path

from acp_bridge.features.rules import config, decide
from acp_bridge.features.rules.definitions import Call, Judgement, Place, Tool
from acp_bridge.features.rules.ruleset import Ruleset

#: nobody's folder: nothing is there, and nothing links away from it.
FOLDER = "/project"


def place(folder: Path | str = FOLDER, *protected: Path | str) -> Place:
    return Place(str(folder), tuple(str(each) for each in protected), home="/home/me")


def judged(text: str, call: Call, where: Place | None = None, agent: str = "") -> Judgement:
    """What the rules of a file with this text say of a call."""
    rules = config.parse(text, "permissions.toml")
    where = where or place()
    return decide.judge(Ruleset(decide.rules_for(rules, agent, where)), rules.default, call, where)


def of_command(text: str, command: str, where: Place | None = None) -> str:
    """The decision about a command."""
    return judged(text, decide.example(Tool.BASH, command), where).action.value


def of_path(text: str, tool: Tool, path: str, where: Place | None = None) -> str:
    """The decision about a tool that names a path."""
    return judged(text, decide.example(tool, path), where).action.value
