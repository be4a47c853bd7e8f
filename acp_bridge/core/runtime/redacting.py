"""Masks everything that looks like a key in a JSON value, for what leaves this machine.

A text is masked by itself and with what stands before it: the name of its member, the argument
before it, the `name` beside its `value`. The bytes of images and sounds are left as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from acp_bridge.core.runtime.log import masked

#: characters of the shortest of `secrets` that is masked: a shorter one would be found everywhere.
_SHORTEST: Final = 8
#: levels of a JSON value; what is deeper is masked as a whole.
_DEEPEST: Final = 100
_MEDIA: Final = ("image", "audio")


def redactor(secrets: Sequence[str]) -> Callable[[Any], Any]:
    """Return a function that masks a JSON value; `secrets`: texts that are masked in any case."""
    known = sorted({each for each in secrets if len(each) >= _SHORTEST}, key=len, reverse=True)

    def text_of(text: str, before: str) -> str:
        for secret in known:
            text = text.replace(secret, "***")
        alone = masked(text)
        head = f"{before}: "
        both = masked(head + alone)
        if both == head + alone:
            return alone
        return both[len(head) :] if both.startswith(head) else "***"

    def redact(value: Any, before: str = "", depth: int = 0) -> Any:
        if depth > _DEEPEST:
            return "***"
        if isinstance(value, str):
            return text_of(value, before)
        if isinstance(value, list):
            words = [before, *(each if isinstance(each, str) else "" for each in value)]
            pairs = zip(value, words, strict=False)
            return [redact(each, word, depth + 1) for each, word in pairs]
        if isinstance(value, dict):
            return _members(value, lambda each, name: redact(each, name, depth + 1))
        return value

    return redact


def _members(value: dict[str, Any], redact: Callable[[Any, str], Any]) -> dict[str, Any]:
    name = value.get("name")
    media = value.get("type") in _MEDIA
    named = {"value": name} if isinstance(name, str) else {}
    return {
        redact(key, ""): each if media and key == "data" else redact(each, named.get(key, key))
        for key, each in value.items()
    }
