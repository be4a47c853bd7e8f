"""Says once that no process could be started, where no prompt's answer says so (invariant R3)."""

from __future__ import annotations

from acp_bridge.machine.effects import Outcome
from acp_bridge.session.core import SessionState
from acp_bridge.session.process.memory import Memory
from acp_bridge.session.prompts import answers
from acp_bridge.session.transcript.transcript_out import TranscriptOut
from acp_bridge.updates import notices


class BlockedNotice:
    """Shows the notice to the clients that have the session; it is not recorded."""

    def __init__(self, memory: Memory, transcript: TranscriptOut) -> None:
        """Nothing was tried yet."""
        self._memory = memory
        self._transcript = transcript
        #: a prompt's answer, or the notice, has said why no process could be started.
        self._told = False

    def note_start(self) -> None:
        """Note that another try begins."""
        self._told = False

    def note_answer(self, outcome: Outcome) -> None:
        """Note the answer to a prompt: it may have said why no process could be started."""
        self._told |= answers.says_why_not_ready(outcome)

    def follow(self, before: SessionState, after: SessionState) -> None:
        """Show the notice when the session has become blocked and no answer has said so."""
        if after.turns.blocked and not self._told:
            self._told = True
            self._transcript.show_only(notices.notice(notices.not_ready(self._memory.refusal)))
