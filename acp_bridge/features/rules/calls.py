"""Reads from a tool call, as the agent has described it, what the rules are about. SANS-IO.

What an agent says under a name that is not known here makes a call one that no rule allows: beside
a command any such member does, elsewhere its text counts as a path.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterable, Iterator
from itertools import islice, product
from typing import Any, Final
from urllib.parse import unquote

from acp_bridge.core.protocol import Json, as_object, objects
from acp_bridge.core.updates.tool_calls import (
    COMMANDS,
    EMPTY,
    KNOWN,
    TEXTS,
    commands_of,
    plain_name,
    tool_names,
)
from acp_bridge.features.rules.definitions import KINDS, PATHS, Call, Tool

#: members that say something about a call, and not what it does, in each agent's words;
#: tests/features/rules/recorded_calls.json has their calls.
_ABOUT: Final = frozenset(
    {"description", "explanation", "justification", "reason", "summary", "title", "securityrisk"}
    | {"timeout", "timeoutms", "timeoutsecs", "timeoutseconds", "yieldtimems", "maxoutputtokens"}
    | {"background", "isbackground", "runinbackground", "reset", "startedatms"}
    | {"callid", "approvalid", "turnid", "toolcallid"}
)
#: what codex makes of a command for itself: nothing in it is looked at, but for commands.
_OF_CODEX: Final = frozenset({"parsedcmd", "proposedexecpolicyamendment", "availabledecisions"})
#: members that change nothing while they are false.
_OFF: Final = frozenset({"dangerouslydisablesandbox", "isinput"})
#: members of tools for files whose texts name none that the tool reads or writes.
_NO_FILE: Final = frozenset(
    {"celltype", "cellid", "editmode", "encoding", "mode", "outputmode", "type"}
    | {"exclude", "excludes", "ignore"}
)
#: the texts of a change.
_CONTENTS: Final = TEXTS | {"newsource", "codeedit", "instruction", "instructions"}
#: members for what a search looks for: a text, or a pattern of names.
_SOUGHT: Final = frozenset({"pattern", "query", "regex", "regexp"})
#: members of a search whose names and patterns are below the folder that it names.
_BELOW: Final = _SOUGHT | {"glob", "globs", "include", "includes"}
#: members for a patch, which need not name the file.
_PATCHES: Final = frozenset({"patch", "diff", "unifieddiff"})
#: the files that a patch names.
_IN_PATCH: Final = re.compile(
    r"^[ \t]*\*\*\* (?:(?:Add|Update|Delete) File|Move to): (.+)$"
    r"|^(?:---|\+\+\+) (?:[abciow]/)?([^\t\n]+)|^(?:rename|copy) (?:from|to) (.+)$"
    r"|^Index: (.+)$|^\*\*\* (?!Begin Patch|End |\w+ File: |Move to: |\d+[, ])([^\t\n]+)"
    r"|^diff --(?:git|cc|combined) (?:[abciow]/)?(\S+)(?: (?:[abciow]/)?(\S+))?",
    re.MULTILINE,
)
#: members that have one for each file, under its path; codex sends `changes` so.
_BY_PATH: Final = frozenset({"changes", "filechanges", "files", "edits"})
#: names of members for a file, in calls that need not be about any.
_OF_FILE: Final = re.compile(r"path|file|folder|uri|source|target|dest|^(?:src|from|to)$")
#: a text without blanks and the signs of regular expressions, which a path or a pattern may be.
_PLAIN: Final = re.compile(r"[^\s\\^$()|+<>\"'`]+")
#: what a search is for may be a path or a pattern of names, also with blanks in it.
_SOUGHT_PATH: Final = re.compile(r"(?:/|~|\.\.).*|[^\\^$()|+<>\"'`]+")
#: members for the folder that is searched.
_ROOTS: Final = re.compile(r"paths?$|dir|folder|root")
_LIKE_A_PATH: Final = re.compile(r"[/*?\[{]|^[.~]")
#: what may lead a pattern of names out of its folder.
_OUT: Final = re.compile(r"\.\.|[{,][/~]")
#: members for the folder in which a command runs.
_FOLDERS: Final = frozenset(
    {"cwd", "workdir", "workingdir", "workingdirectory", "directory", "dirpath"}
)
#: members for an address.
_ADDRESSES: Final = frozenset({"url", "urls", "href", "link", "links", "address", "addresses"})
#: how many addresses, and patterns of names, of a call are compared; no rule allows one with more.
_MOST: Final = 500
#: the most characters of a pattern of names.
_LONGEST: Final = 1000
#: an address in a text.
_IN_TEXT: Final = re.compile(r"\b[a-zA-Z][a-zA-Z\d+.-]{0,20}:[/\\]{2}[^\s\"'`<>(),;!]+")
#: members for the words of a command, and a program that needs no quotes.
_WORDS: Final = frozenset({"args", "arguments"})
_PROGRAM: Final = re.compile(r"[\w@%+:,./-]+")
#: members for what a command reads.
_READ: Final = frozenset({"stdin", "input"})
#: how many levels deep an input is looked into.
_DEPTH: Final = 20
#: stands for what is deeper.
_TOO_DEEP: Final = ("", "\n")
#: braces with words between which a search chooses, such as `{py,pyi}`.
_BRACES: Final = re.compile(r"\{([^{}]*)\}")
#: what other shells and libraries take for a choice.
_ROUND: Final = re.compile(r"[@!?*+]?\([^)]*\)?")
#: how many patterns one with braces stands for at most; beyond, each brace may be anything.
_MOST_CHOICES: Final = 64
_NOT_KNOWN: Final = "the agent says more of it than is known to be harmless"


def call_of(described: Json, kinds: Iterable[object] = ()) -> Call:
    """Return what is known of a tool call; `kinds`: each kind that it was ever said to be of."""
    given = _given(described)
    members = list(_members(given))
    lines, understood = _lines(commands_of({"rawInput": given}), members)
    names, agree = _mcp_names(described)
    kinds = {described.get("kind"), *kinds} - {None}
    said, tool = _tools(kinds, bool(lines))
    if names is not None:
        said = {Tool.MCP} if agree else {*said, Tool.MCP}
        tool = Tool.MCP if agree else None
    files = _Files(members if names is None else (), said, edits=kinds == {"edit"})
    folders, urls = _texts(members, _FOLDERS), _texts(members, _ADDRESSES)
    odd = len(folders) > 1 or len(urls) > 1 or any(map(_is_file, urls))
    if tool is Tool.BASH and lines:  # with an address it is its network that is asked about
        odd = odd or bool(urls) or not understood or any(map(_is_diff, _content(described)))
    odd = odd or (tool in PATHS and files.unclear)
    title = "" if lines else _title(described)
    texts = list(_all_texts(given)) if said & {Tool.BASH, Tool.FETCH} else []
    addresses = _addresses([*texts, title]) if Tool.FETCH in said else []
    tool = None if odd or len(addresses) > _MOST else tool
    shown = [*objects(described.get("locations")), *_content(described)]
    at = [_without_scheme(path) for each in shown if isinstance(path := each.get("path"), str)]
    return Call(
        tool,
        frozenset(each for each in said if each is not None),
        _NOT_KNOWN if odd else "",
        tuple(names or ()),
        lines,
        title=title if tool is Tool.BASH else "",
        tool_title=title if tool is None else "",
        texts=tuple(_texts(members, _READ) if lines else texts) if Tool.BASH in said else (),
        paths=_also_stripped([*at, *files.paths]),
        globs=tuple(files.globs),
        url=next(iter(urls), ""),
        addresses=tuple(addresses[:_MOST]),
        cwd=next(iter(folders), ""),
    )


def _tools(kinds: set[object], runs: bool) -> tuple[set[Tool | None], Tool | None]:
    """Return every tool that a call may be of, and the one that a rule may allow; None: none.

    `kinds`: what the call was said to be; `runs`: it names a command. Some agents call `cat x` a
    read; one that edits by a `command` of its own is no shell.
    """
    said = {KINDS.get(each) if isinstance(each, str) else None for each in kinds}
    tool = next(iter(said)) if len(said) == 1 else None
    if not runs:
        return said, tool
    return {*said, Tool.BASH}, Tool.BASH if tool in (Tool.BASH, Tool.READ, Tool.SEARCH) else None


def _given(described: Json) -> list[Json]:
    """Return a call's input, and what it says beside in members that ACP does not know."""
    raw = described.get("rawInput")
    beside = {key: described[key] for key in described.keys() - {*KNOWN, "name"}}
    return [raw if isinstance(raw, dict) else {} if raw in EMPTY else {"input": raw}, beside]


def _is_diff(content: Json) -> bool:
    return content.get("type") == "diff"


def _content(described: Json) -> list[Json]:
    return objects(described.get("content"))


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
    """Give plain name and value of every member of an input, however it is nested.

    What a list has is without a name, if it has members itself.
    """
    if depth > _DEPTH:
        yield _TOO_DEEP
        return
    for key, each in as_object(value).items():
        yield plain_name(key), each
        if plain_name(key) not in _OF_CODEX and isinstance(each, dict | list):
            yield from _members(each, depth + 1)
    for each in value if isinstance(value, list) else ():
        if isinstance(each, dict | list):
            yield "", each
            yield from _members(each, depth + 1)


def _texts(members: Iterable[tuple[str, Any]], names: Collection[str]) -> list[str]:
    """Return each text that a member of one of these names has, alone or in a list, once."""
    named = (value for key, value in members if key in names)
    return list(dict.fromkeys(text for value in named for text in _flat(value)))


def _lines(commands: list[str], members: list[tuple[str, Any]]) -> tuple[tuple[str, ...], bool]:
    """Return the command lines of a call, and True if all that it says of them is understood.

    A program with a list of words beside it is one line, in both readings of that: the words as
    they are, and joined for a shell.
    """
    commands = list(dict.fromkeys([*commands, *_texts(members, {"commands"})]))
    given = [value for key, value in members if key in _WORDS and value not in EMPTY]
    known = all(_is_known_beside(key, value) for key, value in members if key not in _WORDS)
    if not given:
        return tuple(commands), known
    words = _texts(members, _WORDS)
    known = known and len(given) == 1 and _is_list(given[0])
    if known and len(commands) == 1 and _PROGRAM.fullmatch(commands[0]):
        words = given[0]
        return tuple(
            dict.fromkeys((shlex.join([*commands, *words]), " ".join([*commands, *words])))
        ), True
    both = ((each, *([f"{each} {shlex.join(words)}"] if words else [])) for each in commands)
    return tuple(line for lines in both for line in lines), False


def _is_known_beside(key: str, value: object) -> bool:
    """Return True for a member beside a command, or a command itself, that is understood."""
    if value in EMPTY or (not key and isinstance(value, dict)):
        return True
    if key in COMMANDS:
        return isinstance(value, str) or _is_list(value)
    if key in _FOLDERS:
        return isinstance(value, str)
    return key in _ABOUT or key in _OF_CODEX or (key in _OFF and value is False)


def _is_list(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def _mcp_names(described: Json) -> tuple[list[str] | None, bool]:
    """Return the names of the MCP tool that a call is of, None if it is not known to be of any.

    None of them: of a tool whose name is not known. The second value is True if all that names the
    call's tool agrees. Agents tell it in `_meta`, those of version 2 in the call itself; it is
    never taken from a title, which can say anything.
    """
    meta, raw = as_object(described.get("_meta")), as_object(described.get("rawInput"))
    own = described.get("name")
    told = [*tool_names(described), *([own] if isinstance(own, str) and own else [])]
    found = [each for each in told if each.startswith("mcp__")]
    if meta.get("is_mcp_tool_call") is True or set(raw) == {"server", "tool", "arguments"}:
        server, tool = raw.get("server"), raw.get("tool")
        known = isinstance(server, str) and isinstance(tool, str) and server and tool
        found.append(f"mcp__{server}__{tool}" if known else "")
    if not found:
        return None, True
    whole = found[0]
    ends = [(f"__{each}", f"__{each.replace('.', '__')}") for each in told]  # `mcp.server.tool`
    agree = len(set(found)) == 1 and all(f"__{whole}".endswith(each) for each in ends)
    return list(dict.fromkeys(filter(None, found))), agree


class _Files:
    """The files that the texts of an input may name, told by the form of each."""

    def __init__(
        self, members: Iterable[tuple[str, Any]], said: Collection[Tool | None], *, edits: bool
    ) -> None:
        """`members`: those of the input; `said`: every tool that the call may be of.

        `edits`: it may have the texts of a change.
        """
        self.paths: list[str] = []
        #: patterns of names, as they are given.
        self.globs: list[str] = []
        #: True if a text in it may be of files and it is not known of which.
        self.unclear = False
        self._about_files = not set(PATHS).isdisjoint(said)
        self._left = _ABOUT | _OF_CODEX | _NO_FILE | COMMANDS
        self._left = self._left | _CONTENTS if edits else self._left
        self._searches = Tool.EDIT not in said
        self._roots: list[str] = []
        self._below: list[str] = []
        for key, value in members:
            if isinstance(value, dict):
                keys = (name for name in value if key in _BY_PATH or re.search(r"[/.~*]", name))
                self.paths += keys
            for text in () if key in self._left else _flat(value):
                self._take(key, text)
        self._join()
        self.paths = [_without_scheme(each) for each in self.paths]

    def _take(self, key: str, text: str) -> None:
        if "\n" in text:
            found = [each.strip() for one in _IN_PATCH.findall(text) for each in one if each]
            named = [each for each in found if each != "/dev/null"]
            self.paths += named
            self.unclear |= any(each.startswith('"') for each in named)
            self.unclear |= not found and key not in _PATCHES
            return
        if (key in _SOUGHT or not self._about_files) and not _OF_FILE.search(key):
            plain = _SOUGHT_PATH if key in _SOUGHT else _PLAIN
            looks = plain.fullmatch(text) and _LIKE_A_PATH.search(text)
            if not looks or ("://" in text and not _is_file(text)):
                return
        if key in _BELOW and text.startswith("!"):
            return  # all but these
        if is_glob(text) or (key in _BELOW and "\\" in text):
            self.globs.append(text)
        if _ROOTS.search(key):
            self._roots.append(text)
        (self._below if key in _BELOW and self._searches else self.paths).append(text)

    def _join(self) -> None:
        """Put patterns of names below the folders that are searched, if the input names any."""
        if len(self._below) * max(1, len(self._roots)) > _MOST or len(self.globs) > _MOST:
            self.paths, self.unclear = [*self.paths, *self._below], True
            self.globs = self.globs[:_MOST]
            return
        for text in self._below:
            inside = self._roots and not text.startswith(("/", "~"))
            self.paths += [f"{each}/{text}" for each in self._roots] if inside else [text]
        self.unclear |= any(_OUT.search(each) or len(each) > _LONGEST for each in self.globs)


def _flat(value: object, depth: int = 0) -> Iterator[str]:
    """Give each text of a value that is one, or of lists in it."""
    if isinstance(value, str) and value:
        yield value
    for each in value if isinstance(value, list) else ():
        yield from _flat(each, depth + 1) if depth < _DEPTH else _TOO_DEEP[1:]


def _also_stripped(paths: Iterable[str]) -> tuple[str, ...]:
    """Return each path once, also without the blanks at its ends, which some agents take away."""
    found = (path for each in paths for path in (each, each.strip()))
    return tuple(filter(None, dict.fromkeys(found)))


def _is_file(address: str) -> bool:
    return address[:5].lower() == "file:"


def _without_scheme(path: str) -> str:
    """Return the path of a `file:` address; any other as it is."""
    found = re.fullmatch(r"file:(?://[^/]*)?(/.*)", path, re.IGNORECASE | re.DOTALL)
    return unquote(found[1]) if found else path


# --- patterns of names ---------------------------------------------------------------------------


def is_glob(text: str) -> bool:
    """Return True for a text that may stand for the names of several files."""
    return re.search(r"[*?\[{(]", text) is not None


def choices(text: str) -> list[str]:
    """Return each pattern without braces that one with braces stands for."""
    pieces = _BRACES.split(_ROUND.sub("*", text))
    found = map(
        "".join, product(*(each.split(",") if at % 2 else [each] for at, each in enumerate(pieces)))
    )
    known = list(islice(found, _MOST_CHOICES + 1))
    if len(known) > _MOST_CHOICES or any("{" in each for each in known):
        return [re.sub(r"[{}].*[{}]", "*", text)]
    return known
