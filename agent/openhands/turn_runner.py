"""Performs the effects of a turn: its requests, its question to the user, its end.

Invariants
- One request is under way at a time. When another comes, one that has not gone out yet is dropped,
  and the answer of one that has is not waited for.
- After a cancel, a request that is under way gets `_PATIENCE` seconds; an interrupt has its own.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final, Protocol

import anyio
from anyio.abc import TaskGroup

from agent.openhands.events import Action, Event, Status
from agent.openhands.problems import Kind, ServerProblem
from agent.openhands.stopping import Waiting
from agent.openhands.turn import Turn
from agent.openhands.turn_words import (
    Ask,
    Confirm,
    Effect,
    End,
    Fail,
    Interrupt,
    Pause,
    Paused,
    Request,
    Run,
    Say,
    SendMessage,
    Sync,
    Withdraw,
)

logger = logging.getLogger(__name__)

_PATIENCE: Final = 1.5
_REFUSAL: Final = "The user refused these actions."


class Shell(Protocol):
    """The conversation as its turn uses it; every request may raise ServerProblem."""

    @property
    def waiting(self) -> Waiting: ...

    async def send_message(self) -> None: ...

    async def run(self) -> None: ...

    async def confirm(self, accept: bool, reason: str) -> None: ...

    async def interrupt(self) -> None: ...

    async def pause(self) -> None: ...

    async def sync(self) -> Status | None: ...

    async def ask(self, actions: tuple[Action, ...]) -> bool | None: ...

    async def say(self, text: str) -> None: ...


class _Answer:
    """The answer to a pause: `waits` (True if the turn waits), valid once `known` is set."""

    def __init__(self) -> None:
        self.waits = False
        self.known = anyio.Event()


class TurnRunner:
    """Runs one turn with the requests of `shell`."""

    def __init__(self, turn: Turn, shell: Shell) -> None:
        self.turn = turn
        self._shell = shell
        self._tasks: TaskGroup | None = None
        self._outcome: End | Fail | None = None
        self._done = anyio.Event()
        self._request: anyio.CancelScope | None = None
        self._patience: anyio.CancelScope | None = None
        self._question = anyio.CancelScope()
        self._pauses: list[_Answer] = []

    async def run(self, first: list[Effect]) -> End | Fail:
        """Performs the first effects and all that follow; returns how the turn ended."""
        async with anyio.create_task_group() as self._tasks:
            await self._perform(first)
            await self._done.wait()
            self._tasks.cancel_scope.cancel()
        self._tasks = None
        assert self._outcome is not None
        return self._outcome

    async def saw(self, event: Event, *, ours: bool) -> None:
        await self._perform(self.turn.saw(event, self._shell.waiting, ours=ours))

    def cancel(self) -> None:
        """Begins to cancel the turn and returns at once; `run` returns when it has ended."""
        if self._tasks is None:
            return
        under_way = self._patience is not None
        effects = self.turn.cancel(self._shell.waiting, under_way=under_way)
        if self._patience is not None:
            limit = anyio.current_time() + _PATIENCE
            self._patience.deadline = min(self._patience.deadline, limit)
        self._tasks.start_soon(self._perform, effects)

    async def pause(self) -> bool:
        """Pauses the turn; returns True once it waits, False if it continues or ends."""
        waits = _Answer()
        self._pauses.append(waits)
        await self._perform(self.turn.pause())
        await waits.known.wait()
        return waits.waits

    async def go(self) -> None:
        await self._perform(self.turn.go(self._shell.waiting))

    def refuse_pauses(self) -> None:
        """Answers all pauses with False: the turn has ended.

        Call it last before the prompt's answer: otherwise the client would take the turn for one
        that continues in spite of the pause.
        """
        self._answer_pauses(False)

    def _answer_pauses(self, waits: bool) -> None:
        for each in self._pauses:
            each.waits = waits
            each.known.set()
        self._pauses.clear()

    async def gone(self, problem: ServerProblem) -> None:
        await self._perform(self.turn.gone(problem))

    async def _perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Say(text):
                    await self._shell.say(text)
                case Ask(actions):
                    self._start(self._ask, actions)
                case Paused(waits):
                    self._answer_pauses(waits)
                case Withdraw():
                    self._question.cancel()
                case End() | Fail():
                    self._outcome = effect
                    self._done.set()
                case _:
                    self._start_request(effect)

    def _start(self, work: Callable[..., Coroutine[Any, Any, None]], *args: Any) -> None:
        assert self._tasks is not None
        self._tasks.start_soon(work, *args)

    def _start_request(self, request: Request) -> None:
        if self._request is not None:
            self._request.cancel()
        scope = self._request = anyio.CancelScope()
        self._start(self._carry_out, request, scope)

    async def _carry_out(self, request: Request, scope: anyio.CancelScope) -> None:
        with scope:
            if after := getattr(request, "after", 0):
                await anyio.sleep(after)
            problem, status = await self._sent(request)
            effects = self._reported(request, status, problem)
            if self._request is scope:
                self._request = None
            await self._perform(effects)

    async def _sent(self, request: Request) -> tuple[ServerProblem | None, Status | None]:
        problem = ServerProblem(Kind.UNSURE, "The agent-server does not answer.")
        status = None
        with anyio.CancelScope() as patience:
            self._patience = patience
            try:
                status = await self._answer(request)
            except ServerProblem as failed:
                return failed, None
            finally:
                self._patience = None
        return (problem if patience.cancelled_caught else None), status

    async def _answer(self, request: Request) -> Status | None:
        match request:
            case SendMessage():
                await self._shell.send_message()
            case Run():
                await self._shell.run()
            case Confirm(accept):
                await self._shell.confirm(accept, _REFUSAL)
            case Interrupt():
                await self._shell.interrupt()
            case Pause():
                await self._shell.pause()
            case Sync():
                return await self._shell.sync()
        return None

    def _reported(
        self, request: Request, status: Status | None, problem: ServerProblem | None
    ) -> list[Effect]:
        waiting = self._shell.waiting
        match request:
            case SendMessage():
                return self.turn.sent(problem, waiting)
            case Run():
                return self.turn.started(problem, waiting)
            case Confirm():
                return self.turn.confirmed(problem, waiting)
            case Interrupt():
                return self.turn.interrupted(problem)
            case Pause():
                return self.turn.paused(problem, waiting)
            case Sync():
                return self.turn.synced(status, problem, waiting)

    async def _ask(self, actions: tuple[Action, ...]) -> None:
        with anyio.CancelScope() as self._question:
            accept = await self._shell.ask(actions)
        if not self._question.cancel_called:
            await self._perform(self.turn.answered(accept, self._shell.waiting))
