"""What keeps prompts from being sent: the user's pause or hold, and a journal that is away."""

from __future__ import annotations

from acp_bridge.machine.effects import Effect, SendGo, SendPause
from acp_bridge.machine.states import Standstill, State


class Gate:
    """Tracks pause, hold and a journal that is away; methods return effects.

    - While the gate is closed no prompt is sent and no process is started for one.
    - A pause also makes the running turn wait at its agent. It ends with the user's go or Stop,
      with a prompt that interrupts, and when no prompt is left. A hold ends with the user's go
      alone.
    - The agent is asked once for each pause of a turn, under a token; an answer to an older
      question counts no more.
    - While the journal is away nothing is sent either, and what waits is not answered for want of a
      process. No word of the user's changes that.
    """

    def __init__(self) -> None:
        self.paused = False
        self.held = False
        #: the journal can't be written for now, so no prompt can be sent.
        self.away = False
        #: the key of the newest prompt when the pause came.
        self._newest = 0
        #: the token of the question that the agent has not answered yet.
        self.asked: int | None = None
        #: the agent said that the running turn waits.
        self.turn_waits = False

    @property
    def closed(self) -> bool:
        """True during a pause or a hold: nothing may start."""
        return self.paused or self.held

    @property
    def at_agent(self) -> bool:
        """True if the agent was asked to pause the running turn and has not refused."""
        return self.turn_waits or self.asked is not None

    def standstill(self, state: State) -> Standstill:
        """Return how far a pause or a hold has come in this state."""
        if not self.closed:
            return Standstill.OPEN
        if self.asked is not None:
            return Standstill.PAUSING
        refused = state is State.RUNNING and not self.turn_waits
        return Standstill.PAUSED if self.paused and not refused else Standstill.HELD

    def pause(self, newest: int) -> None:
        """Close the gate; `newest` is the key of the newest prompt without an answer."""
        self.paused, self._newest = True, newest

    def pause_turn(self, epoch: int, token: int) -> list[Effect]:
        """Ask the agent to let the running turn wait, under this token."""
        self.asked = token
        return [SendPause(epoch, token)]

    def hold(self, epoch: int) -> list[Effect]:
        """Close the gate until go; a turn that waits goes on to its end."""
        out = self.open(epoch)
        self.held = True
        return out

    def answered(self, paused: bool) -> None:
        """Take the agent's answer to the last question."""
        self.asked, self.turn_waits = None, paused

    def open(self, epoch: int) -> list[Effect]:
        """End pause and hold."""
        out: list[Effect] = [SendGo(epoch)] if self.at_agent else []
        self.held = False
        self.end_pause()
        return out

    def end_older_pause(self, key: int) -> None:
        """End the pause for a prompt that interrupts, if it was read after the pause."""
        if key > self._newest:
            self.end_pause()

    def end_pause(self) -> None:
        """End the pause without a word to the agent: it is told to cancel, or has ended."""
        self.paused = False
        self.forget_turn()

    def forget(self) -> None:
        """Keep nothing back any more, without a word to the agent: the session ends."""
        self.held = self.away = False
        self.end_pause()

    def forget_turn(self) -> None:
        """Forget the agent's part of a pause: no turn runs any more."""
        self.asked, self.turn_waits = None, False
