"""Converts the answer of an MCP server's tool into a result for the model and the client.

Invariants
- The text for the model is bounded, and says where something was left out.
- The client's card shows ACP content, whose forms are those of MCP; annotations and the like are
  left out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from agent.content.images import IMAGE_LIMIT, IMAGE_TYPES
from agent.tools import ToolError, ToolResult

#: characters of a result's text, and of an error's, that are kept
TEXT_LIMIT = 50_000
ERROR_LIMIT = 10_000
#: characters of JSON; a longer value is left out of the card's raw output
_RAW_LIMIT = 200_000
_LINK_FIELDS = ("uri", "name", "title", "description", "mimeType", "size")


@dataclass(frozen=True, slots=True)
class _Part:
    """One content block of the answer."""

    #: the text for the model
    text: str
    #: the ACP content block for the client; None: the text
    block: dict[str, Any] | None = None
    #: the `data:` URL of an image for the model
    image: str | None = None


def tool_result(answer: Mapping[str, Any], mask: Callable[[str], str] = str) -> ToolResult:
    """Returns the result for a CallToolResult in wire form.

    `mask` removes secrets from a text before it is cut. Raises ToolError if the answer is an error.
    """
    parts = [_part(block, mask) for block in answer.get("content") or ()]
    text = "\n".join(part.text for part in parts)
    structured = answer.get("structuredContent")
    if answer.get("isError"):
        raise ToolError(cut(text, ERROR_LIMIT) or "The tool failed and did not say why.")
    if not text:
        text = "The tool returned nothing." if structured is None else mask(_json(structured))
    text = cut(text)
    return ToolResult(
        text,
        raw=structured if len(_json(structured)) <= _RAW_LIMIT else None,
        content=_content(parts),
        images=tuple(part.image for part in parts if part.image),
    )


def cut(text: str, limit: int = TEXT_LIMIT) -> str:
    if len(text) <= limit:
        return text
    return f"{text[:limit]}\n[cut: {limit} of {len(text)} characters]"


def _content(parts: list[_Part]) -> tuple[dict[str, Any], ...] | None:
    if not any(part.block for part in parts):
        return None
    blocks = (part.block or {"type": "text", "text": cut(part.text)} for part in parts)
    return tuple({"type": "content", "content": block} for block in blocks)


def _part(block: Mapping[str, Any], mask: Callable[[str], str]) -> _Part:
    match block:
        case {"type": "text", "text": str(text)}:
            return _Part(mask(text))
        case {"type": "image", "data": str(data), "mimeType": str(mime)}:
            return _image(data, mime)
        case {"type": "audio", "data": str(data), "mimeType": str(mime)}:
            sound = {"type": "audio", "data": data, "mimeType": mime}
            return _Part(f"[audio, {mime}: not readable here]", sound)
        case {"type": "resource_link", "uri": str(uri), "name": str(name)}:
            told = ": ".join(filter(None, [name, block.get("description")]))
            link = {key: block[key] for key in _LINK_FIELDS if key in block}
            return _Part(f"[resource {uri}] {told}", {"type": "resource_link", **link})
        case {"type": "resource", "resource": Mapping() as resource}:
            return _resource(resource, mask)
    return _Part("[content of a kind that is not known here]")


def _image(data: str, mime: str) -> _Part:
    if len(data) > IMAGE_LIMIT:
        return _Part(f"[image, {mime}: left out, it is too large ({len(data)} characters)]")
    block = {"type": "image", "data": data, "mimeType": mime}
    if mime not in IMAGE_TYPES:
        return _Part(f"[image, {mime}: not readable here]", block)
    return _Part(f"[image, {mime}]", block, f"data:{mime};base64,{data}")


def _resource(resource: Mapping[str, Any], mask: Callable[[str], str]) -> _Part:
    uri, mime = resource.get("uri", ""), resource.get("mimeType", "")
    match resource:
        case {"text": str(text)}:
            text = mask(text)
            shown = {"uri": uri, "text": cut(text), **({"mimeType": mime} if mime else {})}
            return _Part(f"[resource {uri}]\n{text}", {"type": "resource", "resource": shown})
        case {"blob": str(blob)} if mime.startswith("image/"):
            return _image(blob, mime)
        case {"blob": str(blob)}:
            return _Part(f"[resource {uri}: {mime or 'binary'}, {len(blob) * 3 // 4} bytes]")
    return _Part(f"[resource {uri}]")


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
