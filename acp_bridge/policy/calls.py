"""Reads from a tool call, as the agent has described it, what the rules are about. SANS-IO."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Final
from urllib.parse import unquote

from acp_bridge.policy.definitions import KINDS, Call, Tool
from acp_bridge.protocol import BUILTIN_AGENT, Json, as_object, objects
from acp_bridge.updates.tool_calls import commands_of, plain_name

#: the members of an input under which agents name the file that is meant.
_FILES: Final = frozenset(
    {"absolutepath", "file", "filename", "filepath", "path", "notebookpath", "oldpath", "newpath"}
    | {"files", "filenames", "filepaths", "paths", "uri", "uris", "fileuri", "targetfile", "target"}
    | {"source", "src", "destination", "dest", "from", "to", "targetpath", "sourcepath"}
)
#: the files that a patch names.
_IN_PATCH: Final = re.compile(
    r"^\*\*\* (?:(?:Add|Update|Delete) File|Move to): (.+)$|^(?:---|\+\+\+) (?:[ab]/)?([^\t\n]+)",
    re.MULTILINE,
)
#: members that have one for each file, under its path; codex sends `changes` so.
_BY_PATH: Final = frozenset({"changes", "filechanges", "files", "edits"})
#: members for the folder in which a command runs.
_FOLDERS: Final = frozenset({"cwd", "workdir", "workingdir", "workingdirectory", "directory"})
#: members for an address.
_ADDRESSES: Final = frozenset({"url", "urls", "href", "link", "links", "address", "addresses"})
#: how many addresses of a call are compared; no rule allows a call with more.
_MOST_ADDRESSES: Final = 500
#: an address in a text.
_IN_TEXT: Final = re.compile(r"\b[a-zA-Z][a-zA-Z\d+.-]{0,20}:[/\\]{2}[^\s\"'`<>(),;!]+")
#: members for what a command gets beside its words; codex asks for more rights by the last two.
_ODD: Final = frozenset(
    {"env", "environment", "environmentvariables", "envvars", "stdin", "input", "args", "arguments"}
    | {"additionalpermissions", "permissions"}
)
#: members for what a command reads.
_READ: Final = frozenset({"stdin", "input"})
#: how many levels deep an input is looked into.
_DEPTH: Final = 20


def call_of(described: Json, kinds: Iterable[object] = ()) -> Call:
    """Return what is known of a tool call; `kinds`: each kind that it was ever said to be of."""
    name = mcp_name(described)
    raw = as_object(described.get("rawInput"))
    members = list(_members(raw))
    commands = tuple(_with_words(commands_of(described), members))
    folders, urls = _texts(members, _FOLDERS), _texts(members, _ADDRESSES)
    named = {each for each in (described.get("kind"), *kinds) if each is not None}
    said = {KINDS.get(each) if isinstance(each, str) else None for each in named}
    tool = next(iter(said)) if len(said) == 1 else None
    if name is not None:
        said, tool = {Tool.MCP}, Tool.MCP
    elif commands:
        said |= {Tool.BASH}
        # Some agents call `cat x` a read; one that edits by a `command` of its own is no shell.
        tool = Tool.BASH if tool in (Tool.BASH, Tool.READ, Tool.SEARCH) else None
        if any(key in _ODD and value for key, value in members):
            tool = None
    if len(folders) > 1 or len(urls) > 1 or (commands and urls) or any(map(_is_file, urls)):
        tool = None  # with an address it is not the command that is asked about, but its network
    title = "" if commands else _title(described)
    texts = list(_all_texts(raw)) if said & {Tool.BASH, Tool.FETCH} else []
    addresses = _addresses([*texts, title]) if Tool.FETCH in said else []
    if len(addresses) > _MOST_ADDRESSES:
        tool = None
    return Call(
        tool,
        frozenset(each for each in said if each is not None),
        name or "",
        commands,
        title=title if tool is Tool.BASH else "",
        tool_title=title if tool is None else "",
        texts=tuple(_texts(members, _READ) if commands else texts) if Tool.BASH in said else (),
        paths=tuple(_paths(described, members)),
        url=next(iter(urls), ""),
        addresses=tuple(addresses[:_MOST_ADDRESSES]),
        cwd=next(iter(folders), ""),
    )


def _addresses(texts: Iterable[str]) -> list[str]:
    """Return every address in these texts once."""
    return list(dict.fromkeys(found for each in texts for found in _IN_TEXT.findall(each)))


def _all_texts(value: object, depth: int = 0) -> Iterator[str]:
    """Give every text of an input, those of a list of words as one."""
    if isinstance(value, str) and value:
        yield value
    elif isinstance(value, list) and value and all(isinstance(each, str) for each in value):
        yield " ".join(value)
    elif isinstance(value, dict | list) and depth < _DEPTH:
        for each in value.values() if isinstance(value, dict) else value:
            yield from _all_texts(each, depth + 1)


def _title(described: Json) -> str:
    """Return the title of a call: gemini-cli has the command there, and nowhere else."""
    title = described.get("title")
    return title if isinstance(title, str) else ""


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
    """Return each text that a member of one of these names has, alone or in a list, once."""
    named = [value for key, value in members if key in names]
    flat = [each for value in named for each in (value if isinstance(value, list) else [value])]
    return list(dict.fromkeys(each for each in flat if _is_text(each)))


def _with_words(commands: list[str], members: Iterable[tuple[str, Any]]) -> Iterator[str]:
    """Give each command, also of a member `commands`, alone and with the arguments beside it."""
    words = _texts(members, {"args", "arguments"})
    for each in dict.fromkeys([*commands, *_texts(members, {"commands"})]):
        yield each
        if words:
            yield f"{each} {shlex.join(words)}"


def mcp_name(described: Json) -> str | None:
    """Return the name of the MCP tool that a call is of, None if it is not known to be of any.

    Empty: it is of an MCP tool whose name is not known. Each agent tells the name in its own way;
    it is never taken from a title, which can say anything.
    """
    meta, raw = as_object(described.get("_meta")), as_object(described.get("rawInput"))
    for read in _MCP_OF_AGENTS.values():
        if (name := read(meta, raw)) is not None:
            return name
    # Agents of version 2 tell the name of the tool in the call itself.
    tool = described.get("name")
    return tool if isinstance(tool, str) and tool.startswith("mcp__") else None


def _by_tool_name(key: str) -> Callable[[Json, Json], str | None]:
    """Return a function that reads an MCP tool's whole name from the member `key` of `_meta`."""

    def read(meta: Json, raw: Json) -> str | None:
        name = as_object(meta.get(key)).get("toolName")
        return name if isinstance(name, str) and name.startswith("mcp__") else None

    return read


def _of_codex(meta: Json, raw: Json) -> str | None:
    if meta.get("is_mcp_tool_call") is not True and set(raw) != {"server", "tool", "arguments"}:
        return None
    server, tool = raw.get("server"), raw.get("tool")
    known = isinstance(server, str) and isinstance(tool, str) and server and tool
    return f"mcp__{server}__{tool}" if known else ""


#: how agents tell of a call that it is of an MCP tool; tests/policy/mcp_calls.json has examples.
_MCP_OF_AGENTS: Final[Mapping[str, Callable[[Json, Json], str | None]]] = {
    "claude-agent-acp": _by_tool_name("claudeCode"),
    "codex-acp": _of_codex,
    "the built-in agent": _by_tool_name(BUILTIN_AGENT),
}


def _paths(described: Json, members: Iterable[tuple[str, Any]]) -> list[str]:
    """Return every path that locations, diffs and input name."""
    found: list[Any] = [each.get("path") for each in objects(described.get("locations"))]
    found += [each.get("path") for each in objects(described.get("content"))]
    found += _texts(members, _FILES)
    found += filter(_is_file, _texts(members, _ADDRESSES))
    for key, value in members:
        if key in _BY_PATH and isinstance(value, dict):
            found += value
        if key in ("patch", "input", "diff", "unifieddiff") and isinstance(value, str):
            named = [one or other for one, other in _IN_PATCH.findall(value)]
            found += [each for each in named if each != "/dev/null"]
    return list(dict.fromkeys(_without_scheme(each) for each in found if _is_text(each)))


def _is_file(address: str) -> bool:
    return address[:5].lower() == "file:"


def _without_scheme(path: str) -> str:
    """Return the path of a `file:` address; any other as it is."""
    scheme, _, rest = path.partition("://")
    return unquote("/" + rest.partition("/")[2]) if scheme.lower() == "file" else path


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value)
