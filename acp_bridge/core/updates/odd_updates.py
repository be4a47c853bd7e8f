"""Reads the updates of an agent of version 1 that are not as the protocol has them. SANS-IO.

- What can be understood is put into the protocol's form: text is never lost for its form.
- A status that version 1 doesn't have becomes the one that it means, or is left out: clients know a
  closed list. So are the kinds of version 2, of which only those with words mean something here.
- What is not named here passes as it came (invariant T3).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from acp_bridge.core.protocol import (
    AGENT_MESSAGE,
    AGENT_THOUGHT,
    MESSAGES,
    PLAN,
    SAID_UPDATE,
    STATE,
    TOOL_CALL,
    TOOL_CALL_UPDATE,
    TRANSCRIPT,
    USER_MESSAGE,
    Json,
    as_object,
    objects,
    without_own_meta,
)

_CALLS: Final = (TOOL_CALL, TOOL_CALL_UPDATE)
#: kinds of version 2 that have words, as the kinds of version 1 that say them; the others are
#: dropped.
_OF_VERSION_2: Final = {
    "user_message": USER_MESSAGE,
    "agent_message": AGENT_MESSAGE,
    "agent_thought": AGENT_THOUGHT,
    "notice": AGENT_MESSAGE,
    **dict.fromkeys(("state_update", "replay_complete", "tool_call_content_chunk"), ""),
    **dict.fromkeys(("terminal_update", "terminal_output_chunk"), ""),
}
#: an attribute's name, where the protocol has a capital letter.
_SNAKE: Final = re.compile(r"_([a-z])")
#: members whose objects have members of the protocol.
_OF_THE_PROTOCOL: Final = frozenset(
    {"update", "content", "toolCall", "options", "locations", "entries", "availableCommands"}
)
_READ: Final = frozenset({*_CALLS, PLAN, *_OF_VERSION_2})
#: kinds that are known, under whichever name and in whichever spelling an update has them.
_KINDS: Final = frozenset({*TRANSCRIPT, *STATE, *_OF_VERSION_2} - {SAID_UPDATE})
_NAMES_OF_KINDS: Final = ("sessionUpdate", "session_update", "updateType", "type", "kind")
#: kinds of a bridge's own begin so.
_OWN: Final = "_acp_bridge"
#: what a status of a tool call, or of an entry of a plan, means in version 1.
_STATUSES: Final = {
    **dict.fromkeys(("pending", "paused", "queued", "waiting", "scheduled", "created"), "pending"),
    **dict.fromkeys(("in_progress", "running", "executing", "started", "working"), "in_progress"),
    **dict.fromkeys(("completed", "complete", "done", "success", "succeeded"), "completed"),
    **dict.fromkeys(("finished", "ok", "successful"), "completed"),
    **dict.fromkeys(("failed", "error", "errored", "failure", "cancelled", "canceled"), "failed"),
    **dict.fromkeys(("rejected", "denied", "aborted", "interrupted", "timed_out"), "failed"),
}
_V1_STATUSES: Final = ("pending", "in_progress", "completed", "failed")
#: members of a tool call that are there or not, and never null.
_OPENING: Final = ("content", "kind", "locations", "status", "title")
#: the only members of an empty chunk that says nothing.
_NOTHING_ELSE: Final = {"sessionUpdate", "content", "messageId"}


def is_blank(update: Json) -> bool:
    """Return True for a message of white space alone."""
    text = as_object(update.get("content")).get("text")
    return isinstance(text, str) and not text.strip()


def is_plain(update: Json) -> bool:
    """Return True for an update that needs no look: text, or of a kind that is not read here."""
    kind = update["sessionUpdate"]
    if kind in MESSAGES:
        content = update.get("content")
        if type(content) is not dict or content.get("type") != "text" or "_meta" in content:
            return False
        text = content.get("text")
        return type(text) is str and text != "" and "_meta" not in update
    odd = kind in _READ or kind.startswith(_OWN) or not kind.islower()
    return not ("_meta" in update or odd)


def with_kind(params: Json) -> Json:
    """Return the parameters of an update whose kind has another name, or that lacks `update`.

    They are returned as they are if no kind is found.
    """
    given = params.get("update")
    around: Json = {name: params[name] for name in ("sessionId", "_meta") if name in params}
    update = given if isinstance(given, dict) else {n: params[n] for n in params if n not in around}
    for name in _NAMES_OF_KINDS:
        if isinstance(kind := update.get(name), str) and as_word(kind) in _KINDS:
            rest = in_camel_case({n: update[n] for n in update if n != name})
            return {**around, "update": {"sessionUpdate": as_word(kind), **rest}}
    return params


def mended(update: Json) -> list[Json]:
    """Return the updates that one of an agent of version 1 means: none if nothing is understood."""
    kind = update["sessionUpdate"]
    if kind not in _KINDS and as_word(kind) in _KINDS:
        kind = as_word(kind)
        update = {**update, "sessionUpdate": kind}
    update = without_own_meta(update)
    if kind in MESSAGES:
        return [*_chunks(update)]
    if kind in _CALLS:
        return [call(update)] if isinstance(id_of(update), str) else []
    if kind == PLAN:
        entries = update.get("entries")
        told = _entries(entries) if isinstance(entries, list) else entries
        return [update if told == entries else {**update, "entries": told}]
    if meant := _OF_VERSION_2.get(kind):
        said = [update[name] for name in ("title", "description") if name in update]
        content = update.get("content", "\n\n".join(filter(_is_text, said)))
        told = {name: update[name] for name in ("messageId", "_meta") if name in update}
        return [*_chunks({"sessionUpdate": meant, **told, "content": content})]
    return [] if kind in _OF_VERSION_2 or kind.startswith(_OWN) else [update]


def says_nothing(update: Json) -> bool:
    """Return True for an empty chunk of text, unless it has another member than its message's id.

    Whether it begins a message is for the caller to know.
    """
    content = update.get("content")
    empty = type(content) is dict and content == {"type": "text", "text": ""}
    return empty and update["sessionUpdate"] in MESSAGES and not update.keys() - _NOTHING_ELSE


# --- messages -------------------------------------------------------------------------------------


def _chunks(update: Json) -> Iterator[Json]:
    """Yield a chunk for each block in a message's content, whatever form that has."""
    if not isinstance(update.get("messageId"), str | None):
        update = {**update, "messageId": str(update["messageId"])}
    content = update.get("content")
    if content is None and _is_text(update.get("text")):
        content = update["text"]
        update = {name: update[name] for name in update if name != "text"}
    for item in content if isinstance(content, list) else [content]:
        if (block := _block(item)) is not None:
            block = without_own_meta(block)
            yield update if block is content else {**update, "content": block}


def _block(item: Any) -> Json | None:
    """Return a block of content; None for what is none."""
    if isinstance(item, str):
        return {"type": "text", "text": item}
    if not isinstance(item, dict):
        return None
    if item.get("type", "text") != "text":
        return item
    text = next((item[n] for n in ("text", "content") if item.get(n) is not None), "")
    if isinstance(text, str) and item.get("type") == "text" and item.get("text") == text:
        return item
    kept = {name: item[name] for name in item if name != "content"}
    return {**kept, "type": "text", "text": text if isinstance(text, str) else str(text)}


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value)


# --- tool calls and plans -------------------------------------------------------------------------


def id_of(call: Json) -> object:
    """Return the id of a tool call, a number as its digits; None if it has none."""
    id = call.get("toolCallId")
    return str(id) if isinstance(id, int) and not isinstance(id, bool) else id


def call(update: Json) -> Json:
    """Return a tool call, or an update of one, in the form that version 1 has for it."""
    told = {**update, "toolCallId": id_of(update)}
    if told.get("status") not in (None, *_V1_STATUSES):
        told["status"] = status_of(told["status"])
        if told["status"] is None:
            del told["status"]
    for name in ("title", "kind"):
        if not isinstance(told.get(name), str | None):
            del told[name]
    for name, read in (("content", _item), ("locations", _place)):
        if (given := told.get(name)) is not None:
            items = given if isinstance(given, list) else [given]
            told[name] = [each for item in items if (each := read(item)) is not None]
    if update.get("sessionUpdate") == TOOL_CALL:
        told = {name: told[name] for name in told if told[name] is not None or name not in _OPENING}
    return told if told != update else update


def status_of(status: object) -> str | None:
    """Return the status of version 1 that a status means; None if that is not known."""
    if not isinstance(status, str):
        return None
    return _STATUSES.get(as_word(status))


def as_word(name: str) -> str:
    """Return `inProgress`, `IN-PROGRESS` or `In progress` as `in_progress`."""
    apart = "".join(
        f"_{each}" if each.isupper() and before.islower() else each
        for before, each in zip(f" {name}", name, strict=False)
    )
    return apart.strip().lower().replace("-", "_").replace(" ", "_")


def _item(item: Any) -> Any:
    """Return an item of a tool call's content; None for what is none."""
    if isinstance(item, dict):
        if "type" not in item and isinstance(item.get("content"), dict):
            return {"type": "content", **item}
        if item.get("type", "text" if "text" in item else "") not in ("text", "image", "audio"):
            return item
    block = _block(item)
    return None if block is None else {"type": "content", "content": block}


def _place(place: Any) -> Any:
    """Return a location of a tool call; None for what is none."""
    if isinstance(place, str):
        return {"path": place}
    return place if isinstance(place, dict) else None


def _entries(entries: list[Any]) -> list[Json]:
    """Return the entries of a plan in version 1's form."""
    from acp_bridge.versions.update_to_v1 import entry  # few sessions ever need it

    told = [{"content": each} if isinstance(each, str) else each for each in entries]
    named = [
        {**each, "status": status_of(each["status"]) or each["status"]}
        if each.get("status") not in (None, "cancelled")
        else each
        for each in objects(told)
    ]
    return [entry(each) for each in named if isinstance(each.get("content"), str)]


def in_camel_case(told: Json) -> Json:
    """Return an object with members such as `session_id` under the protocol's names.

    Some agents in Python write the names of their own attributes. What a tool is given or returns
    stays as it is.
    """
    named: Json = {
        name if name.startswith("_") else _SNAKE.sub(lambda found: found[1].upper(), name): value
        for name, value in told.items()
    }
    for name in _OF_THE_PROTOCOL & named.keys():
        named[name] = _inner_in_camel_case(named[name])
    return named


def _inner_in_camel_case(value: object) -> object:
    if isinstance(value, list):
        return [_inner_in_camel_case(each) for each in value]
    return in_camel_case(value) if isinstance(value, dict) else value
