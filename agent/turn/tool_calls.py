"""Runs the tool calls of one answer: shows them, asks for permission, records their results.

A card is a tool call as the client shows it (ACP: `tool_call` and `tool_call_update`). The plan
tool has none, because its plan is shown.

Invariants
- All cards are opened in the order of the calls before the first call is prepared. Each is ended
  once and never reopened, also on cancellation (invariant C16), with its result recorded
  (invariant C17).
- Calls run one after the other; neighbours that only read run at the same time. A call is prepared
  just before it runs, so that it sees what the calls before it did.
- Once the user was asked and did not allow a call, the calls of the same answer that have not
  begun are neither asked for nor run, because they were meant to follow it. The model is told.
- The same holds while words of the user's wait to join the turn. A call has begun once it is
  prepared: its question is asked, and what is allowed runs.
- The end of a call that was not run says so. Before a call runs, it is shown as `in_progress`.
- Nothing that is recorded or shown of a tool's work holds a secret.
- After a cancellation no tool begins (invariant C3) and none is left running (invariant C10).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
import anyio.lowlevel
from msgspec import Struct
from pydantic import BaseModel, ValidationError

from acp_bridge.core.protocol import BUILTIN_AGENT, ONLY_PERSON
from agent.client import Update
from agent.content.fences import split_closing_fence
from agent.content.images import is_image
from agent.conversation.entries import INTERRUPTED, NO_TOOL, Outcome
from agent.conversation.messages import parsed
from agent.conversation.replay import card_end, card_start
from agent.model import ToolCall
from agent.tools import AnyTool, Toolbox, ToolContext, ToolError, ToolResult
from agent.tools.plan import Plan
from agent.turn.pause import Pause
from agent.turn.permissions import Permissions, PromptCancelled, Rejected
from agent.turn.recorder import Recorder
from agent.turn.steering import Steering

if TYPE_CHECKING:
    from agent.secrets import Secrets

logger = logging.getLogger(__name__)

#: how many calls that only read run at the same time
_AT_ONCE = 8
#: seconds for showing the ends of a cancelled turn's cards, if the client reads nothing
_CARD_SECONDS = 1
_FAILED = "The tool failed; see the agent's log."
_SECRET_LOST = (
    "A secret of the user's stands there, which you see as ***. It would be lost: leave its line "
    "alone, and change those around it with edit_file."
)
_UNREADABLE = "\n(An image of it can't be read and was left out.)"
_AFTER_REJECTION = "Not run: the user did not allow an earlier call of this answer."
_WORDS_WAIT = (
    "Not run: the user has said something meanwhile, which follows. Call the tool again if that is"
    " still right."
)

Content = list[dict[str, Any]]
T = TypeVar("T")


class ToolCalls:
    """Runs the tool calls of a turn, the calls of one answer at a time."""

    def __init__(
        self,
        tools: Toolbox,
        permissions: Permissions,
        context: ToolContext,
        secrets: Secrets,
        recorder: Recorder,
        pause: Pause,
        steering: Steering,
    ) -> None:
        self._tools = tools
        self._pause = pause
        self._steering = steering
        self._permissions = permissions
        self._context = context
        self._secrets = secrets
        self._recorder = recorder
        self._rejected = False

    async def run(self, calls: Sequence[ToolCall]) -> None:
        """Runs the calls of one answer. Raises PromptCancelled."""
        self._rejected = False
        await self._with_cards(calls, self._run_all)

    async def refuse(self, calls: Sequence[ToolCall], reason: str) -> None:
        """Shows the calls as failed without running any; `reason` is the result for the model."""

        async def end_all(cards: list[Card]) -> None:
            for card in cards:
                await self._end(card, Outcome("failed", reason))

        await self._with_cards(calls, end_all)

    async def _run_all(self, cards: list[Card]) -> None:
        for at_once, group in groupby(cards, lambda card: card.only_reads):
            if at_once:
                await self._run_at_once(list(group))
            else:
                for card in group:
                    await self._run(card)

    async def _run_at_once(self, cards: list[Card]) -> None:
        room = anyio.Semaphore(_AT_ONCE)

        async def run(card: Card) -> None:
            async with room:
                await self._run(card)

        try:
            async with anyio.create_task_group() as tasks:
                for card in cards:
                    tasks.start_soon(run, card)
        except ExceptionGroup as group:
            if group.subgroup(PromptCancelled) is None:
                raise
            raise PromptCancelled from None

    # one call

    async def _run(self, card: Card) -> None:
        try:
            result = await self._execute(card)
        except ToolError as error:
            self._rejected = self._rejected or isinstance(error, Rejected)
            outcome = self._outcome(card, "failed", ToolResult(str(error)))
        else:
            outcome = self._outcome(card, "completed", result)
        await self._end(card, outcome)

    async def _execute(self, card: Card) -> ToolResult:
        if self._rejected:
            raise ToolError(_AFTER_REJECTION)
        if card.tool is None or card.args is None:
            raise ToolError(card.problem)
        tool, client = card.tool, self._context.client
        async with self._pause.call():
            if self._steering.waits:
                raise ToolError(_WORDS_WAIT)
            action = await _guarded(tool.name, tool.prepare(card.args, self._context))
        if action.content:
            await self._show_before(card, action.content)
        if action.only_person:
            card.shown["_meta"] = {BUILTIN_AGENT: {ONLY_PERSON: True}}
        await self._permissions.check(tool, action, card.shown, client)

        async def show(content: Sequence[dict[str, Any]]) -> None:
            if not card.ended:
                await self._update(card, content=self._masked(content, so_far=True))

        async with self._pause.call():
            card.begun = True
            await self._update(card, status="in_progress")
            await anyio.lowlevel.checkpoint()
            if isinstance(tool, Plan):
                await self._keep_plan(card.args)
            return await _guarded(tool.name, action.run(show))

    async def _show_before(self, card: Card, content: Sequence[dict[str, Any]]) -> None:
        """Records and shows what the call is going to do, such as a diff. Raises ToolError."""
        diffs = [item for item in content if item["type"] == "diff"]
        if any(self._secrets.lost(diff["oldText"] or "", diff["newText"]) for diff in diffs):
            raise ToolError(_SECRET_LOST)
        card.shown["content"] = shown = self._masked(content)
        await self._recorder.record({"t": "shown", "card": card.id, "content": shown})
        await self._update(card, content=shown)

    async def _keep_plan(self, args: BaseModel) -> None:
        """Records a plan before its tool shows it."""
        entries = args.model_dump(mode="json").get("entries")
        await self._recorder.record({"t": "plan", "entries": entries})

    # cards

    async def _with_cards(
        self, calls: Sequence[ToolCall], work: Callable[[list[Card]], Awaitable[None]]
    ) -> None:
        cards: list[Card] = []
        try:
            for call in calls:
                cards.append(card := self._card(call))
                await self._open(card)
            await work(cards)
        finally:
            deadline = anyio.current_time() + _CARD_SECONDS
            # A shield of its own for each card, so that each end is at least sent.
            for card in cards:
                with anyio.CancelScope(deadline=deadline, shield=True):
                    interrupted = ToolResult(INTERRUPTED)
                    await self._end(card, self._outcome(card, "failed", interrupted))

    def _card(self, call: ToolCall) -> Card:
        shown = {
            "toolCallId": self._recorder.history.next_card,
            "title": call.name,
            "kind": "other",
            "rawInput": parsed(call.arguments),
        }
        if call.name.startswith("mcp__"):  # the name by which the user's rules know it
            shown["_meta"] = {BUILTIN_AGENT: {"toolName": call.name}}
        card = Card(call, shown)
        tool = self._tools.get(call.name)
        if tool is None:
            card.problem = f"{NO_TOOL}{call.name}."
            return card
        card.shown["kind"] = tool.kind
        try:
            args = tool.Args.model_validate_json(call.arguments or "{}")
            card.shown["title"] = tool.title(args)
            card.shown["locations"] = tool.locations(args, self._context.cwd)
        except ValidationError as error:
            card.problem = f"The arguments do not fit: {_problems(error)}"
        except Exception:
            logger.exception("a call of the tool %s could not be shown", tool.name)
            card.problem = _FAILED
        else:
            card.tool, card.args = tool, args
            if isinstance(tool, Plan):
                card.shown["hidden"] = True
        return card

    async def _open(self, card: Card) -> None:
        call = card.call
        record = {"t": "call", "id": call.id, "name": call.name, "arguments": call.arguments}
        await self._recorder.record({**record, "card": dict(card.shown)})
        await self._show(card, card_start(card.shown))

    async def _update(self, card: Card, **changed: Any) -> None:
        update = {"sessionUpdate": "tool_call_update", "toolCallId": card.id}
        await self._show(card, {**update, **changed})

    async def _end(self, card: Card, outcome: Outcome) -> None:
        if card.ended:
            return
        card.ended = True
        outcome.ran = card.begun
        record = {"t": "result", "card": card.id, "status": outcome.status, "text": outcome.text}
        more = {"raw": outcome.raw, "content": outcome.content, "images": outcome.images or None}
        more["ran"] = None if outcome.ran else False
        given = {name: value for name, value in more.items() if value is not None}
        await self._recorder.record({**record, **given})
        await self._show(card, card_end(card.id, outcome))

    async def _show(self, card: Card, update: Update) -> None:
        if not card.hidden:
            await self._recorder.show(update)

    def _outcome(self, card: Card, status: str, result: ToolResult) -> Outcome:
        """Returns the call's outcome with secrets masked and unreadable images left out.

        If the tool shows no content, what was shown before the call ran, such as a diff, stays on
        the card.
        """
        text = self._secrets.mask(result.text)
        images = [url for url in result.images if is_image(url)]
        if len(images) < len(result.images):
            text += _UNREADABLE
        content: Content | None = None
        if result.content is not None:
            content = self._masked(result.content)
        elif before := card.shown.get("content"):
            content = [*before, {"type": "content", "content": {"type": "text", "text": text}}]
        raw = self._secrets.mask_json(result.raw)
        return Outcome(status, text, raw, content, images)

    def _masked(self, content: Sequence[dict[str, Any]], *, so_far: bool = False) -> Content:
        """Returns the content with secrets masked. `so_far`: its texts are not finished yet."""
        return [self._masked_item(item, so_far) for item in content]

    def _masked_item(self, item: dict[str, Any], so_far: bool) -> dict[str, Any]:
        match item:
            case {"content": {"type": "image" | "audio"}}:  # masking would only break the data
                return item
            case {"content": {"type": "text", "text": str(text)} as block} if so_far:
                item = {**item, "content": {**block, "text": self._so_far(text)}}
        masked: dict[str, Any] = self._secrets.mask_json(item)
        return masked

    def _so_far(self, text: str) -> str:
        output, fence = split_closing_fence(text)
        return self._secrets.so_far(output) + fence


async def _guarded(name: str, work: Awaitable[T]) -> T:
    """Awaits a tool's work. Turns any exception into a ToolError; its text is only logged."""
    try:
        return await work
    except ToolError:
        raise
    except Exception as error:
        logger.exception("the tool %s failed", name)
        raise ToolError(_FAILED) from error


def _problems(error: ValidationError) -> str:
    found = error.errors(include_url=False, include_input=False, include_context=False)
    return "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in found)


class Card(Struct):
    """A tool call of a turn; `shown` changes as its card does, until the call has ended."""

    call: ToolCall
    #: the `tool_call` that the client is shown, in wire form
    shown: dict[str, Any]
    tool: AnyTool | None = None
    args: BaseModel | None = None
    #: why the call can't be run, for the model; empty if it can
    problem: str = ""
    #: the client was told that the call runs
    begun: bool = False
    ended: bool = False

    @property
    def id(self) -> str:
        return str(self.shown["toolCallId"])

    @property
    def hidden(self) -> bool:
        """True if the client is shown no card for the call."""
        return "hidden" in self.shown

    @property
    def only_reads(self) -> bool:
        return self.tool is not None and self.tool.access == "read"
