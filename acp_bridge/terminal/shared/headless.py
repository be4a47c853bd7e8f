"""`acp-bridge run`: sends one prompt through a bridge of its own, without a person.

Invariants
- No turn is left running: when the command ends, the turn has ended, or was cancelled and drained,
  or its bridge is ended with its agents. Only a bridge with `--keep` goes on with the turn, when
  the terminal has gone or the command was killed.
- Only what belongs to the turn of this prompt is shown, also if others use the session.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import anyio

from acp_bridge.core import errors
from acp_bridge.core.protocol import (
    HEARS_STATE,
    OWN_TURNS_ONLY,
    REQUEST_PERMISSION,
    SESSION_CANCEL,
    SESSION_NEW,
    SESSION_PROMPT,
    SESSION_RESUME,
    SESSION_STATE,
    SESSION_UPDATE,
    WAITS_FOR_PERSON,
    WHOLE_CALLS,
    ErrorCode,
    Json,
    as_object,
    own_meta,
)
from acp_bridge.core.runtime import waits
from acp_bridge.core.runtime.own_commands import OWN_COMMANDS
from acp_bridge.core.settings import DRAIN
from acp_bridge.core.wire.jsonrpc import RpcError
from acp_bridge.sharing.bridge_client.connection import Connection
from acp_bridge.sharing.bridge_client.listener import BridgeRequest, Listener
from acp_bridge.sharing.bridge_client.sent import ConnectionLost, NoAnswer, Sent
from acp_bridge.sharing.bridge_client.tasks import beside
from acp_bridge.terminal.cli.exits import SAID, Exit, of_error, of_stop_reason
from acp_bridge.terminal.cli.harmless import harmless, one_line
from acp_bridge.terminal.shared.answer import JsonAnswer, Screen, TextAnswer
from acp_bridge.terminal.shared.permissions import Permissions, Policy
from acp_bridge.terminal.shared.reach import NotThere
from acp_bridge.terminal.shared.sending import SPENT, holds_for_budget, prompt_params
from acp_bridge.terminal.shared.starting import starting, told_if_slow
from acp_bridge.terminal.shared.waiting import Stop, first_of

#: what this client announces: it is asked only about its own turn, and is told which turn runs.
ABILITIES: Final = dict.fromkeys((HEARS_STATE, OWN_TURNS_ONLY, WHOLE_CALLS), True)
_OVER: Final = 5.0

#: Connects a command to its bridge.
Connect = Callable[[Listener], AbstractAsyncContextManager[Connection]]


@dataclass(frozen=True, slots=True)
class Order:
    """What `run` is to do; times in seconds."""

    prompt: str
    #: the folder of the session.
    cwd: str
    #: the session to continue; None for a new one.
    session_id: str | None = None
    #: None: the user has not said; permissions are denied, or wait where the user's rules say so.
    policy: Policy | None = None
    json: bool = False
    timeout: float | None = None
    #: how long the agent may take to open a session, and to stop after a cancel.
    open_timeout: float = waits.REQUEST
    drain_timeout: float = DRAIN
    #: the agent has a login command; the built-in agent instead says which key is missing.
    has_login: bool = True
    #: the agent's name for people; "": not known.
    agent: str = ""
    #: the option with which other commands reach the session, such as `--at URL`; "": none.
    at: str = ""


async def run(order: Order, screen: Screen, connect: Connect, stop: Stop) -> Exit:
    """Send the prompt and show its turn on the screen; returns the exit code."""
    return await _Turn(order, screen, stop).through(connect)


class _Turn:
    """The client that sends one prompt; a `Listener`."""

    def __init__(self, order: Order, screen: Screen, stop: Stop) -> None:
        self._order, self._screen, self._stop = order, screen, stop
        self._answer = JsonAnswer(screen) if order.json else TextAnswer(screen)
        self._permissions = Permissions(order.policy or Policy.DENY)
        #: the ids of the calls whose permissions wait for a person at another client.
        self._waiting: set[str] = set()
        self._denied: list[str] = []
        self._session_id = order.session_id or ""
        self._sent: Sent | None = None
        #: the running turn belongs to another client's prompt; a turn of this prompt runs.
        self._others = self._runs = False
        #: the session has spent its budget since the prompt was sent.
        self._spent = False
        #: when the time limit ends, on the event loop's clock; infinity for no limit.
        self._deadline = anyio.current_time() + (order.timeout or math.inf)
        #: the command was stopped before its turn had ended.
        self._stopped = False

    # -- messages of the bridge

    def on_notification(self, method: str, params: Any) -> None:
        """Show an update of the turn, or note whose turn runs."""
        params = as_object(params)
        match method:
            case _ if method == SESSION_UPDATE:
                update = params.get("update")
                if isinstance(update, dict):
                    self._permissions.note(update)
                self._note_budget(params)
                if self._is_own(params):
                    self._note_decided(params)
                    self._answer.show(params)
            case _ if method == SESSION_STATE and params.get("sessionId") == self._session_id:
                turn = params.get("turn")
                self._others = isinstance(turn, dict) and turn.get("mine") is False
                self._runs = isinstance(turn, dict) and not self._others

    def _note_budget(self, params: Json) -> None:
        """Note if a message tells that the budget is spent.

        Stop the command if its prompt has no turn: it would wait for a person.
        """
        if (
            holds_for_budget(params)
            and self._sent is not None
            and params.get("sessionId") == self._session_id
        ):
            self._spent = True
            if not self._runs and not self._stop.asked.is_set():
                self._stop.ask(Exit.LIMIT)

    def _note_decided(self, params: Json) -> None:
        """Tell what rules, hooks or a person decided about a call, and note what was denied."""
        decided = as_object(own_meta(params).get("decided"))
        decision, by = decided.get("decision"), decided.get("by")
        card = as_object(params.get("update"))
        waited = decision is not None and str(card.get("toolCallId")) in self._waiting
        if waited:
            self._waiting.discard(str(card.get("toolCallId")))
            by = "a person" if by == "client" else by
            if isinstance(name := decided.get("name"), str):
                by = f"{by} ({one_line(name)})"
        elif by in ("client", "withdrawn"):
            return
        title = self._permissions.title_of(card)
        if decision == "deny":
            self._denied.append(title)
            self._screen.tell(f"acp-bridge: denied by {by}: {one_line(title)}")
        elif waited and decision == "allow":
            self._screen.tell(f"acp-bridge: allowed by {by}: {one_line(title)}")

    def _is_own(self, params: Json) -> bool:
        ours = self._sent is not None and params.get("sessionId") == self._session_id
        return ours and not self._others

    def on_request(self, request: BridgeRequest) -> None:
        """Answer a permission by the policy, or leave it to a person at another client.

        Raises RpcError for any other request.
        """
        if request.method != REQUEST_PERMISSION:
            raise RpcError(ErrorCode.METHOD_NOT_FOUND, "this client can't do that")
        decision = self._permissions.decide(request.params)
        waits = self._order.policy is None and own_meta(request.params).get(WAITS_FOR_PERSON)
        if waits and not decision.allowed:
            card = str(as_object(request.params.get("toolCall")).get("toolCallId"))
            self._waiting.add(card)
            self._screen.tell(f"acp-bridge: waits for your word: {decision.summary}")
            how = OWN_COMMANDS.line("approve", self._named())
            self._screen.tell(f"acp-bridge: to answer: {how}, or deny")
            return
        request.answer(decision.result)
        if not decision.allowed:
            self._denied.append(decision.title)
        verb = "allowed once" if decision.allowed else "denied"
        self._screen.tell(f"acp-bridge: {verb}: {decision.summary}")

    def on_withdrawn(self, request: BridgeRequest) -> None:
        """Give the request up: another client has answered it, or it is not asked any more."""
        request.give_up()

    async def room(self) -> None:
        """Wait until stdout's buffer has room."""
        await self._screen.room()

    # -- steps of the prompt

    async def through(self, connect: Connect) -> Exit:
        """Open the session, send the prompt, and wait for its answer; returns the exit code."""
        outcome: Json = {}
        why: list[str] = []
        try:
            async with connect(self) as connection:
                outcome = await self._stoppable(connection)
        except RpcError as error:
            why = self._words_of(error)
            outcome = {"error": error.to_wire()}
            code = of_error(error)
        except (ConnectionLost, NoAnswer) as error:
            why = [str(error), *self._goes_on()]
            outcome = {"error": {"code": ErrorCode.INTERNAL_ERROR, "message": str(error)}}
            code = Exit.FAILED if isinstance(error, ConnectionLost) else Exit.AGENT
        except NotThere as error:
            self._screen.tell(f"acp-bridge: {one_line(error.why)}")
            return error.code
        except OSError as error:
            self._screen.tell(f"acp-bridge: the bridge can't be started: {error.strerror}")
            return Exit.FAILED
        else:
            code = of_stop_reason(outcome.get("stopReason"), denied=bool(self._denied))
            why = [SAID[code]] if code in SAID else []
            if self._spent and outcome.get("stopReason") == "cancelled":
                code, why = Exit.LIMIT, [f"{_WHY[Exit.LIMIT]}the turn was cancelled"]
        if self._stopped:
            code = self._stop.reason
            turn = "the prompt was not sent" if self._sent is None else "the turn was cancelled"
            left = self._goes_on() if self._stop.leaves else []
            why = left or [f"{_WHY.get(code, '')}{turn}"]
        whole = {"sessionId": self._session_id, **outcome, "denied": self._denied}
        self._answer.end({**whole, "exitCode": int(code)})
        for line in why:
            self._screen.tell(f"acp-bridge: {line}")
        return code

    async def _stoppable(self, connection: Connection) -> Json:
        """Return the result of the prompt; {} if a signal or the time limit ended the wait.

        Raises RpcError, ConnectionLost, NoAnswer.
        """
        async with beside() as tasks:

            async def stopped() -> None:
                await self._stop.asked.wait()
                self._stopped = True
                if self._sent is not None and not self._stop.leaves:
                    await self._drain(connection, self._sent)
                tasks.cancel_scope.cancel()

            async def in_time() -> None:
                await anyio.sleep_until(self._deadline)
                self._stop.ask(Exit.TIMEOUT)

            tasks.start_soon(stopped)
            tasks.start_soon(in_time)
            sent = await self._prompt(connection)
            return as_object(await sent.result())
        return {}

    async def _prompt(self, connection: Connection) -> Sent:
        order = self._order
        async with told_if_slow(partial(self._screen.tell, starting(order.agent))):
            await connection.initialize("acp-bridge run", own=ABILITIES, within=waits.OWN_BRIDGE)
        where = {"cwd": order.cwd, "mcpServers": []}
        patience = order.open_timeout + _OVER
        if order.session_id is None:
            opened = await connection.request(SESSION_NEW, where, within=patience)
            self._session_id = str(opened.get("sessionId"))
        else:
            again = {"sessionId": order.session_id, **where}
            opened = await connection.request(SESSION_RESUME, again, within=patience)
        self._screen.tell(f"acp-bridge: session {one_line(self._session_id)}")
        prompt = prompt_params(self._session_id, order.prompt, no_demo=True)
        self._sent = connection.send(SESSION_PROMPT, prompt)
        self._note_budget({**opened, "sessionId": self._session_id})  # it may be held already
        return self._sent

    async def _drain(self, connection: Connection, sent: Sent) -> None:
        """Cancel the prompt and wait for its answer, as long as the bridge waits for the agent."""
        connection.notify(SESSION_CANCEL, {"sessionId": self._session_id})
        with anyio.move_on_after(self._order.drain_timeout + waits.GIVE_UP + _OVER):
            await first_of(sent.answered, self._stop.at_once)

    def _goes_on(self) -> list[str]:
        """Return the line on a turn that goes on without this command; [] if none does."""
        if self._sent is None or not (self._order.at or self._stop.leaves):
            return []
        there = "the turn goes on there" if self._order.at else "the turn goes on"
        return [f"{there}: {OWN_COMMANDS.line('attach', self._named())} shows it"]

    def _named(self) -> str:
        """Return how the user names the session to other commands."""
        return one_line(f"{self._order.at} {self._session_id[:8]}")

    def _words_of(self, error: RpcError) -> list[str]:
        said = errors.whole(error.message, error.data).split("\n")
        login = error.code == ErrorCode.AUTH_REQUIRED and self._order.has_login
        wants = ["the agent wants a login: use its own command for that"] if login else []
        return [*map(harmless, said), *wants]


_WHY: Final = {
    Exit.LIMIT: SPENT,
    Exit.TIMEOUT: "the time is over: ",
    Exit.INTERRUPTED: "interrupted: ",
}
