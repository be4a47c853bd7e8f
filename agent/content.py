"""ACP content blocks (wire form) as what a model reads.

Invariants
- Whatever a client sends becomes something: what can't be given is named in words, so that a
  history holds nothing that a provider would refuse for good.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, TypeAlias
from urllib.parse import unquote, urlsplit

Block: TypeAlias = dict[str, Any]

#: what providers take; another kind would be refused, and with it every later prompt
_IMAGES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
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


def has_images(blocks: Iterable[Block]) -> bool:
    return any(_image(block) is not None for block in blocks)


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


def _image(block: Block) -> str | None:
    """The `data:` URL of an image that a model can take."""
    match block:
        case {"type": "image", "mimeType": str(kind), "data": str(data)}:
            pass
        case {"type": "resource", "resource": {"mimeType": str(kind), "blob": str(data)}}:
            pass
        case _:
            return None
    return f"data:{kind};base64,{data}" if kind in _IMAGES and data else None


def _text(block: Block) -> str:
    match block:
        case {"type": "text", "text": str(text)}:
            return text
        case {"type": "resource_link", "uri": str(uri), "name": str(name)}:
            return f"[{name}]({place(uri)})"
        case {"type": "resource", "resource": {"uri": str(uri), "text": str(text)}}:
            return f"{place(uri)}:\n{_fenced(text)}"
        case {"type": "resource", "resource": {"uri": str(uri), **rest}}:
            what = "an image" if _image(block) else rest.get("mimeType") or "binary"
            return f"({place(uri)}: {what}, not shown)"
        case {"type": "image", "uri": str(uri)}:
            return f"({place(uri)}: an image, not shown)"
        case {"type": "image"}:
            return "(an image, not shown)"
    return "(content that this agent does not read)"


def _fenced(text: str) -> str:
    longest = max((len(found) for found in _FENCE.findall(text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}\n{text}{'' if text.endswith(chr(10)) else chr(10)}{fence}"
