"""Where one session stands: the state of the machine, and whether the session ends.

A state that is on its way somewhere has a deadline, armed before anything else is done.
"""

from __future__ import annotations

from acp_bridge.machine.effects import Effect
from acp_bridge.machine.gate import Gate
from acp_bridge.machine.states import State
from acp_bridge.machine.timers import Timers


class Stage:
    """Holds the state; `enter` changes it."""

    def __init__(self, state: State, timers: Timers, gate: Gate) -> None:
        """`gate` is told when no turn runs any more."""
        self.state = state
        #: the session is being closed, or ends with the bridge.
        self.closing = False
        self._timers = timers
        self._gate = gate

    def enter(self, state: State) -> list[Effect]:
        """Change the state and arm its deadlines."""
        if state is not State.RUNNING:
            self._gate.forget_turn()
        self.state = state
        return self._timers.enter(state)
