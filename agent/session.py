"""One open session: its prompts, one at a time in the order they came, and their cancellation.

Invariants
- Every prompt ends once; one that was cancelled before its end answers `cancelled`, whatever else
  came of it (HAZARDS C3, C5), and only when its work has ended (C10).
- A cancel applies to the oldest prompt that is not answered at that moment, to no other (C1, C2).
"""

from __future__ import annotations

import logging
from collections import deque
from typing import Any

import anyio

from agent.client import SessionClient
from agent.loop import StopReason, Turn
from agent.model import Model
from agent.permissions import Permissions, PromptCancelled
from agent.tools import Toolbox, ToolContext
from agent.transcript import Transcript

logger = logging.getLogger(__name__)


class _Waiting:
    """A prompt that is not answered yet."""

    def __init__(self) -> None:
        self.scope = anyio.CancelScope()
        self.answered = anyio.Event()


class Session:
    def __init__(
        self,
        transcript: Transcript,
        context: ToolContext,
        client: SessionClient,
        model: Model,
        tools: Toolbox,
    ) -> None:
        self.client = client
        self.transcript = transcript
        #: what the next turn works with
        self.context = context
        self.permissions = Permissions()
        self._model = model
        self._tools = tools
        self._waiting: deque[_Waiting] = deque()
        self._titled = transcript.history.title is not None

    async def prompt(self, blocks: list[dict[str, Any]]) -> StopReason:
        """Answer it when its turn has come. Raises ModelError.

        Prompts take their places in the order in which this is called, before its first await.
        """
        waiting = _Waiting()
        self._waiting.append(waiting)
        try:
            with waiting.scope:
                while (first := self._waiting[0]) is not waiting:
                    await first.answered.wait()
                stop = await self._turn(blocks)
                if stop != "cancelled":
                    await self._show_title()
        except Exception:
            if not waiting.scope.cancel_called:
                raise
            logger.exception("a cancelled turn failed")
        finally:
            self._waiting.remove(waiting)
            waiting.answered.set()
        return "cancelled" if waiting.scope.cancel_called else stop

    def cancel(self) -> None:
        """Cancel the oldest prompt that is not answered; does nothing if there is none."""
        if self._waiting:
            self._waiting[0].scope.cancel()

    async def cancel_all(self) -> None:
        """Cancel every prompt and wait until they are answered."""
        for waiting in self._waiting:
            waiting.scope.cancel()
        while self._waiting:
            await self._waiting[-1].answered.wait()

    async def replay(self) -> None:
        """Show the client all that was said so far; what a running turn says follows it."""
        history = self.transcript.history
        await self.client.replay(lambda: history.replay(running=bool(self._waiting)))

    async def _turn(self, blocks: list[dict[str, Any]]) -> StopReason:
        turn = Turn(
            model=self._model,
            tools=self._tools,
            transcript=self.transcript,
            permissions=self.permissions,
            context=self.context,
        )
        try:
            return await turn.run(blocks)
        except PromptCancelled:
            return "cancelled"

    async def _show_title(self) -> None:
        """Once: after the first turn that was not cancelled."""
        title = self.transcript.history.title
        if title is not None and not self._titled:
            self._titled = True
            await self.client.update({"sessionUpdate": "session_info_update", "title": title})
