"""Splits Markdown that arrives in pieces into paragraphs that are finished and a rest.

Invariants:
- All that `add` and `take_rest` returned is together the text that was added, but for empty lines
  between paragraphs, and the fence lines that are repeated where a code block is cut.
- `rest` is never longer than `_LONGEST` characters, so drawing it stays cheap.
"""

from __future__ import annotations

import re
from typing import Final

#: characters of a paragraph or code block after which it is cut at the next end of a line.
_LONG: Final = 4_000
#: characters after which a paragraph or code block is cut anywhere.
_LONGEST: Final = 8_000
#: characters of a code block's first line that are repeated where the block is cut.
_OPENING: Final = 100
_FENCE: Final = re.compile(r"^ {0,3}(`{3,}|~{3,})(.*)$")


class Paragraphs:
    """Splits the text of one message into paragraphs; `rest` is what is not finished yet."""

    def __init__(self) -> None:
        self.rest = ""
        #: where the search for the first paragraph's end continues, and the fence open there, or
        #: "".
        self._at = 0
        self._fence = ""
        self._opening = ""

    def add(self, piece: str) -> list[str]:
        """Add a piece of the message; returns the paragraphs that no further piece can change."""
        found = []
        for begin in range(0, len(piece), _LONG):  # each cut copies the rest, which must stay short
            self.rest += piece[begin : begin + _LONG]
            while (paragraph := self._next()) is not None:
                if paragraph.strip():
                    found.append(paragraph)
        return found

    def take_rest(self) -> str:
        """Return what is left at the end of the message, and forget it; "" for white space."""
        rest, self.rest, self._at, self._fence = self.rest, "", 0, ""
        return rest if rest.strip() else ""

    def _next(self) -> str | None:
        while (end := self.rest.find("\n", self._at)) >= 0:
            line = self.rest[self._at : end]
            following = self.rest[end + 1 : end + 2]
            if self._ends_here(line, following):
                return self._cut(end + 1)
            if self._undecided(line, following):
                break
            self._at = end + 1
            if self._at > _LONG:
                return self._divide(self._at)
        return self._divide(_LONGEST) if len(self.rest) > _LONGEST else None

    def _ends_here(self, line: str, following: str) -> bool:
        """Return True if the paragraph ends after this line; keeps track of open fences."""
        fence = _FENCE.match(line)
        if self._fence:
            closes = fence and fence[1].startswith(self._fence) and not fence[2].strip()
            if closes:
                self._fence = ""
            return bool(closes)
        if fence:
            self._fence, self._opening = fence[1], line[:_OPENING]
            return False
        # An indented line after an empty line belongs to the list item above.
        return not line.strip() and following not in ("", " ", "\n")

    def _undecided(self, line: str, following: str) -> bool:
        return not self._fence and not line.strip() and following == ""

    def _cut(self, end: int) -> str:
        taken, self.rest = self.rest[:end], self.rest[end:]
        self._at = 0
        return taken

    def _divide(self, end: int) -> str:
        """Cut off and return the first `end` characters.

        An open code block is closed and reopened.
        """
        fence, opening = self._fence, self._opening
        taken = self._cut(end)
        if not fence:
            return taken
        self.rest = f"{opening}\n{self.rest}"
        self._at = len(opening) + 1
        return f"{taken}{'' if taken.endswith(chr(10)) else chr(10)}{fence}\n"
