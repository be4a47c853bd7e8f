"""What the command lines of a call say by themselves, and which of their words may name files.

Nothing here looks at a disk.

An agent runs the same lines again and again, so what the rules say of them is remembered.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import pairwise
from typing import Final
from urllib.parse import unquote

from acp_bridge.features.rules import harmless, programs, shell
from acp_bridge.features.rules.definitions import Action, Call, Rule
from acp_bridge.features.rules.paths import names_of
from acp_bridge.features.rules.programs import base
from acp_bridge.features.rules.ruleset import Ruleset

_LETTERS: Final = re.compile(r"-[^-][A-Za-z0-9]*")
#: options of programs that search, behind which a pattern of names stands.
_GLOBS: Final = frozenset({"-g", "--glob", "--iglob", "--include"})
#: what parts `HEAD:path`, `:(icase)path` and `-L1,2:path`.
_OF_GIT: Final = re.compile(r":(?:\([^)]*\)|[!^/]*)")
#: the address of a folder.
_FILE: Final = re.compile(r"file://[^/]*(/.*)", re.IGNORECASE | re.DOTALL)
#: the most characters that a name on a disk can have.
_LONGEST_NAME: Final = 255
#: a word of a text in any language.
_OF_TEXT: Final = re.compile(r"[\w./~*?-]+")
#: how many words of such a text are looked at.
_MOST_OF_TEXT: Final = 2000
#: the most characters of lines that are remembered.
_SHORT: Final = 1000


@dataclass(frozen=True, slots=True)
class Word:
    """A word of a command that may name a file."""

    text: str
    #: the shell would put other words in its place, for a glob the names of files.
    expands: bool
    #: a `cd` may stand before, so that it isn't known which file a relative path means.
    moved: bool
    #: the command may change all that is below the word, if it is a folder.
    changes_below: bool
    #: it is a `.git` that the command may replace by copying, if there is one.
    hidden: bool = False
    #: the command surely only reads.
    reads: bool = False

    @property
    def is_glob(self) -> bool:
        """True if the shell may put the names of files in its place."""
        return self.expands and re.search(r"[*?\[]", self.text) is not None


def files(command: shell.Command) -> Iterator[Word]:
    """Give the words of a command that may name files."""
    copies = programs.copies(command.words)
    of_git = base(command.words[0]) == "git"
    only_reads = programs.only_reads(command.words)
    reads = only_reads and not (command.guessed or harmless.objection(command))
    changes = not (copies or command.guessed or only_reads)
    for at, word in enumerate(command.words[1:], 1):
        expands = at in command.expands
        for text, sure in _parts(word):
            # Behind a `cd`, letters of an option (`ls -la`) are not taken for a file's name.
            moved = command.moved and (sure or not text.isalnum())
            names_commit = of_git and text.endswith("HEAD")
            changes_it = changes and sure and not names_commit
            yield Word(text, expands, moved, changes_it, reads=reads)
        for text in _OF_GIT.split(word)[1:] if of_git else ():
            yield Word(text, expands, command.moved, changes_below=False)
        if of_git and (found := _FILE.fullmatch(word)):
            yield Word(unquote(found[1]), expands, command.moved, changes_below=True)
    for text in programs.written_by_copying(command.words) if copies else ():
        expands, hidden = bool(re.search(r"[*?\[]", text)), text.endswith("/.git")
        yield Word(text, expands, command.moved, changes_below=True, hidden=hidden)


def patterns(command: shell.Command) -> Iterator[str]:
    """Give each word that a program itself takes for a pattern of names, quoted or not."""
    for before, word in pairwise(command.words):
        option, joined, value = word.partition("=")
        if base(command.words[0]) == "git":
            yield from _OF_GIT.split(word)
        elif before in _GLOBS:
            yield word
        elif option in _GLOBS and joined:
            yield value
        elif word.startswith("-g"):
            yield word[2:]


def _parts(word: str) -> Iterator[tuple[str, bool]]:
    """Give each part of a word that may name a file; with False if it may be letters of options."""
    values = [word.partition("=")[2]] if "=" in word else []
    found = [(text, True) for text in (*([] if word.startswith("-") else [word]), *values)]
    if letters := _LETTERS.match(word):  # `-tFOLDER` and `-atFOLDER`
        first = max(2, letters.end() - _LONGEST_NAME)
        found += [(word[at:], False) for at in range(first, letters.end() + 1)]
    for text, sure in dict.fromkeys(found):
        bare = text.lstrip("@<")  # curl's `@FILE` and `name=<FILE`
        yield from ((each, sure) for each in dict.fromkeys((text, bare)) if each)


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
        self.each = [shell.line(line, moved=moved) for line in told]
        self.too_long = any(len(line) > shell.MOST for line in told)
        self.commands = [command for line in self.each for command in line.commands]
        #: the words of each line that is not understood.
        self.raw = [line.raw for line in self.each if line.raw]
        #: every file that the lines read or write by a redirection.
        self.redirects = [each for line in self.each for each in line.redirects]
        #: the words that may name files, each once.
        self.words = tuple(
            dict.fromkeys(word for each in self.commands if not each.inner for word in files(each))
        )
        #: a rule of a list about a command that the lines run, or only perhaps run; else None.
        self.running = cache(lambda action: next(filter(None, self._running(action)), None))
        self.perhaps_running = cache(
            lambda action: next(filter(None, self._perhaps_running(action)), None)
        )

    def _running(self, action: Action) -> Iterator[Rule | None]:
        said = {name for words in self.raw for word in words for name in (word, base(word))}
        for each in self.commands:
            if each.unknown:
                yield self._rules.refusing_any(action, said.__contains__, each.words)
            if 0 in each.expands:
                may_be = names_of(base(each.words[0]).casefold()).fullmatch
                yield self._rules.refusing_any(action, may_be, each.words)
            yield self._rules.refusing(action, each.words)
        for words in self.raw:
            yield from self._refused(action, words)

    def _perhaps_running(self, action: Action) -> Iterator[Rule | None]:
        if not self._rules.about_commands(action):
            return
        texts = [*self._texts, *(text for line in self.each for text in line.texts)]
        for each in self.commands:
            runs = programs.may_run_any(each.words) or bool(harmless.objection(each))
            names = not runs and programs.gives_a_name(each.words)
            if each.guessed or not (runs or names):
                continue
            for at in range(1, len(each.words)):
                if runs or "/" in each.words[at]:
                    yield self._rules.refusing(action, each.words, at)
            if runs:
                texts += [word for word in each.words[1:] if not _OF_TEXT.fullmatch(word)]
                options = [word for word in each.words[1:] if re.match(r"-\w", word)]
                texts += [word[at:] for word in options for at in range(2, min(len(word), 5))]
        for text in dict.fromkeys(texts):
            words = ("", *_OF_TEXT.findall(text)[:_MOST_OF_TEXT])
            yield from self._refused(action, words, 1)

    def _refused(
        self, action: Action, words: tuple[str, ...], first: int = 0
    ) -> Iterator[Rule | None]:
        return (self._rules.refusing(action, words, at) for at in range(first, len(words)))


_remembered = lru_cache(maxsize=256)(Lines)


def lines_of(rules: Ruleset, call: Call, *, moved: bool) -> Lines:
    """Return the command lines of a call, taken apart, to be judged by these rules.

    `moved`: the call names another folder for them than the session's.
    """
    told = (*call.commands, *([call.title] if call.title else []))
    short = sum(map(len, (*told, *call.texts))) <= _SHORT
    return (_remembered if short else Lines)(rules, told, call.texts, moved)
