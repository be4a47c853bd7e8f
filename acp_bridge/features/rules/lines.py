"""What the command lines of a call say by themselves: nothing here looks at a disk.

An agent runs the same lines again and again, so what the rules say of them is remembered.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property, lru_cache
from itertools import chain
from typing import Final

from acp_bridge.features.rules import harmless, programs, shell
from acp_bridge.features.rules.definitions import Action, Call, Rule
from acp_bridge.features.rules.programs import base
from acp_bridge.features.rules.ruleset import Ruleset
from acp_bridge.features.rules.words import Word, files

#: a word of a text in any language.
_OF_TEXT: Final = re.compile(r"[\w./~*?-]+")
#: how many words of such a text are looked at.
_MOST_OF_TEXT: Final = 2000
#: the most characters of lines that are remembered.
_SHORT: Final = 1000


class Lines:
    """The lines of a call, and which rules refuse what they run."""

    def __init__(
        self, rules: Ruleset, told: tuple[str, ...], texts: tuple[str, ...], moved: bool
    ) -> None:
        """`told`: the lines of a call; `texts`: what it may run in languages other than a shell's.

        `moved`: it is not known what relative paths in the lines mean.
        """
        self._rules = rules
        self.told = told
        self._texts = texts
        self._said: dict[tuple[Action, bool], Rule | None] = {}
        self.each = [shell.line(line, moved=moved) for line in told]
        self.too_long = any(len(line) > shell.MOST for line in told)
        self.commands = [command for line in self.each for command in line.commands]
        #: the words of each line that is not understood.
        self.raw = [line.raw for line in self.each if line.raw]
        #: every file that the lines read or write by a redirection.
        self.redirects = [each for line in self.each for each in line.redirects]

    @cached_property
    def words(self) -> tuple[Word, ...]:
        """The words that may name files, each once."""
        whole = (each for each in self.commands if not each.inner)
        return tuple(dict.fromkeys(chain.from_iterable(map(files, whole))))

    def running(self, action: Action) -> Rule | None:
        """Return a rule of the list `action` about a command that the lines run; else None."""
        key = action, True
        if key not in self._said:
            self._said[key] = next(self._running(action), None)
        return self._said[key]

    def perhaps_running(self, action: Action) -> Rule | None:
        """Return a rule of the list about a command that only perhaps runs; else None."""
        key = action, False
        if key not in self._said:
            about = self._rules.about_commands(action)
            self._said[key] = next(self._perhaps_running(action), None) if about else None
        return self._said[key]

    def _running(self, action: Action) -> Iterator[Rule]:
        said = {name for words in self.raw for word in words for name in (word, base(word))}
        for each in self.commands:
            if each.unknown and (rule := self._rules.refusing_named(action, said, each.words)):
                yield rule
            if rule := self._rules.refusing(action, each.words, expands=0 in each.expands):
                yield rule
        for words in self.raw:
            yield from self._refused(action, words)

    def _perhaps_running(self, action: Action) -> Iterator[Rule]:
        texts = [*self._texts, *(text for line in self.each for text in line.texts)]
        for each in self.commands:
            runs = programs.may_run_any(each.words) or bool(harmless.objection(each))
            names = not runs and programs.gives_a_name(each.words)
            if each.guessed or not (runs or names):
                continue
            for at in range(1, len(each.words)):
                if names and "/" not in each.words[at]:
                    continue
                if rule := self._rules.refusing(action, each.words, at):
                    yield rule
            if runs:
                texts += [word for word in each.words[1:] if not _OF_TEXT.fullmatch(word)]
                options = [word for word in each.words[1:] if re.match(r"-\w", word)]
                texts += [word[at:] for word in options for at in range(2, min(len(word), 5))]
        for text in dict.fromkeys(texts):
            words = ("", *_OF_TEXT.findall(text)[:_MOST_OF_TEXT])
            yield from self._refused(action, words, 1)

    def _refused(self, action: Action, words: tuple[str, ...], first: int = 0) -> Iterator[Rule]:
        found = (self._rules.refusing(action, words, at) for at in range(first, len(words)))
        return filter(None, found)


_remembered = lru_cache(maxsize=256)(Lines)


def lines_of(rules: Ruleset, call: Call, *, moved: bool) -> Lines:
    """Return the command lines of a call, taken apart, to be judged by these rules.

    `moved`: the call names another folder for them than the session's.
    """
    told = (*call.commands, *([call.title] if call.title else []))
    short = sum(map(len, (*told, *call.texts))) <= _SHORT
    return (_remembered if short else Lines)(rules, told, call.texts, moved)
