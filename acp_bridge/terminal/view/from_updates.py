"""Makes blocks of a session's updates, live (`session/update`) or from the journal.

Texts are neither made harmless nor shortened here: the medium that shows a block does that.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Final

from acp_bridge.core import protocol as acp
from acp_bridge.core.protocol import Json, objects
from acp_bridge.core.updates import tool_calls
from acp_bridge.terminal.view.blocks import (
    Call,
    Card,
    Content,
    Diff,
    Plan,
    Said,
    Step,
    Voice,
)
from acp_bridge.terminal.view.command_ends import (
    command_end,
    raw_text,
    runs_a_command,
    status,
)

_VOICES: Final = {
    acp.USER_MESSAGE: Voice.USER,
    acp.AGENT_MESSAGE: Voice.AGENT,
    acp.AGENT_THOUGHT: Voice.THOUGHT,
}
#: members of a call that `tool_calls.updated` doesn't merge: an update that has one replaces it.
_STANDS: Final = ("status", "rawOutput")


class Updates:
    """Reads the updates of one session in order, and remembers its tool calls."""

    def __init__(self, most_calls: int | None = None) -> None:
        """`most_calls`: how many tool calls to remember, the oldest being forgotten; None: all."""
        self._most_calls = most_calls
        self._calls: OrderedDict[str, Json] = OrderedDict()

    def read(self, params: Json) -> Said | Call | Plan | None:
        """Return the block for the params of a `session/update`.

        None if the update shows nothing.
        """
        update, own = params.get("update"), acp.own_meta(params)
        if not isinstance(update, dict):
            return None
        match update.get("sessionUpdate"):
            case acp.USER_MESSAGE | acp.AGENT_MESSAGE | acp.AGENT_THOUGHT as kind:
                return Said(_voice(kind, own), content(update.get("content")), update)
            case acp.TOOL_CALL | acp.TOOL_CALL_UPDATE:
                return self.on_call(update)
            case acp.PLAN:
                return _plan(update)
        return None

    def newest_calls(self) -> list[tuple[str, Json]]:
        """Return the id and the merged members of each remembered tool call, the newest first."""
        return list(reversed(self._calls.items()))

    def on_call(self, update: Json) -> Call:
        """Merge an update of a tool call, or a permission request for it, into the known call.

        Return the update with the call before and after it.
        """
        call_id = str(update.get("toolCallId"))
        before = self._calls.get(call_id)
        stands = {key: update[key] for key in _STANDS if update.get(key) is not None}
        now = {**tool_calls.updated(before or {}, update), **stands}
        self._calls[call_id] = now
        while self._most_calls is not None and len(self._calls) > self._most_calls:
            self._calls.popitem(last=False)
        return Call(call_id, update, before, now)


def _voice(kind: str, own: Json) -> Voice:
    if own.get(acp.NOTICE) is True:
        return Voice.BRIDGE
    return Voice.HOOK if own.get(acp.FEEDBACK) else _VOICES[kind]


def content(block: object) -> Content | None:
    """Return a content block as a value; None if it is malformed."""
    match block:
        case {"type": "resource", "resource": {**held}}:
            text = held.get("text")
            whole = text if isinstance(text, str) else None
            blob = _text(held.get("blob"))
            return Content("resource", whole, uri=_text(held.get("uri")), data=blob)
        case {"type": str(kind), **rest}:
            return Content(
                kind,
                _text(rest.get("text")) if kind == "text" else None,
                uri=_text(rest.get("uri")),
                name=_text(rest.get("name")),
                mime_type=_text(rest.get("mimeType")),
                data=_text(rest.get("data")) if kind == "image" else "",
            )
    return None


def card(call: Json) -> Card:
    """Return the card for all that is known of a tool call."""
    end = command_end(call)
    return Card(
        _text(call.get("title")),
        _text(call.get("kind")),
        status(call),
        tuple(
            f"{path}:{at}" if isinstance(at := place.get("line"), int) else path
            for place in objects(call.get("locations"))
            if (path := _text(place.get("path")))
        ),
        tuple(each for item in objects(call.get("content")) if (each := _item(item))),
        raw_text(call),
        str(end or ""),
        end is not None or runs_a_command(call),
    )


def _item(item: Json) -> Diff | Content | None:
    match item:
        case {"type": "diff", **rest}:
            old = rest.get("oldText")
            is_there = isinstance(old, str)
            return Diff(
                _text(rest.get("path")), old if is_there else None, _text(rest.get("newText"))
            )
        case {"type": "content", "content": block}:
            return content(block)
    return None


def _plan(update: Json) -> Plan:
    return Plan(
        tuple(
            (_step(entry.get("status")), _text(entry.get("content")))
            for entry in objects(update.get("entries"))
        )
    )


def _step(status: object) -> Step:
    return next((step for step in Step if step.value == status), Step.PENDING)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
