"""The hooks of one session: for which moments it has some, and which run on their own.

Hooks about a prompt run on the machine's word, and the prompt itself says how far they are. Of
others, about a permission for example, the machine is only told: a cancelled turn waits for their
end, and nothing else does. (invariant C10)
"""

from __future__ import annotations

from acp_bridge.machine.effects import Effect, StopHooks, TellDeath
from acp_bridge.machine.prompt_queue import Hooks
from acp_bridge.machine.states import Moment


class OpenHooks:
    """Tracks the hooks that run of which the machine was only told; methods return effects."""

    def __init__(self, moments: frozenset[Moment]) -> None:
        """`moments`: those for which the session has hooks."""
        self._moments = moments
        self._runs: set[int] = set()

    @property
    def running(self) -> bool:
        """A hook runs of which the machine was only told."""
        return bool(self._runs)

    @property
    def before_prompt(self) -> Hooks:
        """How far the hooks about a prompt are that was just read."""
        return Hooks.DUE if Moment.PROMPT in self._moments else Hooks.PASSED

    @property
    def after_turn(self) -> bool:
        """Hooks run at the end of a turn."""
        return Moment.TURN_END in self._moments

    def begin(self, run: int) -> None:
        """Note that a hook runs."""
        self._runs.add(run)

    def end(self, run: int) -> bool:
        """Note that no process of a hook is left; returns False if it is not known."""
        known = run in self._runs
        self._runs.discard(run)
        return known

    def forget(self) -> None:
        """Wait for no hook any longer."""
        self._runs.clear()

    def stop(self) -> list[Effect]:
        """Have the hooks killed, if one runs."""
        return [StopHooks()] if self._runs else []

    def tell_death(self, detail: object) -> list[Effect]:
        """Run the hooks about a death of the agent, if there are some."""
        return [TellDeath(detail)] if Moment.DEATH in self._moments else []
