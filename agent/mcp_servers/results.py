"""Converts the answer of an MCP server's tool into a result for the model and the client.

Invariants
- An odd block takes no other with it. Nothing that says that a call failed is taken for a success.
- The text for the model is bounded, and says where something was left out.
- The client's card shows ACP content, whose forms are those of MCP; annotations and the like are
  left out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from agent.content.images import IMAGE_LIMIT, image_url, is_base64, mended_image
from agent.loose import number, words
from agent.mcp_servers.messages import VALUE
from agent.tools import ToolError, ToolResult

#: characters of a result's text, and of an error's, that are kept
TEXT_LIMIT = 50_000
ERROR_LIMIT = 10_000
#: characters of JSON; a longer value is left out of the card's raw output
_RAW_LIMIT = 200_000
_LINK_FIELDS = ("title", "description", "mimeType")


class _Part(Struct, frozen=True):
    """One content block of the answer."""

    #: the text for the model
    text: str
    #: the ACP content block for the client; None: the text
    block: dict[str, Any] | None = None
    #: the `data:` URL of an image for the model
    image: str | None = None


def tool_result(answer: Mapping[str, Any], mask: Callable[[str], str] = str) -> ToolResult:
    """Returns the result for a CallToolResult as the server sent it.

    `mask` removes secrets from a text before it is cut. Raises ToolError if the answer is an error,
    or if it is none yet.
    """
    parts = [_part(block, mask) for block in _blocks(answer)]
    text = "\n".join(part.text for part in parts)
    structured = answer.get("structuredContent")
    if answer.get("resultType") == "input_required":
        raise ToolError("The tool asks for an answer of the user's, which this agent can't get.")
    if _is_error(answer):
        told = text or mask(words(answer.get("error")))
        raise ToolError(cut(told, ERROR_LIMIT) or "The tool failed and did not say why.")
    if not text:
        text = "The tool returned nothing." if structured is None else mask(_json(structured))
    text = cut(text)
    return ToolResult(
        text,
        raw=structured if len(_json(structured)) <= _RAW_LIMIT else None,
        content=_content(parts),
        images=tuple(part.image for part in parts if part.image),
    )


def _is_error(answer: Mapping[str, Any]) -> bool:
    """Returns True if an answer says that the call failed; what is not plainly a no counts."""
    said = answer.get("isError", answer.get("is_error"))
    if isinstance(said, str):
        said = said.strip().lower() not in ("", "false", "no", "none", "null", "0")
    return bool(said) or (bool(answer.get("error")) and not answer.get("content"))


def _blocks(answer: Mapping[str, Any]) -> list[Any]:
    """Returns the blocks of an answer's content: a list, one block, or a text in its place."""
    content = answer.get("content", answer.get(VALUE, answer.get("toolResult")))
    if isinstance(content, list):
        return content
    if isinstance(content, Mapping) and not _type_of(content):
        return [_json(content)]
    return [] if content is None else [content]


def cut(text: str, limit: int = TEXT_LIMIT) -> str:
    if len(text) <= limit:
        return text
    return f"{text[:limit]}\n[cut: {limit} of {len(text)} characters]"


def _content(parts: list[_Part]) -> tuple[dict[str, Any], ...] | None:
    if not any(part.block for part in parts):
        return None
    blocks = (part.block or {"type": "text", "text": cut(part.text)} for part in parts)
    return tuple({"type": "content", "content": block} for block in blocks)


def _type_of(block: Mapping[str, Any]) -> str:
    """Returns the type of a block: the one that it names, or the one that its members show."""
    if isinstance(named := block.get("type"), str) and named:
        return named
    if "data" in block:
        return "audio" if words(block.get("mimeType")).startswith("audio/") else "image"
    return next((kind for kind in ("text", "resource") if kind in block), "")


def _part(block: Any, mask: Callable[[str], str]) -> _Part:
    if not isinstance(block, Mapping):
        return _Part(mask(block if isinstance(block, str) else _json(block)))
    mime = words(block.get("mimeType") or block.get("mime_type") or block.get("mediaType"))
    match _type_of(block):
        case "text":
            return _Part(mask(words(block)))
        case "image" if isinstance(data := block.get("data"), str):
            return _image(data, mime)
        case "audio" if isinstance(data := block.get("data"), str):
            sound = {"type": "audio", "data": data, "mimeType": mime}
            return _Part(f"[audio, {mime}: not readable here]", sound)
        case "resource_link" if isinstance(uri := block.get("uri"), str):
            return _link(block, uri)
        case "resource" if isinstance(resource := block.get("resource"), Mapping):
            return _resource(resource, mask)
    unknown = "[content of a kind that is not known here]"
    said = mask(words(block))
    return _Part(f"{unknown}\n{said}" if said else unknown)


def _link(block: Mapping[str, Any], uri: str) -> _Part:
    name = words(block.get("name")) or uri
    told = ": ".join(filter(None, [name, words(block.get("description"))]))
    link: dict[str, Any] = {"type": "resource_link", "uri": uri, "name": name}
    link |= {key: text for key in _LINK_FIELDS if (text := words(block.get(key)))}
    if (size := number(block.get("size"))) is not None and size >= 0:
        link["size"] = size
    return _Part(f"[resource {uri}] {told}", link)


def _image(data: str, mime: str) -> _Part:
    mime, data = mended_image(mime, data)
    if len(data) > IMAGE_LIMIT:
        return _Part(f"[image, {mime}: left out, it is too large ({len(data)} characters)]")
    block = {"type": "image", "data": data, "mimeType": mime}
    if (url := image_url(mime, data)) is None:
        told = f"[image, {mime}: not readable here]"
        return _Part(told, block if is_base64(data) else None)
    return _Part(f"[image, {mime}]", block, url)


def _resource(resource: Mapping[str, Any], mask: Callable[[str], str]) -> _Part:
    uri, mime = words(resource.get("uri")), words(resource.get("mimeType"))
    match resource:
        case {"text": str(text)}:
            text = mask(text)
            shown = {"uri": uri, "text": cut(text), **({"mimeType": mime} if mime else {})}
            return _Part(f"[resource {uri}]\n{text}", {"type": "resource", "resource": shown})
        case {"blob": str(blob)} if mended_image(mime, blob)[0].startswith("image/"):
            return _image(blob, mime)
        case {"blob": str(blob)}:
            return _Part(f"[resource {uri}: {mime or 'binary'}, {len(blob) * 3 // 4} bytes]")
    said = mask(words(resource.get("text")))
    return _Part(f"[resource {uri}]\n{said}" if said else f"[resource {uri}]")


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)
