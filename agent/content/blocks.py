"""Converts ACP content blocks (in wire form) into the content of a message for a model.

Invariants
- Every block of a client becomes something: a block that a model can't read is named in words, so
  that the history has nothing that a provider would refuse for good.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, TypeAlias
from urllib.parse import unquote, urlsplit

from agent.content.fences import fenced
from agent.content.images import IMAGE_LIMIT, image_url

Block: TypeAlias = dict[str, Any]

_DRIVE = re.compile(r"/[A-Za-z]:")


def content_of(blocks: Iterable[Block], *, images: bool = True) -> str | list[Block]:
    """Returns the `content` of a message: a text, or parts if there are images.

    `images`: the model takes images; otherwise each is named in words.
    """
    parts: list[Block] = []
    for block in blocks:
        url = _image(block) if images else None
        if url is not None:
            parts.append(image_part(url))
        elif not (text := _text(block)).strip():  # providers refuse blank texts
            continue
        elif parts and parts[-1]["type"] == "text":
            parts[-1]["text"] += "\n" + text
        else:
            parts.append({"type": "text", "text": text})
    if any(part["type"] != "text" for part in parts):
        return parts
    return parts[0]["text"] if parts else ""


def text_of(blocks: Iterable[Block]) -> str:
    """Returns the texts of the blocks, joined; images and other blocks are named in words."""
    return "\n".join(text for block in blocks if (text := _text(block)).strip())


def images_of(blocks: Iterable[Block]) -> int:
    """Returns how many of the blocks are images, including those that no model takes."""
    return sum(map(_is_image, blocks))


def unreadable_images(blocks: Iterable[Block]) -> int:
    """Returns how many of the blocks are images that no model takes."""
    return sum(_is_image(block) and _image(block) is None for block in blocks)


def image_part(url: str) -> Block:
    """Returns the part of a message for the image of this `data:` URL."""
    return {"type": "image_url", "image_url": {"url": url}}


def place(uri: str) -> str:
    """Returns the path of a `file:` URI; any other URI unchanged."""
    try:
        parts = urlsplit(uri)
    except ValueError:
        return uri
    if parts.scheme != "file" or not parts.path or parts.netloc not in ("", "localhost"):
        return uri
    path = unquote(parts.path)
    lines = f"#{parts.fragment}" if parts.fragment else ""
    return (path[1:] if _DRIVE.match(path) else path) + lines


def _is_image(block: Block) -> bool:
    match block:
        case {"type": "image"}:
            return True
        case {"type": "resource", "resource": {"mimeType": str(mime_type), "blob": str()}}:
            return mime_type.startswith("image/")
    return False


def _image(block: Block) -> str | None:
    """Returns the `data:` URL of a block's image; None if it has no image that models take."""
    match block:
        case {"type": "image", "mimeType": str(mime_type), "data": str(data)}:
            pass
        case {"type": "resource", "resource": {"mimeType": str(mime_type), "blob": str(data)}}:
            pass
        case _:
            return None
    return image_url(mime_type, data)


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
