"""ACP content blocks (wire form) as what a model reads.

Invariants
- Whatever a client sends becomes something: what can't be given is named in words, so that a
  history holds nothing that a provider would refuse for good.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Iterable
from typing import Any, TypeAlias
from urllib.parse import unquote, urlsplit

Block: TypeAlias = dict[str, Any]

#: what providers take; another kind would be refused, and with it every later prompt
IMAGE_TYPES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
#: characters of base64 of one image: 5 MB, which every provider takes
IMAGE_LIMIT = 5_000_000
_FENCE = re.compile(r"`{3,}")
_DRIVE = re.compile(r"/[A-Za-z]:")


def content_of(blocks: Iterable[Block], *, images: bool = True) -> str | list[Block]:
    """A message's `content`: a text, or parts if there are images that the model takes."""
    parts: list[Block] = []
    for block in blocks:
        url = _image(block) if images else None
        if url is not None:
            parts.append(image_part(url))
        elif not (text := _text(block)).strip():  # providers refuse a blank one
            continue
        elif parts and parts[-1]["type"] == "text":
            parts[-1]["text"] += "\n" + text
        else:
            parts.append({"type": "text", "text": text})
    if any(part["type"] != "text" for part in parts):
        return parts
    return parts[0]["text"] if parts else ""


def text_of(blocks: Iterable[Block]) -> str:
    """The same in words alone."""
    return "\n".join(text for block in blocks if (text := _text(block)).strip())


def image_url(kind: str, data: str) -> str | None:
    """The `data:` URL of an image; None if providers would refuse it. `kind`: the MIME type that
    it is said to have; `data`: base64."""
    if not data or len(data) > IMAGE_LIMIT:
        return None
    try:
        start = binascii.a2b_base64(data, strict_mode=True)[:12]
    except ValueError:
        return None
    kind = image_type(start) or kind
    return f"data:{kind};base64,{data}" if kind in IMAGE_TYPES else None


def is_image(url: str) -> bool:
    """Whether providers take it. `url`: a `data:` URL."""
    kind, _, data = url.removeprefix("data:").partition(";base64,")
    return image_url(kind, data) == url


def image_type(start: bytes) -> str | None:
    """The MIME type of an image that models take, by its first 12 bytes."""
    if start.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if start.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if start.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    if start.startswith(b"RIFF") and start[8:12] == b"WEBP":
        return "image/webp"
    return None


def image_part(url: str) -> Block:
    """`url`: a `data:` URL."""
    return {"type": "image_url", "image_url": {"url": url}}


def place(uri: str) -> str:
    """The path that a `file:` URI means; any other URI as it is."""
    try:
        parts = urlsplit(uri)
    except ValueError:
        return uri
    if parts.scheme != "file" or not parts.path or parts.netloc not in ("", "localhost"):
        return uri
    path = unquote(parts.path)
    lines = f"#{parts.fragment}" if parts.fragment else ""
    return (path[1:] if _DRIVE.match(path) else path) + lines


def fenced(text: str) -> str:
    """Text that is not markdown, in a fence longer than any of its own."""
    longest = max((len(found) for found in _FENCE.findall(text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}\n{text.removesuffix(chr(10))}\n{fence}"


def _image(block: Block) -> str | None:
    """The `data:` URL of an image that a model can take."""
    match block:
        case {"type": "image", "mimeType": str(kind), "data": str(data)}:
            pass
        case {"type": "resource", "resource": {"mimeType": str(kind), "blob": str(data)}}:
            pass
        case _:
            return None
    return image_url(kind, data)


def _text(block: Block) -> str:
    match block:
        case {"type": "text", "text": str(text)}:
            return text
        case {"type": "resource_link", "uri": str(uri), "name": str(name)}:
            return f"[{name}]({place(uri)})"
        case {"type": "resource", "resource": {"uri": str(uri), "text": str(text)}}:
            return f"{place(uri)}:\n{fenced(text)}"
        case {"type": "resource", "resource": {"uri": str(uri), **rest}}:
            what = "an image" if _image(block) else rest.get("mimeType") or "binary"
            return f"({place(uri)}: {what}, not shown)"
        case {"type": "image", "uri": str(uri)}:
            return f"({place(uri)}: an image, not shown)"
        case {"type": "image", "data": str(data)} if len(data) > IMAGE_LIMIT:
            return "(an image that is too large, not shown)"
        case {"type": "image"}:
            return "(an image, not shown)"
    return "(content that this agent does not read)"
