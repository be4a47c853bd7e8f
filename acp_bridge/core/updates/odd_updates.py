"""Reads the updates of an agent of version 1 that are not as the protocol has them. SANS-IO.

- What can be understood is put into the protocol's form: text is never lost for its form.
- A status that version 1 doesn't have becomes the one that it means, or is left out: clients know a
  closed list. So are the kinds of version 2, of which only those with words mean something here.
- What is not named here passes as it came (invariant T3).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Final

from acp_bridge.core.protocol import (
    AGENT_MESSAGE,
    AGENT_THOUGHT,
    COMMANDS_UPDATE,
    MESSAGES,
    MODE_UPDATE,
    OPTIONS_UPDATE,
    PLAN,
    SAID_UPDATE,
    SESSION_UPDATE,
    STATE,
    TOOL_CALL,
    TOOL_CALL_UPDATE,
    TRANSCRIPT,
    USER_MESSAGE,
    Json,
    as_object,
    without,
    without_own_meta,
)
from acp_bridge.core.wire.jsonrpc import whole_number

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
#: names of attributes by which a block, or an item of a content, is known to have such names.
_SNAKES: Final = frozenset({"mime_type", "old_text", "new_text", "terminal_id"})
#: members whose objects have members of the protocol.
_OF_THE_PROTOCOL: Final = frozenset(
    {"update", "content", "resource", "toolCall", "options", "locations", "entries"}
    | {"availableCommands", "configOptions"}
)
_READ: Final = frozenset({*_CALLS, PLAN, *STATE, *_OF_VERSION_2})
#: kinds that are known, under whichever name and in whichever spelling an update has them.
_KINDS: Final = frozenset({*TRANSCRIPT, *STATE, *_OF_VERSION_2} - {SAID_UPDATE})
_NAMES_OF_KINDS: Final = ("sessionUpdate", "session_update", "updateType", "type", "kind")
#: kinds of a bridge's own begin so.
_OWN: Final = "_acp_bridge"
_V1_STATUSES: Final = ("pending", "in_progress", "completed", "failed")
#: what other words for a status of a tool call, or of an entry of a plan, mean in version 1.
_STATUSES: Final = {
    **dict.fromkeys(("paused", "queued", "waiting", "scheduled", "created"), "pending"),
    **dict.fromkeys(("running", "executing", "started", "working"), "in_progress"),
    **dict.fromkeys(("complete", "done", "success", "succeeded", "successful"), "completed"),
    **dict.fromkeys(("finished", "ok"), "completed"),
    **dict.fromkeys(("error", "errored", "failure", "cancelled", "canceled"), "failed"),
    **dict.fromkeys(("rejected", "denied", "aborted", "interrupted", "timed_out"), "failed"),
}
_V1_KINDS: Final = (
    *("read", "edit", "delete", "move", "search", "execute", "think", "fetch"),
    *("switch_mode", "other"),
)
#: the values that version 1 has for an entry of a plan.
_PRIORITIES: Final = ("high", "medium", "low")
_PLAN_STATUSES: Final = ("pending", "in_progress", "completed")
#: members of a tool call that are there or not, and never null.
_OPENING: Final = ("content", "kind", "locations", "status", "title")
#: where the text of a message with words is.
TEXT: Final = ("params", "update", "content", "text")
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


def is_words(message: Json) -> bool:
    """Return True for a notification of plain text of the agent's, without any other member.

    Such notifications can come as a run (`wire.runs`), which differs in the text at `TEXT`.
    """
    if message.get("method") != SESSION_UPDATE or "id" in message:
        return False
    match message["params"]:
        case {"sessionId": str(), "update": {"sessionUpdate": kind} as update, **more}:
            return kind in (AGENT_MESSAGE, AGENT_THOUGHT) and not more and is_plain(update)
    return False


def with_kind(params: Json) -> Json:
    """Return the parameters of an update whose kind has another name, or that lacks `update`.

    They are returned as they are if no kind is found.
    """
    around: Json = {name: params[name] for name in ("sessionId", "_meta") if name in params}
    flat = {name: params[name] for name in params if name not in around and name != "update"}
    update = {**flat, **as_object(params.get("update"))}
    for name in _NAMES_OF_KINDS:
        if isinstance(kind := update.get(name), str) and as_word(kind) in _KINDS:
            rest = in_camel_case(without(update, name))
            return {**around, "update": {"sessionUpdate": as_word(kind), **rest}}
    return params


def mended(update: Json) -> list[Json]:
    """Return the updates that one of an agent of version 1 means: none if nothing is understood."""
    kind = update["sessionUpdate"]
    if kind not in _KINDS and as_word(kind) in _KINDS:
        kind = as_word(kind)
        update = {**update, "sessionUpdate": kind}
    if not isinstance(update.get("_meta"), dict | None):
        update = without(update, "_meta")
    update = without_own_meta(update)
    if kind in MESSAGES:
        return [*_chunks(update)]
    if kind in _CALLS:
        return [call(update)] if isinstance(id_of(update), str) else []
    if kind in _LISTS:
        return [*_list(update, *_LISTS[kind])]
    if kind in STATE:
        return [*_state(update)]
    if meant := _OF_VERSION_2.get(kind):
        said = [update[name] for name in ("title", "description") if name in update]
        content = update.get("content", "\n\n".join(filter(_is_text, said)))
        told: Json = {name: update[name] for name in ("messageId", "_meta") if name in update}
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
        update = without(update, "text")
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
        return _named(item)
    text = next((item[n] for n in ("text", "content") if item.get(n) is not None), "")
    if isinstance(text, str) and item.get("type") == "text" and item.get("text") == text:
        return item
    kept = without(item, "content")
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
    if told.get("status") is not None:
        told["status"] = one_of(told["status"], _V1_STATUSES, _STATUSES)
    if isinstance(kind := told.get("kind"), str):
        told["kind"] = one_of(kind, _V1_KINDS, {}, "other")
    for name in ("title", "kind", "status"):
        if not isinstance(told.get(name, ""), str) and update[name] is not None:
            del told[name]
    for name, read in (("content", _item), ("locations", _place)):
        if told.get(name) is not None:
            told[name] = _all(told[name], read)
    if update.get("sessionUpdate") == TOOL_CALL:
        told = {name: told[name] for name in told if told[name] is not None or name not in _OPENING}
    return told if told != update else update


def one_of(
    word: object, allowed: Collection[str], meant: Mapping[str, str], default: str | None = None
) -> str | None:
    """Return which of the `allowed` words a word is, in any spelling, or what it is `meant` to be.

    `default` stands for any other value.
    """
    if word in allowed or not isinstance(word, str):
        return word if isinstance(word, str) else default
    name = as_word(word)
    return name if name in allowed else meant.get(name, default)


def as_word(name: str) -> str:
    """Return `inProgress`, `IN-PROGRESS` or `In progress` as `in_progress`."""
    apart = "".join(
        f"_{each}" if each.isupper() and before.islower() else each
        for before, each in zip(f" {name}", name, strict=False)
    )
    return apart.strip().lower().replace("-", "_").replace(" ", "_")


def _all(given: Any, read: Callable[[Any], Any]) -> list[Any]:
    """Return the items of a list, or a lone item, as `read` understands them, without the rest."""
    items = given if isinstance(given, list) else [given]
    return [each for item in items if (each := read(item)) is not None]


def _item(item: Any) -> Any:
    """Return an item of a tool call's content; None for what is none."""
    if isinstance(item, dict):
        if item.get("type", "content") == "content" and isinstance(item.get("content"), dict | str):
            block = _block(item["content"])
            same = block is item["content"] and "type" in item
            return item if same else {"type": "content", **item, "content": block}
        if item.get("type", "text" if "text" in item else "") not in ("text", "image", "audio"):
            return _named(item)
    block = _block(item)
    return None if block is None else {"type": "content", "content": block}


def _place(place: Any) -> Any:
    """Return a location of a tool call; None for what is none."""
    return {"path": place} if isinstance(place, str) else as_object(place) or None


def _entry(given: Any) -> Json | None:
    """Return an entry of a plan in version 1's form; None for what is none."""
    told = {"content": given} if isinstance(given, str) else as_object(given)
    if not isinstance(told.get("content"), str):
        return None
    status = told.get("status")
    meant = status if status == "cancelled" else one_of(status, _V1_STATUSES, _STATUSES)
    return entry_of_v1({**told, "status": meant} if meant else told)


def entry_of_v1(entry: Json) -> Json:
    """Return an entry of a plan in version 1; a cancelled one becomes completed, and says so."""
    told = dict(entry)
    status, content = entry.get("status"), entry.get("content")
    if status == "cancelled":
        told["status"], told["content"] = "completed", f"{content} (cancelled)"
    elif status not in _PLAN_STATUSES:
        told["status"] = "pending"
    if entry.get("priority") not in _PRIORITIES:
        told["priority"] = "medium"
    return told


def _command(given: Any) -> Json | None:
    """Return a command that is offered in version 1's form; None for what is none."""
    told = {"name": given} if isinstance(given, str) else as_object(given)
    if not isinstance(told.get("name"), str):
        return None
    if not isinstance(told.get("description"), str):
        told = {**told, "description": ""}
    if isinstance(hint := told.get("input"), str):
        return {**told, "input": {"hint": hint}}
    if hint is None or isinstance(as_object(hint).get("hint"), str):
        return told
    return without(told, "input")


#: kinds that tell a list: the member that has it, and what reads its items.
_LISTS: Final[dict[str, tuple[str, Callable[[Any], Json | None]]]] = {
    PLAN: ("entries", _entry),
    COMMANDS_UPDATE: ("availableCommands", _command),
    OPTIONS_UPDATE: ("configOptions", lambda given: as_object(given) or None),
}


def _list(update: Json, name: str, read: Callable[[Any], Json | None]) -> Iterator[Json]:
    """Yield an update that tells a list; nothing if it has another value in its place."""
    update = update if name in update else in_camel_case(update)
    if isinstance(given := update.get(name, []), list | dict | str):
        told = _all(given, read)
        yield update if told == given else {**update, name: told}


#: numbers of tokens are below this one.
_TOKENS: Final = 2**64
_NAMES_OF_MODES: Final = ("currentModeId", "current_mode_id", "modeId", "mode_id", "currentMode")


def _is_cost(cost: object) -> bool:
    """Return True for a cost as version 1 has it, or none."""
    told = as_object(cost)
    amount = told.get("amount")
    is_int = isinstance(amount, int) and not isinstance(amount, bool)
    is_number = is_int or (isinstance(amount, float) and math.isfinite(amount))
    return cost is None or (is_number and isinstance(told.get("currency"), str))


def _state(update: Json) -> Iterator[Json]:
    """Yield an update that tells a mode, tokens or a title; nothing if it tells none."""
    if update["sessionUpdate"] == MODE_UPDATE:
        told = [as_object(update.get(n)).get("id", update.get(n)) for n in _NAMES_OF_MODES]
        if mode := next(filter(_is_text, told), None):
            kept = {name: update[name] for name in update if name not in _NAMES_OF_MODES}
            yield update if update.get("currentModeId") == mode else {**kept, "currentModeId": mode}
        return
    for name in ("used", "size"):
        number = whole_number(update.get(name))
        if number is not None and 0 <= number < _TOKENS:
            update = {**update, name: number}
        elif update.get(name) is not None:
            return
    if not _is_cost(update.get("cost")):
        update = without(update, "cost")
    for name in ("title", "updatedAt"):
        if not isinstance(update.get(name), str | None):
            update = {**update, name: None}
    yield update


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


def _named(item: Json) -> Json:
    """Return a block, or an item of a content, under the protocol's names."""
    names = item.keys() | as_object(item.get("resource")).keys()
    return in_camel_case(item) if _SNAKES & names else item


def _inner_in_camel_case(value: object) -> object:
    if isinstance(value, list):
        return [_inner_in_camel_case(each) for each in value]
    return in_camel_case(value) if isinstance(value, dict) else value
