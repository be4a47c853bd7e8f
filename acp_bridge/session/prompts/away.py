"""Tells a session's machine, and its clients, that the place of the journal is away, or back."""

from __future__ import annotations

from acp_bridge.journal import JournalError, SessionJournal
from acp_bridge.machine import events as ev
from acp_bridge.session.core import Core
from acp_bridge.session.transcript.transcript_out import TranscriptOut


def follow_journal(journal: SessionJournal, core: Core, transcript: TranscriptOut) -> None:
    """Have what waits wait on while the journal is away, as long as it may come back."""

    def away(seconds: float) -> None:
        transcript.say_away(seconds)
        core.feed(ev.JournalAway())

    def back(lost: JournalError | None) -> None:
        core.feed(ev.JournalLost(str(lost)) if lost else ev.JournalBack())

    journal.on_away, journal.on_back = away, back
