"""Pictures that agents and tools send as data, for a page. SANS-IO.

Invariants
- A picture is a PNG, JPEG, GIF or WebP by its own first bytes, whatever its sender calls it. SVG is
  none of them: it is a document.
- Its bytes and its pixels have a bound that its header is checked against: a small file that
  unfolds to gigabytes is no picture.
"""

from __future__ import annotations

import binascii
import struct
from base64 import b64decode
from dataclasses import dataclass
from typing import Final

#: characters of base64, and pixels of one side and of all, that a picture may have.
_LONGEST: Final = 3_000_000
_WIDEST: Final = 16_384
_PIXELS: Final = 25_000_000
#: characters of base64 in which the header of a picture stands; a JPEG's may follow a long profile.
_HEAD: Final = 400_000
#: the markers of a JPEG before its size: those of a frame, and those without a length.
_FRAMES: Final = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_BARE: Final = frozenset((0x01, *range(0xD0, 0xD8)))


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture that a page may show: its type, its size in pixels, and its base64."""

    mime_type: str
    width: int
    height: int
    data: str

    @property
    def source(self) -> str:
        """The picture as a `data:` URL."""
        return f"data:{self.mime_type};base64,{self.data}"

    @property
    def name(self) -> str:
        """The kind and size of the picture, in words."""
        kind = self.mime_type.removeprefix("image/").upper().replace("WEBP", "WebP")
        return f"Image ({kind}, {self.width} x {self.height})"


def picture(data: str) -> Picture | None:
    """Return the picture in `data`, base64; None if it is none that a page may show."""
    data = "".join(data.split())
    if not 0 < len(data) <= _LONGEST:
        return None
    try:
        whole = b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return None
    found = _size(whole[:_HEAD])
    if found is None:
        return None
    kind, width, height = found
    if not (0 < width <= _WIDEST and 0 < height <= _WIDEST and width * height <= _PIXELS):
        return None
    return Picture(f"image/{kind}", width, height, data)


def _size(head: bytes) -> tuple[str, int, int] | None:
    """Return the kind, width and height that the first bytes of a picture say."""
    try:
        if head[:8] == b"\x89PNG\r\n\x1a\n" and head[12:16] == b"IHDR":
            return ("png", *struct.unpack(">II", head[16:24]))
        if head[:6] in (b"GIF87a", b"GIF89a"):
            return ("gif", *struct.unpack("<HH", head[6:10]))
        if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
            return _webp(head)
        if head[:3] == b"\xff\xd8\xff":
            return _jpeg(head)
    except (struct.error, IndexError):  # it ends in its header
        pass
    return None


def _webp(head: bytes) -> tuple[str, int, int] | None:
    match head[12:16]:
        case b"VP8 " if head[23:26] == b"\x9d\x01\x2a":
            width, height = struct.unpack("<HH", head[26:30])
            return "webp", width & 0x3FFF, height & 0x3FFF
        case b"VP8L" if head[20] == 0x2F:
            (bits,) = struct.unpack("<I", head[21:25])
            return "webp", (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        case b"VP8X":
            low = struct.unpack("<HBHB", head[24:30])
            return "webp", low[0] + (low[1] << 16) + 1, low[2] + (low[3] << 16) + 1
    return None


def _jpeg(head: bytes) -> tuple[str, int, int] | None:
    """Return the size in the first frame's header, to which the lengths of the segments lead."""
    at = 2
    while head[at] == 0xFF:
        marker = head[at + 1]
        if marker == 0xFF:  # a fill byte
            at += 1
        elif marker in _BARE:
            at += 2
        elif marker in _FRAMES:
            height, width = struct.unpack(">HH", head[at + 5 : at + 9])
            return "jpeg", width, height
        else:
            (length,) = struct.unpack(">H", head[at + 2 : at + 4])
            if length < 2 or marker in (0xD8, 0xD9, 0xDA):
                return None
            at += 2 + length
    return None
