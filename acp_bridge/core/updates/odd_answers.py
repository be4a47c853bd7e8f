"""Reads answers that are not as the protocol has them: to prompts and to permissions. SANS-IO.

Lenient about the form, strict about consent: an answer that names one offered option, and says
nothing else, chooses it; whatever else is not understood chooses none (invariant C18).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from acp_bridge.core import errors
from acp_bridge.core.protocol import CANCELLED_PERMISSION, Json, as_object, meta_of, objects
from acp_bridge.core.updates.odd_updates import as_word
from acp_bridge.core.wire.jsonrpc import Answer, Err, Ok, read_answer

# --- the end of a turn ----------------------------------------------------------------------------

_END: Final = "end_turn"
_REASONS: Final = (_END, "max_tokens", "max_turn_requests", "refusal", "cancelled")
#: what other words for the end of a turn mean in version 1.
_MEANT: Final = {
    **dict.fromkeys(("length", "max_output_tokens", "token_limit"), "max_tokens"),
    **dict.fromkeys(("max_turns", "max_steps", "max_iterations"), "max_turn_requests"),
    **dict.fromkeys(("refused", "content_filter", "safety"), "refusal"),
    **dict.fromkeys(("canceled", "user_cancelled", "user_canceled"), "cancelled"),
}
#: members under which agents name the reason.
_NAMED: Final = ("stopReason", "stop_reason", "finishReason", "finish_reason", "reason", "type")


def end_of_turn(answer: Answer) -> tuple[Answer, str]:
    """Return an agent's answer to a prompt with a reason of version 1, and the agent's own word.

    The word is empty if it is the reason. A reason that nobody knows is a good end; the reason
    `error` is an error, with the words that stand beside it.
    """
    if isinstance(answer, Err):
        return answer, ""
    result = as_object(answer.result)
    if result.get("stopReason") in _REASONS:
        return answer, ""
    word = _reason(answer.result)
    name = as_word(word)
    if name in ("error", "failed", "failure"):
        told = read_answer({"error": {**result, "code": result.get("code")}})
        if isinstance(told, Err) and _says(result):
            return Err(errors.agent_trouble(told.error.message)), word
        return Err(errors.agent_trouble("the agent ended the turn with an error")), word
    reason = name if name in _REASONS else _MEANT.get(name, _END)
    return Ok({**result, "stopReason": reason}), word


def _says(result: Json) -> bool:
    return any(isinstance(result.get(n), str | dict) for n in ("message", "error", "details"))


def _reason(result: object) -> str:
    """Return the word with which a result names its reason; empty if it has none."""
    if isinstance(result, str):
        return result
    given = as_object(result)
    return next(filter(None, (_reason(given[n]) for n in _NAMED if n in given)), "")


# --- permissions ----------------------------------------------------------------------------------

_KINDS: Final = ("allow_once", "allow_always", "reject_once", "reject_always")
_SELECTED: Final = "selected"
#: members of an answer to a permission: those that say that an option is chosen, and those that
#: name it.
_HOW: Final = ("outcome", "type", _SELECTED)
_WHICH: Final = ("optionId", "option_id", _SELECTED)
#: members of an answer that say otherwise, whatever else it says.
_OTHERWISE: Final = ("error", "cancelled", "canceled", "rejected", "denied", "declined")


def options_of_v1(options: object) -> list[Json]:
    """Return those options of a permission that a client of version 1 can show, with a name.

    An option of a kind that it doesn't know is left out: what it would mean to choose it, no client
    can tell. So are those with an id that is unclear.
    """
    told = [each for each in objects(options) if isinstance(each.get("optionId"), str)]
    unclear = unclear_options(options)
    return [
        each if isinstance(each.get("name"), str) else {**each, "name": each["optionId"]}
        for each in told
        if each.get("kind") in _KINDS and each["optionId"] not in unclear
    ]


def unclear_options(options: object) -> list[object]:
    """Return the ids under which a permission has both an option that allows and one that doesn't.

    An agent that is answered with such an id may take it for either.
    """
    told = [(str(each.get("kind")), each.get("optionId")) for each in objects(options)]
    others = [option_id for kind, option_id in told if not kind.startswith("allow")]
    return [each for kind, each in told if kind.startswith("allow") and each in others]


def permission_answer(result: object, offered: list[object]) -> Json | None:
    """Return a client's answer to a permission in the protocol's form; None if it says nothing.

    It chooses an option if it names that one and no other, and if nothing in it says otherwise.
    """
    given = as_object(result)
    match given:
        case {"outcome": {"outcome": "cancelled"}}:
            return given
        case {"outcome": "cancelled"}:
            return {**meta_of(given), **CANCELLED_PERMISSION}
        case {"outcome": {"outcome": "selected", "optionId": str(option)}}:
            chosen: object = option
            others = [holder.get(name) for holder in _holders(given) for name in _WHICH]
            named = [option, *(each for each in others if each is not None and each is not True)]
            whole = given
        case _:
            named = [*_said(given)]
            chosen = next((each for each in named if each is not _CHOSEN), None)
            whole = {**meta_of(given), "outcome": {"outcome": _SELECTED, "optionId": chosen}}
    against = [holder.get(name) for holder in _holders(given) for name in _OTHERWISE]
    if chosen not in offered or any(each not in (None, False) for each in against):
        return None
    return whole if all(each in (chosen, _CHOSEN) for each in named) else None


#: stands for a member that says that an option is chosen, and not which.
_CHOSEN: Final = object()


def _said(given: Json) -> Iterator[object]:
    """Yield the options that an answer names; `_CHOSEN` for a member that says that one is chosen,
    and None for one that is not understood."""
    for name in dict.fromkeys((*_HOW, *_WHICH)):
        value = given.get(name)
        if isinstance(value, dict):
            yield from _said(value)
        elif name in _HOW and (value is True or str(value).lower() == _SELECTED):
            yield _CHOSEN
        elif value is not None:
            yield value if name in _WHICH and isinstance(value, str) else None


def _holders(given: Json) -> Iterator[Json]:
    yield given
    for name in _HOW:
        if isinstance(inner := given.get(name), dict):
            yield from _holders(inner)


def numbered(result: Any) -> Any:
    """Return an answer to `initialize` with a number as its version, where that came as digits."""
    told = result.get("protocolVersion") if isinstance(result, dict) else None
    if isinstance(told, str) and told.isascii() and told.isdigit():
        return {**result, "protocolVersion": int(told[:5])}
    return result
