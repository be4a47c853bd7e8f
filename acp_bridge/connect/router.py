"""One editor and the places that have its sessions: a machine for each, with a line of its own.

The first place is the one that the user has named. Another one is followed to when a place says
that a bridge there has a session, and only if the user has logged in there.

Invariants
- What is about a session goes to the place from which the editor has it, all else to the first.
- A load asks the first place first, so that a session which has come back is found there again; it
  is followed once. What answers it has the session from then on, and what is open of it.
- No place learns of another one but that the session is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import Final, NamedTuple, TypeAlias
from uuid import uuid4

from acp_bridge import errors
from acp_bridge.connect import rules
from acp_bridge.connect.machine import Machine
from acp_bridge.connect.way_out import Action, Elsewhere, HangUp, ToEditor, ToServer
from acp_bridge.protocol import (
    CANCEL_REQUEST,
    INITIALIZE,
    SESSION_LOAD,
    SESSION_RESUME,
    Json,
    as_object,
)
from acp_bridge.wire.jsonrpc import Message, RequestId

#: the id of the editor's `initialize` at a place that it does not know of; none of its own.
_HELLO: Final = f"acp-bridge connect {uuid4()}"
_OPENS: Final = (SESSION_LOAD, SESSION_RESUME)


class Place(NamedTuple):
    """Where a bridge is reached; `name`: as a person knows it."""

    url: str
    name: str


@dataclass(frozen=True, slots=True)
class At:
    """What is done with the line to a place."""

    place: Place
    action: ToServer | HangUp


@dataclass(frozen=True, slots=True)
class Open:
    """A line to another place is needed."""

    place: Place


@dataclass(frozen=True, slots=True)
class Leave:
    """Nothing is open there any more: the line ends."""

    place: Place


Step: TypeAlias = ToEditor | At | Open | Leave
#: makes the machine for a place of this name, with the ids under which the editor is asked.
Make: TypeAlias = Callable[[str, Iterator[int]], Machine]
#: returns the place at an address, or what the user is to do before that is one.
Way: TypeAlias = Callable[[str], Place | str]


@dataclass(slots=True)
class _Opening:
    """A load of the editor's that is not answered."""

    message: Message
    session_id: object
    followed: bool = False


class Router:
    """All places of one editor."""

    def __init__(self, first: Place, make: Make, way: Way) -> None:
        self.first = first
        self._make, self._way = make, way
        self._questions = count(1)
        self._machines = {first: make(first.name, self._questions)}
        self._hello: Message | None = None
        #: what the first place has answered it.
        self._answer: Json = {}
        self._openings: dict[RequestId, _Opening] = {}
        #: to these there was no line for some seconds, and there is none.
        self._away: set[Place] = set()
        self._steps: list[Step] = []

    # --- what happens --------------------------------------------------------------------------

    def from_editor(self, message: Message) -> list[Step]:
        """Take a message of the editor's."""
        method = message.get("method")
        if method is None or method == CANCEL_REQUEST:  # who does not know the id drops it
            for place, machine in list(self._machines.items()):
                self._do(place, machine.from_editor(message))
            return self._taken()
        session_id = as_object(message.get("params")).get("sessionId")
        place = self.first
        if method == INITIALIZE:
            self._hello = message
        elif method in _OPENS and "id" in message:
            self._openings[message["id"]] = _Opening(message, session_id)
        else:
            place = self._place_of(session_id)
        self._do(place, self._machines[place].from_editor(message))
        return self._taken()

    def from_server(self, place: Place, message: Message) -> list[Step]:
        """Take a message of a place's."""
        return self._tell(place, lambda machine: machine.from_server(message))

    def line_up(self, place: Place) -> list[Step]:
        """Take that a connection is there."""
        self._away.discard(place)
        return self._tell(place, Machine.line_up)

    def line_down(self, place: Place) -> list[Step]:
        """Take that the connection is gone."""
        return self._tell(place, Machine.line_down)

    def is_down_for_long(self, place: Place) -> list[Step]:
        """Take that there was no connection for some seconds.

        A place that was followed to, and from which the editor has nothing yet, is none any more. A
        load that was followed waits no longer either: its machine may be gone, and another have the
        session.
        """
        machine = self._machines.get(place)
        if machine and not machine.has_line and place != self.first:
            if not machine.has_any:
                return self.unreached(place, "the line has dropped")
            self._away.add(place)
            for id in list(self._openings):
                self._do(place, machine.fail(id, rules.LOAD_AGAIN))
        return self._tell(place, Machine.is_down_for_long)

    def wait_no_more(self, place: Place) -> list[Step]:
        """Take that what is sent once waits no more for a connection."""
        return self._tell(place, Machine.wait_no_more)

    def is_late(self, place: Place) -> list[Step]:
        """Take that a place which was followed to has had its time to answer `initialize`."""
        machine = self._machines.get(place)
        if machine and not machine.was_greeted:
            return self.unreached(place, "it does not answer")
        return []

    def unreached(self, place: Place, why: str) -> list[Step]:
        """Take that a place which was followed to can't be reached at all."""
        self._end(place, why, rules.is_unreached(place.name, why))
        return self._taken()

    def refused(self, place: Place, why: str) -> list[Step]:
        """Take that a place lets this user in no more; it is not the first one."""
        self._end(place, why, rules.is_refused(place.name, why))
        return self._taken()

    def end(self, why: str) -> list[Step]:
        """Take that the first place lets this user in no more: all that is open is answered."""
        for place in list(self._machines):
            self._end(place, why, rules.is_refused(self.first.name, why))
        return self._taken()

    # --- the places ----------------------------------------------------------------------------

    def _tell(self, place: Place, event: Callable[[Machine], list[Action]]) -> list[Step]:
        if machine := self._machines.get(place):
            self._do(place, event(machine))
        return self._taken()

    def _taken(self) -> list[Step]:
        steps, self._steps = self._steps, []
        return steps

    def _place_of(self, session_id: object) -> Place:
        """Return the place from which the editor has a session: another one, or else the first."""
        for place, machine in self._machines.items():
            if place != self.first and machine.knows(session_id):
                return place
        return self.first

    def _machine(self, place: Place) -> Machine:
        """Return the machine of a place, where the editor's `initialize` is answered or on its way.

        A place that is not known yet is opened.
        """
        machine = self._machines.get(place)
        if machine is None:
            machine = self._machines[place] = self._make(place.name, self._questions)
            self._steps.append(Open(place))
            if self._hello is not None:
                self._do(place, machine.from_editor({**self._hello, "id": _HELLO}))
        return machine

    def _end(self, place: Place, why: str, told: str) -> None:
        """Answer all that is open at a place, which is none any more."""
        if machine := self._machines.get(place):
            self._leave(place)
            self._do(place, machine.end(why, told))

    def _leave(self, place: Place) -> None:
        del self._machines[place]
        self._away.discard(place)
        self._steps.append(Leave(place))

    # --- what the machines do ------------------------------------------------------------------

    def _do(self, place: Place, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case ToEditor(message):
                    self._to_editor(place, message)
                case Elsewhere(session_id, answer):
                    self._moves(place, session_id, answer)
                case _ if place in self._machines:
                    self._steps.append(At(place, action))
        machine = self._machines.get(place)
        if machine and place != self.first and machine.idle:
            self._leave(place)

    def _to_editor(self, place: Place, message: Message) -> None:
        id = message.get("id")
        if "method" in message:
            self._steps.append(ToEditor(message))
        elif place != self.first and id == _HELLO:
            self._greeted(place, message)
        elif opening := self._openings.get(id):
            self._opened(place, opening, message)
        else:
            if not self._answer and self._hello and id == self._hello.get("id"):
                self._answer = as_object(message.get("result"))
            self._steps.append(ToEditor(message))

    def _greeted(self, place: Place, message: Message) -> None:
        """Take the answer to `initialize` of a place that the editor does not know of."""
        result = as_object(message.get("result"))
        version = "protocolVersion"
        if place not in self._machines:
            return
        if not result:
            why = str(as_object(message.get("error")).get("message"))
            self._end(place, why, rules.is_unreached(place.name, why))
        elif result.get(version) != self._answer.get(version):
            why = "it speaks another version of the protocol"
            self._end(place, why, rules.is_unreached(place.name, why))

    def _opened(self, place: Place, opening: _Opening, message: Message) -> None:
        """Take the answer to a load of the editor's: it is followed once to another place."""
        id = message.get("id")
        there = None
        if not opening.followed:
            there, message = self._there(place, message)
        if there in self._away:
            error = as_object(message.get("error"))
            what_to_do = f"{rules.LOAD_AGAIN} when {there.name} can be reached"
            message = {**message, "error": rules.elsewhere(error, what_to_do)}
        elif there is not None:
            opening.followed = True
            machine = self._machine(there)
            self._do(there, machine.from_editor(opening.message))
            self._take_over(opening.session_id, place, there, closes=False)  # what is behind it
            return
        del self._openings[id]
        self._steps.append(ToEditor(message))
        for other in list(self._machines) if "result" in message else []:
            if other != place:
                self._take_over(opening.session_id, other, place, closes=True)

    def _there(self, place: Place, message: Message) -> tuple[Place | None, Message]:
        """Return the place to which an error refers, if the user has logged in there.

        Else None, and the error with what to do about it.
        """
        error = as_object(message.get("error"))
        _, address = errors.held_at(error.get("data")) or ("", None)
        way = self._way(address) if address is not None else place
        if isinstance(way, str):
            return None, {**message, "error": rules.elsewhere(error, way)}
        return (way if way != place else None), message

    def _moves(self, place: Place, session_id: str, answer: Message) -> None:
        """Move a session that a place had to where it is now, if that can be."""
        machine = self._machines[place]
        for opening in self._openings.values():
            opening.followed |= opening.session_id == session_id
        there, answer = self._there(place, answer)
        if there is None:
            self._do(place, machine.goes_nowhere(session_id, answer))
            return
        moving, actions = machine.give_away(session_id, closes=False)
        self._do(there, self._machine(there).move_in(moving))
        self._do(place, actions)

    def _take_over(self, session_id: object, before: Place, now: Place, *, closes: bool) -> None:
        """Move what is open of a session to the place from which the editor has it now.

        `closes`: close it where it was.
        """
        if not isinstance(session_id, str):
            return
        moving, actions = self._machines[before].give_away(session_id, closes=closes)
        self._do(before, actions)
        if moving.session or moving.asked:
            self._do(now, self._machines[now].take_over(moving))
