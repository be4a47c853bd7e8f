"""Reads from a tool call, as the agent has described it, what the rules are about. SANS-IO."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, Final

from acp_bridge.policy.definitions import KINDS, Call, Tool
from acp_bridge.protocol import Json, as_object, objects
from acp_bridge.updates.tool_calls import commands_of

#: the members of an input under which agents name the file that is meant.
_FILES: Final = frozenset(
    {"absolutepath", "file", "filename", "filepath", "path", "notebookpath", "oldpath", "newpath"}
)
#: those for the folder in which a command runs.
_FOLDERS: Final = frozenset({"cwd", "workdir", "workingdir", "workingdirectory", "directory"})
#: those for what a command gets beside its words.
_ODD: Final = frozenset({"env", "environment", "environmentvariables", "envvars", "stdin", "input"})


def call_of(described: Json, kinds: Iterable[object] = ()) -> Call:
    """Return what is known of a tool call; `kinds` are all that its card has ever said to be."""
    name = mcp_name(described)
    raw = as_object(described.get("rawInput"))
    commands = tuple(commands_of(described))
    named = {each for each in (described.get("kind"), *kinds) if each is not None}
    said = {KINDS.get(each) if isinstance(each, str) else None for each in named}
    tool = next(iter(said)) if len(said) == 1 else None
    if name:
        said, tool = {Tool.MCP}, Tool.MCP
    elif commands:
        said |= {Tool.BASH}
        # Some agents call `cat x` a read; one that edits by a `command` of its own is no shell.
        tool = Tool.BASH if tool in (Tool.BASH, Tool.READ, Tool.SEARCH) else None
        if _odd(raw):
            tool = None
    return Call(
        tool,
        frozenset(each for each in said if each is not None),
        name,
        commands,
        tuple(_paths(described, raw)),
        _first_text(raw, {"url"}),
        _first_text(raw, _FOLDERS),
    )


def _odd(raw: Json) -> bool:
    """Return True for an input that gives its command an environment or a text to read."""
    return any(_plain(key) in _ODD and value for key, value in raw.items())


def _first_text(raw: Json, names: Collection[str]) -> str:
    found = (value for key, value in raw.items() if _plain(key) in names and _is_text(value))
    return next(found, "")


def mcp_name(described: Json) -> str:
    """Return the name of the MCP tool that a call is of; empty for one that is not known as one.

    claude-agent-acp: `_meta.claudeCode.toolName` is `mcp__server__tool`; the built-in agent says it
    in the same way. Never the title, which can say anything.
    """
    for own in as_object(described.get("_meta")).values():
        name = as_object(own).get("toolName")
        if isinstance(name, str) and name.startswith("mcp__"):
            return name
    return ""


def _paths(described: Json, raw: Json) -> list[str]:
    """Return every path that locations, diffs and input name."""
    found: list[Any] = [each.get("path") for each in objects(described.get("locations"))]
    found += [each.get("path") for each in objects(described.get("content"))]
    found += [value for key, value in raw.items() if _plain(key) in _FILES]
    return list(dict.fromkeys(each for each in found if _is_text(each)))


def _plain(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value)
