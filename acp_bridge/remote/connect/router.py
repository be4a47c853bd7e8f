"""One editor and the bridges that have its sessions: a machine and a line for each of them.

A place is a bridge at an address. The first place is the one that the user has named. A load is
followed to another place when a bridge answers that the session is there, and only if the user has
logged in there.

Invariants
- A message about a session goes to the place at which the editor has it, any other to the first.
- A load asks the first place first, so that a session which has come back is found there again; it
  is followed once. The place that answers it has the session and its open requests from then on.
- No place learns anything of another one but that a session has left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import Final, NamedTuple, TypeAlias
from uuid import uuid4

from acp_bridge.core import errors
from acp_bridge.core.protocol import (
    CANCEL_REQUEST,
    INITIALIZE,
    SESSION_LOAD,
    SESSION_RESUME,
    Json,
    as_object,
)
from acp_bridge.core.wire.jsonrpc import Message, RequestId
from acp_bridge.remote.connect import rules
from acp_bridge.remote.connect.machine import Machine
from acp_bridge.remote.connect.way_out import Action, Elsewhere, HangUp, ToEditor, ToServer

#: the id of `initialize` at each place but the first; the editor itself has no such id.
_HELLO: Final = f"acp-bridge connect {uuid4()}"
_OPENS: Final = (SESSION_LOAD, SESSION_RESUME)


class Place(NamedTuple):
    """A bridge at an address; `name`: its name for people."""

    url: str
    name: str


@dataclass(frozen=True, slots=True)
class At:
    """An action on the line to a place: send a message, or hang up."""

    place: Place
    action: ToServer | HangUp


@dataclass(frozen=True, slots=True)
class Open:
    """A line to another place is to be opened."""

    place: Place


@dataclass(frozen=True, slots=True)
class Leave:
    """The line to a place is to be ended for good: nothing is open there."""

    place: Place


Step: TypeAlias = ToEditor | At | Open | Leave
#: makes the machine for the place of a name; the iterator gives ids for requests to the editor.
Make: TypeAlias = Callable[[str, Iterator[int]], Machine]
#: returns the place at an address, or a text: what the user has to do before it can be used.
Way: TypeAlias = Callable[[str], Place | str]


@dataclass(slots=True)
class _Opening:
    """A load of the editor that is not answered; `followed`: it was sent to another place."""

    message: Message
    session_id: object
    followed: bool = False


class Router:
    """Sends each message of one editor to the right place, and moves sessions between places."""

    def __init__(self, first: Place, make: Make, way: Way) -> None:
        self.first = first
        self._make, self._way = make, way
        self._questions = count(1)
        self._machines = {first: make(first.name, self._questions)}
        self._hello: Message | None = None
        #: the result of `initialize` at the first place.
        self._answer: Json = {}
        self._openings: dict[RequestId, _Opening] = {}
        #: the places to which the line has been down for some seconds.
        self._away: set[Place] = set()
        self._steps: list[Step] = []

    # --- what happens --------------------------------------------------------------------------

    def from_editor(self, message: Message) -> list[Step]:
        """Take a message of the editor; returns the steps that it leads to."""
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
        """Take a message of a place; returns the steps that it leads to."""
        return self._tell(place, lambda machine: machine.from_server(message))

    def line_up(self, place: Place) -> list[Step]:
        """Note that a connection to a place is up; returns the steps that it leads to."""
        self._away.discard(place)
        return self._tell(place, Machine.line_up)

    def line_down(self, place: Place) -> list[Step]:
        """Note that the connection to a place is gone; returns the steps that it leads to."""
        return self._tell(place, Machine.line_down)

    def is_down_for_long(self, place: Place) -> list[Step]:
        """Note that the line to a place has been down for some seconds.

        A place other than the first at which the editor has no session yet is given up. Loads that
        wait at such a place fail: its bridge may be gone, and another have the session.
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
        """Answer the requests that are sent once and wait for a place's line with an error."""
        return self._tell(place, Machine.wait_no_more)

    def is_late(self, place: Place) -> list[Step]:
        """Give up a place other than the first if it has not answered `initialize` in its time."""
        machine = self._machines.get(place)
        if machine and not machine.was_greeted:
            return self.unreached(place, "it does not answer")
        return []

    def unreached(self, place: Place, why: str) -> list[Step]:
        """Give up a place other than the first: it can't be reached, for the reason `why`."""
        self._end(place, why, rules.is_unreached(place.name, why))
        return self._taken()

    def refused(self, place: Place, why: str) -> list[Step]:
        """Give up a place other than the first: it lets this user in no more."""
        self._end(place, why, rules.is_refused(place.name, why))
        return self._taken()

    def end(self, why: str) -> list[Step]:
        """Give up all places, and answer all open requests: the first refuses this user."""
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
        """Return the place at which the editor has a session; the first one if no other has it."""
        for place, machine in self._machines.items():
            if place != self.first and machine.knows(session_id):
                return place
        return self.first

    def _machine(self, place: Place) -> Machine:
        """Return the machine of a place, made if there is none.

        A new one has its line opened, and is sent the editor's `initialize`.
        """
        machine = self._machines.get(place)
        if machine is None:
            machine = self._machines[place] = self._make(place.name, self._questions)
            self._steps.append(Open(place))
            if self._hello is not None:
                self._do(place, machine.from_editor({**self._hello, "id": _HELLO}))
        return machine

    def _end(self, place: Place, why: str, told: str) -> None:
        """Forget a place, and answer its open requests; `told`: the notice for its sessions."""
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
        """Take another place's answer to `initialize`; it is given up if that does not fit."""
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
        """Pass on the answer to a load, or send the load to the place that it names, once."""
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
            self._take_over(opening.session_id, place, there, closes=False)  # its open requests
            return
        del self._openings[id]
        self._steps.append(ToEditor(message))
        for other in list(self._machines) if "result" in message else []:
            if other != place:
                self._take_over(opening.session_id, other, place, closes=True)

    def _there(self, place: Place, message: Message) -> tuple[Place | None, Message]:
        """Return the other place that an error names, if the user has logged in there.

        Else None. The second item is the answer, its error with what the user has to do, if any.
        """
        error = as_object(message.get("error"))
        _, address = errors.held_at(error.get("data")) or ("", None)
        way = self._way(address) if address is not None else place
        if isinstance(way, str):
            return None, {**message, "error": rules.elsewhere(error, way)}
        return (way if way != place else None), message

    def _moves(self, place: Place, session_id: str, answer: Message) -> None:
        """Move a session from `place` to the one that `answer` names; else tell the editor."""
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
        """Move the open requests of a session from the place `before` to the place `now`.

        `closes`: close the session at `before`.
        """
        if not isinstance(session_id, str):
            return
        moving, actions = self._machines[before].give_away(session_id, closes=closes)
        self._do(before, actions)
        if moving.session or moving.asked:
            self._do(now, self._machines[now].take_over(moving))
