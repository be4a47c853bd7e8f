"""Finds in the words of a command what may name files. SANS-IO."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final
from urllib.parse import unquote

from acp_bridge.features.rules import programs
from acp_bridge.features.rules.harmless import objection
from acp_bridge.features.rules.programs import base
from acp_bridge.features.rules.shell import Command

_LETTERS: Final = re.compile(r"-[^-][A-Za-z0-9]*")
#: options of programs that search, behind which a pattern of names stands.
_GLOBS: Final = frozenset({"-g", "--glob", "--iglob", "--include"})
#: what parts `HEAD:path`, `:(icase)path` and `-L1,2:path`.
_OF_GIT: Final = re.compile(r":(?:\([^)]*\)|[!^/]*)")
#: the address of a folder.
_FILE: Final = re.compile(r"file://[^/]*(/.*)", re.IGNORECASE | re.DOTALL)
#: the most characters that a name on a disk can have.
_LONGEST_NAME: Final = 255


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


def files(command: Command) -> Iterator[Word]:
    """Give the words of a command that may name files."""
    copies = programs.copies(command.words)
    of_git = base(command.words[0]) == "git"
    only_reads = programs.only_reads(command.words)
    reads = only_reads and not (command.guessed or objection(command))
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


def patterns(command: Command) -> Iterator[str]:
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
