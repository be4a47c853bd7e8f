"""One session: a conversation of the server, its prompts in order, and what its client is shown.

Invariants
- Prompts run one at a time, in the order in which they came.
- Nothing is sent to the server while actions wait that nobody has agreed to: they are refused
  first.
- After a session was opened again, and after `cancelled`, nothing is shown until the client speaks;
  what came meanwhile is shown then (invariant C23).
"""

from __future__ import annotations

import logging
from collections import deque
from typing import Final

import anyio
from anyio.abc import TaskGroup

from acp_bridge.protocol import INFO_UPDATE
from agent.client import Client, ClientError
from agent.openhands import confirmation
from agent.openhands.events import Action, Event, StateField, Status, UserMessage
from agent.openhands.live_feed import LiveFeed, OpenSocket
from agent.openhands.options import Options
from agent.openhands.problems import Kind, ServerProblem
from agent.openhands.prompt import COMMANDS, COMPACT, Message
from agent.openhands.server import Server
from agent.openhands.shown import Shown
from agent.openhands.turn import Turn, Waiting
from agent.openhands.turn_runner import TurnRunner
from agent.openhands.turn_words import (
    NOT_SENT,
    NOT_STREAMED,
    STARTING,
    Effect,
    End,
    Fail,
    StopReason,
)

logger = logging.getLogger(__name__)

#: seconds between words to a user who waits for the server
_SIGN_OF_LIFE: Final = 10.0
#: how often that is said before the prompt is answered with an error
_SIGNS: Final = 6
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
        self._client = client
        self._server = server
        self.live = LiveFeed(server, open_socket, conversation_id, self.shown.update, self._saw)
        self._prompts: deque[_Prompt] = deque()
        self._turns = anyio.Lock()
        self._runner: TurnRunner | None = None
        self._sending: _Prompt | None = None
        #: what was stopped may still run, or a message may still arrive
        self._uncertain = False
        self._told_whole = False
        self._title = ""
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
        await self.live.replay()

    async def open_again(self, *, replay: bool) -> None:
        """Reads the log, and stops a run that a cancel or a kill has left. Raises ServerProblem."""
        status = await self._patient_sync(replay=replay)
        if status is Status.RUNNING:
            await self._stop_all()
        self.shown.hold()

    async def _patient_sync(self, *, replay: bool) -> Status | None:
        """Reads the log once the server is there, with a word to the user while it is not."""
        for pause in (0.5, 1.0, 2.0, 4.0, 8.0, 15.0):
            try:
                return await self.live.sync(replay=replay)
            except ServerProblem as problem:
                if problem.kind not in (Kind.UNREACHED, Kind.UNSURE):
                    raise
                await self.say(STARTING)
                await anyio.sleep(pause)
        return await self.live.sync(replay=replay)

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
            await self._wait_for_server()
        if prompt.cancelled:
            self.shown.hold()
            return End("cancelled")
        if self._uncertain or self.live.feed.status is Status.WAITING:
            await self._stop_all()
        if prompt.cancelled:
            outcome: End | Fail = End("cancelled")
        elif prompt.message.command:
            outcome = await self._command(prompt)
        else:
            outcome = await self._turn(prompt)
        if outcome == End("cancelled"):
            self.shown.hold()
        return outcome

    async def _turn(self, prompt: _Prompt) -> End | Fail:
        await self._tell_if_whole()
        self._sending = prompt
        turn = Turn(self.live.feed.state.get("last_user_message_id"))
        self.live.feed.forget_expected()
        self.live.feed.expect(prompt.message.parts)
        try:
            return await self._drive(turn, turn.begin())
        finally:
            self._sending = None

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
        await self._drive(turn, turn.begin_stop())

    async def _drive(self, turn: Turn, first: list[Effect]) -> End | Fail:
        runner = self._runner = TurnRunner(turn, self)
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._watch)
                outcome = await runner.run(first)
                tasks.cancel_scope.cancel()
        finally:
            self._runner = None
        self._uncertain = turn.uncertain
        if turn.cancelled:
            self.live.feed.cut()
        return outcome

    async def _wait_for_server(self) -> None:
        """Raises ServerProblem if the feed is not live in time, or never will be."""
        for _ in range(_SIGNS):
            with anyio.move_on_after(_SIGN_OF_LIFE):
                return await self.live.wait_live()
            await self.say(STARTING)
        raise ServerProblem(Kind.UNREACHED, NOT_SENT)

    async def _watch(self) -> None:
        """Finds out if a feed that is silent in a turn has died without being cut."""
        while True:
            self.live.heard = False
            await anyio.sleep(_SILENCE)
            if self.live.heard:
                continue
            try:
                status = await self._server.status(self.id)
            except ServerProblem:
                continue
            if status != Status.RUNNING and not self.live.heard:
                self.live.reconnect()

    # what the feed tells

    async def _saw(self, event: Event, ours: bool) -> None:
        if isinstance(event, StateField):
            await self.shown.all(self.options.changed(event.key, event.value))
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

    async def tell_title(self) -> None:
        """Tells the client the conversation's title, if the server has a new one."""
        try:
            title = (await self._server.info(self.id)).get("title")
        except ServerProblem:
            return
        if isinstance(title, str) and title and title != self._title:
            self._title = title
            await self.shown.update({"sessionUpdate": INFO_UPDATE, "title": title})

    async def _tell_if_whole(self) -> None:
        """Says once that nothing is streamed, if the model's profile on the server says so."""
        agent = self.live.feed.state.get("agent")
        if self._told_whole or not isinstance(agent, dict) or agent.get("kind") == "ACPAgent":
            return
        self._told_whole = True
        model = agent.get("llm")
        if isinstance(model, dict) and model.get("stream") is False:
            await self.say(NOT_STREAMED)

    # for the turn

    @property
    def waiting(self) -> Waiting:
        return self.live.feed.waiting

    async def send_message(self) -> None:
        assert self._sending is not None
        await self._server.send_message(self.id, list(self._sending.message.content))

    async def run(self) -> None:
        await self._server.run(self.id)

    async def confirm(self, accept: bool, reason: str) -> None:
        await self._server.confirm(self.id, accept, reason)

    async def interrupt(self) -> None:
        await self._server.interrupt(self.id)

    async def sync(self) -> Status | None:
        return await self.live.sync()

    async def ask(self, actions: tuple[Action, ...]) -> bool | None:
        """Asks the user about all actions at once; no answer of any kind is no consent."""
        try:
            answer = await self._client.ask(*confirmation.question(actions))
        except ClientError as error:
            await self.say(error.explain("[OpenHands] The question could not be asked"))
            return False
        return None if answer is None else confirmation.is_consent(answer)

    async def say(self, text: str) -> None:
        await self.shown.say(text)
