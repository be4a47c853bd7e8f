"""The deadlines of one session's machine: which are armed, and with which token.

- A timer that passes counts only under the token that it was armed with last.
- A change of the state disarms what the new state does not want before it arms what it wants.
"""

from __future__ import annotations

from collections.abc import Iterator

from acp_bridge.machine.effects import Arm, Disarm, Effect
from acp_bridge.machine.states import DEADLINES, KEPT, State, Timer


class Timers:
    """Tracks the armed timers; methods return effects."""

    def __init__(self, tokens: Iterator[int]) -> None:
        """Nothing is armed; `tokens` gives each token once."""
        self._tokens = tokens
        self._armed: dict[Timer, int] = {}

    def enter(self, state: State) -> list[Effect]:
        """Arm the deadlines of a state, and disarm those that belong to another."""
        wanted = DEADLINES.get(state, ())
        kept = (*wanted, *KEPT.get(state, ()), Timer.SIGN)
        out = [
            effect
            for timer in tuple(self._armed)
            if timer not in kept
            for effect in self.disarm(timer)
        ]
        return out + [effect for timer in wanted for effect in self.arm(timer)]

    def arm(self, timer: Timer) -> list[Effect]:
        """Start a timer that is not armed yet."""
        if timer in self._armed:
            return []
        token = self._armed[timer] = next(self._tokens)
        return [Arm(timer, token)]

    def disarm(self, timer: Timer) -> list[Effect]:
        """Stop a timer that is armed."""
        return [] if self._armed.pop(timer, None) is None else [Disarm(timer)]

    def take(self, timer: Timer, token: int) -> bool:
        """Return True if this timer was to pass; it is armed no more."""
        if self._armed.get(timer) != token:
            return False
        del self._armed[timer]
        return True
