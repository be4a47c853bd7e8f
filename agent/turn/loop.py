"""One turn: model -> tools -> model, until the model has nothing more to do.

Invariants
- Each `on_token` callback gets every token in order, the transcript's and the client's first. A
  string is a text part; an empty one is told to them all but not shown, None is dropped; a notice
  is only shown. A
  callback that fails is logged and left out for the rest of the turn; the others, the stream and
  the turn go on, and the user is told (invariant T1).
- After a cancellation no model call and no tool begins (invariant C3), and none is left running
  (invariant C10).
- Whatever ends a turn, the history is well formed (invariant C17).
- A model that goes round in circles is told so the first time; the second time the turn ends with
  `max_turn_requests`.
- A request that does not fit the model's window is tried again only after room was made, and only
  if nothing of the answer was told. Once in a turn, a refusal that does not say why is taken for
  that.
- Words that join the turn are put into the history just before a model call, so they follow the
  last result. While words wait the turn goes on, whatever the answer was, unless the model refused.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import anyio.lowlevel

from agent.client import Update
from agent.conversation.entries import Spent
from agent.conversation.transcript import Transcript
from agent.model import Completion, Model, ModelError, ModelInfo, OnToken, Part, Token
from agent.tools import Toolbox, ToolContext
from agent.turn.pause import Pause
from agent.turn.permissions import Permissions
from agent.turn.recorder import Recorder
from agent.turn.steering import Steering
from agent.turn.stuck_watch import StuckWatch
from agent.turn.tool_calls import ToolCalls

if TYPE_CHECKING:
    from agent.conversation.compaction import Compactor
    from agent.secrets import Secrets

logger = logging.getLogger(__name__)

StopReason = Literal["end_turn", "max_tokens", "max_turn_requests", "refusal", "cancelled"]

#: tells the model why the calls of an answer that was cut off are not run, by the stop reason
_NOT_RUN = {
    "max_tokens": "Not run: the answer was cut off at the model's limit.",
    "refusal": "Not run: the model refused to go on.",
}
#: what the user is told of an answer with neither text nor calls, by its stop reason
_WORDLESS = {
    "end_turn": "The model has ended its answer without a word and without a call.",
    "max_tokens": "The model's answer was cut off at its limit before it had said a word.",
    "refusal": "The model has refused to answer, without a word.",
}


class Turn:
    """Answers one prompt of a session.

    `model` returns the model and is called before each model call, so that a changed option takes
    effect at the next one. `max_calls`: the limit of model calls. `watch`: a model that goes round
    in circles is told so, then stopped. `on_token`: further callbacks, besides the transcript's and
    the client's; they also get the pieces of tool calls.
    """

    def __init__(
        self,
        *,
        model: Callable[[], Model],
        tools: Toolbox,
        transcript: Transcript,
        permissions: Permissions,
        context: ToolContext,
        secrets: Secrets,
        compactor: Compactor | None = None,
        pause: Pause | None = None,
        steering: Steering | None = None,
        max_calls: int = 100,
        watch: bool = True,
        on_token: Sequence[OnToken] = (),
    ) -> None:
        self._model = model
        self._tools = tools
        self._permissions = permissions
        self._compactor = compactor
        self._pause = pause or Pause()
        self._steering = steering or Steering()
        self._max_calls = max_calls
        self._recorder = recorder = Recorder(transcript, context.client)
        self._watch = StuckWatch(recorder, enabled=watch)
        self._calls = ToolCalls(
            tools, permissions, context, secrets, recorder, self._pause, self._steering
        )
        self._on_token: list[Callable[[Part], Awaitable[None]]] = [
            recorder.record_token,
            recorder.show_token,
            *on_token,
        ]
        #: True once something of the current answer was given to a callback
        self._told = False
        #: True once the current answer has said a word
        self._worded = False
        #: True once room was made after a refusal that did not say why
        self._in_doubt = False

    async def run(self, blocks: list[dict[str, Any]]) -> StopReason:
        """Runs the turn to its end. Raises ModelError, PromptCancelled.

        `blocks`: the prompt as ACP content blocks. A provider that refuses the request ends the
        turn with `refusal`, as a model that refuses does; the reason is shown as a notice.
        """
        prompt = {"t": "user", "blocks": blocks, "mode": self._permissions.mode}
        if gone := self._tools.missing(self._recorder.history.tool_names):
            prompt["gone"] = gone
        await self._recorder.record(prompt)
        try:
            return await self._go_on()
        except ModelError as error:
            await self._join()
            if error.kind != "refused":
                raise
            await self._recorder.notice(str(error))
            return await self._refused()
        finally:
            self._steering.end()

    async def _go_on(self) -> StopReason:
        """Calls the model until the turn ends. Raises ModelError, PromptCancelled."""
        for left in reversed(range(self._max_calls)):
            await anyio.lowlevel.checkpoint()
            if await self._fit() and await self._watch.room_was_made() and self._steering.close():
                break
            completion = await self._complete(last=left == 0)
            if completion.stop == "end_turn":
                await self._calls.run(completion.tool_calls)
            else:
                await self._calls.refuse(completion.tool_calls, _NOT_RUN[completion.stop])
            if completion.stop == "refusal":
                return await self._refused()
            if self._steering.waits:
                continue
            if completion.stop != "end_turn":
                return completion.stop
            if await self._watch.ends_turn() and self._steering.close():
                break
            if not completion.tool_calls and not self._watch.was_told and self._steering.close():
                return "end_turn"
        return "max_turn_requests"

    async def _refused(self) -> StopReason:
        """Records, as ACP demands, that no model is given this turn again; returns `refusal`."""
        await self._join()
        await self._recorder.record({"t": "refused"})
        return "refusal"

    async def _join(self) -> None:
        """Records the user's words that wait to join the turn, so that the history has them."""
        while (words := self._steering.next()) is not None:
            await self._recorder.record({"t": "steer", "blocks": words})

    async def _fit(self) -> bool:
        """Makes room in the model's window if an answer needs it; returns True if it did."""
        if self._compactor is None:
            return False
        async with self._pause.call():
            await self._join()
            return await self._compactor.fit(self._model(), self._tools.specs)

    async def _complete(self, *, last: bool) -> Completion:
        """Returns one answer of the model; makes room and asks again if the request doesn't fit.

        `last`: the turn begins no other model call. Raises ModelError.
        """
        await anyio.lowlevel.checkpoint()
        while True:
            self._told = self._worded = False
            async with self._pause.call():
                if (completion := await self._call(self._model(), last=last)) is not None:
                    return completion

    async def _call(self, model: Model, *, last: bool) -> Completion | None:
        """Returns the model's answer; None if the request didn't fit and room was made.

        Raises ModelError.
        """
        info = await model.info()  # fresh, since a refusal may have told the window's size
        await anyio.lowlevel.checkpoint()
        await self._join()
        if last:
            self._steering.close()
        messages = self._recorder.history.messages(images=info.takes_images)
        try:
            completion = await model.complete(messages, self._tools.specs, self._tell)
        except ModelError as error:
            if not await self._made_room(model, error):
                raise
            return None
        if self._in_doubt and self._compactor is not None:
            self._compactor.room_helped(model)
        await self._account(model, info, completion)
        return completion

    async def _made_room(self, model: Model, error: ModelError) -> bool:
        """Makes room if an error says that the request is too long, or once if it may be.

        Returns False if it is to be raised.
        """
        if self._compactor is None or self._told:
            return False
        if error.kind == "context":
            return await self._compactor.shrink(model, self._tools.specs)
        if not error.may_be_context or self._in_doubt:
            return False
        self._in_doubt = True
        return await self._compactor.shrink_in_doubt(model, self._tools.specs)

    async def _account(self, model: Model, info: ModelInfo, completion: Completion) -> None:
        if completion.provider is not None:
            await self._recorder.record({"t": "provider", "d": dict(completion.provider)})
        if completion.announced:
            await self._recorder.record({"t": "announced"})
        if not (self._worded or completion.text.strip() or completion.tool_calls):
            await self._recorder.notice(_WORDLESS[completion.stop])
        if (usage := completion.usage) is None:
            return
        record = {"t": "usage", "model": model.id, "input": usage.input, "output": usage.output}
        more = {"cached": usage.cached, "cost": usage.cost, "for": "turn"}
        await self._recorder.record({**record, **more})
        if (update := usage_update(self._recorder.history.spent, info)) is not None:
            await self._recorder.show(update)

    async def _tell(self, token: Token) -> None:
        if token is None:
            return
        part = Part("text", token) if isinstance(token, str) else token
        if part.kind == "notice":
            await self._recorder.notice(part.text)
            return
        self._told = True
        self._worded = self._worded or (part.kind == "text" and bool(part.text.strip()))
        for callback in tuple(self._on_token):
            try:
                await callback(part)
            except Exception:
                logger.exception("a token callback failed and is told nothing more in this turn")
                self._on_token.remove(callback)
                await self._recorder.notice(
                    "A part of this answer could not be passed on; see the log."
                )


def usage_update(spent: Spent, info: ModelInfo) -> Update | None:
    """Returns the update with the window's use in tokens and the session's cost in USD.

    Returns None if the size of the window is not known: ACP can't tell the cost alone.
    """
    if info.window is None:
        return None
    update: Update = {"sessionUpdate": "usage_update", "used": spent.context, "size": info.window}
    if spent.cost is not None:
        update["cost"] = {"amount": spent.cost, "currency": "USD"}
    return update
