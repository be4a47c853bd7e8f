"""A text file as it is on the disk, and as the model sees it: with LF, without byte order mark.

A file whose lines all end with CR is seen with LF, too.

Invariants
- Everything that an edit does not name stays the same to the byte: line ends, encoding, mark, and
  bytes that are not of the encoding. The model sees each of those as U+FFFD. Where it repeats one,
  the byte stays.
- The digest is of the text that the model sees, so that an editor's buffer (LF) and the file behind
  it (CRLF) have the same digest.
"""

from __future__ import annotations

import codecs
import hashlib
import re
from bisect import bisect_left
from collections.abc import Sequence
from itertools import islice

from msgspec import Struct

from acp_bridge.core.records import replace
from agent.tools import ToolError

_MARK = "\ufeff"
#: the longest first: that of UTF-32 begins like that of UTF-16
_MARKS = {
    codecs.BOM_UTF32_LE: "utf-32-le",
    codecs.BOM_UTF32_BE: "utf-32-be",
    b"\x84\x31\x95\x33": "gb18030",
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}
#: bytes of one unit of an encoding that is not read byte by byte
_UNITS = {"utf-16-le": 2, "utf-16-be": 2, "utf-32-le": 4, "utf-32-be": 4}
#: how an odd byte is shown, and how Python's codecs keep one in a text
_ODD = "\ufffd"
_KEPT = re.compile("[\ud800-\udfff]")
_BEYOND = re.compile(r"[^\x00-\x7f]+")
#: bytes in which a null byte makes a file binary, as many as in git
_LOOK = 8192
_CONTROL = re.compile(rb"[\x00-\x06\x0e-\x1a\x1c-\x1f]")
#: how many places a message names
_PLACES = 10


class Text(Struct, frozen=True):
    #: the text with its own line ends, without the byte order mark
    raw: str
    encoding: str = "utf-8"
    mark: str = ""
    #: True if the client gave the text, which may not be saved
    from_client: bool = False
    #: True if `raw` has bytes that are not of the encoding, each as a lone surrogate
    odd: bool = False
    #: the beginning of a character behind the text's last whole one
    tail: bytes = b""

    @property
    def lf(self) -> str:
        """The text as the model sees it."""
        text = self.raw.replace(*(("\r", "\n") if self._has_cr_alone else ("\r\n", "\n")))
        return _KEPT.sub(_ODD, text) if self.odd else text

    @property
    def line_end(self) -> str:
        """The line end of most lines."""
        if self._has_cr_alone:
            return "\r"
        crlf = self.raw.count("\r\n")
        return "\r\n" if 2 * crlf > self.raw.count("\n") else "\n"

    @property
    def _has_cr_alone(self) -> bool:
        return "\n" not in self.raw and "\r" in self.raw

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.lf.encode("utf-8", "surrogatepass")).hexdigest()

    def rewritten(self, content: str) -> Text:
        """Returns a text with this content and the same encoding, mark and line ends.

        Raises ToolError.
        """
        if self.odd and _KEPT.search(content):
            raise ToolError("The content has half a character, which is no text.")
        return replace(self, raw=self.filled(self.raw, _with_ends(content, self.line_end)))

    def filled(self, old: str, new: str) -> str:
        """Returns `new`, which replaces the piece `old`, with the odd bytes that it repeats.

        Raises ToolError if it is not clear which bytes are meant.
        """
        if not (self.odd and _KEPT.search(old)):
            return new
        kept = [each for each in old if each == _ODD or _KEPT.match(each)]
        shown = new.count(_ODD)
        if shown == len(kept):
            byte = iter(kept)
            return "".join(next(byte) if each == _ODD else each for each in new)
        if shown == 0:
            return new
        raise ToolError(
            f"{_bytes(len(kept))} of what is replaced not {self.encoding} and shown as {_ODD}; "
            f"the new text has {shown} of them. Keep all or none, or change the lines around them."
        )

    def encode(self) -> bytes:
        try:
            errors = _errors(self.encoding) if self.odd else "strict"
            return (self.mark + self.raw).encode(self.encoding, errors) + self.tail
        except UnicodeEncodeError as error:
            character = ascii(error.object[error.start])
            raise ToolError(f"The file's encoding, {self.encoding}, has no {character}.") from error


def from_client(content: str) -> Text:
    mark = _MARK if content.startswith(_MARK) else ""
    return Text(content[len(mark) :], mark=mark, from_client=True)


def decode(data: bytes) -> Text | None:
    """Returns the text of a file's bytes; None if they are binary.

    Text without a byte order mark is UTF-8 if most of it can be, and else latin-1.
    """
    marked = next((name for mark, name in _MARKS.items() if data.startswith(mark)), "")
    if marked not in _UNITS and b"\0" in data[:_LOOK]:
        return None
    if not marked:
        return _unmarked(data)
    text = _decoded(data, marked)
    return None if text is None or (marked in _UNITS and "\0" in text.raw) else text


def _unmarked(data: bytes) -> Text | None:
    try:
        return Text(data.decode("utf-8"))
    except UnicodeDecodeError:
        if _CONTROL.search(data[:_LOOK]):
            return None
    text = _decoded(data, "utf-8")
    if text is not None and _is_utf8_but_for_some(text.raw):
        return text
    return Text(data.decode("latin-1"), "latin-1")


def _is_utf8_but_for_some(raw: str) -> bool:
    """Returns True if what is beyond ASCII is UTF-8 for the most part.

    In text of other encodings it happens that a character or two look like UTF-8, but hardly that a
    fifth of all words do.
    """
    runs = _BEYOND.findall(raw)
    odd = sum(1 for run in runs if _KEPT.search(run))
    kept = len(_KEPT.findall(raw))
    proper = sum(len(run.encode("utf-8", "surrogateescape")) for run in runs) - kept
    return 0 < len(runs) - odd >= odd / 4 or proper >= 4 * kept


def _decoded(data: bytes, encoding: str) -> Text | None:
    """Returns a text that is written as `data` again, odd bytes kept; None if there is none."""
    whole = len(data) - len(data) % _UNITS.get(encoding, 1)
    mark = _MARK if data.startswith(_MARK.encode(encoding)) else ""
    try:
        raw = data[:whole].decode(encoding, _errors(encoding))[len(mark) :]
        odd = _KEPT.search(raw) is not None
        text = Text(raw, encoding, mark, odd=odd, tail=data[whole:])
        return text if text.encode() == data else None
    except (UnicodeError, ToolError):
        return None


def _errors(encoding: str) -> str:
    return "surrogatepass" if encoding in _UNITS else "surrogateescape"


def _bytes(count: int) -> str:
    return "1 byte" + " is" if count == 1 else f"{count} bytes are"


def replaced(
    text: Text, old: str, new: str, *, everywhere: bool, limit: int | None = None
) -> tuple[Text, list[int]]:
    """Returns the text with `old` replaced by `new`, and the line numbers of the replacements.

    It takes linear time, which for long texts is too long for an event loop. Raises ToolError if
    `old` is not there, if it is there more than once and `everywhere` is False, or if the result
    would have more than `limit` characters.
    """
    old, shown = old.replace("\r\n", "\n"), text.lf
    if text.odd and _KEPT.search(new):
        raise ToolError("`new` has half a character, which is no text.")
    found = _places(shown, old)
    if not found:
        raise ToolError(_not_found(shown, old))
    lines = _lines(shown, found)
    if len(found) > 1 and not everywhere:
        raise ToolError(
            f"`old` is there {len(found)} times, at {_at(lines)}. Give more of the lines around "
            "the one you mean, or set replace_all."
        )
    if limit is not None and len(text.raw) + len(found) * (len(new) - len(old)) > limit:
        raise ToolError(f"The file would be longer than {limit} characters.")
    crlf = _crlf_places(text.raw)
    by_end = {end: _with_ends(new, end) for end in ("\n", "\r\n", "\r")}
    own_end = text.line_end
    pieces, done = [], 0
    for place in found:
        start = _in_raw(place, crlf)
        end = _in_raw(place + len(old), crlf)
        first = text.raw.find("\n", start, end)
        line_end = own_end if first < 0 else "\r\n" if text.raw[first - 1 : first] == "\r" else "\n"
        pieces += [text.raw[done:start], text.filled(text.raw[start:end], by_end[line_end])]
        done = end
    return replace(text, raw="".join([*pieces, text.raw[done:]])), lines


def _places(text: str, piece: str) -> list[int]:
    """Returns all positions of a piece; uses `find`, which takes linear time."""
    found, at = [], text.find(piece)
    while at >= 0:
        found.append(at)
        at = text.find(piece, at + len(piece))
    return found


def _lines(text: str, places: Sequence[int]) -> list[int]:
    """Returns the line number of each of these ascending positions."""
    found, line, at = [], 1, 0
    for place in places:
        line += text.count("\n", at, place)
        at = place
        found.append(line)
    return found


def _crlf_places(raw: str) -> list[int]:
    """Returns the positions of the CRLFs of `raw`, counted as if each were one character."""
    return [place - number for number, place in enumerate(_places(raw, "\r\n"))]


def _in_raw(place: int, crlf: Sequence[int]) -> int:
    return place + bisect_left(crlf, place)


def _not_found(text: str, old: str) -> str:
    bare = re.sub(r"^ *\d+\t", "", old, flags=re.MULTILINE)
    if bare != old and bare in text:
        return "`old` is not there. The line numbers that read_file shows are not in the file."
    if line := _line_but_for_spaces(text, old):
        return (
            f"`old` is not there. At line {line} is what differs from it "
            "in spaces, tabs or line breaks only: give it exactly as it stands there."
        )
    first = next((line.strip() for line in old.split("\n") if line.strip()), "")
    near = [n for n, line in enumerate(text.split("\n"), 1) if first and first in line]
    if near and first != old.strip():
        return f"`old` is not there, only its first line is, at {_at(near)}. Read the file again."
    return "`old` is not there. It must be exactly what the file has; read the file again."


def _line_but_for_spaces(text: str, old: str) -> int:
    """Returns the number of the line at which the words of `old` begin, whatever space is between.

    Returns 0 if they are nowhere.
    """
    words = " ".join(old.split())
    joined = " ".join(text.split())
    at = joined.find(words) if words else -1
    if at < 0:
        return 0
    number = joined.count(" ", 0, at)
    word = next(islice(re.finditer(r"\S+", text), number, None))
    return text.count("\n", 0, word.start()) + 1


def _at(lines: Sequence[int]) -> str:
    shown = ", ".join(map(str, lines[:_PLACES])) + (", ..." if len(lines) > _PLACES else "")
    return f"line{'s' if len(lines) > 1 else ''} {shown}"


def _with_ends(content: str, end: str) -> str:
    return content.replace("\r\n", "\n").replace("\n", end)
