"""Records what happens in a turn, and shows it to the client.

Invariants
- Everything is recorded before it is shown (invariant T2). Notices are only shown, because they are
  about this process and not about the conversation.
- A transcript that can't be written ends no turn; the user is told once.
"""

from __future__ import annotations

import logging

from agent.client import Client, Update
from agent.conversation.entries import Record
from agent.conversation.replay import notice, text_chunk
from agent.conversation.transcript import Transcript
from agent.model import Part

logger = logging.getLogger(__name__)


class Recorder:
    """Records one turn in the session's transcript."""

    def __init__(self, transcript: Transcript, client: Client) -> None:
        self.history = transcript.history
        self._transcript = transcript
        self._client = client
        self._unwritten = False

    async def record(self, record: Record) -> None:
        try:
            self._transcript.append(record)
        except OSError as error:
            # A deleted session's file is gone.
            if self._unwritten or isinstance(error, FileNotFoundError):
                return
            self._unwritten = True
            logger.exception("the transcript can't be written")
            await self.notice("This turn can't be written to disk and will be lost on a restart.")

    async def show(self, update: Update) -> None:
        await self._client.update(update)

    async def record_token(self, part: Part) -> None:
        if part.kind != "tool_call":  # a tool call is recorded as a whole when the answer has ended
            await self.record({"t": part.kind, "d": part.text})

    async def show_token(self, part: Part) -> None:
        # An empty part only says that the model works; some clients would show it as a message.
        if part.text and (part.kind == "text" or part.kind == "reasoning"):
            update = text_chunk(part.kind, part.text, self.history.message_id)
            await self._client.update(update)

    async def notice(self, text: str) -> None:
        """Shows the user a sentence of the agent's own; a failure is only logged."""
        try:
            await self.show(notice(text))
        except Exception:
            logger.exception("a notice could not be shown: %s", text)
