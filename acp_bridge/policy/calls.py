"""Reads from a tool call, as the agent has described it, what the rules are about. SANS-IO."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Iterator
from typing import Any, Final

from acp_bridge.policy.definitions import KINDS, Call, Tool
from acp_bridge.protocol import Json, as_object, objects
from acp_bridge.updates.tool_calls import commands_of, plain_name, tool_names

#: the members of an input under which agents name the file that is meant.
_FILES: Final = frozenset(
    {"absolutepath", "file", "filename", "filepath", "path", "notebookpath", "oldpath", "newpath"}
    | {"files", "filenames", "filepaths", "paths"}
)
#: those for the folder in which a command runs.
_FOLDERS: Final = frozenset({"cwd", "workdir", "workingdir", "workingdirectory", "directory"})
#: those for what a command gets beside its words.
_ODD: Final = frozenset(
    {"env", "environment", "environmentvariables", "envvars", "stdin", "input", "args", "arguments"}
)
#: how deep an input is looked into.
_DEPTH: Final = 20


def call_of(described: Json, kinds: Iterable[object] = ()) -> Call:
    """Return what is known of a tool call; `kinds` are all that its card has ever said to be."""
    name = mcp_name(described)
    raw = as_object(described.get("rawInput"))
    members = list(_members(raw))
    commands = tuple(_with_words(commands_of(described), members))
    folders, urls = _texts(members, _FOLDERS), _texts(members, {"url"})
    named = {each for each in (described.get("kind"), *kinds) if each is not None}
    said = {KINDS.get(each) if isinstance(each, str) else None for each in named}
    tool = next(iter(said)) if len(said) == 1 else None
    if name:
        said, tool = {Tool.MCP}, Tool.MCP
    elif commands:
        said |= {Tool.BASH}
        # Some agents call `cat x` a read; one that edits by a `command` of its own is no shell.
        tool = Tool.BASH if tool in (Tool.BASH, Tool.READ, Tool.SEARCH) else None
        if any(key in _ODD and value for key, value in members):
            tool = None
    if len(folders) > 1 or len(urls) > 1:
        tool = None
    return Call(
        tool,
        frozenset(each for each in said if each is not None),
        name,
        commands,
        tuple(_paths(described, members)),
        next(iter(urls), ""),
        next(iter(folders), ""),
    )


def _members(value: object, depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Give plain name and value of every member of an input, however it is nested."""
    if depth > _DEPTH:
        return
    for key, each in as_object(value).items():
        yield plain_name(key), each
        yield from _members(each, depth + 1)
    for each in value if isinstance(value, list) else ():
        yield from _members(each, depth + 1)


def _texts(members: Iterable[tuple[str, Any]], names: Collection[str]) -> list[str]:
    """Return each text under these names once, those in lists too."""
    named = [value for key, value in members if key in names]
    flat = [each for value in named for each in (value if isinstance(value, list) else [value])]
    return list(dict.fromkeys(each for each in flat if _is_text(each)))


def _with_words(commands: list[str], members: Iterable[tuple[str, Any]]) -> Iterator[str]:
    """Give each command, those of a list of `commands`, and each with the words beside it."""
    words = _texts(members, {"args", "arguments"})
    for each in dict.fromkeys([*commands, *_texts(members, {"commands"})]):
        yield each
        if words:
            yield f"{each} {shlex.join(words)}"


def mcp_name(described: Json) -> str:
    """Return the name of the MCP tool that a call is of; empty for one that is not known as one.

    claude-agent-acp: `_meta.claudeCode.toolName` is `mcp__server__tool`. Never the title, which can
    say anything.
    """
    return next((name for name in tool_names(described) if name.startswith("mcp__")), "")


def _paths(described: Json, members: Iterable[tuple[str, Any]]) -> list[str]:
    """Return every path that locations, diffs and input name."""
    found: list[Any] = [each.get("path") for each in objects(described.get("locations"))]
    found += [each.get("path") for each in objects(described.get("content"))]
    found += _texts(members, _FILES)
    return list(dict.fromkeys(each for each in found if _is_text(each)))


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value)
