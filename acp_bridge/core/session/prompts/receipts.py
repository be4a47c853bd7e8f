"""A prompt's key, a durable receipt: what is sent again under it is the same prompt (invariant X2).

- The journal binds the key to the prompt in the transaction that accepts it, and keeps both. A key
  that is not bound there is of no prompt.
- While that prompt waits or runs, another request under its key joins it: it gets the same answer.
- What is left over stays so, since a client that sends again is no user who decides. The request
  waits for the user's word, and its client is told.
- A prompt that has ended is answered from the journal, at once.
- The first attempt counts: its words, as they were sent, and its delivery.
"""

from __future__ import annotations

from typing import Final

from acp_bridge.core import errors
from acp_bridge.core.clients.client import ClientRequest
from acp_bridge.core.journal import (
    JournalError,
    PromptRow,
    PromptState,
    SessionJournal,
    sum_of_words,
)
from acp_bridge.core.protocol import Json
from acp_bridge.core.runtime.log import event
from acp_bridge.core.session.core import Core
from acp_bridge.core.session.prompts import answers
from acp_bridge.core.session.prompts.pauses import Pauses
from acp_bridge.core.session.prompts.prompts import Prompts
from acp_bridge.core.session.transcript.transcript_out import TranscriptOut
from acp_bridge.core.updates import notices

_OTHER_WORDS: Final = "other words were sent under this key before: a new prompt needs a new key"
_UNREAD: Final = "the journal can't be read, so nobody knows of this key: the prompt was not taken"


class Receipts:
    """Finds the prompt that was sent before under the key of a request."""

    def __init__(
        self,
        core: Core,
        journal: SessionJournal,
        transcript: TranscriptOut,
        prompts: Prompts,
        pauses: Pauses,
    ) -> None:
        """Everything that it knows is in the journal, and among the open prompts."""
        self._core = core
        self._journal = journal
        self._transcript = transcript
        self._prompts = prompts
        self._pauses = pauses

    def take(self, request: ClientRequest, params: Json, name: str) -> bool:
        """Answer a prompt that was sent before, now or when that one ends; False for a new prompt.

        `name`: the key under which it comes. Raises RpcError for other words under that key, or if
        the journal can't tell.
        """
        key = self._prompts.sent_under(name)
        try:
            receipt = self._journal.receipt(name)
            ended = self._journal.prompt(receipt.seq) if receipt and key is None else None
        except JournalError as exc:
            event("journal.failed", session=self._core.id, what=exc)
            raise errors.agent_trouble(_UNREAD) from exc
        if receipt:
            first = receipt.words
        elif key is not None:  # an older bridge has taken it
            first = sum_of_words(self._prompts.get(key).params)
        else:
            return False
        if first != sum_of_words(params):
            raise errors.invalid(_OTHER_WORDS)
        event("prompt.again", session=self._core.id, turn=receipt.seq if receipt else 0)
        if key is None:
            self._answer(request, ended, receipt.told if receipt else None)
        else:
            self._join(request, key)
        return True

    def _join(self, request: ClientRequest, key: int) -> None:
        left_over = key in self._prompts.left_over
        if left_over and self._core.now.ending:
            raise errors.unknown_session()
        prompt = self._prompts.join(key, request)
        if left_over:
            said = notices.notice(notices.still_left_over(prompt.seq))
            self._transcript.show_to(request.client, said)
        elif key in self._core.now.waiting and self._pauses.said:
            self._pauses.note_prompt(request.client, interrupts=False)

    def _answer(self, request: ClientRequest, row: PromptRow | None, told: Json | None) -> None:
        if row and row.state is not PromptState.DONE and self._core.now.ending:
            raise errors.unknown_session()  # it was left over just now
        answer = answers.as_told(told or (row.outcome if row else None))
        begun = row is not None and self._journal.has_begun(row.seq)

        def tell() -> None:
            if row:
                self._prompts.tell_accepted(request, row.prompt_id, ended=True, begun=begun)
            request.respond(answer)

        # Behind the words of its turn, which a client may still lack (invariant X3).
        self._transcript.then(request.client, tell)
