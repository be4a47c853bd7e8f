"""Decides whether the words of a command can do more than its program's table says. SANS-IO.

- Of a program in `known_commands` an option is harmless only if it stands there, whole; letters
  may stand together if each of them does, and a number may follow.
- Programs that run the project's code also take options that name nothing, and words that lead
  nowhere out of the session's folder: what the code does is the project's.
- Of any other program nothing is known, and nothing is guessed.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from acp_bridge.features.rules import known_commands as known
from acp_bridge.features.rules.known_commands import FOR_RULES, SCRIPT, is_operand, is_option
from acp_bridge.features.rules.programs import base, has
from acp_bridge.features.rules.shell import Command

_PROGRAMS: Final = frozenset(words[0] for words in FOR_RULES)
_MOST_WORDS: Final = max(map(len, FOR_RULES))
_VERSIONED: Final = re.compile(r"(python|pypy|pip|perl|ruby|php|lua)[\d.]+")
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]*")
#: options with which a program only tells of itself, or finds the project's tests.
_ABOUT: Final = frozenset({"--version", "-V", "-v", "--help", "-h", "--test"})
_COUNT: Final = re.compile(r"\+\d+[a-zA-Z]?")
#: an address for which git runs a program of that name.
_HELPER: Final = re.compile(r"[\w+-]+::")
#: an archive of another machine.
_HOST: Final = re.compile(r"[^/]*:")
#: options by which programs are told code or a configuration, as far as the table has them not.
_CODE: Final = re.compile(
    r"-[a-zA-Z]|--?[\w-]*(?:cmd|code|command|config|eval|exec|(?<!lock)file|import|init|loader|options?"
    r"|plugin|preload|rc|require|run|script|shell)\b.*",
    re.DOTALL,
)
_PLAIN_VALUE: Final = re.compile(r"[\w.,:+-]*")
#: values of a variable of make that name no program.
_SWITCH: Final = re.compile(r"\w+=(\d*|y|n|yes|no|true|false|on|off)")
#: conversions of printf that calculate nothing, and what shells don't calculate with either.
_TEXTS_OF_PRINTF: Final = re.compile(r"(?:[^%]|%%|%-?\d*(?:\.\d+)?[sb])*", re.DOTALL)
_NUMBER: Final = re.compile(r"-?\d+(?:\.\d+)?")
_COMPARES: Final = frozenset({"-eq", "-ne", "-lt", "-le", "-gt", "-ge"})
#: jq reads the file of another module, and of any name.
_OF_JQ: Final = re.compile(r"(?<![\w.$\"])(?:import|include)\b")
#: a piece of a regular expression: in a bracket, some seds take the sign that ends it for a letter.
_PIECE: Final = r"[^[\\\n{0}]|\\[^\n]|\[\^?+\]?+(?:\[:\w+:\]|[^][\\\n{0}])*\]"
_SOUGHT: Final = f"(?:{_PIECE})*"
_PUT: Final = r"(?:[^\\\n{0}]|\\[^\n])*"
_ADDRESS: Final = rf"(?:\d+|\$|/(?:{_PIECE.format('/')})+/)"
_SED: Final = re.compile(
    rf"(?:\d+(?:,[\d$]+)?[pd];)*(?:{_ADDRESS}(?:,(?:{_ADDRESS}|\+\d+))?!?)?(?:[pd=q]|"
    + "|".join(rf"s\{by}{_SOUGHT.format(by)}\{by}{_PUT.format(by)}\{by}[gpI0-9]*" for by in "/,#|")
    + ")"
)

#: told a path, and if a shell may put other files in its place.
Outside = Callable[[str, bool], bool]


def objection(command: Command, own: int = 1, outside: Outside = lambda _path, _glob: False) -> str:
    """Return the first word of a command that may make it do more; empty: there is none.

    `own`: how many words at the beginning the user's rule names, which are the user's; `outside`
    returns True for a path, or a shell's pattern, that leads out of the session's folder.
    """
    words = command.words
    name = _VERSIONED.sub(r"\1", base(words[0])).replace("pypy", "python")
    if name == "sed":
        return _of_sed(words[own:])
    if name in ("printf", "test") and (found := _calculated(command)):
        return found
    if name not in _PROGRAMS:
        return ""
    leads_away = {"git": _HELPER.match, "tar": _HOST.match, "jq": _OF_JQ.search}.get(name)
    if leads_away and (found := next((each for each in words[own:] if leads_away(each)), "")):
        return found
    count, row = _row((name, *words[1:]))
    if row is None:
        return _not_listed(command, name, own, outside)
    if not row:
        return words[count - 1] if own < count else ""
    return _Words(command, name, row, outside).odd(count, own)


def _calculated(command: Command) -> str:
    """Return a word of `printf` or `test` that a shell may calculate with; empty: there is none.

    `printf %d PATH=0` of zsh and `test -v 'a[PATH=0]'` of bash set a variable, and a `$(...)` in
    the value of one runs.
    """
    words = command.words
    if base(words[0]) == "printf":
        at = 2 if words[1:2] == ("--",) else 1
        plain = at not in command.expands and _TEXTS_OF_PRINTF.fullmatch("".join(words[at:][:1]))
        given = () if plain else words[at + 1 :]
    else:
        pairs = [*pairwise(words), (words[-1], "")]
        given = (
            *(words[1:2] if 1 in command.expands else ()),
            *(word for word in words if word in ("-v", "-R")),
            *(word for word, behind in pairs if behind in _COMPARES),
            *(word for before, word in pairs if before in ("-t", *_COMPARES)),
        )
    return next((word for word in given if not _NUMBER.fullmatch(word)), "")


def _not_listed(command: Command, name: str, own: int, outside: Outside) -> str:
    """Return the first word of a command that makes it another than those of its program's rows."""
    behind = command.words[own:]
    first = "".join(behind[:1])
    if len(behind) == 1 and first in _ABOUT:
        return ""
    if has(name, "listed"):
        options = (word for word in behind if name == "git" or own < 2 or word.startswith("-"))
        return next(options, "")
    if not has(name, "project"):
        return ""
    return (
        first if first.startswith("-") else _Words(command, name, frozenset(), outside).behind(own)
    )


def _row(words: tuple[str, ...]) -> tuple[int, frozenset[str] | None]:
    """Return how many words name a row of the table, and the row."""
    for count in range(min(_MOST_WORDS, len(words)), 0, -1):
        first = words[:count]
        row = FOR_RULES.get(first)
        if row is None and _NAME.fullmatch(first[-1]):
            row = FOR_RULES.get((*first[:-1], known.ANY_NAME))
        if row is not None:
            return count, row
    return 0, None


@dataclass(frozen=True, slots=True)
class _Words:
    """The words behind those that name a row."""

    _command: Command
    _name: str
    _row: frozenset[str]
    _outside: Outside

    @property
    def _of_project(self) -> bool:
        return has(self._name, "project")

    def odd(self, begin: int, own: int) -> str:
        """Return the first word from the place `begin` on that is not known to be harmless.

        `own`: the place before which words are the user's.
        """
        words, operands = self._command.words, 0
        for at in range(begin, len(words)):
            word = words[at]
            if at >= own and (self._begins_with_a_star(at) or self._leads_out(at)):
                return word
            if word == "--" and word in self._row:
                return self.behind(max(at + 1, own))
            if is_operand(word) or _COUNT.fullmatch(word) or word.startswith("@{"):
                operands += 1
                if SCRIPT in self._row:
                    return ""
                if at >= own and not self._takes(word, operands):
                    return word
            elif at >= own and not self._is_harmless(at):
                return word
        asks = _ABOUT.isdisjoint(words)
        return words[0] if SCRIPT in self._row and asks else ""

    def _begins_with_a_star(self, at: int) -> bool:
        """Return True for a word that a shell may replace by an option."""
        first = self._command.words[at][0:1]
        return at in self._command.expands and first in "*?[" and known.ANY_OPTION not in self._row

    def _takes(self, word: str, operands: int) -> bool:
        if self._name == "make" and "=" in word:
            return _SWITCH.fullmatch(word) is not None
        return known.OPERANDS in self._row or (known.ONE in self._row and operands == 1)

    def _is_harmless(self, at: int) -> bool:
        word = self._command.words[at]
        if known.ANY_OPTION in self._row or is_option(word, self._row):
            return True
        if not self._of_project or not word.startswith("--") or _CODE.fullmatch(word):
            return False
        _, joined, value = word.partition("=")
        behind = "".join(self._command.words[at + 1 : at + 2])
        alone = not behind or behind.startswith("-")
        return bool(_PLAIN_VALUE.fullmatch(value)) if joined else alone

    def behind(self, begin: int) -> str:
        """Return the first word from a place on that names code, or leads out of the project."""
        if not self._of_project:
            return ""
        behind = self._command.words[begin:]
        names_code = (each for each in behind if _CODE.fullmatch(each) and len(each) > 2)
        leading = (each for at, each in enumerate(behind, begin) if self._leads_out(at))
        return next(names_code, "") or next(leading, "")

    def _leads_out(self, at: int) -> bool:
        """Return True for a word of a program of the project that names a path outside of it."""
        word, is_glob = self._command.words[at], at in self._command.expands
        for part in (word, word.partition("=")[2]) if self._of_project else ():
            path = is_glob or "/" in part or part == ".." or part.startswith("~")
            if path and ("://" in part or self._outside(part, is_glob and part == word)):
                return True
        return False


def _of_sed(words: tuple[str, ...]) -> str:
    """Return the first word of a sed command that does more than to change what is printed."""
    scripts, is_script = 0, False
    for word in words:
        if word in ("-n", "-E", "-r", "-e") and not is_script:
            is_script = word == "-e"
            continue
        plain = _SED.fullmatch(word)
        if (word.startswith("-") and not is_script) or ((is_script or not scripts) and not plain):
            return word
        scripts, is_script = scripts + 1, False
    return ""
