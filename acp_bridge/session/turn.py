"""Begins a turn at the agent, and cancels it, as the machine has decided."""

from __future__ import annotations

from typing import Protocol

from acp_bridge import errors, notices
from acp_bridge.agents.link import Link
from acp_bridge.journal import JournalError, SessionJournal
from acp_bridge.log import event
from acp_bridge.machine import events as ev
from acp_bridge.protocol import SESSION_CANCEL, SESSION_PROMPT, user_chunk, without_own_meta
from acp_bridge.session import to_client
from acp_bridge.session.memory import Memory
from acp_bridge.session.prompts import Prompts
from acp_bridge.session.transcript_out import TranscriptOut
from acp_bridge.updates import Updates
from acp_bridge.wire.jsonrpc import Answer, Err

#: what a prompt is answered that left the queue while nothing could be written at all.
NOT_SENT = "the journal can't be written, so the prompt was not sent"


class TurnPort(Protocol):
    """What a turn needs of its session."""

    def feed(self, event_: ev.Event) -> None:
        """Give the machine an event."""


class Turn:
    """Sends prompts and cancels of one session to its agent."""

    def __init__(
        self,
        port: TurnPort,
        journal: SessionJournal,
        transcript: TranscriptOut,
        updates: Updates,
        prompts: Prompts,
        memory: Memory,
    ) -> None:
        """No turn runs yet."""
        self._port = port
        self._journal = journal
        self._transcript = transcript
        self._updates = updates
        self._prompts = prompts
        self._memory = memory

    def begin(self, link: Link, key: int) -> None:
        """Send the prompt with this key; its answer becomes `AgentAnswered`."""
        prompt = self._prompts.get(key)
        session_id = self._journal.info.session_id
        self._transcript.begin_turn(prompt.seq)
        try:
            self._journal.start_turn(prompt.seq)
        except JournalError as exc:  # sent now, it could be offered again after a kill (Q5)
            event("journal.failed", session=session_id, what=exc)
            refusal = Err(errors.agent_trouble(NOT_SENT))
            self._port.feed(ev.AgentAnswered(link.epoch, key, refusal))
            return
        blocks = prompt.params["prompt"]
        carried = self._memory.take_transcript(blocks)
        sent = [carried, *blocks] if carried else blocks
        self._updates.new_turn(key, sent)
        said = [{"update": user_chunk(block)} for block in blocks]
        if prompt.request is None:  # held since a restart: no client shows it by itself
            for chunk in said:
                self._transcript.show_only(chunk)
        event("turn.started", session=session_id, turn=prompt.seq, agent=link.name)
        if carried:
            self._transcript.notice(notices.memory_sent(len(carried["text"])))
        given = {"prompt": sent, "sessionId": link.agent_session_id}
        params = {**without_own_meta(prompt.params), **given}
        epoch = link.epoch

        def answered(answer: Answer) -> None:
            if not link.gone:
                self._port.feed(ev.AgentAnswered(epoch, key, answer))

        link.request_for(prompt.request, SESSION_PROMPT, params, answered)

    def cancel(self, link: Link, key: int) -> None:
        """Tell the agent to cancel the turn, and end what it asks of the user."""
        seq, session_id = self._prompts.get(key).seq, self._journal.info.session_id
        event("turn.cancel", session=session_id, turn=seq, agent=link.name)
        link.peer.notify(SESSION_CANCEL, {"sessionId": link.agent_session_id})
        to_client.end_questions(link)
