"""One turn: model -> tools -> model, until the model has nothing more to do.

Invariants
- Every token is told to each `on_token` callback in order. A string is a part; an empty one is
  passed on, None dropped. A callback that fails is logged and left out for the rest of the turn;
  the others, the stream and the turn go on, and the user is told (HAZARDS T1).
- What is shown was recorded first (T2).
- A tool card that was opened is ended once, also on cancellation, before the turn is over (C16).
- After a cancellation no model call and no tool begins (C3), and none is left running (C10).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import anyio
import anyio.lowlevel
from pydantic import BaseModel, ValidationError

from agent.client import Client
from agent.history import INTERRUPTED, Outcome, Record, card_end, card_start, text_chunk
from agent.model import Completion, Model, OnToken, Part, Token, ToolCall
from agent.permissions import Permissions
from agent.tools import AnyTool, Toolbox, ToolContext, ToolError, ToolResult
from agent.transcript import Transcript

logger = logging.getLogger(__name__)

StopReason = Literal["end_turn", "max_tokens", "max_turn_requests", "refusal", "cancelled"]

#: model calls in one turn; a model that goes round in circles is stopped
MAX_MODEL_CALLS = 100
#: seconds to end the cards of a cancelled turn, should the client take nothing
_CARD_SECONDS = 1


@dataclass(slots=True)
class Card:
    """A tool call on its way."""

    call: ToolCall
    shown: dict[str, Any]
    tool: AnyTool | None = None
    args: BaseModel | None = None
    #: why it can't be run
    problem: str = ""
    ended: bool = False

    @property
    def id(self) -> str:
        return str(self.shown["toolCallId"])


class Turn:
    """Answers one prompt of a session. `on_token`: further callbacks besides disk and client."""

    def __init__(
        self,
        *,
        model: Model,
        tools: Toolbox,
        transcript: Transcript,
        permissions: Permissions,
        context: ToolContext,
        on_token: Sequence[OnToken] = (),
    ) -> None:
        self._model = model
        self._tools = tools
        self._transcript = transcript
        self._permissions = permissions
        self._context = context
        self._client: Client = context.client
        self._on_token = [self._record_token, self._show_token, *on_token]
        self._unrecorded = False

    async def run(self, blocks: list[dict[str, Any]]) -> StopReason:
        """Raises ModelError; whatever ended it, the history is well formed (C17)."""
        await self._record({"t": "user", "blocks": blocks})
        for _ in range(MAX_MODEL_CALLS):
            await anyio.lowlevel.checkpoint()
            messages = self._transcript.history.messages()
            completion = await self._model.complete(messages, self._tools.specs, self._tell)
            if not completion.tool_calls:
                return completion.stop
            await self._run_tools(completion)
        return "max_turn_requests"

    # tokens

    async def _tell(self, token: Token) -> None:
        if token is None:
            return
        part = Part("text", token) if isinstance(token, str) else token
        for callback in tuple(self._on_token):
            try:
                await callback(part)
            except Exception:
                logger.exception("a token callback failed and is told nothing more in this turn")
                self._on_token.remove(callback)
                await self._notice("A part of this answer could not be passed on; see the log.")

    async def _record_token(self, part: Token) -> None:
        assert isinstance(part, Part)
        await self._record({"t": part.kind, "d": part.text})

    async def _show_token(self, part: Token) -> None:
        assert isinstance(part, Part)
        message_id = self._transcript.history.message_id
        await self._client.update(text_chunk(part.kind, part.text, message_id))

    # tools

    async def _run_tools(self, completion: Completion) -> None:
        cards: list[Card] = []
        try:
            for call in completion.tool_calls:
                card = self._card(call)
                cards.append(card)
                await self._open(card)
            for card in cards:
                await self._run_tool(card)
        finally:
            with anyio.move_on_after(_CARD_SECONDS, shield=True):
                for card in cards:
                    await self._end(card, Outcome("failed", INTERRUPTED))

    async def _open(self, card: Card) -> None:
        call = card.call
        record = {"t": "call", "id": call.id, "name": call.name, "arguments": call.arguments}
        await self._record({**record, "card": card.shown})
        await self._client.update(card_start(card.shown))

    async def _run_tool(self, card: Card) -> None:
        try:
            result = await self._execute(card)
        except ToolError as error:
            outcome = Outcome("failed", str(error))
        else:
            outcome = Outcome("completed", result.text, result.raw)
        await self._end(card, outcome)

    async def _execute(self, card: Card) -> ToolResult:
        if card.tool is None or card.args is None:
            raise ToolError(card.problem)
        if card.tool.needs_permission and not await self._permissions.allowed(
            card.tool.name, card.shown, self._client
        ):
            raise ToolError("The user did not allow it.")
        await anyio.lowlevel.checkpoint()
        progress = {"sessionUpdate": "tool_call_update", "toolCallId": card.id}
        await self._client.update({**progress, "status": "in_progress"})
        try:
            return await card.tool.run(card.args, self._context)
        except ToolError:
            raise
        except Exception as error:
            logger.exception("the tool %s failed", card.tool.name)
            raise ToolError("The tool failed; see the agent's log.") from error

    async def _end(self, card: Card, outcome: Outcome) -> None:
        if card.ended:
            return
        card.ended = True
        record = {"t": "result", "card": card.id, "status": outcome.status, "text": outcome.text}
        await self._record({**record, "raw": outcome.raw})
        await self._client.update(card_end(card.id, outcome))

    def _card(self, call: ToolCall) -> Card:
        number = self._transcript.history.calls + 1
        shown = {"toolCallId": f"call-{number}", "title": call.name, "kind": "other"}
        card = Card(call, {**shown, "rawInput": _raw(call.arguments)})
        tool = self._tools.get(call.name)
        if tool is None:
            card.problem = f"There is no tool named {call.name}."
            return card
        card.shown["kind"] = tool.kind
        try:
            args = tool.Args.model_validate_json(call.arguments or "{}")
        except ValidationError as error:
            card.problem = f"The arguments do not fit: {_problems(error)}"
            return card
        card.tool, card.args = tool, args
        card.shown["title"] = tool.title(args)
        card.shown["locations"] = tool.locations(args, self._context.cwd)
        return card

    # the transcript

    async def _record(self, record: Record) -> None:
        """A full disk ends no turn; the user is told once that it is not being kept."""
        try:
            self._transcript.append(record)
        except OSError:
            if self._unrecorded:
                return
            self._unrecorded = True
            logger.exception("the transcript can't be written")
            await self._notice("This turn can't be written to disk and will be lost on a restart.")

    async def _notice(self, text: str) -> None:
        """Say something to the user that the model did not."""
        try:
            content = {"type": "text", "text": f"\n[{text}]\n"}
            await self._client.update({"sessionUpdate": "agent_message_chunk", "content": content})
        except Exception:
            logger.exception("a notice could not be shown: %s", text)


def _raw(arguments: str) -> Any:
    try:
        return json.loads(arguments)
    except ValueError:
        return arguments


def _problems(error: ValidationError) -> str:
    found = error.errors(include_url=False, include_input=False, include_context=False)
    return "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in found)
