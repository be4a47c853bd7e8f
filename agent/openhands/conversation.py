"""One session: a conversation of the server, its prompts in order, and what its client is shown.

Invariants
- Prompts run one at a time, in the order in which they came.
- Nothing is sent to the server while actions wait for consent, or while a cancelled run may
  continue: first the actions are refused and the run is stopped, or else the prompt is an error.
- After a session was opened again, and after `cancelled`, updates are delayed until the client
  sends something (invariant C23).
"""

from __future__ import annotations

import logging
from collections import deque
from typing import Final

import anyio
from anyio.abc import TaskGroup

from acp_bridge.core.protocol import INFO_UPDATE
from agent.client import Client
from agent.openhands import patience
from agent.openhands.events import Event, Json, StateField, Status, UserMessage, status_of
from agent.openhands.live_feed import LiveFeed, OpenSocket
from agent.openhands.options import Options
from agent.openhands.problems import Kind, ServerProblem
from agent.openhands.prompt import COMMANDS, COMPACT, Message
from agent.openhands.server import Server
from agent.openhands.shown import Shown
from agent.openhands.turn import Turn
from agent.openhands.turn_runner import TurnRunner
from agent.openhands.turn_shell import TurnShell
from agent.openhands.turn_words import (
    LOST,
    NOT_STOPPED,
    NOT_STREAMED,
    Effect,
    End,
    Fail,
    Phase,
    StopReason,
)

logger = logging.getLogger(__name__)

#: seconds without an event after which a running turn checks whether the feed is alive
_SILENCE: Final = 15.0
#: seconds for stopping a run when the session is closed; an interrupt alone waits up to five
_CLOSE: Final = 7.0


class _Prompt:
    """A prompt that is not answered yet."""

    def __init__(self, message: Message) -> None:
        self.message = message
        self.cancelled = False
        #: the prompt's waits for the server, which a cancel ends
        self.waiting = anyio.CancelScope()


class Conversation:
    """One session. `client`: where its updates go."""

    def __init__(
        self,
        conversation_id: str,
        server: Server,
        open_socket: OpenSocket,
        client: Client,
        options: Options,
    ) -> None:
        self.id = conversation_id
        self.options = options
        self.shown = Shown(client, conversation_id)
        self.news = News(conversation_id, server, self.shown)
        self._client = client
        self._server = server
        self.live = LiveFeed(
            server, open_socket, conversation_id, self.shown.update, self._saw, self._gone
        )
        self._prompts: deque[_Prompt] = deque()
        self._turns = anyio.Lock()
        self._runner: TurnRunner | None = None
        #: a stopped run may continue, or a message may still arrive
        self._uncertain = False
        self._opening = False
        self._tasks: TaskGroup | None = None
        self._closed = anyio.Event()

    # opening and closing

    async def begin(self) -> None:
        """Tells the client the commands, and follows the conversation until it is closed."""
        await self.shown.update(COMMANDS)
        await self.serve()

    async def serve(self) -> None:
        """Follows the conversation's feed until it is closed."""
        async with anyio.create_task_group() as self._tasks:
            self._tasks.start_soon(self.live.run)
            await self._closed.wait()
            self._tasks.cancel_scope.cancel()
        self._tasks = None

    async def close(self) -> None:
        """Cancels every prompt, waits `_CLOSE` seconds for their ends, and stops following."""
        self.cancel()
        with anyio.move_on_after(_CLOSE):
            async with self._turns:
                pass
        self.shown.close()
        self._closed.set()

    async def replay(self) -> None:
        delayed = self.shown.drop_delayed()
        try:
            await self.live.replay()
        finally:
            if delayed:
                self.shown.delay()

    async def read_past(self, *, replay: bool = False) -> Status | None:
        """Reads the stored log and returns the conversation's status. Raises ServerProblem.

        `replay`: the client is shown the log.
        """
        self._opening = True
        try:
            return await patience.read_log(self.live, self.shown.say, replay=replay)
        finally:
            self._opening = False

    async def open_again(self, *, replay: bool) -> None:
        """Reads the log, and stops a run that a cancel or a kill has left. Raises ServerProblem."""
        status = await self.read_past(replay=replay)
        if status is Status.RUNNING:
            await self._stop_all()
        await self.shown.update(COMMANDS)
        self.shown.delay()

    # prompts

    async def prompt(self, message: Message) -> StopReason:
        """Sends a message and returns the stop reason when its turn ends. Raises ServerProblem."""
        prompt = _Prompt(message)
        self._prompts.append(prompt)
        try:
            async with self._turns:
                outcome = await self._run(prompt)
        finally:
            self._prompts.remove(prompt)
        match outcome:
            case Fail(sentence, auth):
                raise ServerProblem(Kind.NOT_ALLOWED if auth else Kind.REFUSED, sentence)
            case End(reason):
                return reason

    async def pause(self) -> bool:
        """Pauses the running turn; returns True once its call has ended and no other begins."""
        return await self._runner.pause() if self._runner is not None else False

    def go(self) -> None:
        """Ends the pause of the running turn."""
        if self._runner is not None and self._tasks is not None:
            self._tasks.start_soon(self._runner.go)

    async def ask(self, question: str) -> str:
        """Returns the model's answer to a question beside the conversation.

        Raises ServerProblem.
        """
        return await self._server.question(self.id, question)

    def cancel(self) -> None:
        """Cancels every prompt that is not answered yet."""
        for prompt in self._prompts:
            prompt.cancelled = True
            prompt.waiting.cancel()
        if self._runner is not None:
            self._runner.cancel()

    async def _run(self, prompt: _Prompt) -> End | Fail:
        if prompt.cancelled:
            return End("cancelled")
        await self.shown.send_delayed()
        with prompt.waiting:
            await patience.wait_until_live(self.live, self.shown.say)
        if prompt.cancelled:
            self.shown.delay()
            return End("cancelled")
        if self._uncertain or await self._status() is Status.WAITING:
            await self._stop_all()
        self.shown.mute(self._uncertain)
        if prompt.cancelled:
            outcome: End | Fail = End("cancelled")
        elif self._uncertain:
            outcome = Fail(NOT_STOPPED)
        elif prompt.message.command:
            outcome = await self._command(prompt)
        else:
            outcome = await self._turn(prompt)
        if outcome == End("cancelled"):
            self.shown.delay()
        return outcome

    async def _status(self) -> Status | None:
        """Returns the status that the feed knows; asks the server if it knows none."""
        if self.live.state_known:
            return self.live.feed.status
        return status_of(await self._server.status(self.id))

    async def _turn(self, prompt: _Prompt) -> End | Fail:
        await self.news.whole(self.live.feed.state)
        turn = Turn(self.live.feed.state.get("last_user_message_id"))
        self.live.feed.expect(prompt.message.parts)
        return await self._drive(turn, self._shell(prompt.message), turn.begin())

    async def _command(self, prompt: _Prompt) -> End | Fail:
        """Runs a command of this agent's; a cancel only stops waiting for it."""
        with anyio.CancelScope() as prompt.waiting:
            if prompt.message.command == COMPACT:
                await self._server.condense(self.id)
            else:
                answer = await self._server.question(self.id, prompt.message.argument)
                await self.shown.message(answer)
        return End("cancelled" if prompt.cancelled else "end_turn")

    async def _stop_all(self) -> None:
        """Stops every run and refuses every waiting action; notes it if a run may still go on."""
        turn = Turn()
        await self._drive(turn, self._shell(None), turn.begin_stop())

    def _shell(self, message: Message | None) -> TurnShell:
        return TurnShell(
            self.id, self._server, self.live, self.options, self._client, self.shown, message
        )

    async def _drive(self, turn: Turn, shell: TurnShell, first: list[Effect]) -> End | Fail:
        runner = self._runner = TurnRunner(turn, shell)
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._watch)
                outcome = await runner.run(first)
                tasks.cancel_scope.cancel()
        finally:
            self._runner = None
            runner.refuse_pauses()
        self._uncertain = turn.uncertain
        if not turn.uncertain:
            self.live.feed.expect_nothing()
        if turn.cancelled:
            self.live.feed.cut()
            self.shown.mute(turn.uncertain)
        return outcome

    async def _watch(self) -> None:
        """Asks for the status when a turn's feed is silent; reconnects a feed that seems dead."""
        told = False
        while True:
            self.live.heard = False
            await anyio.sleep(_SILENCE)
            if self.live.heard:
                told = False
            if self.live.heard or not self._runs():
                continue
            try:
                status = await self._server.status(self.id)
            except ServerProblem as problem:
                if problem.final:
                    await self.live.end(problem)
                elif self._runs() and not told:
                    told = True
                    await self.shown.say(LOST)
                continue
            if status != Status.RUNNING and not self.live.heard:
                self.live.reconnect()

    def _runs(self) -> bool:
        return self._runner is not None and self._runner.turn.phase is Phase.RUNNING

    # events of the feed

    async def _saw(self, event: Event, ours: bool) -> None:
        if isinstance(event, StateField):
            changes = self.options.changed(event.key, event.value)
            await self.shown.all(() if self._opening else changes)
        if self._runner is not None:
            await self._runner.saw(event, ours=ours)
        elif ours and isinstance(event, UserMessage):
            # A message that was given up has arrived after all: its run must be stopped.
            self._uncertain = True
            logger.warning("a message of %s arrived late; its run is stopped", self.id)
            if self._tasks is not None:
                self._tasks.start_soon(self._stop_late)

    async def _stop_late(self) -> None:
        async with self._turns:
            if self._uncertain:
                await self._stop_all()

    async def _gone(self, problem: ServerProblem) -> None:
        if self._runner is not None:
            await self._runner.gone(problem)


class News:
    """Tells what a session has to say beside its prompts."""

    def __init__(self, conversation_id: str, server: Server, shown: Shown) -> None:
        self._id = conversation_id
        self._server = server
        self._shown = shown
        self._title = ""
        self._told_whole = False

    async def title(self) -> None:
        """Reads the conversation's title and tells it to the client if it has changed.

        It is read because no event of the server tells of the change.
        """
        try:
            title = (await self._server.info(self._id)).get("title")
        except ServerProblem:
            return
        if isinstance(title, str) and title and title != self._title:
            self._title = title
            await self._shown.update({"sessionUpdate": INFO_UPDATE, "title": title})

    async def whole(self, state: Json) -> None:
        """Tells the user, once, that nothing is streamed if the agent's model doesn't stream.

        `state`: the whole state of the conversation.
        """
        agent = state.get("agent")
        if self._told_whole or not isinstance(agent, dict) or agent.get("kind") == "ACPAgent":
            return
        self._told_whole = True
        model = agent.get("llm")
        if isinstance(model, dict) and model.get("stream") is False:
            await self._shown.say(NOT_STREAMED)
