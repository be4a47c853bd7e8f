"""Follows a line that two readings agree on: which programs it runs, with which words, and where.

- What a rule is to allow is understood whole: the grammar of bash and `rules.posix` name the same
  commands, words and redirections, or `Unclear` is raised (invariant A1).
- `cd` leads only to a folder that is there and lies in the session's. Behind `&&` a command runs
  there; behind `;` and a newline it may also run where it would without the `cd`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Final

from acp_bridge.features.rules import paths, posix, shell
from acp_bridge.features.rules.definitions import Place
from acp_bridge.features.rules.known_commands import ASSIGNMENTS, GIT_GLOBALS, SET_TO
from acp_bridge.features.rules.posix import Script, Word

#: how many commands a line may run, with its loops unrolled.
_MOST: Final = 200
#: how deep scripts in scripts are followed.
_DEPTH: Final = 8
_VARIABLE: Final = re.compile(f"{posix.MARK}\\$\\{{?(\\?|\\w+)\\}}?{posix.MARK}")
_MOVES: Final = ("cd", "chdir", "pushd", "popd")
_Values = Mapping[str, tuple[Word, ...]]


class Unclear(Exception):
    """It is not known what a line does; the text says which part of it, for the person."""


@dataclass(frozen=True, slots=True)
class Step:
    """One program that a line runs."""

    command: shell.Command
    #: the folders in which it may run, without links.
    folders: tuple[str, ...]
    #: the same command, without options of git that change nothing that a rule is about.
    short: shell.Command | None = None


@dataclass(frozen=True, slots=True)
class Written:
    """A file that a line reads or writes by a redirection, and the folders that it may be in."""

    path: str
    writes: bool
    folders: tuple[str, ...]


@lru_cache(maxsize=256)
def understood(line: str) -> posix.Reading | None:
    """Return what a line runs if both readings of it agree; else None."""
    if len(line) > shell.LONGEST:
        return None
    try:
        found = posix.read(line)
    except posix.NotRead:
        return None
    other = shell.line(found.line)
    redirected = tuple((each.number, each.sign, each.target) for each in found.redirects)
    return found if (found.said, redirected) == (other.said, other.redirected) else None


def follow(line: str, place: Place, folder: str) -> tuple[list[Step], list[Written]]:
    """Return what a line runs and redirects; `folder`: where it begins. Raises Unclear."""
    walk = _Walk(place)
    walk.line(line, (folder,))
    return walk.steps, walk.written


def is_inside(path: str, place: Place) -> bool:
    """Return True if an absolute path without links is the session's folder, or below it."""
    return path == place.real or path.startswith(f"{place.real.rstrip('/')}/")


class _Walk:
    def __init__(self, place: Place) -> None:
        self.steps: list[Step] = []
        self.written: list[Written] = []
        self._place = place
        self._depth = 0

    def line(self, text: str, here: tuple[str, ...]) -> None:
        reading = understood(text)
        if reading is None or self._depth > _DEPTH:
            raise Unclear("more is in it than plain commands, so no rule can allow it")
        self._depth += 1
        self._script(reading.script, here, {})
        self._depth -= 1

    def _script(
        self, script: Script, here: tuple[str, ...], values: _Values, *, below: bool = False
    ) -> None:
        for pipelines in script:
            start = seen = now = here
            for each in pipelines:
                now = seen if each.joint == "||" else now
                if (to := self._cd(each, now, values)) and (below or each.joint == "||"):
                    raise Unclear("it is not known in which folder a part of it runs")
                if not to:
                    self._pipeline(each, now, values)
                now = seen if each.joint == "||" else to or now
                seen = _both(seen, now)
            here = _both(start, seen)

    def _cd(
        self, pipeline: posix.Pipeline, here: tuple[str, ...], values: _Values
    ) -> tuple[str, ...]:
        """Return the folders to which a pipeline leads that is one `cd`; empty: it is none."""
        first = pipeline.commands[0]
        if len(pipeline.commands) > 1 or pipeline.negated or not isinstance(first, posix.Simple):
            return ()
        if first.words[0].text != "cd" or first.redirects or first.assignments:
            return ()
        for command in self._commands(first, values):
            self._add(Step(command, here))
        return self._led(first.words[1:], here)

    def _led(self, words: tuple[Word, ...], here: tuple[str, ...]) -> tuple[str, ...]:
        """Return the folders to which `cd` with these words leads; raises Unclear."""
        to = words[0] if len(words) == 1 else Word("")
        plain = to.text[:1] not in ("", "-", "+") and posix.MARK not in to.text
        if not plain or to.expands != to.text.startswith("~") or re.search(r"[*?\[]", to.text):
            raise Unclear("it is not known to which folder `cd` leads")
        found = [os.path.join(folder, paths.at_home(to.text, self._place.home)) for folder in here]
        real = tuple(dict.fromkeys(map(os.path.realpath, found)))
        # A shell takes `..` away before it follows links, and others behind it.
        named = tuple(dict.fromkeys(os.path.realpath(os.path.normpath(each)) for each in found))
        if named != real or not all(is_inside(each, self._place) for each in real):
            raise Unclear(f"`cd {to.text}` leads out of the session's folder")
        if not all(map(os.path.isdir, real)):
            raise Unclear(f"`cd {to.text}` leads to no folder that is there")
        return real

    def _pipeline(self, pipeline: posix.Pipeline, here: tuple[str, ...], values: _Values) -> None:
        for each in pipeline.commands:
            match each:
                case posix.Simple():
                    self._simple(each, here, values)
                case posix.Loop():
                    words = tuple(word for one in each.words for word in _filled(one, values))
                    inner = {**values, each.name: words}
                    self._script(each.body, here, inner, below=True)
                case posix.Choice():
                    for part in each.parts:
                        self._script(part, here, values, below=True)

    def _simple(self, simple: posix.Simple, here: tuple[str, ...], values: _Values) -> None:
        for each in simple.assignments:
            if not _is_harmless(each):
                raise Unclear(f"it is not known what {each} makes a program do")
        for redirect in simple.redirects:
            if redirect.sign != ">&" and redirect.target != "/dev/null":
                writes = redirect.sign != "<"
                self.written.append(Written(redirect.target, writes, here))
        for command in self._commands(simple, values):
            self._run(command, here)

    def _commands(self, simple: posix.Simple, values: _Values) -> Iterator[shell.Command]:
        """Give a command once for each value of the variables of loops in it."""
        forms = [list(_filled(word, values)) for word in simple.words]
        for words in product(*forms):
            expands = frozenset(at for at, word in enumerate(words) if word.expands)
            yield shell.Command(tuple(word.text for word in words), expands)
            if len(self.steps) > _MOST:
                raise Unclear("it runs too many commands")

    def _run(self, command: shell.Command, here: tuple[str, ...]) -> None:
        while (inner := shell.behind_harmless(command)) is not None:
            command = inner
        if (script := shell.plain_script(command)) is not None:
            self.line(script, here)
            return
        words = command.words
        if words[0] in _MOVES:
            raise Unclear("it is not known in which folder a part of it runs")
        if words[0] == "[" and words[-1] != "]":  # behind a wrapper the line may end without one
            raise Unclear("`[` has no `]`")
        if words[0] == "[":
            command = shell.Command(("test", *words[1:-1]), command.expands)
        short, here = self._without_globals(command, here)
        self._add(Step(command, here, short))

    def _without_globals(
        self, command: shell.Command, here: tuple[str, ...]
    ) -> tuple[shell.Command | None, tuple[str, ...]]:
        """Return a git command without options that a rule isn't about, and the folders of `-C`."""
        words, at = command.words, 1
        while words[0] == "git" and at < len(words):
            if words[at] in GIT_GLOBALS:
                at += 1
            elif words[at] == "-C" and at + 1 < len(words):
                here = self._led((Word(words[at + 1], at + 1 in command.expands),), here)
                at += 2
            else:
                break
        if at == 1:
            return None, here
        expands = frozenset(each - at + 1 for each in command.expands if each >= at)
        return shell.Command((words[0], *words[at:]), expands), here

    def _add(self, step: Step) -> None:
        if step not in self.steps:
            self.steps.append(step)


def _both(one: tuple[str, ...], other: tuple[str, ...]) -> tuple[str, ...]:
    return one if one == other else tuple(dict.fromkeys((*one, *other)))


def _filled(word: Word, values: _Values) -> Iterator[Word]:
    """Give a word with each value that the variables in it may have."""
    names = list(dict.fromkeys(found[1] for found in _VARIABLE.finditer(word.text)))
    if not names:
        yield word
        return
    forms = [(Word("0"),) if name == "?" else values[name] for name in names]
    for chosen in product(*forms):
        given = {name: each.text for name, each in zip(names, chosen, strict=True)}
        pieces = _VARIABLE.split(word.text)
        for name, each in zip(names, chosen, strict=True):
            inside = pieces[0] or name in pieces[3::2]
            if inside and each.expands and each.text.startswith("~"):
                raise Unclear("it is not known whose folder `~` in a word means")
        pieces[1::2] = [given[name] for name in pieces[1::2]]
        text = "".join(pieces)
        yield Word(text, word.expands or any(each.expands for each in chosen))


def _is_harmless(assignment: str) -> bool:
    name, _, value = assignment.partition("=")
    if name in SET_TO:
        return value in SET_TO[name]
    known = name in ASSIGNMENTS or re.fullmatch(r"LC_[A-Z]+", name)
    zone = r"(/[A-Za-z][\w+-]*)*" if name == "TZ" else ""
    return bool(known and re.fullmatch(rf"([\w@+-][\w.@+-]*{zone})?", value))
