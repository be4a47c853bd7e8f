"""`session/load` and `session/resume`: the transcript as it was shown, then the answer.

The replay is read from the journal in pages, at the client's pace (HAZARDS R1, R6); what happens
in the session meanwhile comes after it.
"""

from __future__ import annotations

from typing import Any

from acp_bridge import errors
from acp_bridge.journal import PromptState
from acp_bridge.log import event
from acp_bridge.session import queue_command
from acp_bridge.session.host import Host
from acp_bridge.session.outlet import Outlet
from acp_bridge.session.session import Session
from acp_bridge.updates import STATE, closing_update, for_replay, open_cards, text_chunk
from acp_bridge.wire.peer import Call

Json = dict[str, Any]


async def load(session: Session, host: Host, call: Call, *, replay: bool) -> None:
    """Replay the session to the client (not for a resume) and answer the request."""
    session.outlet.hold()
    try:
        if replay:
            await _replay(session.outlet, session, host)
        if session.ledger.held:
            note = queue_command.held_note(list(session.ledger.held.values()))
            chunk = text_chunk("agent_message_chunk", note, f"held-{session.id}")
            session.outlet.replay({"update": chunk})
        host.client.answer(call.id, answer(session))
    finally:
        session.outlet.let_go()


def answer(session: Session) -> Json:
    """The result of `session/load` or `resume`."""
    own: Json = {"agentSessionId": session.journal.info.agent_session_id}
    if session.ledger.held:
        own["held"] = [params["prompt"] for params in session.ledger.held.values()]
    return {**session.choices.shown, "_meta": {"acp_bridge": own}}


async def _replay(outlet: Outlet, session: Session, host: Host) -> None:
    async for page in session.journal.replay():
        for params in page:
            outlet.replay(for_replay(params))
        if host.writer.pending >= host.settings.client_limit:
            event("client.slow", session=session.id)
            await host.writer.drain_below(host.settings.client_limit)
        if session.closing:
            raise errors.unknown_session()
    for kind in STATE:
        if params := session.journal.get(f"state:{kind}"):
            # The client that it was recorded for may have known more.
            outlet.replay({**params, "update": session.updates.settings(params["update"])})


async def recover(session: Session) -> None:
    """What another bridge left: cards are closed, interrupted turns said, prompts held."""
    if session.journal.prompts(PromptState.SENT):
        cards = [
            {key: update.get(key) for key in ("sessionUpdate", "toolCallId", "status")}
            async for page in session.journal.replay()
            for params in page
            if isinstance(update := params.get("update"), dict) and "toolCallId" in update
        ]
        for card in open_cards(cards):
            session.outlet.record_only({"update": closing_update(card)})
        session.outlet.record_interrupted()
        session.outlet.flush()
    # The turns are over when that is written: a load that failed before says it the next time.
    for row in session.journal.recover().held:
        session.ledger.add_held(row.params, row.seq)
