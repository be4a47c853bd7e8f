"""Finds in the events of a trace what its agent has done at each request. Sans-IO."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Final

from acp_bridge.core.protocol import CANCEL_REQUEST, SESSION_CANCEL, Json, as_object
from acp_bridge.core.wire.jsonrpc import dumps, read_object

#: the latest time that an event may have, in seconds since the beginning: a thousand years.
_LATEST: Final = 3e10
_AGENT: Final = re.compile(r"[Aa]gent(\(\d+\))?")


class NoTrace(ValueError):
    """The file is no trace; says why."""


class Act(Enum):
    """What happens in an exchange, in the order of the trace."""

    NOTIFIES = auto()
    ASKS = auto()
    ANSWERS = auto()
    #: the client's part, for which the agent has waited.
    IS_ANSWERED = auto()
    IS_CANCELLED = auto()


@dataclass(frozen=True, slots=True)
class Step:
    """One event of an exchange."""

    act: Act
    seconds: float
    #: of what the agent has said: the method, and the parameters, result or error.
    method: str = ""
    content: Any = None
    failed: bool = False
    #: the request of the agent that is asked, answered or called back here.
    asked: str = ""


@dataclass(slots=True, eq=False)
class Exchange:
    """A request to the agent, and all that the agent has said until the next one."""

    method: str
    #: the session's id that the request has named.
    session: str | None
    began: float
    steps: list[Step] = field(default_factory=list)
    answered: bool = False


def read_exchanges(text: bytes) -> list[Exchange]:
    """Return the exchanges in the text of a trace file, of all processes of the agent, in order.

    A last line without its newline, which a kill has left, is ignored. Raises NoTrace.
    """
    reading = _Reading()
    for event in _events(text):
        reading.take(event)
    if not reading.exchanges:
        raise NoTrace("there is no request to an agent in it")
    return reading.exchanges


def _events(text: bytes) -> Iterator[Json]:
    for number, line in enumerate(text.split(b"\n")[:-1], 1):
        event = read_object(line)
        if event is None or not _is_event(event):
            raise NoTrace(f"line {number} is no event of a trace")
        yield event


def _is_event(event: Json) -> bool:
    named = event.get("type") == "response" or isinstance(event.get("method"), str)
    seconds = event.get("ts")
    return (
        event.get("type") in ("request", "response", "notification")
        and named
        and isinstance(seconds, int | float)
        and 0 <= seconds <= _LATEST
        and isinstance(event.get("from"), str)
        and isinstance(event.get("to"), str)
    )


class _Reading:
    """Gives each event to the exchange that it belongs to."""

    def __init__(self) -> None:
        self.exchanges: list[Exchange] = []
        #: the exchanges by the process of the agent, each behind those asked or answered before it.
        self._of: dict[str, list[Exchange]] = {}
        #: the exchanges by the key of each open request, of the client or of the agent.
        self._asked: dict[str, Exchange] = {}

    def take(self, event: Json) -> None:
        """Add the next event to its exchange, unless it is neither from nor to an agent."""
        if _AGENT.fullmatch(event["from"]):
            self._take_from_agent(event["from"], event)
        elif _AGENT.fullmatch(event["to"]):
            self._take_for_agent(event["to"], event)

    def _take_for_agent(self, agent: str, event: Json) -> None:
        params, seconds = as_object(event.get("params")), float(event["ts"])
        if event["type"] == "request":
            exchange = Exchange(event["method"], _session(params), seconds)
            self.exchanges.append(exchange)
            self._of.setdefault(agent, []).append(exchange)
            self._asked[_key(agent, event.get("id"))] = exchange
            return
        found: Exchange | None = None
        act, asked = Act.IS_CANCELLED, ""
        if event["type"] == "response":
            act, asked = Act.IS_ANSWERED, _key(event["from"], event.get("id"))
            found = self._asked.pop(asked, None)
        elif event["method"] == CANCEL_REQUEST:
            found = self._asked.get(_key(agent, params.get("requestId")))
        elif event["method"] == SESSION_CANCEL:
            found = self._owner(agent, _session(params))
        if found and not (act is Act.IS_CANCELLED and found.answered):
            content = event.get("payload")
            found.steps.append(Step(act, seconds, content=content, asked=asked))

    def _take_from_agent(self, agent: str, event: Json) -> None:
        seconds = float(event["ts"])
        if event["type"] == "response":
            if exchange := self._asked.pop(_key(agent, event.get("id")), None):
                exchange.answered = True
                self._of[agent].remove(exchange)
                self._of[agent].append(exchange)
                content, failed = event.get("payload"), event.get("is_error") is True
                exchange.steps.append(Step(Act.ANSWERS, seconds, content=content, failed=failed))
            return
        params = event.get("params")
        owner = self._owner(agent, _session(as_object(params)))
        if owner is None:  # nobody has asked yet: noise
            return
        act, asked = Act.NOTIFIES, ""
        if event["type"] == "request":
            act, asked = Act.ASKS, _key(event["to"], event.get("id"))
            self._asked[asked] = owner
        elif event["method"] == CANCEL_REQUEST:
            asked = _key(event["to"], as_object(params).get("requestId"))
        owner.steps.append(Step(act, seconds, event["method"], params, asked=asked))

    def _owner(self, agent: str, session: str | None) -> Exchange | None:
        """Return the exchange that a message of `agent` about `session` belongs to.

        That is the latest open request of the session, else one where either names no session,
        else the request that was answered last. None: the agent was asked nothing yet.
        """
        known = self._of.get(agent, [])
        unanswered = [each for each in known if not each.answered]
        of_session = [each for each in unanswered if each.session == session]
        without = [each for each in unanswered if session is None or each.session is None]
        before = [each for each in known if session is None or each.session == session]
        found = of_session or without or before or known
        return found[-1] if found else None


def _session(params: Json) -> str | None:
    session = params.get("sessionId")
    return session if isinstance(session, str) else None


def _key(answering: str, request_id: object) -> str:
    return f"{answering}:{dumps(request_id).decode()}"
