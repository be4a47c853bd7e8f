"""One session: a conversation of the server, its prompts in order, and what its client is shown.

Invariants
- Prompts run one at a time, in the order in which they came.
- Nothing is sent to the server while actions wait that nobody has agreed to, or while what was
  cancelled may run on: they are refused and it is stopped first, or the prompt is an error.
- After a session was opened again, and after `cancelled`, nothing is shown until the client speaks;
  what came meanwhile is shown then (invariant C23).
"""

from __future__ import annotations

import logging
from collections import deque
from typing import Final

import anyio
from anyio.abc import TaskGroup

from agent.client import Client
from agent.openhands import patience
from agent.openhands.events import Event, StateField, Status, UserMessage, status_of
from agent.openhands.live_feed import LiveFeed, OpenSocket
from agent.openhands.news import News
from agent.openhands.options import Options
from agent.openhands.problems import Kind, ServerProblem
from agent.openhands.prompt import COMMANDS, COMPACT, Message
from agent.openhands.server import Server
from agent.openhands.shown import Shown
from agent.openhands.turn import Turn
from agent.openhands.turn_runner import TurnRunner
from agent.openhands.turn_shell import TurnShell
from agent.openhands.turn_words import LOST, NOT_STOPPED, Effect, End, Fail, Phase, StopReason

logger = logging.getLogger(__name__)

#: seconds without an event after which a running turn looks if the feed is still alive
_SILENCE: Final = 15.0
#: seconds for what runs to be stopped when the session is closed; an interrupt waits up to five
_CLOSE: Final = 7.0


class _Prompt:
    """One prompt that has no answer yet."""

    def __init__(self, message: Message) -> None:
        self.message = message
        self.cancelled = False
        #: the tasks of waiting for the server, ended by a cancel
        self.waiting = anyio.CancelScope()


class Conversation:
    """`client`: the client of this session."""

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
        #: what was stopped may still run, or a message may still arrive
        self._uncertain = False
        self._opening = False
        self._tasks: TaskGroup | None = None
        self._closed = anyio.Event()

    # its life

    async def begin(self) -> None:
        """Tells the client what it may do, and follows the conversation until it is closed."""
        await self.shown.update(COMMANDS)
        await self.serve()

    async def serve(self) -> None:
        """Follows the conversation until it is closed."""
        async with anyio.create_task_group() as self._tasks:
            self._tasks.start_soon(self.live.run)
            await self._closed.wait()
            self._tasks.cancel_scope.cancel()
        self._tasks = None

    async def close(self) -> None:
        """Stops what runs, within a bound, and follows the conversation no more."""
        self.cancel()
        with anyio.move_on_after(_CLOSE):
            async with self._turns:
                pass
        self.shown.close()
        self._closed.set()

    async def replay(self) -> None:
        held = self.shown.forget_held()
        try:
            await self.live.replay()
        finally:
            if held:
                self.shown.hold()

    async def read_past(self, *, replay: bool = False) -> Status | None:
        """Reads the log, and shows it if `replay`. Returns the status. Raises ServerProblem."""
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
        self.shown.hold()

    # prompts

    async def prompt(self, message: Message) -> StopReason:
        """Sends a message and returns when its turn has ended. Raises ServerProblem."""
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
        """Lets the call that runs end, and none begin; returns True once the turn waits."""
        return await self._runner.pause() if self._runner is not None else False

    def go(self) -> None:
        """Ends a pause."""
        if self._runner is not None and self._tasks is not None:
            self._tasks.start_soon(self._runner.go)

    async def ask(self, question: str) -> str:
        """Asks the model beside the conversation, which stays as it is. Raises ServerProblem."""
        return await self._server.question(self.id, question)

    def cancel(self) -> None:
        """Cancels every prompt that there is now."""
        for prompt in self._prompts:
            prompt.cancelled = True
            prompt.waiting.cancel()
        if self._runner is not None:
            self._runner.cancel()

    async def _run(self, prompt: _Prompt) -> End | Fail:
        if prompt.cancelled:
            return End("cancelled")
        await self.shown.release()
        with prompt.waiting:
            await patience.wait_until_live(self.live, self.shown.say)
        if prompt.cancelled:
            self.shown.hold()
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
            self.shown.hold()
        return outcome

    async def _status(self) -> Status | None:
        """Returns the status; what the feed has not told yet is asked for."""
        if self.live.state_known:
            return self.live.feed.status
        return status_of(await self._server.status(self.id))

    async def _turn(self, prompt: _Prompt) -> End | Fail:
        await self.news.whole(self.live.feed.state)
        turn = Turn(self.live.feed.state.get("last_user_message_id"))
        self.live.feed.expect(prompt.message.parts)
        return await self._drive(turn, self._shell(prompt.message), turn.begin())

    async def _command(self, prompt: _Prompt) -> End | Fail:
        """Carries out a command of this agent's; a cancel leaves it to the server."""
        with anyio.CancelScope() as prompt.waiting:
            if prompt.message.command == COMPACT:
                await self._server.condense(self.id)
            else:
                answer = await self._server.question(self.id, prompt.message.argument)
                await self.shown.message(answer)
        return End("cancelled" if prompt.cancelled else "end_turn")

    async def _stop_all(self) -> None:
        """Makes sure that nothing runs and no action waits, or says that it may."""
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
        """Finds out if a feed that is silent in a turn has died without being cut."""
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

    # what the feed tells

    async def _saw(self, event: Event, ours: bool) -> None:
        if isinstance(event, StateField):
            changes = self.options.changed(event.key, event.value)
            await self.shown.all(() if self._opening else changes)
        if self._runner is not None:
            await self._runner.saw(event, ours=ours)
        elif ours and isinstance(event, UserMessage):
            # A message that was given up has arrived: its run must not go on.
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
