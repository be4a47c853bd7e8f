"""The agent processes of one session, by epoch: the one that counts, a spare, the dying ones.

- An epoch is given out once; what was started is told to die or fails, and is released once.
- A spare is started while its forerunner drains. It never gets the session before that one is
  dead, and is dropped if that one ends well.

Part of the turn machine (`turns.py`), and like it without `await`.
"""

from __future__ import annotations

from acp_bridge import signals as sig


class Epochs:
    """Who lives. What starts, kills or releases a process returns the effects."""

    def __init__(self, current: int) -> None:
        #: the process that has the session, or gets it.
        self.current = current
        self.spare: int | None = None
        #: the spare is initialized.
        self.spare_ready = False
        #: told to die and not yet dead.
        self.dying: set[int] = set()
        self._newest = current

    def start(self) -> list[sig.Effect]:
        """The next one counts from now on: the spare, or a new one."""
        if self.spare is None:
            self.current = self._newest = self._newest + 1
            return [sig.Start(self.current)]
        self.current, self.spare = self.spare, None
        return []

    def start_spare(self) -> list[sig.Effect]:
        """Start a replacement, up to `initialize` and no further."""
        self.spare = self._newest = self._newest + 1
        self.spare_ready = False
        return [sig.Start(self.spare)]

    def on_spare(self, event: sig.AgentEvent) -> list[sig.Effect]:
        """Something happened to the spare."""
        match event:
            case sig.Started():
                self.spare_ready = True
            case sig.StartFailed(epoch) | sig.TreeDead(epoch):
                self.spare = None
                return [sig.Release(epoch)]
            case sig.AgentExited():
                return self.drop_spare()
        return []

    def drop_spare(self) -> list[sig.Effect]:
        """The spare is not needed, if there is one."""
        spare, self.spare = self.spare, None
        return [] if spare is None else self.kill(spare)

    def kill(self, *epochs: int) -> list[sig.Effect]:
        """Tell them to die."""
        self.dying.update(epochs)
        return [sig.Kill(epoch) for epoch in epochs]

    def close(self) -> list[sig.Effect]:
        """Let the current one end by itself."""
        self.dying.add(self.current)
        return [sig.CloseAgent(self.current)]

    def bury(self, *epochs: int) -> list[sig.Effect]:
        """They are dead, or given up."""
        self.dying.difference_update(epochs)
        return [sig.Release(epoch) for epoch in epochs]
