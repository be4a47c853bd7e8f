"""One client of a bridge, as the fuzzer uses it: what it asks, and what it is owed."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, field
from typing import Any

from acp_bridge.core.protocol import CLOSE_FOR_ALL
from tests.crash.rounds import CAPABILITIES
from tests.fuzz.ledger import Ledger
from tests.fuzz.prompts import ClosedForAll, Guest, Prompt, key
from tests.support.client import RecordingClient
from tests.support.client_side import never_answers
from tests.support.recording import Message

_OPENS = ("session/load", "session/resume", "_acp_bridge/attach")


@dataclass
class Caller:
    """A client that somebody else starts and ends."""

    client: RecordingClient
    ledger: Ledger
    #: the number of its bridge in the run.
    life: int
    #: None if it has started one of the run's first bridges.
    guest: Guest | None = None
    #: it came over the socket, and has not started its bridge.
    joined: bool = False
    #: what it has said of itself.
    declared: Message = field(default_factory=dict)
    #: by the key of their ids.
    prompts: dict[str, Prompt] = field(default_factory=dict)
    #: every id that was used, in order.
    ids: list[Any] = field(default_factory=list)
    #: the sessions that it has asked to open.
    opened: set[str] = field(default_factory=set)
    listening: bool = True
    #: everything was answered, and nothing is on its way.
    quiet: bool = False
    judged: bool = False
    #: how many lines it had sent and got when each other bridge ended.
    ends: list[int] = field(default_factory=list)
    #: when its line dropped, in monotonic seconds.
    drops: list[float] = field(default_factory=list)

    @property
    def number(self) -> int:
        """0 is the client that starts the bridges; every other one has a number of its own."""
        return self.guest.number if self.guest else 0

    @property
    def is_here(self) -> bool:
        """Its connection has not ended."""
        return not self.client.closed.is_set()

    # --- sending -------------------------------------------------------------------------------

    def ask(self, method: str, params: Any, request_id: Any = None) -> Any:
        """Returns the id, or None if the bridge takes nothing any more."""
        self.quiet = False
        if method in _OPENS:
            self.opened.add(params["sessionId"])
        if method == CLOSE_FOR_ALL:
            closing = ClosedForAll(time.monotonic(), params["sessionId"], self.number)
            self.ledger.closings.append(closing)
        with contextlib.suppress(BrokenPipeError):
            self.ids.append(self.client.send_request(method, params, request_id))
            return self.ids[-1]

    def prompt(self, prompt: Prompt, request_id: Any, **extra: Any) -> Any:
        """It is owed an answer under the id, which is returned."""
        blocks = [{"type": "text", "text": prompt.text}]
        params = {"sessionId": prompt.session_id, "prompt": blocks, **extra}
        with contextlib.suppress(BrokenPipeError):
            found = self.ask("session/prompt", params, request_id)
            self.prompts[key(found)] = prompt
            return found

    def notify(self, method: str, params: Any) -> None:
        with contextlib.suppress(BrokenPipeError):
            self.client.notify(method, params)

    def stop(self, session_id: str, *, own: bool = False) -> None:
        """Prompts of this session may be cancelled; `own`: those that this client has sent."""
        self.ledger.stop(self.life, session_id, self.number if own else None)

    async def greet(self, within: float) -> bool:
        """`initialize`; False if it is not answered in time, and was given up."""
        own = {"accepted": True, **self.declared}
        able = {**CAPABILITIES, "_meta": {"acp_bridge": own}}
        request = self.ask("initialize", {"protocolVersion": 1, "clientCapabilities": able})
        if await self.answered(request, within):
            return True
        self.notify("$/cancel_request", {"requestId": request})
        return False

    # --- waiting -------------------------------------------------------------------------------

    async def answered(self, request: Any, within: float) -> bool:
        """Until it is, or until the time is over; at once while the client doesn't read."""
        with contextlib.suppress(TimeoutError, ConnectionError):
            if self.listening and request is not None:
                await self.client.answer_to(request, within)
                return True
        return False

    def unanswered(self) -> list[Message]:
        """Requests without an answer; an id that was used twice has two."""
        open_: dict[str, list[Message]] = {}
        for record in self.client.recording:
            message = record.message or {}
            if record.direction == "out" and "method" in message and "id" in message:
                open_.setdefault(key(message["id"]), []).append(message)
            elif record.direction == "in" and "method" not in message:
                waiting = open_.get(key(message.get("id")))
                if waiting:
                    waiting.pop()
        return [message for waiting in open_.values() for message in waiting]

    # --- the person ----------------------------------------------------------------------------

    def permit(self, how: str) -> None:
        """How the user answers from now on."""
        handlers = self.client.side.handlers
        handlers.clear()
        match how:
            case "allow" | "reject" | "cancel":
                self.client.side.permission = how
            case _:
                handlers["session/request_permission"] = never_answers
                handlers["elicitation/create"] = never_answers

    def answer_late(self) -> None:
        """What the client left unanswered because its user didn't say anything."""
        mine = [r.message or {} for r in self.client.recording if r.direction == "out"]
        done = {key(m.get("id")) for m in mine if "method" not in m}
        for asked in self.client.recording.incoming():
            if "method" in asked and "id" in asked and key(asked["id"]) not in done:
                with contextlib.suppress(BrokenPipeError):
                    self.client.answer(asked["id"], {"outcome": {"outcome": "cancelled"}})

    def turn_away(self) -> None:
        """The client reads nothing until `listen`."""
        self.listening = False
        self.client.pipe.pause_reading()

    def listen(self) -> None:
        self.listening = True
        self.client.pipe.resume_reading()
