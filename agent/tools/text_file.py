"""A text file as it is on the disk, and as the model sees it: with LF, without byte order mark.

Invariants
- Everything that an edit does not name stays the same to the byte: line ends, encoding, mark.
- The digest is of the text that the model sees, so that an editor's buffer (LF) and the file behind
  it (CRLF) have the same digest.
"""

from __future__ import annotations

import codecs
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from agent.tools import ToolError

_MARK = "\ufeff"
_MARKS = {
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}
#: bytes that are looked at to tell a binary file, as many as in git
_LOOK = 8192
_CONTROL = re.compile(rb"[\x00-\x06\x0e-\x1a\x1c-\x1f]")
#: how many places a message names
_PLACES = 10


@dataclass(frozen=True, slots=True)
class Text:
    #: the text with its own line ends, without the byte order mark
    raw: str
    encoding: str = "utf-8"
    mark: str = ""
    #: True if the client gave the text, which may not be saved
    from_client: bool = False

    @property
    def lf(self) -> str:
        return self.raw.replace("\r\n", "\n")

    @property
    def line_end(self) -> str:
        """The line end that most lines have."""
        crlf = self.raw.count("\r\n")
        return "\r\n" if 2 * crlf > self.raw.count("\n") else "\n"

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.lf.encode("utf-8", "surrogatepass")).hexdigest()

    def rewritten(self, content: str) -> Text:
        """Returns another content with the same encoding, mark and line ends."""
        return replace(self, raw=_with_ends(content, self.line_end))

    def encode(self) -> bytes:
        try:
            return (self.mark + self.raw).encode(self.encoding)
        except UnicodeEncodeError as error:
            character = ascii(error.object[error.start])
            raise ToolError(f"The file's encoding, {self.encoding}, has no {character}.") from error


def from_client(content: str) -> Text:
    mark = _MARK if content.startswith(_MARK) else ""
    return Text(content[len(mark) :], mark=mark, from_client=True)


def decode(data: bytes) -> Text | None:
    """Returns the text of a file; None if it is binary.

    Text that is not UTF-8 and has no byte order mark is taken for latin-1.
    """
    encoding = next((name for mark, name in _MARKS.items() if data.startswith(mark)), "")
    mark = _MARK if encoding else ""
    if not encoding.startswith("utf-16") and b"\0" in data[:_LOOK]:
        return None
    try:
        raw = data.decode(encoding or "utf-8")[len(mark) :]
    except UnicodeDecodeError:
        if encoding or _CONTROL.search(data[:_LOOK]):
            return None
        return Text(data.decode("latin-1"), "latin-1")
    if encoding.startswith("utf-16") and "\0" in raw:  # UTF-32 begins with the same bytes
        return None
    return Text(raw, encoding or "utf-8", mark)


def replaced(text: Text, old: str, new: str, *, everywhere: bool) -> tuple[Text, list[int]]:
    """Returns the text with `old` replaced, and the numbers of the lines.

    Raises ToolError if `old` is not there, or if it is there more than once and `everywhere` is
    False.
    """
    old = old.replace("\r\n", "\n")
    found = list(re.finditer(re.escape(old).replace("\\\n", "\r?\n"), text.raw))
    if not found:
        raise ToolError(_not_found(text.lf, old))
    lines = [_line(text.raw, match.start()) for match in found]
    if len(found) > 1 and not everywhere:
        raise ToolError(
            f"`old` is there {len(found)} times, at {_at(lines)}. Give more of the lines around "
            "the one you mean, or set replace_all."
        )
    pieces, end = [], 0
    for match in found:
        ends = re.search("\r?\n", match[0])
        piece = _with_ends(new, ends[0] if ends else text.line_end)
        pieces += [text.raw[end : match.start()], piece]
        end = match.end()
    return replace(text, raw="".join([*pieces, text.raw[end:]])), lines


def _not_found(text: str, old: str) -> str:
    bare = re.sub(r"^ *\d+\t", "", old, flags=re.MULTILINE)
    if bare != old and bare in text:
        return "`old` is not there. The line numbers that read_file shows are not in the file."
    words = old.split()
    similar = words and re.search(r"\s+".join(map(re.escape, words)), text)
    if similar:
        return (
            f"`old` is not there. At line {_line(text, similar.start())} is what differs from it "
            "in spaces, tabs or line breaks only: give it exactly as it stands there."
        )
    first = next((line.strip() for line in old.split("\n") if line.strip()), "")
    near = [n for n, line in enumerate(text.split("\n"), 1) if first and first in line]
    if near and first != old.strip():
        return f"`old` is not there, only its first line is, at {_at(near)}. Read the file again."
    return "`old` is not there. It must be exactly what the file has; read the file again."


def _at(lines: Sequence[int]) -> str:
    shown = ", ".join(map(str, lines[:_PLACES])) + (", ..." if len(lines) > _PLACES else "")
    return f"line{'s' if len(lines) > 1 else ''} {shown}"


def _line(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1


def _with_ends(content: str, end: str) -> str:
    return content.replace("\r\n", "\n").replace("\n", end)
