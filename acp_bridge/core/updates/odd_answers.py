"""Reads answers that are not as the protocol has them: to prompts and to permissions. SANS-IO.

Lenient about the form, strict about consent: an answer that names one offered option, and says
nothing else, chooses it; whatever else is not understood chooses none (invariant C18).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from acp_bridge.core import errors
from acp_bridge.core.protocol import (
    CANCELLED_PERMISSION,
    STOP_REASON,
    VERSION,
    Json,
    as_object,
    meta_of,
    objects,
    own_meta,
    speaks_v2,
    with_own_meta,
)
from acp_bridge.core.updates.odd_updates import as_word, one_of
from acp_bridge.core.wire.jsonrpc import Answer, Err, Ok, read_answer, whole_number

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

    The word is empty if it is the reason. A reason that nobody knows is a good end, with the word
    in `_meta` for clients that take it; the reason `error` is an error, with the words that stand
    beside it.
    """
    if isinstance(answer, Err):
        return answer, ""
    result = as_object(answer.result)
    if result.get("stopReason") in _REASONS:
        return answer, ""
    word = _reason(answer.result)
    if as_word(word) in ("error", "failed", "failure"):
        told = read_answer({"error": {**result, "code": result.get("code")}})
        if isinstance(told, Err) and _says(result):
            return Err(errors.agent_trouble(told.error.message)), word
        return Err(errors.agent_trouble("the agent ended the turn with an error")), word
    known = one_of(word, _REASONS, _MEANT)
    ended: Json = {**result, "stopReason": known or _END}
    if known is None and word and word == result.get("stopReason"):
        ended = with_own_meta(ended, {**own_meta(ended), STOP_REASON: word})
    return Ok(ended), word


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
_OTHERWISE: Final = (
    *("error", "cancelled", "canceled", "rejected", "denied", "declined", "dismissed", "aborted"),
)
#: members that are true in an answer that allows, and those that name a decision in a word.
_AGREES: Final = ("approved", "allowed", "accepted", "confirmed", "granted")
_HOW_DECIDED: Final = ("action", "decision", "kind", "status")


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

    It chooses an option if it names that one and no other, and if nothing in it says otherwise. In
    another form than the protocol's, nothing else may be in it.
    """
    given = as_object(result)
    match given:
        case {"outcome": {"outcome": "cancelled"} as how}:
            return {**_without_choice(given), "outcome": _without_choice(how)}
        case {"outcome": "cancelled"}:
            return {**meta_of(given), **CANCELLED_PERMISSION}
        case {"outcome": {"outcome": "selected", "optionId": str()}}:
            in_form = True
        case _:
            in_form = False
    named, odd = set[object](), False
    for name, value in _members(given):
        if _denies(name, value):
            odd = True
        elif name in (*_OTHERWISE, "_meta") or value is None or (name in _HOW and _selects(value)):
            pass
        elif name in _WHICH and isinstance(value, str):
            named.add(value)
        else:
            odd |= name in _WHICH or not in_form
    if odd or len(named) != 1 or (option := named.pop()) not in offered:
        return None
    chosen: Json = {"outcome": {"outcome": _SELECTED, "optionId": option}}
    return given if in_form else {**meta_of(given), **chosen}


def _without_choice(told: Json) -> Json:
    """Return a cancelled answer without the option that it names.

    An agent may look at that alone.
    """
    return {name: told[name] for name in told if name not in _WHICH}


def _denies(name: str, value: object) -> bool:
    """Return True for a member that says that nothing is allowed, in any spelling."""
    word = as_word(name).removeprefix("is_")
    if word in _OTHERWISE:
        return value not in (None, False)
    if word in _AGREES:
        return value is False
    said = as_word(value).split("_")[0] if isinstance(value, str) else ""
    return word in _HOW_DECIDED and said in (*_OTHERWISE, "reject", "deny", "decline", "cancel")


def _members(given: Json) -> Iterator[tuple[str, object]]:
    """Yield the members of an answer, and of those in which an option may be named."""
    for name, value in given.items():
        if isinstance(value, dict) and name in (*_HOW, *_WHICH):
            yield from _members(value)
        else:
            yield name, value


def _selects(value: object) -> bool:
    return value is True or str(value).lower() == _SELECTED


def opened(result: Any) -> Json:
    """Return an answer that opens a session without settings of another type than version 1 has."""
    told, types = as_object(result), {"modes": dict, "models": dict, "configOptions": list}
    return {
        name: value
        for name, value in told.items()
        if value is None or isinstance(value, types.get(name, object))
    }


def made_id(result: Any) -> str | None:
    """Return the id that an answer gives a new session, also as a number; None if it has none."""
    told = as_object(result)
    agent_id = told.get("sessionId", told.get("session_id"))
    return str(agent_id) if isinstance(agent_id, str) or type(agent_id) is int else None


def numbered(result: Any) -> Any:
    """Return an answer to `initialize` with a number as its version.

    That came as digits or as 1.0, or is missing from an answer that is not of version 2.
    """
    if not isinstance(result, dict):
        return result
    told = result.get("protocolVersion")
    if told is None and not speaks_v2({**result, "protocolVersion": 2}):
        told = VERSION
    number = whole_number(told)
    return result if number is None else {**result, "protocolVersion": number}
