"""Carries out what the machine asks of one session's agent processes.

Each piece of work runs in a task of its own and ends in an event; none is waited for here.
"""

from __future__ import annotations

from typing import Protocol, TypeAlias, assert_never

from acp_bridge.agents.link import Link
from acp_bridge.machine import effects as ef
from acp_bridge.session.process.agent_processes import AgentProcesses
from acp_bridge.session.process.provisional import Provisional, ProvisionalPort
from acp_bridge.session.process.restart import Restart

ProcessEffect: TypeAlias = ef.Start | ef.Open | ef.Kill | ef.CloseAgent | ef.Release


class ProcessEffectsPort(ProvisionalPort, Protocol):
    """What the work on processes needs of its session."""

    id: str


class ProcessEffects:
    """Starts, opens, kills, closes and releases processes, by epoch."""

    def __init__(
        self, port: ProcessEffectsPort, processes: AgentProcesses, restart: Restart, grace: float
    ) -> None:
        """`grace`: how many seconds an agent has to end by itself."""
        self._port = port
        self._processes = processes
        self._restart = restart
        self._grace = grace
        self.provisional = Provisional(port)

    def begin(self, link: Link) -> None:
        """Take the process in which the session was made."""
        self._processes.add(link, 1)
        self.provisional.begin(link)

    def link(self, epoch: int) -> Link:
        """Return the process of an epoch; raises KeyError."""
        return self._processes.link(epoch)

    def perform(self, effect: ProcessEffect) -> None:
        """Carry out one effect, without waiting."""
        spawn, processes = self._port.spawn, self._processes
        match effect:
            case ef.Start(epoch):
                spawn(processes.start, epoch, f"{self._port.id[:8]}#{epoch}")
            case ef.Open(epoch):
                spawn(self._open, processes.link(epoch))
            case ef.Kill(epoch):
                spawn(processes.kill, epoch)
            case ef.CloseAgent(epoch):
                spawn(processes.close, epoch, self._grace)
            case ef.Release(epoch):
                if link := processes.forget(epoch):
                    link.at_clients.release()
            case _:
                assert_never(effect)

    async def _open(self, link: Link) -> None:
        self._port.feed(await self._restart.run(link))
        if self._port.provisional:
            self.provisional.begin(link)
