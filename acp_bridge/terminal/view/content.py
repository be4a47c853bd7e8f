"""Content blocks of ACP as text; what is no text is named."""

from __future__ import annotations

from typing import Any


def text_of(block: Any) -> str:
    """Return a content block's text, or what stands for it, as it came."""
    if not isinstance(block, dict):
        return ""
    match block.get("type"):
        case "text":
            return _text(block.get("text"))
        case "resource_link":
            return f"@{_text(block.get('name')) or _text(block.get('uri'))}"
        case "resource":
            inner = block.get("resource")
            return f"[{_text(inner.get('uri'))}]" if isinstance(inner, dict) else "[resource]"
        case "image" | "audio" as kind:
            return f"[{kind} {_text(block.get('mimeType'))}]"
    return ""


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
