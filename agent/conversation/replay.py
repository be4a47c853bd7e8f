"""Converts a history into session updates of ACP that show it to the user again.

Invariants
- A replay shows whole messages, not tokens, and ends every tool card that it opens (invariant C16).
- A replay names no terminal; the output's text replaces it (invariant R7).
- A call whose card was hidden has none in a replay either.
- Summaries and left-out results concern the model only: a replay shows everything as it was.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from acp_bridge.core.protocol import NOTICE, RAN, is_terminal
from agent.client import Marked, Update
from agent.conversation.entries import INTERRUPTED, Answer, Call, Entry, Note, Outcome, Prompt
from agent.model import SpokenKind


def replay_of(entries: Sequence[Entry], *, running: bool) -> Iterator[Update]:
    """Yields the session updates that show these entries.

    `running`: a turn runs and will itself end the open cards of the last entry.
    """
    plans = _last_plans(entries)
    for number, entry in enumerate(entries):
        goes_on = running and number == len(entries) - 1
        yield from _shown(entry, message_id(number), goes_on)
        if number in plans:
            yield {"sessionUpdate": "plan", "entries": plans[number]}


def message_id(number: int) -> str:
    """Returns the message id of the entry with this number, the same live and in a replay."""
    return f"m{number}"


def chunk(kind: str, block: dict[str, Any], message_id: str) -> Update:
    return {"sessionUpdate": kind, "content": block, "messageId": message_id}


def text_chunk(kind: SpokenKind, text: str, message_id: str) -> Update:
    update = "agent_message_chunk" if kind == "text" else "agent_thought_chunk"
    return chunk(update, {"type": "text", "text": text}, message_id)


def notice(text: str) -> Update:
    """Returns the update with a message of the agent itself, not of the model.

    It is marked as the bridge's own notices are. `text`: Markdown. Empty lines surround it, because
    clients join it to the messages beside it.
    """
    said = {"type": "text", "text": f"\n\n[acp-bridge] {text}\n\n"}
    return Marked({"sessionUpdate": "agent_message_chunk", "content": said}, {NOTICE: True})


def thought(text: str) -> Update:
    """Returns the update that tells the user, as a thought, why nothing comes yet."""
    return {"sessionUpdate": "agent_thought_chunk", "content": {"type": "text", "text": text}}


def card_start(card: dict[str, Any]) -> Update:
    return {"sessionUpdate": "tool_call", "status": "pending", **card}


def card_end(card_id: str, outcome: Outcome) -> Update:
    update: Update = {
        "sessionUpdate": "tool_call_update",
        "toolCallId": card_id,
        "status": outcome.status,
    }
    content = _content(outcome)
    # The terminal is released by now. A client may drop a whole update that names it, but keeps
    # showing it if the update has no content.
    if not any(map(is_terminal, content)):
        update["content"] = content
    if outcome.raw is not None:
        update["rawOutput"] = outcome.raw
    return update if outcome.ran else Marked(update, {RAN: False})


def _last_plans(entries: Sequence[Entry]) -> dict[int, list[dict[str, Any]]]:
    """Returns the last plan of each turn, by the number of the answer that has it."""
    found: dict[int, list[dict[str, Any]]] = {}
    latest: int | None = None
    for number, entry in enumerate(entries):
        if isinstance(entry, Prompt) and not entry.joined:
            latest = None
        elif isinstance(entry, Answer) and entry.plan is not None:
            if latest is not None:
                del found[latest]
            found[number], latest = entry.plan, number
    return found


def _shown(entry: Entry, message_id: str, goes_on: bool) -> Iterator[Update]:
    if isinstance(entry, Prompt):
        for block in entry.blocks:
            yield chunk("user_message_chunk", block, message_id)
        return
    if isinstance(entry, Note):
        return
    for run in entry.runs:
        if run.text:
            yield text_chunk(run.kind, run.text, message_id)
    for call in entry.calls:
        if not call.card.get("hidden"):
            yield from _card(call, goes_on)


def _card(call: Call, goes_on: bool) -> Iterator[Update]:
    card = call.card
    if isinstance(content := card.get("content"), list):
        card = {**card, "content": [item for item in content if not is_terminal(item)]}
    yield card_start(card)
    outcome = call.outcome
    if outcome is None:
        if goes_on:
            return
        before = card.get("content") or []
        outcome = Outcome("failed", INTERRUPTED, content=[*before, _text(INTERRUPTED)])
    update = card_end(card["toolCallId"], outcome)
    if "content" not in update:
        kept = [item for item in _content(outcome) if not is_terminal(item)]
        update["content"] = [*kept, _text(outcome.text)]
    yield update


def _content(outcome: Outcome) -> list[dict[str, Any]]:
    return [_text(outcome.text)] if outcome.content is None else outcome.content


def _text(text: str) -> dict[str, Any]:
    return {"type": "content", "content": {"type": "text", "text": text}}
