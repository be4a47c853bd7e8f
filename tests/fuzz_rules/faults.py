"""Faults that the rules had, or might have: put back one at a time, the bench must find each."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest import mock

from acp_bridge.core.records import replace
from acp_bridge.features.rules import decide, harmless, posix, shell, steps
from acp_bridge.features.rules.known_commands import is_option
from acp_bridge.features.rules.posix import Pipeline, Reading, Redirect, Simple, Word


def _alone(line: str) -> Reading | None:
    """Return what the grammar alone reads; None if it has more than simple commands."""
    found = shell.line(line)
    commands = []
    for said in found.said:
        words = [*said[1].split(" ")] if said[0] == "[" else list(said)
        assigned = []
        while words and re.match(r"\w+=", words[0]):
            assigned.append(words.pop(0))
        if not words or said[0] == "for":
            return None
        commands.append(Simple(tuple(map(Word, words)), tuple(assigned)))
    if not commands:
        return None
    redirects = tuple(
        Redirect(number, sign.replace("<&", "<"), to) for number, sign, to in found.redirected
    )
    commands[-1] = replace(commands[-1], redirects=redirects)
    script = tuple((Pipeline("", (each,)),) for each in commands)
    return Reading(script, found.said, redirects, line)


@contextmanager
def _grammar_decides(about: str) -> Iterator[None]:
    """The grammar of bash alone decides about lines in which this pattern is found."""
    usual, pattern = steps.understood, re.compile(about)

    def understood(line: str) -> Reading | None:
        return _alone(line) if pattern.search(line) else usual(line)

    with mock.patch.object(steps, "understood", understood):
        yield


@contextmanager
def _no_look_at_paths() -> Iterator[None]:
    usual = decide._Judged._odd

    def odd(self: Any, rule: Any, named: tuple[str, ...], *others: Any) -> str:
        return usual(self, rule, tuple(each for each in named if "/*" not in each), *others)

    with mock.patch.object(decide._Judged, "_odd", odd):
        yield


@contextmanager
def _options_by(other: Callable[[str, frozenset[str]], bool]) -> Iterator[None]:
    given = mock.patch.object(
        harmless, "is_option", lambda word, row: is_option(word, row) or other(word, row)
    )
    with given:
        yield


def _bundled(word: str, row: frozenset[str]) -> bool:
    return re.fullmatch(r"-[a-z]{2,}", word) is not None and word[:2] in row


def _attached(word: str, row: frozenset[str]) -> bool:
    return re.fullmatch(r"-[A-Z][^-].+", word) is not None


@contextmanager
def _first_value_runs() -> Iterator[None]:
    """A variable may be a program; it is taken for the first of its values."""
    usual = steps._Walk._commands

    def commands(self: Any, simple: Simple, values: Any) -> Iterator[shell.Command]:
        first = next(steps._filled(simple.words[0], values), Word(""))
        yield from usual(self, replace(simple, words=(first, *simple.words[1:])), values)

    program = re.compile(posix._PROGRAM.pattern + r"|\x00\$\{?[a-z]\w*\}?\x00", re.ASCII)
    with (
        mock.patch.object(steps._Walk, "_commands", commands),
        mock.patch.object(posix, "_PROGRAM", program),
        _remembering_nothing(),
    ):
        yield


@contextmanager
def _texts_unseen() -> Iterator[None]:
    """The body of a here-document is a text, whatever is in it."""

    def given(self: Any, found: re.Match[str]) -> str:
        text = found[3].rstrip("\n")
        quoted = "'" + text.replace("'", "'\\''") + "'"
        self.pieces += [self._text[self.copied : found.start()], quoted]
        self.copied = self.at = found.end()
        return text

    with mock.patch.object(posix._Reader, "_given", given), _remembering_nothing():
        yield


@contextmanager
def _remembering_nothing() -> Iterator[None]:
    steps.understood.cache_clear()
    yield
    steps.understood.cache_clear()


Fault = Callable[[], AbstractContextManager[object]]

FAULTS: dict[str, Fault] = {
    "the grammar alone reads a blank, a newline and a backslash": lambda: _grammar_decides(
        r"[ \t]\n+\\"
    ),
    "the grammar alone reads `<& -push`": lambda: _grammar_decides(r"<&\s*-\w"),
    "the grammar alone reads `-2>`": lambda: _grammar_decides(r"\s-\d+[<>]"),
    "the grammar alone reads `] ]`": lambda: _grammar_decides(r"\w [\[\]] \]"),
    "no look at `..` and links under a star": _no_look_at_paths,
    "a bundle of options of which the first is listed": lambda: _options_by(_bundled),
    "an option with its value attached": lambda: _options_by(_attached),
    "behind `;` only the new folder counts": lambda: mock.patch.object(
        steps, "_both", lambda one, other: other
    ),
    "any assignment": lambda: mock.patch.object(steps, "_is_harmless", return_value=True),
    "`$f` as a program": _first_value_runs,
    "the grammar alone reads a descriptor of two digits": lambda: _grammar_decides(r"\d\d[<>]"),
    "a here-document ends where its text says": _texts_unseen,
}
