"""One open session: runs its prompts one at a time, in the order they came, and cancels them.

Invariants
- Every prompt is answered once. One that was cancelled before its end is answered `cancelled`,
  whatever else came of it (invariants C3, C5), and only when its work has ended (invariant C10).
- A cancel applies to the oldest prompt that is not answered at that moment, and to no other
  (invariants C1, C2).
- After the session was opened again, and after a cancelled prompt, nothing is sent of it until the
  client speaks (invariant C23).
- A prompt that can't be taken, because the model has no key, is refused before anything of it is
  recorded.
"""

from __future__ import annotations

import contextlib
import logging
from collections import deque
from typing import Any

import anyio

from acp_bridge.core.records import replace
from agent.client import Update
from agent.conversation.compaction import Compactor
from agent.conversation.decisions import Key
from agent.conversation.entries import Record
from agent.conversation.replay import notice
from agent.conversation.transcript import Transcript
from agent.mcp_servers.session_servers import SessionServers
from agent.model import ModelError
from agent.session.asides import Asides
from agent.session.ask import Questions
from agent.session.config_options import ConfigOptions
from agent.session.demo_notice import DemoNotice
from agent.session.model_news import ModelNews
from agent.session.session_params import SessionParams
from agent.session.shared_parts import SharedParts
from agent.session.system_prompt import GivenPrompt, system_prompt
from agent.session.title import Title, title_update
from agent.tools import Toolbox, ToolContext
from agent.turn.loop import StopReason, Turn
from agent.turn.pause import Pause
from agent.turn.permissions import Permissions, PromptCancelled
from agent.turn.steering import Steering

logger = logging.getLogger(__name__)

COMMANDS = [
    {"name": "compact", "description": "Summarise the conversation so far, to make room for more"}
]
COMMANDS_UPDATE: Update = {
    "sessionUpdate": "available_commands_update",
    "availableCommands": COMMANDS,
}


class _PendingPrompt:
    """An unanswered prompt: how to cancel, pause and steer it, and the event of its answer."""

    def __init__(self) -> None:
        self.scope = anyio.CancelScope()
        self.pause = Pause()
        self.steering = Steering()
        self.answered = anyio.Event()


class Session:
    """One open session. `params`: its folders and servers at first; `use` replaces them later."""

    def __init__(
        self, shared: SharedParts, session_id: str, transcript: Transcript, params: SessionParams
    ) -> None:
        self.transcript = transcript
        self.client = shared.client(session_id)
        history = transcript.history
        self.permissions = Permissions(history.decisions.always, self._keep_answer)
        self.options = ConfigOptions(shared.models, self.permissions, self._keep_choice)
        self.options.restore(history.decisions.chosen)
        self._asides = Asides(self.client.update)
        self.servers = SessionServers(self.say)
        #: what the tools of the next turn work with: folders, client, environment
        folder = shared.settings.folder
        self.context = ToolContext(
            params.cwd,
            self.client,
            environment=shared.environment,
            records=(folder, folder.with_name("sessions")),
            secrets=shared.secrets,
        )
        self._shared = shared
        self._tools = Toolbox(shared.tools, lambda: self.servers.tools)
        self._compactor = Compactor(transcript, shared.summariser(), self.say)
        self.questions = Questions(shared, session_id, self.options, self._tools)
        self._news = ModelNews(self.options, history, self._tools, self.client, self._asides)
        self._demo_notice = DemoNotice(
            self.options, history, shared.settings, self.say, self._news.show_options
        )
        self._pending: deque[_PendingPrompt] = deque()
        #: what the session had spent when the client was last told of its tokens
        self._told = history.spent
        self.title = Title(transcript, shared.summariser(), self._asides, shared.secrets.mask)
        self._titled = (history.title if self.title.is_quick else history.made_title) is not None
        #: the context for which the system prompt was made
        self._introduced: ToolContext | None = None
        #: the client's part of the system prompt
        self.given_prompt: GivenPrompt | None = None
        #: the names of missing tools that the user was told, joined
        self._gone = ""
        self.use(params)

    def use(self, params: SessionParams) -> None:
        """Replaces the session's folders and MCP servers, from the next turn on."""
        context = replace(self.context, cwd=params.cwd, extra_roots=params.extra_roots)
        self.context = context
        self.given_prompt = params.system_prompt or self.given_prompt
        params.add_secrets(self._shared.secrets)
        self.servers.use(params.mcp_servers, params.cwd)

    async def begin(self) -> None:
        """Sends the client the list of commands, then does what `serve` does.

        Call it after the response that made the session.
        """
        await self.client.update(COMMANDS_UPDATE)
        await self.serve()

    async def reopened(self) -> None:
        """Sends the client commands and usage before the response that opens the session again.

        Later updates wait until the client sends something. Among them are the commands once more,
        for clients that know a session only once they have the response.
        """
        await self.client.update(COMMANDS_UPDATE)
        await self._news.tell_promptly()
        if not self._pending:
            self._asides.delay()
            await self._asides.tell(COMMANDS_UPDATE)

    async def serve(self) -> None:
        """Runs the MCP servers until they end; tells the client of model abilities and lost tools.

        Does nothing in a light process.
        """
        if self._shared.light:
            return  # the process that replaces this light one does it
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.servers.serve)
            tasks.start_soon(self._news.tell)
            tasks.start_soon(self._name_gone_tools)

    async def tell_options_of_choice(self) -> None:
        """Tells the client, once it is known, what the model that it has just chosen can do."""
        await self._asides.send_delayed_states()
        await self._news.tell_replaced()
        await self._news.tell_options()

    async def close(self) -> None:
        """Closes the session: cancels every prompt and question, and waits until nothing runs."""
        self._asides.close()
        self.questions.close()
        self.title.close()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.cancel_all)
            tasks.start_soon(self.servers.close)
        self.transcript.close()

    # prompts

    async def prompt(self, blocks: list[dict[str, Any]], *, no_demo: bool = False) -> StopReason:
        """Queues the prompt and answers it in its turn. Raises ModelError, RequestError.

        `no_demo`: if there is no key, raise ModelError instead of an answer by the demo. Must not
        await before the prompt is queued, or prompts could overtake one another.
        """
        pending = _PendingPrompt()
        self._pending.append(pending)
        try:
            with pending.scope:
                while (first := self._pending[0]) is not pending:
                    await first.answered.wait()
                stop = await self._answer(blocks, pending, no_demo=no_demo)
                if stop != "cancelled":
                    await self._show_title()
        except Exception:
            if not pending.scope.cancel_called:
                raise
            logger.exception("a cancelled turn failed")
        finally:
            self._pending.remove(pending)
            pending.pause.end()
            if pending.scope.cancel_called and not self._pending:
                self._asides.delay()
            pending.answered.set()
        return "cancelled" if pending.scope.cancel_called else stop

    def take_tokens(self) -> dict[str, int] | None:
        """Returns the tokens used since the last call of this, as ACP names them; None if none.

        So what a failed turn, a title or a summary has used counts in the next answer.
        """
        now, before = self.transcript.history.spent, self._told
        self._told = now
        read, got = max(0, now.input - before.input), max(0, now.output - before.output)
        cached = min(max(0, now.cached - before.cached), read)
        if not read and not got:
            return None
        tokens = {"inputTokens": read - cached, "outputTokens": got, "totalTokens": read + got}
        return {**tokens, "cachedReadTokens": cached} if cached else tokens

    def cancel(self) -> None:
        """Cancels the oldest unanswered prompt; does nothing if there is none."""
        if self._pending:
            self._pending[0].scope.cancel()

    async def pause(self) -> bool:
        """Pauses the oldest unanswered prompt; returns True once its calls in flight have ended.

        Returns False if there is none, and if it ends or is continued before that.
        """
        return bool(self._pending) and await self._pending[0].pause.begin()

    def go(self) -> None:
        """Ends the pause of the oldest unanswered prompt; does nothing if there is none."""
        if self._pending:
            self._pending[0].pause.go()

    async def steer(self, blocks: list[dict[str, Any]]) -> bool:
        """Has the user's words join the running turn; returns False if it can take none.

        Must not await before the words are taken, or they could overtake one another.
        """
        first = self._pending[0] if self._pending else None
        if first is None or first.scope.cancel_called or not first.steering.add(blocks):
            return False
        with contextlib.suppress(ModelError):  # the turn itself fails with it
            await self._news.tell_unseen(blocks)
        return True

    async def ask(self, question: str) -> str:
        return await self.questions.answer(question, self.context, self.given_prompt)

    async def cancel_all(self) -> None:
        """Cancels every prompt and waits until all are answered."""
        for pending in self._pending:
            pending.scope.cancel()
        while self._pending:
            await self._pending[-1].answered.wait()

    async def replay(self) -> None:
        """Sends the client the whole transcript; updates of a running turn follow it."""
        history = self.transcript.history
        await self.client.replay(lambda: history.replay(running=bool(self._pending)))

    async def say(self, text: str) -> None:
        """Shows the user a sentence of the agent's own; it is not recorded."""
        await self._asides.tell(notice(text))

    # answering a prompt

    async def _answer(
        self, blocks: list[dict[str, Any]], pending: _PendingPrompt, *, no_demo: bool
    ) -> StopReason:
        await self._asides.send_delayed()
        await self._demo_notice.before_answer(no_demo=no_demo)
        model = self.options.model()
        if _command(blocks) == "/compact":
            await self.say(await self._compactor.compact(model))
            await self._news.tell_usage()
            return "end_turn"
        pending.steering.open()
        await self.servers.settled()
        await self._news.wait()
        await self._news.tell_unseen(blocks)
        await self._introduce()
        turn = Turn(
            model=self.options.model,
            tools=self._tools,
            transcript=self.transcript,
            permissions=self.permissions,
            context=self.context,
            secrets=self._shared.secrets,
            compactor=self._compactor,
            pause=pending.pause,
            steering=pending.steering,
            max_calls=self._shared.settings.max_calls,
            watch=self._shared.settings.stuck_detection,
        )
        try:
            return await turn.run(blocks)
        except PromptCancelled:
            return "cancelled"
        except ModelError as error:
            self.options.note_failure(error)
            raise

    async def _introduce(self) -> None:
        """Records the system prompt before the first turn, and again if it has changed since."""
        if self._introduced is self.context:
            return
        context = self.context
        text = await system_prompt(context.cwd, context.extra_roots, self.given_prompt)
        if self.transcript.history.system != text:
            self._record({"t": "system", "text": text})
        self._introduced = context

    async def _name_gone_tools(self) -> None:
        await self.servers.settled()
        gone = ", ".join(self._tools.missing(self.transcript.history.tool_names))
        if gone and gone != self._gone:
            self._gone = gone
            await self.say(f"Tools that this conversation used are not there any more: {gone}.")

    async def _show_title(self) -> None:
        """Sends the client the session's title once, after the first turn that was not cancelled.

        A title by the summary model comes later (`title.make`); the prompt's answer doesn't wait
        for it.
        """
        title = self.transcript.history.title
        if title is not None and not self._titled:
            self._titled = self.title.due = True
            if self.title.is_quick:
                await self.client.update(title_update(title))

    # what is kept with the session

    def _keep_choice(self, option: str, value: str) -> None:
        if self.transcript.history.decisions.chosen.get(option) != value:
            self._record({"t": "chosen", "option": option, "value": value})

    def _keep_answer(self, key: Key, allow: bool) -> None:
        self._record({"t": "always", "key": list(key), "allow": allow})

    def _record(self, record: Record) -> None:
        try:
            self.transcript.append(record)
        except OSError:  # a turn tells the user that nothing can be recorded
            logger.exception("the transcript can't be written")


def _command(blocks: list[dict[str, Any]]) -> str:
    """Returns the first word of a prompt, which may be a slash command such as "/compact"."""
    words = str(blocks[0].get("text", "")).split(maxsplit=1)
    return words[0] if words else ""
