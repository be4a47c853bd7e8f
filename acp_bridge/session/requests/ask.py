"""A question beside the session: answered at once, on a copy, of which nothing is left.

An agent that takes `_acp_bridge/ask` answers it itself. Of another one that can fork, the process
that has the session forks it and is asked in the fork (`forked_ask.py`); no other process ever has
the session or the fork open (invariant P12). Nothing of a question is recorded.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import anyio

from acp_bridge import errors, notices, waits
from acp_bridge.clients.client import Client, ClientRequest
from acp_bridge.journal import JournalError
from acp_bridge.log import event
from acp_bridge.protocol import ASK, CAN_ASK, ErrorCode, Json, can_ask, can_own
from acp_bridge.session.core import Core
from acp_bridge.session.requests.forked_ask import ForkedAsk
from acp_bridge.session.requests.to_agent import ToAgent
from acp_bridge.session.session_context import SessionContext
from acp_bridge.session.transcript.transcript_out import TranscriptOut
from acp_bridge.wire.jsonrpc import RpcError

#: characters of an answer that are passed on.
_LONGEST: Final = 1_000_000


@dataclass(slots=True, eq=False)
class _Question:
    """A question that is not answered yet."""

    request: ClientRequest
    #: it was typed as `/queue ask`, so that a Stop ends it.
    typed: bool
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)


class Ask:
    """Answers questions beside one session."""

    def __init__(
        self,
        core: Core,
        context: SessionContext,
        to_agent: ToAgent,
        transcript: TranscriptOut,
        patience: float = waits.ASK,
    ) -> None:
        """`patience`: seconds for one answer."""
        self._core = core
        self._context = context
        self._to_agent = to_agent
        self._transcript = transcript
        self._patience = patience
        self._open: list[_Question] = []

    # --- as a method, and as a command ---------------------------------------------------------

    async def answer(self, request: ClientRequest, params: Json) -> Json:
        """Return the result of `_acp_bridge/ask`; raises RpcError."""
        question = params.get("question")
        if not isinstance(question, str) or not question.strip():
            raise errors.invalid("must be a text", "question")
        self._transcript.wake(request.client)
        answer = await self._run(_Question(request, typed=False), question)
        if answer is None:
            raise errors.cancelled()
        return {"answer": answer}

    def command(self, request: ClientRequest, question: str) -> None:
        """Answer the prompt `/queue ask QUESTION`, later, with the answer shown before that."""
        self._core.spawn(self._command, _Question(request, typed=True), question)

    async def _command(self, asked: _Question, question: str) -> None:
        client, stop = asked.request.client, "end_turn"
        try:
            answer = await self._run(asked, question)
        except Exception as exc:
            error = exc if isinstance(exc, RpcError) else errors.internal(exc, "asking failed")
            self._say(client, notices.not_answered(error.message))
        else:
            if answer is None:
                stop = "cancelled"
            else:
                self._say(client, notices.answered_beside(answer))
        self._transcript.then(client, lambda: asked.request.answer({"stopReason": stop}))
        if stop == "cancelled":
            self._transcript.hush(client)

    def _say(self, client: Client, text: str) -> None:
        """Say it to who asked: it is no part of what the clients of the session share."""
        self._transcript.show_to(client, notices.notice(text))

    # --- the end -------------------------------------------------------------------------------

    def cancel(self, client: Client, request_id: object) -> bool:
        """Take a client's `$/cancel_request`; False when it means no command of `/queue ask`."""
        for asked in self._open:
            if asked.typed and asked.request.is_of(client, request_id):
                asked.scope.cancel()
                return True
        return False

    @property
    def open(self) -> bool:
        """True while a question is not answered."""
        return bool(self._open)

    def stop(self, client: Client) -> None:
        """End what a client has typed: its user said Stop."""
        for asked in self._open:
            if asked.typed and asked.request.client is client:
                asked.scope.cancel()

    def close(self) -> None:
        """End all: the session is being closed."""
        for asked in self._open:
            asked.scope.cancel()

    # --- the agent's part ----------------------------------------------------------------------

    async def _run(self, asked: _Question, question: str) -> str | None:
        """Return the answer, or None when the question was ended; raises RpcError."""
        self._open.append(asked)
        try:
            with asked.scope:
                with anyio.fail_after(self._patience):
                    return await self._asked(asked.request, question)
        except TimeoutError:
            raise errors.silent(ASK, self._patience) from None
        finally:
            self._open.remove(asked)
        return None

    async def _asked(self, request: ClientRequest, question: str) -> str:
        capabilities = self._context.capabilities
        if not can_ask(capabilities):
            raise RpcError(ErrorCode.METHOD_NOT_FOUND, notices.CANNOT_ASK)
        if not can_own(capabilities, CAN_ASK):
            forked = ForkedAsk(self._to_agent, self._core.workspace, self._hide)
            return await forked.answer(request, question)
        asked: Json = {"sessionId": "", "question": question}
        _, result = await self._to_agent.ask_beside(request, ASK, asked)
        return _text(result)

    async def _hide(self, agent_session_id: str) -> None:
        index, agent = self._context.journal.index, self._context.identity.name
        try:
            await index.remove(agent_session_id, known=True, agent=agent)
        except JournalError as exc:
            event("journal.failed", what=exc)


def _text(result: Any) -> str:
    answer = result.get("answer") if isinstance(result, dict) else None
    if not isinstance(answer, str) or not answer.strip():
        raise errors.agent_trouble("the agent gave no answer")
    return answer[:_LONGEST]
