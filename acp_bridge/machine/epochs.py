"""The agent processes of one session, by epoch: the current one, a spare, the dying ones.

- An epoch is given out once. Every process that was started either fails or is told to die, and
  is released once.
- A spare is started while the current process drains. It never gets the session before that one
  is dead, and is dropped if that one ends well.
"""

from __future__ import annotations

from acp_bridge.machine import effects, events


class Epochs:
    """Tracks the current, spare and dying epochs; methods return effects."""

    def __init__(self, current: int) -> None:
        #: the process that has the session, or is to get it.
        self.current = current
        self.spare: int | None = None
        #: the spare is initialized.
        self.spare_ready = False
        #: those told to die and not yet dead.
        self.dying: set[int] = set()
        self._newest = current

    def start(self) -> list[effects.Effect]:
        """Make the spare the current process, or start a new one."""
        if self.spare is None:
            self.current = self._newest = self._newest + 1
            return [effects.Start(self.current)]
        self.current, self.spare = self.spare, None
        return []

    def start_spare(self) -> list[effects.Effect]:
        """Start a replacement, up to `initialize` and no further."""
        self.spare = self._newest = self._newest + 1
        self.spare_ready = False
        return [effects.Start(self.spare)]

    def on_spare(self, event: events.AgentEvent) -> list[effects.Effect]:
        """Take an event of the spare."""
        match event:
            case events.Started():
                self.spare_ready = True
                return []
            case events.StartFailed(epoch) | events.TreeDead(epoch):
                self.spare = None
                return [effects.Release(epoch)]
            case events.AgentExited():
                return self.drop_spare()
            case _:
                return [effects.Dropped(event)]

    def drop_spare(self) -> list[effects.Effect]:
        """Kill the spare, if there is one."""
        spare, self.spare = self.spare, None
        return [] if spare is None else self.kill(spare)

    def kill(self, *epochs: int) -> list[effects.Effect]:
        """Tell these processes to die."""
        self.dying.update(epochs)
        return [effects.Kill(epoch) for epoch in epochs]

    def close(self) -> list[effects.Effect]:
        """Let the current process end by itself."""
        self.dying.add(self.current)
        return [effects.CloseAgent(self.current)]

    def bury(self, *epochs: int) -> list[effects.Effect]:
        """Release these processes: they are dead, or given up."""
        self.dying.difference_update(epochs)
        return [effects.Release(epoch) for epoch in epochs]
