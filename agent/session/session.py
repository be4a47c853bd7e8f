"""One open session: its prompts, one at a time in the order they came, and their cancellation.

Invariants
- Every prompt ends once; one that was cancelled before its end answers `cancelled`, whatever else
  came of it (HAZARDS C3, C5), and only when its work has ended (C10).
- A cancel applies to the oldest prompt that is not answered at that moment, to no other (C1, C2).
- A prompt that can't be taken (no key, an image for a model that sees none) is refused before
  anything of it is recorded.
"""

from __future__ import annotations

import dataclasses
import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

import anyio

from agent.conversation.compaction import Compactor
from agent.conversation.replay import notice
from agent.conversation.token_estimate import TokenEstimate
from agent.conversation.transcript import Transcript
from agent.errors import invalid_params
from agent.mcp_servers.session_servers import SessionServers
from agent.model import Model
from agent.session.config_options import ConfigOptions
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


class _Waiting:
    """A prompt that is not answered yet."""

    def __init__(self) -> None:
        self.scope = anyio.CancelScope()
        self.answered = anyio.Event()


class Session:
    """`params`: what the client gave for it; others can be set later with `use`."""

    def __init__(
        self, shared: SharedParts, session_id: str, transcript: Transcript, params: SessionParams
    ) -> None:
        self.transcript = transcript
        self.client = shared.client(session_id)
        self.permissions = Permissions()
        self.options = ConfigOptions(shared.models, self.permissions)
        self.servers = SessionServers(self.say)
        #: what the next turn works with
        self.context = ToolContext(params.cwd, self.client, environment=shared.environment)
        self._shared = shared
        self._tools = Toolbox(shared.tools, lambda: self.servers.tools)
        self._compactor = Compactor(transcript, self._summariser(), self.say)
        self._waiting: deque[_Waiting] = deque()
        self._titled = transcript.history.title is not None
        self._open = True
        #: the one that the system prompt was made for
        self._introduced: ToolContext | None = None
        #: the names of tools that the user was told of
        self._gone = ""
        self.use(params)

    def use(self, params: SessionParams) -> None:
        """The next turn works with this, and what was given before no longer counts."""
        context = dataclasses.replace(self.context, cwd=params.cwd, extra_roots=params.extra_roots)
        self.context = context
        params.add_secrets(self._shared.secrets)
        self.servers.use(params.mcp_servers, params.cwd)

    async def begin(self) -> None:
        """What follows the response that opened it; ends with its MCP servers."""
        await self.client.update(
            {"sessionUpdate": "available_commands_update", "availableCommands": COMMANDS}
        )
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.servers.serve)
            tasks.start_soon(self._tell_what_is_known)
            tasks.start_soon(self._name_gone_tools)

    async def tell_options(self) -> None:
        """Look the model up, and tell the client if there is more to choose from now."""
        if await self.options.learn() and self._open:
            await self.client.update(self.options.update())

    async def _tell_what_is_known(self) -> None:
        await self.tell_options()
        await self._tell_usage()

    async def _tell_usage(self) -> None:
        """How full the window is, where no answer says it: after a load and after a summary."""
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
        """Cancel every prompt, wait until they are answered, and leave nothing running."""
        self._open = False
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.cancel_all)
            tasks.start_soon(self.servers.close)
        self.transcript.close()

    # prompts

    async def prompt(self, blocks: list[dict[str, Any]]) -> StopReason:
        """Answer it when its turn has come. Raises ModelError, RequestError.

        Prompts take their places in the order in which this is called, before its first await.
        """
        waiting = _Waiting()
        self._waiting.append(waiting)
        try:
            with waiting.scope:
                while (first := self._waiting[0]) is not waiting:
                    await first.answered.wait()
                stop = await self._answer(blocks)
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

    async def say(self, text: str) -> None:
        """Something that the model did not say. It is not kept."""
        if self._open:
            await self.client.update(notice(text))

    # one of them

    async def _answer(self, blocks: list[dict[str, Any]]) -> StopReason:
        model = self.options.model()
        if _command(blocks) == "/compact":
            await self.say(await self._compactor.compact(model))
            await self._tell_usage()
            return "end_turn"
        if any(block["type"] == "image" for block in blocks):
            await self._check_sight()
        await self.servers.settled()
        await self.tell_options()
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

    async def _check_sight(self) -> None:
        if not (await self.options.info()).takes_images:
            name = self.options.model().id
            raise invalid_params(
                f"the model {name} takes no images; choose another, or leave the image out"
            )

    async def _introduce(self) -> None:
        """Give the model its system prompt: before the first turn, and when it says something else
        now than it did before a restart."""
        if self._introduced is self.context:
            return
        context = self.context
        text = await system_prompt(context.cwd, context.extra_roots)
        if self.transcript.history.system != text:
            try:
                self.transcript.append({"t": "system", "text": text})
            except OSError:  # the turn will say that nothing is kept
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
        """Once: after the first turn that was not cancelled."""
        title = self.transcript.history.title
        if title is not None and not self._titled:
            self._titled = True
            await self.client.update({"sessionUpdate": "session_info_update", "title": title})

    def _summariser(self) -> Callable[[], Model] | None:
        name = self._shared.settings.summary_model
        return partial(self._shared.models.open, name) if name else None


def _command(blocks: list[dict[str, Any]]) -> str:
    """The slash command that it begins with, "/compact"; else nothing or any word."""
    words = str(blocks[0].get("text", "")).split(maxsplit=1)
    return words[0] if words else ""
