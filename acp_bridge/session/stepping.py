"""Gives one session's machine its events, each to its end before the next."""

from __future__ import annotations

from collections import deque
from typing import Protocol

from acp_bridge.agents.link import Link
from acp_bridge.machine import effects as ef
from acp_bridge.machine import events as ev
from acp_bridge.machine.events import Moment
from acp_bridge.machine.turns import TurnMachine
from acp_bridge.session import failures
from acp_bridge.settings import OnCancel, ReloadAfterCancel, Settings


class Performer(Protocol):
    """Carries out what the machine asks for."""

    def before_step(self) -> None:
        """Bring on its way what was shown before the next event."""

    def perform(self, effect: ef.Effect) -> None:
        """Carry out one effect, without waiting."""

    def after_steps(self) -> None:
        """Follow a change of the machine's state; no event is left."""


class Stepping:
    """Feeds the machine; an event that comes while one is taken waits for its end."""

    def __init__(self, machine: TurnMachine, performer: Performer) -> None:
        """Nothing is fed yet."""
        self._machine = machine
        self._performer = performer
        self._events: deque[ev.Event] = deque()
        self._stepping = False

    def feed(self, event_: ev.Event) -> None:
        """Give the machine an event and perform what it asks for, and so on to the end."""
        self._events.append(event_)
        if self._stepping:
            return
        self._stepping = True
        try:
            while self._events:
                self._performer.before_step()
                for effect in self._machine.step(self._events.popleft()):
                    try:
                        self._performer.perform(effect)
                    except Exception as exc:  # those after it answer somebody (invariants P6, Q9)
                        self._events.extend(failures.instead_of(effect, exc))
        finally:
            self._stepping = False
        self._performer.after_steps()


def new_machine(settings: Settings, hooks: frozenset[Moment], link: Link | None) -> TurnMachine:
    """Return the machine of a session, as the settings have it.

    `link`: the process that has the session open already, if one has.
    """
    return TurnMachine(
        epoch=1 if link else 0,
        clear_on_cancel=settings.on_cancel is OnCancel.CLEAR,
        always_reload=settings.reload_after_cancel is ReloadAfterCancel.ALWAYS,
        provisional=link is not None and link.light,
        hooks=hooks,
    )
