"""Makes text of an agent harmless for a terminal: nothing in it moves a cursor or hides a word.

Invariants:
- The result holds no control character but a newline, and no character that reorders or hides
  others: each is shown as an escape that names it, so that it can be seen that it was there.
- It can be encoded: lone surrogates are escaped, and with `ascii_only` whatever is not ASCII.
"""

from __future__ import annotations

import re
from typing import Final

#: spaces that stand for a tab.
_TAB: Final = "    "
#: C0 but newline, DEL, C1, separators of lines, bidirectional controls, invisible characters but
#: the joiner and the selectors of emojis, surrogates, interlinear marks, tags, private use.
_HARMFUL: Final = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f"
    "\ud800-\udfff\ufeff\ufff9-\ufffb\U000e0000-\U000e0fff]"
)
_NOT_ASCII: Final = re.compile("[^\x00-\x7f]")


def harmless(text: object, *, ascii_only: bool = False) -> str:
    """Return a text of several lines; a value that is no text becomes an empty one."""
    if not isinstance(text, str):
        return ""
    plain = text.replace("\r\n", "\n").replace("\r", "\n").replace("\t", _TAB)
    shown = _HARMFUL.sub(_escaped, plain)
    return _NOT_ASCII.sub(_escaped, shown) if ascii_only else shown


def one_line(text: object, longest: int = 200, *, ascii_only: bool = False) -> str:
    """Return a text as one line of at most `longest` characters, such as a title or a path."""
    if not isinstance(text, str):
        return ""
    # Cut before the spaces are folded: a text of megabytes must not cost its length each time.
    line = " ".join(text[: 8 * longest].split())
    end = "..." if ascii_only else "…"
    cut = line if len(line) <= longest else line[: longest - len(end)] + end
    return harmless(cut, ascii_only=ascii_only)


def _escaped(found: re.Match[str]) -> str:
    return ascii(found[0])[1:-1]
