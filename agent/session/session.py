"""One open session: runs its prompts one at a time, in the order they came, and cancels them.

Invariants
- Every prompt is answered once. One that was cancelled before its end is answered `cancelled`,
  whatever else came of it (invariants C3, C5), and only when its work has ended (invariant C10).
- A cancel applies to the oldest prompt that is not answered at that moment, and to no other
  (invariants C1, C2).
- A prompt that can't be taken, because the model has no key, is refused before anything of it is
  recorded.
"""

from __future__ import annotations

import dataclasses
import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

import anyio

from agent.content.blocks import images_of, unreadable_images
from agent.content.images import IMAGES_TAKEN
from agent.conversation.compaction import Compactor
from agent.conversation.replay import notice
from agent.conversation.token_estimate import TokenEstimate
from agent.conversation.transcript import Transcript
from agent.mcp_servers.session_servers import SessionServers
from agent.model import Model
from agent.session.config_options import ConfigOptions
from agent.session.demo_notice import DemoNotice
from agent.session.session_params import SessionParams
from agent.session.shared_parts import SharedParts
from agent.session.system_prompt import system_prompt
from agent.tools import Toolbox, ToolContext
from agent.turn.loop import StopReason, Turn, usage_update
from agent.turn.permissions import Permissions, PromptCancelled

logger = logging.getLogger(__name__)

COMMANDS = [
    {"name": "compact", "description": "Summarise the conversation so far, to make room for more"}
]


class _PendingPrompt:
    """A prompt that is not answered yet."""

    def __init__(self) -> None:
        self.scope = anyio.CancelScope()
        self.answered = anyio.Event()


class Session:
    """`params`: where the session works at first; `use` sets others later."""

    def __init__(
        self, shared: SharedParts, session_id: str, transcript: Transcript, params: SessionParams
    ) -> None:
        self.transcript = transcript
        self.client = shared.client(session_id)
        self.permissions = Permissions()
        self.options = ConfigOptions(shared.models, self.permissions)
        self.servers = SessionServers(self.say)
        #: what the tools of the next turn work with
        self.context = ToolContext(params.cwd, self.client, environment=shared.environment)
        self._shared = shared
        self._tools = Toolbox(shared.tools, lambda: self.servers.tools)
        self._compactor = Compactor(transcript, self._summariser(), self.say)
        self._demo_notice = DemoNotice(
            self.options, transcript.history, shared.settings, self.say, self._show_options
        )
        self._pending: deque[_PendingPrompt] = deque()
        self._titled = transcript.history.title is not None
        self._open = True
        #: the context that the system prompt was made for
        self._introduced: ToolContext | None = None
        #: the names of missing tools that the user was told of
        self._gone = ""
        self.use(params)

    def use(self, params: SessionParams) -> None:
        """Makes the next turn work with these parameters; earlier ones no longer count."""
        context = dataclasses.replace(self.context, cwd=params.cwd, extra_roots=params.extra_roots)
        self.context = context
        params.add_secrets(self._shared.secrets)
        self.servers.use(params.mcp_servers, params.cwd)

    async def begin(self) -> None:
        """Sends what follows the response that opened the session, and serves its MCP servers.

        Returns when the servers have ended.
        """
        await self.client.update(
            {"sessionUpdate": "available_commands_update", "availableCommands": COMMANDS}
        )
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.servers.serve)
            tasks.start_soon(self._tell_what_is_known)
            tasks.start_soon(self._name_gone_tools)

    async def tell_options(self) -> None:
        """Looks the model up and tells the client if the options have changed by that."""
        if await self.options.learn() and self._open:
            await self._show_options()

    async def _show_options(self) -> None:
        await self.client.update(self.options.update())

    async def _tell_what_is_known(self) -> None:
        await self.tell_options()
        await self._tell_usage()

    async def _tell_usage(self) -> None:
        """Tells how full the window is where no answer tells it: after a load or a summary."""
        history = self.transcript.history
        info = self.options.known
        if info is None or not history.entries or not self._open:
            return
        spent = history.spent
        if history.measured is None:  # what the model is given has changed since it was counted
            estimate = TokenEstimate(history, self._tools.specs, images=info.takes_images)
            spent = dataclasses.replace(spent, context=estimate.tokens())
        if (update := usage_update(spent, info)) is not None:
            await self.client.update(update)

    async def close(self) -> None:
        """Cancels every prompt, waits until they are answered, and leaves nothing running."""
        self._open = False
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.cancel_all)
            tasks.start_soon(self.servers.close)
        self.transcript.close()

    # prompts

    async def prompt(self, blocks: list[dict[str, Any]]) -> StopReason:
        """Answers the prompt when its turn has come. Raises ModelError, RequestError.

        Must not await before the prompt has its place, or prompts could overtake one another.
        """
        pending = _PendingPrompt()
        self._pending.append(pending)
        try:
            with pending.scope:
                while (first := self._pending[0]) is not pending:
                    await first.answered.wait()
                stop = await self._answer(blocks)
                if stop != "cancelled":
                    await self._show_title()
        except Exception:
            if not pending.scope.cancel_called:
                raise
            logger.exception("a cancelled turn failed")
        finally:
            self._pending.remove(pending)
            pending.answered.set()
        return "cancelled" if pending.scope.cancel_called else stop

    def cancel(self) -> None:
        """Cancels the oldest prompt that is not answered; does nothing if there is none."""
        if self._pending:
            self._pending[0].scope.cancel()

    async def cancel_all(self) -> None:
        """Cancels every prompt and waits until they are answered."""
        for pending in self._pending:
            pending.scope.cancel()
        while self._pending:
            await self._pending[-1].answered.wait()

    async def replay(self) -> None:
        """Shows the client all that was said so far; updates of a running turn follow it."""
        history = self.transcript.history
        await self.client.replay(lambda: history.replay(running=bool(self._pending)))

    async def say(self, text: str) -> None:
        """Shows the user a sentence that the model did not say; it is not recorded."""
        if self._open:
            await self.client.update(notice(text))

    # answering a prompt

    async def _answer(self, blocks: list[dict[str, Any]]) -> StopReason:
        await self._demo_notice.before_answer()
        model = self.options.model()
        if _command(blocks) == "/compact":
            await self.say(await self._compactor.compact(model))
            await self._tell_usage()
            return "end_turn"
        await self.servers.settled()
        await self.tell_options()
        await self._tell_unseen(blocks)
        await self._introduce()
        turn = Turn(
            model=self.options.model,
            tools=self._tools,
            transcript=self.transcript,
            permissions=self.permissions,
            context=self.context,
            secrets=self._shared.secrets,
            compactor=self._compactor,
            max_calls=self._shared.settings.max_calls,
        )
        try:
            return await turn.run(blocks)
        except PromptCancelled:
            return "cancelled"

    async def _tell_unseen(self, blocks: list[dict[str, Any]]) -> None:
        """Says which images of the prompt the model will not see."""
        if images_of(blocks) == 0:
            return
        if not (await self.options.info()).takes_images:
            name = self.options.model_id
            await self.say(f"`{name}` can't see images: it is told only that there is one.")
        elif unreadable_images(blocks):
            await self.say(f"An image was left out: models take {IMAGES_TAKEN}.")

    async def _introduce(self) -> None:
        """Records the system prompt before the first turn, and again if it has changed since."""
        if self._introduced is self.context:
            return
        context = self.context
        text = await system_prompt(context.cwd, context.extra_roots)
        if self.transcript.history.system != text:
            try:
                self.transcript.append({"t": "system", "text": text})
            except OSError:  # the turn will tell the user that nothing is recorded
                logger.exception("the system prompt can't be written")
        self._introduced = context

    async def _name_gone_tools(self) -> None:
        await self.servers.settled()
        used = self.transcript.history.tool_names
        gone = ", ".join(sorted(name for name in used if self._tools.get(name) is None))
        if gone and gone != self._gone:
            self._gone = gone
            await self.say(f"Tools that this conversation used are not there any more: {gone}.")

    async def _show_title(self) -> None:
        """Tells the client the session's title once, after the first turn that ended by itself."""
        title = self.transcript.history.title
        if title is not None and not self._titled:
            self._titled = True
            await self.client.update({"sessionUpdate": "session_info_update", "title": title})

    def _summariser(self) -> Callable[[], Model] | None:
        name = self._shared.settings.summary_model
        return partial(self._shared.models.open, name) if name else None


def _command(blocks: list[dict[str, Any]]) -> str:
    """Returns the first word of the prompt, which may be a slash command such as "/compact"."""
    words = str(blocks[0].get("text", "")).split(maxsplit=1)
    return words[0] if words else ""
