"""The user's word that nothing more starts: a pause, or a hold.

- While the gate is closed no prompt is sent and no process is started for one.
- A pause also makes the running turn wait at its agent. It ends with the user's go or Stop, with a
  prompt that interrupts, and when no prompt is left. A hold ends with the user's go alone.
- The agent is asked once for each pause of a turn, under a token; an answer to an older question
  counts no more.
"""

from __future__ import annotations

from acp_bridge.machine.effects import Effect, SendGo, SendPause


class Gate:
    """Tracks pause and hold; methods return effects."""

    def __init__(self) -> None:
        """Nothing is paused or held."""
        self.paused = False
        self.held = False
        #: the key of the newest prompt when the pause came.
        self._newest = 0
        #: the token of the question that the agent has not answered yet.
        self.asked: int | None = None
        #: the agent said that the running turn waits.
        self.turn_waits = False

    @property
    def closed(self) -> bool:
        """Nothing may start."""
        return self.paused or self.held

    @property
    def at_agent(self) -> bool:
        """The agent was asked to pause the turn that runs, and has not refused."""
        return self.turn_waits or self.asked is not None

    def pause(self, newest: int) -> None:
        """Close the gate until go, Stop, or the end of all prompts, of which `newest` is one."""
        self.paused, self._newest = True, newest

    def pause_turn(self, epoch: int, token: int) -> list[Effect]:
        """Ask the agent to let the running turn wait; it has not been asked, or has refused."""
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
        self.forget()
        return out

    def end_older_pause(self, key: int) -> None:
        """End the pause if this prompt, which interrupts, was read after it."""
        if key > self._newest:
            self.end_pause()

    def end_pause(self) -> None:
        """End the pause without a word to the agent: it is told to cancel, or has ended."""
        self.paused = False
        self.forget_turn()

    def forget(self) -> None:
        """End pause and hold without a word to the agent: the session ends."""
        self.held = False
        self.end_pause()

    def forget_turn(self) -> None:
        """Note that no turn runs any more."""
        self.asked, self.turn_waits = None, False
