"""Reads `permissions.toml`. A file that is not wholly right is refused as a whole, with its line.

Its examples (`[[check]]`) are judged by `rules.decide`, when the file is read.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Any, Final

from acp_bridge.core.runtime import toml_text
from acp_bridge.features.rules.definitions import PATHS, Action, Check, Only, Rule, Rules, Tool

_TOP: Final = frozenset({"default", "unattended", "deny", "ask", "allow", "only", "check"})
_ONLY: Final = frozenset({"agent", "folder", "deny", "ask", "allow"})
_EXAMPLES: Final = ("bash", "edit", "read")
_RULE: Final = re.compile(r"([A-Za-z]+)(?:\((.*)\))?", re.DOTALL)
_TOOLS: Final = {**{tool.value: tool for tool in Tool if tool is not Tool.MCP}, "Write": Tool.EDIT}
_MCP: Final = re.compile(r"mcp__[^\s()]+")


class BadRules(Exception):
    """The file can't be used; the text says why, and on which line if that is known."""

    def __init__(self, *why: str, rules: Rules | None = None) -> None:
        """`why`: each mistake; `rules`: what the file says, if only its examples are wrong."""
        super().__init__("; ".join(why))
        self.each = why
        self.rules = rules


def parse(text: str, file: str) -> Rules:
    """Return the rules of a file's text; `file`: its name, kept in each rule. Raises BadRules."""
    try:
        table = toml_text.loads(text)
    except toml_text.BadToml as bad:
        raise BadRules(str(bad)) from None
    lines = _Lines(text, file)
    _known(table, _TOP, "the file", lines)
    return Rules(
        _rules(table, lines),
        tuple(_only(each, lines) for each in _tables(table, "only", lines)),
        tuple(_check(each, lines) for each in _tables(table, "check", lines)),
        _word(table, "default", (Action.ASK, Action.DENY), lines) or Action.ASK,
        _word(table, "unattended", ("wait", Action.DENY), lines),
    )


def rule(action: Action, text: str, file: str = "", line: int = 0) -> Rule:
    """Return the rule that a string such as `Bash(git *)` stands for; raises BadRules."""
    if _MCP.fullmatch(text):
        return Rule(action, Tool.MCP, text, text, file, line)
    found = _RULE.fullmatch(text.strip())
    tool = _TOOLS.get(found[1]) if found else None
    if found is None or tool is None:
        raise BadRules(f"{text!r} names no tool: write {', '.join(_TOOLS)} or mcp__server__tool")
    pattern = (found[2] or "").strip()
    if found[2] is not None and not pattern:
        raise BadRules(f"{text!r} has nothing in its brackets")
    if tool is Tool.BASH:
        pattern = _bash_pattern(text, pattern)
    elif tool in PATHS and re.search(r"[^/]\*\*|\*\*[^/]", pattern):
        raise BadRules(f"{text!r}: a ** stands for whole folders, as in **/*.py")
    elif tool is Tool.FETCH and pattern and not pattern.startswith("domain:"):
        raise BadRules(f"{text!r}: write WebFetch(domain:example.org)")
    return Rule(action, tool, pattern, text, file, line)


def _bash_pattern(text: str, pattern: str) -> str:
    """Return the pattern of a command; the older `git log:*` is `git log *`."""
    if pattern.endswith(":*"):
        pattern = f"{pattern[:-2]} *"
    try:
        shlex.split(pattern)
    except ValueError as error:
        raise BadRules(f"{text!r}: {str(error).lower()}") from None
    return "" if pattern == "*" else pattern


class _Lines:
    """Finds the line of each string in a file; of equal ones, the next each time."""

    def __init__(self, text: str, file: str) -> None:
        self.file = file
        self._lines = text.splitlines()
        self._seen: dict[str, int] = {}

    def of(self, word: str) -> int:
        """Return the number of the line in which a quoted string stands; 0 if none is found."""
        forms = (
            f'"{word}"',
            f"'{word}'",
            '"{}"'.format(word.replace("\\", "\\\\").replace('"', '\\"')),
        )
        for number in range(self._seen.get(word, 0), len(self._lines)):
            if any(form in self._lines[number] for form in forms):
                self._seen[word] = number + 1
                return number + 1
        return 0

    def of_key(self, name: str) -> int:
        """Return the number of the line at which a key or a table begins; 0 if none is found."""
        begins = re.compile(rf"\s*(\[{{1,2}}\s*)?[\"']?{re.escape(name)}\b")
        return next((at for at, line in enumerate(self._lines, 1) if begins.match(line)), 0)


def _bad(line: int, why: str) -> BadRules:
    return BadRules(f"line {line}: {why}" if line else why)


def _rules(table: Mapping[str, Any], lines: _Lines) -> tuple[Rule, ...]:
    found = []
    for action in Action:
        texts = table.get(action, [])
        if not isinstance(texts, list) or not all(isinstance(each, str) for each in texts):
            raise _bad(lines.of_key(action), f"{action} is a list of texts")
        for text in texts:
            line = lines.of(text)
            try:
                found.append(rule(action, text, lines.file, line))
            except BadRules as bad:
                raise _bad(line, str(bad)) from None
    return tuple(found)


def _only(table: Mapping[str, Any], lines: _Lines) -> Only:
    _known(table, _ONLY, "[[only]]", lines)
    agent, folder = table.get("agent", ""), table.get("folder", "")
    for name, value in (("agent", agent), ("folder", folder)):
        if not isinstance(value, str):
            raise _bad(lines.of_key(name), f"{name} is a text")
    if not agent and not folder:
        raise _bad(lines.of_key("only"), "[[only]] names an agent or a folder")
    return Only(agent, folder, _rules(table, lines))


def _check(table: Mapping[str, Any], lines: _Lines) -> Check:
    _known(table, frozenset({*_EXAMPLES, "decision"}), "[[check]]", lines)
    given = {name: table[name] for name in _EXAMPLES if name in table}
    if len(given) != 1 or not all(isinstance(each, str) and each for each in given.values()):
        raise _bad(lines.of_key("check"), "a check has one of bash, edit and read, which is a text")
    line = lines.of(next(iter(given.values())))
    decision = table.get("decision")
    if decision not in set(Action):
        raise _bad(line, "the decision of a check is deny, ask or allow")
    bash, edit, read = (str(given.get(name, "")) for name in _EXAMPLES)
    return Check(bash, edit, read, Action(decision), line)


def _word(
    table: Mapping[str, Any], name: str, words: tuple[str, ...], lines: _Lines
) -> Action | None:
    """Return the action that a key has: deny, or ask, also for `wait`; None if it is not there."""
    if name not in table:
        return None
    if table[name] not in words:
        raise _bad(lines.of_key(name), f'{name} is "{words[0]}" or "{words[1]}"')
    return Action.DENY if table[name] == Action.DENY else Action.ASK


def _tables(table: Mapping[str, Any], name: str, lines: _Lines) -> list[Mapping[str, Any]]:
    found = table.get(name, [])
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise _bad(lines.of_key(name), f"write [[{name}]], with two brackets")
    return found


def _known(table: Mapping[str, Any], names: frozenset[str], where: str, lines: _Lines) -> None:
    if unknown := sorted(table.keys() - names):
        raise _bad(lines.of_key(unknown[0]), f"there is no key {unknown[0]!r} in {where}")
