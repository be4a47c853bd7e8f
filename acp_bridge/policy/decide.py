"""Judges a call by the rules.

- Deny, then ask, then allow: the strictest rule that matches counts, and the order in a file does
  not. Nothing is allowed that was not understood (invariant A1).
- An allow needs every command of a line, every path and every file that it writes to match one.
"""

from __future__ import annotations

import glob
import os
import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from urllib.parse import urlsplit

from acp_bridge.policy import paths, shell, wrappers
from acp_bridge.policy.definitions import (
    PATHS,
    Action,
    Call,
    Check,
    Judgement,
    Place,
    Rule,
    Rules,
    Tool,
)

#: files that a word with a `*` may stand for; one that stands for more is asked about.
_MOST_FILES = 1000
#: names of folders below which nobody's rule lets an agent write.
_GUARDED = frozenset({".acp_bridge", ".git"})


def rules_for(rules: Rules, agent: str, place: Place) -> tuple[Rule, ...]:
    """Return the rules that hold for an agent of this name in a session's folder."""
    found = list(rules.rules)
    folder = os.path.realpath(place.cwd)
    for only in rules.only:
        named = not only.agent or only.agent == agent
        if named and (not only.folder or paths.matches(only.folder, folder, place)):
            found.extend(only.rules)
    return tuple(found)


def judge(rules: Sequence[Rule], default: Action, call: Call, place: Place) -> Judgement:
    """Return what the rules say of a call."""
    place = replace(place, real=os.path.realpath(place.cwd))
    lines = [shell.line(each, moved=_moved(call, place)) for each in call.commands]
    judged = _Judged(rules, call, lines, place)
    if deny := judged.first(Action.DENY):
        return Judgement(deny=deny)
    ask = judged.first(Action.ASK)
    if where := judged.protected():
        return Judgement(ask=ask, why=f"it may write to {where}", protected=True)
    if ask:
        return Judgement(ask=ask)
    if unknown := judged.unknown(Action.DENY) or judged.unknown(Action.ASK):
        return Judgement(ask=unknown, why="it is not known which file it means")
    allowed, why = judged.allowed()
    return Judgement(allowed=allowed, why=why, default=default)


def _moved(call: Call, place: Place) -> bool:
    """Return True if the commands of a call run in another folder than the session's."""
    return bool(call.cwd) and paths.resolved(call.cwd, place) != place.real


def failed_checks(rules: Rules, place: Place) -> list[str]:
    """Return a sentence for each example of a file that is not decided as it says."""
    wrong = []
    for check in rules.checks:
        now = judge(rules.rules, rules.default, _call(check), place).action
        if now is not check.decision:
            shown = check.bash or check.edit or check.read
            wrong.append(f"line {check.line}: {shown!r} is decided {now}, not {check.decision}")
    return wrong


def _call(check: Check) -> Call:
    if check.bash:
        return example(Tool.BASH, check.bash)
    return example(Tool.EDIT if check.edit else Tool.READ, check.edit or check.read)


def example(tool: Tool, text: str) -> Call:
    """Return a call of a tool with this command, or with this path."""
    if tool is Tool.BASH:
        return Call(tool, frozenset({tool}), commands=(text,))
    return Call(tool, frozenset({tool}), paths=(text,))


class _Judged:
    """One call, and the rules that may name it."""

    def __init__(
        self, rules: Sequence[Rule], call: Call, lines: Sequence[shell.Line], place: Place
    ) -> None:
        self._rules = rules
        self._call = call
        self._lines = lines
        self._place = place
        self._read: dict[str, tuple[str, ...]] = {}
        self._commands = [command for line in lines for command in line.commands]
        self._redirects = [each for line in lines for each in line.redirects]
        self._raw = [each.raw for each in lines if not each.parsed]
        self._named: dict[Tool, list[str]] = {}
        self._words = [self._files(each) for each in self._commands]

    # --- deny and ask ----------------------------------------------------------------------

    def first(self, action: Action) -> Rule | None:
        """Return a rule of a list that names the call, or anything of it."""
        return next((rule for rule in self._of(action) if self._names(rule)), None)

    def unknown(self, action: Action) -> Rule | None:
        """Return a rule about paths of which it can't be told whether a command names them."""
        of_paths = [rule for rule in self._of(action) if rule.tool in PATHS and rule.pattern]
        unclear = any(each is None for each in self._words) or any(
            each.moved and not os.path.isabs(each.path) for each in self._redirects
        )
        return of_paths[0] if of_paths and unclear else None

    def _of(self, *actions: Action) -> Iterable[Rule]:
        return (rule for rule in self._rules if rule.action in actions)

    def _names(self, rule: Rule) -> bool:
        call = self._call
        if rule.tool is Tool.MCP or call.tool is Tool.MCP:
            return rule.tool is call.tool and _is_named(rule.pattern, call.name)
        if rule.tool is Tool.BASH:
            return self._runs(rule)
        if rule.tool is Tool.FETCH:
            return Tool.FETCH in call.said and _is_from(rule, call.url, below=True)
        return (rule.tool in call.said and not rule.pattern) or any(
            paths.matches(rule.pattern, each, self._place) for each in self._paths(rule.tool)
        )

    def _runs(self, rule: Rule) -> bool:
        if not rule.pattern:
            return Tool.BASH in self._call.said
        if any(_may_be(rule.pattern, each.words) for each in self._commands):
            return True
        return any(
            _may_be(rule.pattern, words, at) for words in self._raw for at in range(len(words))
        )

    def _paths(self, tool: Tool) -> list[str]:
        """Return the paths of the call for a rule about this tool, in all their readings."""
        if tool in self._named:
            return self._named[tool]
        mine = tool in self._call.said or self._call.tool in (Tool.BASH, None)
        found = list(self._call.paths) if mine else []
        if tool is not Tool.SEARCH:
            wanted = tool is Tool.EDIT
            found += [each.path for each in self._redirects if each.writes or not wanted]
            found += [path for each in self._words for path in each or ()]
            found += [word for words in self._raw for word in words]
        readings = [each for path in dict.fromkeys(found) for each in self._readings(path)]
        self._named[tool] = list(dict.fromkeys(readings))
        return self._named[tool]

    def _readings(self, path: str) -> tuple[str, ...]:
        if path not in self._read:
            self._read[path] = paths.readings(path, self._place)
        return self._read[path]

    def _files(self, command: shell.Command) -> list[str] | None:
        """Return the words of a command that may name files; None if that can't be told."""
        found: list[str] = []
        for at, word in enumerate(command.words[1:], 1):
            option = word.startswith("-")
            path = word.partition("=")[2] if option else word.removeprefix("@")
            if not path:
                continue
            if command.moved and not path.startswith(("/", "~")):
                return None
            if at in command.expands and re.match(r"~[^/]", path):
                return None
            if at in command.expands and re.search(r"[*?\[]", path):
                pattern = os.path.join(self._place.cwd, path)
                hits = glob.glob(pattern, recursive=True, include_hidden=True)[: _MOST_FILES + 1]
                if len(hits) > _MOST_FILES:
                    return None
                found += hits
            found.append(path)
            if not option and "=" in path:
                found.append(path.partition("=")[2])
        return found

    # --- what is the person's alone to allow -------------------------------------------------

    def protected(self) -> str:
        """Return a path to which the call may write though no rule may allow that; else empty."""
        writing = self._call.tool not in (Tool.READ, Tool.SEARCH, Tool.FETCH, Tool.MCP)
        names = list(self._call.paths) if writing and not self._call.commands else []
        names += [each.path for each in self._redirects if each.writes]
        names += [path for each in self._words for path in each or ()]
        for name in filter(None, names):
            for each in self._readings(name):
                guarded = _GUARDED.intersection(each.split("/"))
                if guarded or paths.is_below(each, self._place.protected):
                    return name
        return ""

    # --- allow -------------------------------------------------------------------------------

    def allowed(self) -> tuple[tuple[Rule, ...], str]:
        """Return the rules that together allow the call; or none, and why."""
        call, rules = self._call, list(self._of(Action.ALLOW))
        if call.tool is Tool.BASH:
            return self._allowed_lines(rules)
        mine = [rule for rule in rules if rule.tool is call.tool]
        match call.tool:
            case None:
                return (), "it is not known what kind of tool this is"
            case Tool.MCP:
                return _one([rule for rule in mine if _is_named(rule.pattern, call.name)])
            case Tool.FETCH:
                return _one([rule for rule in mine if _is_from(rule, call.url, below=False)])
            case _:
                return self._allowed_paths(mine)

    def _allowed_paths(self, rules: list[Rule]) -> tuple[tuple[Rule, ...], str]:
        if not self._call.paths:
            bare = [rule for rule in rules if not rule.pattern and rule.tool is not Tool.EDIT]
            return _one(bare, "it is not known which file it means")
        used = []
        for path in self._call.paths:
            rule = self._allows_path(rules, path)
            if rule is None:
                return (), f"no rule allows {path}"
            used.append(rule)
        return tuple(dict.fromkeys(used)), ""

    def _allows_path(self, rules: list[Rule], path: str) -> Rule | None:
        real = paths.resolved(path, self._place)
        for rule in rules if real else ():
            if not rule.pattern or paths.matches(rule.pattern, real, self._place):
                return rule
        return None

    def _allowed_lines(self, rules: list[Rule]) -> tuple[tuple[Rule, ...], str]:
        used: list[Rule] = []
        edits = [rule for rule in rules if rule.tool is Tool.EDIT]
        commands = [rule for rule in rules if rule.tool is Tool.BASH]
        if not self._lines:
            return (), "it does not say which command it runs"
        for line in self._lines:
            if not line.plain:
                return (), "more is in it than plain commands, so no rule can allow it"
            for part in line.parts:
                rule = next((each for each in commands if _allows(each, part)), None)
                if rule is None:
                    return (), f"no rule allows {' '.join(part.words)}"
                used.append(rule)
            for redirect in line.redirects:
                if not redirect.writes:
                    continue
                unknown = redirect.moved and not os.path.isabs(redirect.path)
                rule = None if unknown else self._allows_path(edits, redirect.path)
                if rule is None:
                    return (), f"no Edit rule allows writing {redirect.path}"
                used.append(rule)
        return tuple(dict.fromkeys(used)), ""


def _one(rules: list[Rule], why: str = "no rule names it") -> tuple[tuple[Rule, ...], str]:
    return (tuple(rules[:1]), "") if rules else ((), why)


# --- patterns ----------------------------------------------------------------------------------


def _allows(rule: Rule, command: shell.Command) -> bool:
    """Return True if a rule allows a command; of a wrapper, only its exact words."""
    if command.is_wrapper:
        exact = bool(rule.pattern) and "*" not in command.words
        return exact and _words(rule.pattern) == command.words
    return not rule.pattern or _is_like(_words(rule.pattern), command.words)


def _may_be(pattern: str, words: Sequence[str], at: int = 0) -> bool:
    """Return True if a rule refuses or asks about a command: also `/bin/rm` is `rm`.

    `at`: the place of its first word among these.
    """
    given = _words(pattern)
    if not words or ("*" not in given[0] and not words[at].endswith(given[0])):
        return False
    words = words[at:]
    short = (wrappers.base(words[0]), *words[1:])
    if len(given) == 1 and "*" in pattern:
        return any(_glob(pattern).fullmatch(" ".join(each)) is not None for each in (words, short))
    return _is_like(given, words) or _is_like(given, short)


def _is_like(pattern: Sequence[str], words: Sequence[str]) -> bool:
    """Return True if words are those of a pattern; a `*` alone is any number of words.

    Where they differ, only the last star takes one word more: earlier ones can't help.
    """
    at, star, taken, given = 0, -1, 0, 0
    while given < len(words):
        if at < len(pattern) and pattern[at] == "*":
            star, taken, at = at, given, at + 1
        elif at < len(pattern) and _glob(pattern[at]).fullmatch(words[given]):
            at, given = at + 1, given + 1
        elif star >= 0:
            taken += 1
            at, given = star + 1, taken
        else:
            return False
    return all(each == "*" for each in pattern[at:])


@lru_cache(maxsize=1024)
def _words(pattern: str) -> tuple[str, ...]:
    """Return the words of a rule's pattern, which `policy.config` has checked."""
    return tuple(shlex.split(pattern))


@lru_cache(maxsize=1024)
def _glob(pattern: str) -> re.Pattern[str]:
    """Return the expression of a pattern with stars; it takes each piece where it stands first."""
    first, *rest = map(re.escape, pattern.split("*"))
    middle = "".join(f"(?>.*?{each})" for each in rest[:-1])
    return re.compile(first + middle + "".join(f".*{each}" for each in rest[-1:]), re.DOTALL)


def _is_named(pattern: str, name: str) -> bool:
    return bool(name) and _glob(pattern).fullmatch(name) is not None


def _is_from(rule: Rule, url: str, *, below: bool) -> bool:
    """Return True if an address is of a rule's domain; `below`: those below it count as well."""
    if not rule.pattern:
        return True
    try:
        address = urlsplit(url)
        host = (address.hostname or "").rstrip(".")
    except ValueError:
        return False
    domain = rule.pattern.removeprefix("domain:").lower()
    known = address.scheme in ("http", "https") and not re.search(r"[\s\\]", url)
    if domain.startswith("*."):
        return (known or below) and host.endswith(domain[1:])
    same = host == domain and (known or below)
    return same or (below and host.endswith(f".{domain}"))
