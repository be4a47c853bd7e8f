"""Updates of an agent of version 2, kept beside what version 1 shows in their place. SANS-IO.

An update that loses nothing in version 1 is recorded in version 1 alone, and translated back for
clients of version 2. Any other is recorded in both forms: as the agent said it, for clients of
version 2, and as clients of version 1 are shown it.
"""

from __future__ import annotations

from typing import Final

from acp_bridge.core import protocol
from acp_bridge.core.protocol import (
    SAID,
    SAID_UPDATE,
    STATE,
    Json,
    as_object,
    objects,
    with_own_meta,
)
from acp_bridge.versions import v2

#: kinds that tell a piece of something larger: version 1 is shown the whole from time to time.
_PIECES: Final = frozenset(
    {v2.TOOL_CALL_CONTENT_CHUNK, v2.TERMINAL_UPDATE, v2.TERMINAL_OUTPUT_CHUNK}
)
#: kinds that the bridge tells by itself, that are told in version 1 alone, or that no agent tells.
_NOT_KEPT: Final = frozenset(
    {v2.STATE_UPDATE, v2.REPLAY_COMPLETE, v2.USER_MESSAGE, protocol.USER_MESSAGE}
    | {*STATE, *protocol.OF_SUBAGENTS}
    | {protocol.TOOL_CALL, protocol.PLAN, protocol.PLAN_REMOVED, SAID_UPDATE}
)


def with_said(said: Json, shown: list[Json]) -> list[Json]:
    """Return the params of the updates to record for `said`, an update of version 2.

    `shown`: the updates that a client of version 1 is shown for it. If they say less, `said` itself
    is put into the `_meta` of the first, or becomes an update of its own.
    """
    kind = said.get("sessionUpdate")
    if not isinstance(kind, str) or kind in _NOT_KEPT or _says_all(said, shown):
        return [{"update": each} for each in shown]
    if kind in _PIECES or not shown:
        return [_said(said), *(for_version_1(each) for each in shown)]
    first, *others = shown
    marked = with_own_meta({"update": first}, {SAID: said})
    return [marked, *(for_version_1(each) for each in others)]


def for_version_1(shown: Json) -> Json:
    """Return the params of the update `shown`, marked as one for clients of version 1 alone."""
    return with_own_meta({"update": shown}, {SAID: None})


def question_said(params: Json) -> Json:
    """Return those members of a permission's `params` in version 2 that version 1 has no form for.

    They are title and description, and the subject if it names a tool call.
    """
    subject = as_object(params.get("subject"))
    call_id = subject.get("toolCallId", as_object(subject.get("toolCall")).get("toolCallId"))
    said = {n: params[n] for n in ("title", "description") if isinstance(params.get(n), str)}
    return {**said, "subject": subject} if isinstance(call_id, str) else said


def _said(said: Json) -> Json:
    return {"update": {"sessionUpdate": SAID_UPDATE, SAID: said}}


def _says_all(said: Json, shown: list[Json]) -> bool:
    """Return True if `shown` is one update that, apart from its kind, equals `said`."""
    if len(shown) != 1:
        return False
    of_any_kind = {"sessionUpdate": None}
    return {**shown[0], **of_any_kind} == {**said, **of_any_kind}


class TerminalIds:
    """Maps the terminal ids of one agent process to ids that no other process uses, and back."""

    def __init__(self, ids: str) -> None:
        """`ids`: the prefix of each id that clients are told; empty: ids stay unchanged."""
        self._ids = f"{ids}/" if ids else ""

    def at_agent(self, terminal_id: str) -> str:
        """Return the agent's own id for the id that clients have of a terminal."""
        return terminal_id.removeprefix(self._ids)

    def outward(self, holder: Json) -> Json:
        """Return an update, or a part of one, with the terminal ids that clients know."""
        if not self._ids:
            return holder
        told = holder
        if isinstance(terminal_id := holder.get("terminalId"), str):
            told = {**holder, "terminalId": self._ids + terminal_id}
        content = told.get("content")
        if isinstance(content, dict) and content.get("type") == v2.OF_TERMINAL:
            told = {**told, "content": self.outward(content)}
        elif any(each.get("type") == v2.OF_TERMINAL for each in objects(content)):
            told = {**told, "content": [self.outward(each) for each in objects(content)]}
        return told

    def question_outward(self, params: Json) -> Json:
        """Return a permission question's parameters with the terminal ids that clients know."""
        if not isinstance(subject := params.get("subject"), dict):
            return params
        told = self.outward(subject)
        if isinstance(call := told.get("toolCall"), dict):
            told = {**told, "toolCall": self.outward(call)}
        return {**params, "subject": told}
