"""Finds in the words of a command what may name files. SANS-IO."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from acp_bridge.policy import programs
from acp_bridge.policy.shell import Command

_LETTERS: Final = re.compile(r"-[^-][A-Za-z0-9]*")
#: characters that a name on a disk can have.
_LONGEST_NAME: Final = 255


@dataclass(frozen=True, slots=True)
class Word:
    """A word of a command that may name a file."""

    text: str
    #: the shell would put others for it; a glob also files.
    expands: bool
    moved: bool
    #: the command may change all that is below, if it is a folder.
    changes_below: bool

    @property
    def is_glob(self) -> bool:
        """True if the shell may put files for it."""
        return self.expands and re.search(r"[*?\[]", self.text) is not None


def files(command: Command) -> Iterator[Word]:
    """Give the words of a command that may name files."""
    copies = programs.copies(command.words)
    changes = not (copies or command.guessed or programs.only_reads(command.words))
    for at, word in enumerate(command.words[1:], 1):
        expands = at in command.expands
        for text, sure in _parts(word):
            # Behind a `cd`, letters of an option (`ls -la`) are not taken for a file's name.
            moved = command.moved and (sure or not text.isalnum())
            yield Word(text, expands, moved, changes and sure)
    for text in programs.written_by_copying(command.words) if copies else ():
        yield Word(text, bool(re.search(r"[*?\[]", text)), command.moved, changes_below=True)


def _parts(word: str) -> Iterator[tuple[str, bool]]:
    """Give what of a word may name a file; False: it may also be letters of an option."""
    values = [word.partition("=")[2]] if "=" in word else []
    found = [(text, True) for text in (*([] if word.startswith("-") else [word]), *values)]
    if letters := _LETTERS.match(word):  # `-tFOLDER` and `-atFOLDER`
        first = max(2, letters.end() - _LONGEST_NAME)
        found += [(word[at:], False) for at in range(first, letters.end() + 1)]
    for text, sure in dict.fromkeys(found):
        bare = text.lstrip("@<")  # curl's `@FILE` and `name=<FILE`
        yield from ((each, sure) for each in dict.fromkeys((text, bare)) if each)
