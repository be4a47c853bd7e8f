"""`send`: queues a prompt in a live session; with `--wait`, shows its turn.

Invariants
- Without `--wait` the command is done when the prompt is on the disk of the session's bridge, which
  runs it though the sender has left.
- With `--wait`, only the turn of this prompt is shown. If its words are to join a running turn,
  everything is shown from then on: nobody says at which word they have joined it. The agent's
  questions are left to clients that have a person; the command says that a question is open.
"""

from __future__ import annotations

from typing import Any, Final

import anyio

from acp_bridge.core.protocol import (
    ACCEPTED,
    HEARS_ACCEPTED,
    HEARS_STATE,
    LET_GO,
    NO_DEMO,
    OWN_TURNS_ONLY,
    REQUEST_PERMISSION,
    SESSION_PROMPT,
    SESSION_STATE,
    SESSION_UPDATE,
    WHOLE_CALLS,
    ErrorCode,
    Json,
    as_object,
    own_meta,
    with_own_meta,
)
from acp_bridge.core.runtime.own_commands import OWN_COMMANDS
from acp_bridge.core.settings import Delivery
from acp_bridge.core.wire.jsonrpc import RpcError
from acp_bridge.sharing.bridge_client.connection import Connection
from acp_bridge.sharing.bridge_client.listener import BridgeRequest
from acp_bridge.sharing.bridge_client.sent import ConnectionLost, Sent
from acp_bridge.terminal.cli.exits import SAID, Exit, of_error, of_stop_reason
from acp_bridge.terminal.cli.harmless import one_line
from acp_bridge.terminal.shared.answer import JsonAnswer, Screen, TextAnswer
from acp_bridge.terminal.shared.question import summary_of
from acp_bridge.terminal.shared.waiting import Stop, first_of

#: seconds for the bridge to attach this client, and to write the prompt to disk.
_PATIENCE: Final = 30.0

#: says why a turn was cancelled, before the words that it was.
SPENT: Final = "the budget of the session is spent: "
#: says what has come of words that were to join a turn, by the `delivery` in the answer.
_DELIVERED: Final = {
    "steered": "the words joined the running turn",
    "queued": "the words did not join a running turn",
}


def prompt_params(
    session_id: str, text: str, *, delivery: Delivery | None = None, no_demo: bool = False
) -> Json:
    """Return the params of `session/prompt`; `delivery`: None to wait in the queue.

    `no_demo`: a script needs a real answer, so the built-in agent's demo must not give one.
    """
    params: Json = {"sessionId": session_id, "prompt": [{"type": "text", "text": text}]}
    if no_demo:
        params["_meta"] = {NO_DEMO: True}
    return with_own_meta(params, {"delivery": delivery}) if delivery else params


def holds_for_budget(told: Json) -> bool:
    """Return True if params or a result tell that a session is held since its budget is spent."""
    return "budget" in as_object(own_meta(told).get("pause"))


class NotAccepted(Exception):
    """It is unknown whether the prompt is on the disk; the text is for the user."""


class Sending:
    """The client that sends one prompt to a live session; a `Listener`."""

    def __init__(
        self,
        params: Json,
        screen: Screen,
        stop: Stop,
        *,
        shows: bool,
        json: bool = False,
        again: str = "",
    ) -> None:
        """`shows`: show the turn, as text or, with `json`, as JSON.

        `again`: the option with which the command that answers a question reaches the session.
        """
        self._shows, self._again = shows, again
        self._params, self._screen, self._stop = params, screen, stop
        self._session_id = params["sessionId"]
        self._answer = JsonAnswer(screen) if json else TextAnswer(screen)
        self._accepted = anyio.Event()
        self._sent: Sent | None = None
        #: a prompt of this client runs.
        self._mine = False
        #: the session is held since it has spent its budget.
        self._spent = False
        self._steers = own_meta(params).get("delivery") == Delivery.STEER

    # -- messages of the bridge

    def on_notification(self, method: str, params: Any) -> None:
        """Show an update of the own turn, or note that the prompt was accepted or runs."""
        params = as_object(params)
        if method == LET_GO:
            self._screen.tell(f"acp-bridge: {one_line(str(params.get('reason')))}")
        if params.get("sessionId") != self._session_id:
            return
        if method == SESSION_UPDATE:
            if self._sent and "pause" in own_meta(params):
                self._spent = holds_for_budget(params)
            if self._shows and (self._mine or (self._steers and self._accepted.is_set())):
                self._answer.show(params)
        elif method == SESSION_STATE:
            turn = params.get("turn")
            self._mine = isinstance(turn, dict) and turn.get("mine") is True
        elif method == ACCEPTED and self._sent and params.get("requestId") == self._sent.id:
            self._accepted.set()

    def on_request(self, request: BridgeRequest) -> None:
        """Print that the agent asks for a permission; another client has to answer it."""
        if request.method == REQUEST_PERMISSION:
            how = OWN_COMMANDS.line("approve", self._again + self._session_id[:8])
            self._screen.tell(f"acp-bridge: asked: {summary_of(request.params)} ({how})")

    def on_withdrawn(self, request: BridgeRequest) -> None:
        """Give the request up: another client has answered it."""
        request.give_up()

    async def room(self) -> None:
        """Wait until stdout's buffer has room."""
        await self._screen.room()

    # -- steps of the prompt

    async def send(self, connection: Connection, joining: tuple[str, Json]) -> None:
        """Attach to the session, send the prompt and wait until it is accepted.

        `joining`: the request that attaches. Raises NotAccepted, RpcError, ConnectionLost and
        NoAnswer.
        """
        own = dict.fromkeys((HEARS_ACCEPTED, HEARS_STATE, OWN_TURNS_ONLY, WHOLE_CALLS), True)
        await connection.initialize("acp-bridge send", own=own, within=_PATIENCE)
        await connection.request(*joining, within=_PATIENCE)
        sent = self._sent = connection.send(SESSION_PROMPT, self._params)
        with anyio.move_on_after(_PATIENCE):
            await first_of(self._accepted, sent.answered, self._stop.asked)
        if self._accepted.is_set():
            return
        if sent.answered.is_set():
            await sent.result()  # raises if the prompt was refused
            return
        raise NotAccepted("it is not known whether the prompt is in the queue")

    async def wait(self) -> Exit:
        """Show the turn until it ends, or the command is stopped while the turn goes on.

        Returns the exit code. Raises RpcError, ConnectionLost.
        """
        assert self._sent is not None
        await first_of(self._sent.answered, self._stop.asked)
        if not self._sent.answered.is_set():
            self._answer.end({"sessionId": self._session_id, "exitCode": int(self._stop.reason)})
            return self._stop.reason
        try:
            outcome: Json = as_object(await self._sent.result())
        except RpcError as error:
            self._fail(error.to_wire(), of_error(error))
            raise
        except ConnectionLost as error:
            self._fail({"code": ErrorCode.INTERNAL_ERROR, "message": str(error)}, Exit.FAILED)
            raise
        code = of_stop_reason(outcome.get("stopReason"), denied=False)
        said = SAID.get(code)
        if self._spent and code is Exit.CANCELLED:
            code, said = Exit.LIMIT, f"{SPENT}the turn was cancelled"
        self._answer.end({"sessionId": self._session_id, **outcome, "exitCode": int(code)})
        if self._steers and (told := _DELIVERED.get(str(own_meta(outcome).get("delivery")))):
            self._screen.tell(f"acp-bridge: {told}")
        if said:
            self._screen.tell(f"acp-bridge: {said}")
        return code

    def _fail(self, error: Json, code: Exit) -> None:
        self._answer.end({"sessionId": self._session_id, "error": error, "exitCode": int(code)})
