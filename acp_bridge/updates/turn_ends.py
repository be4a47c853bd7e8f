"""How a turn ended, in words: for the transcript, and for the terminal that asked. SANS-IO."""

from __future__ import annotations

from typing import Any, Final

from acp_bridge.protocol import ErrorCode, Json, as_object

_REASONS: Final = {
    "cancelled": "stopped",
    "max_tokens": "ended: the model's limit of tokens",
    "max_turn_requests": "ended: the limit of requests of one turn",
    "refusal": "ended: the agent refused",
}
#: characters that are told of an error.
_LONGEST: Final = 500


def reason(stop_reason: object) -> str | None:
    """Return words for the `stopReason` of an answer; None for `end_turn`."""
    if stop_reason == "end_turn":
        return None
    return _REASONS.get(str(stop_reason), f"ended: {stop_reason}")


def error(code: int, message: str, data: Any) -> str:
    """Return words for the error that answered a prompt, with `data.details` if it says more."""
    if code == ErrorCode.REQUEST_CANCELLED:
        return "taken back"
    details = as_object(data).get("details")
    says_more = isinstance(details, str) and details not in ("", message)
    return f"error: {message}{f': {details}' if says_more else ''}"


def notice_text(told: Json) -> str | None:
    """Return the sentence about an answer in the form of the journal; None if it ended well."""
    match told:
        case {"error": {"code": int(code), "message": str(message), **rest}}:
            words: str | None = error(code, message, rest.get("data"))
        case {"stopReason": stop_reason}:
            words = reason(stop_reason)
        case _:
            return None
    if words is None:
        return None
    line = " ".join(words.split())
    line = line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"
    end = "" if line.endswith((".", "!", "?", "…")) else "."
    return f"[acp-bridge] {line[0].upper()}{line[1:]}{end}"
