"""Plays the whole demo: its steps on two tracks, one for each agent, and then the end."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import anyio

from acp_bridge.demo import checks, steps
from acp_bridge.demo.recording import Recording
from acp_bridge.demo.screen import Screen
from acp_bridge.demo.track import Stage, Track

_STEPS = {
    "three at once": steps.three_at_once,
    "cancel": steps.cancel,
    "interrupt": steps.interrupt,
    "deaf agent": steps.deaf_agent,
    "agent killed": steps.agent_killed,
    "bridge killed": steps.bridge_killed,
}
#: The steps of each agent. The tracks run beside each other, since agents take a while to start.
_TRACKS = (
    ("three at once", "cancel", "bridge killed"),
    ("interrupt", "deaf agent", "agent killed"),
)


async def play(
    home: Path, screen: Screen, bridge: Sequence[str], recordings: dict[str, Recording]
) -> None:
    """Play all steps and print them; `recordings` are filled in also when it is cancelled.

    `home` is an empty folder. No process is left, however it ends.
    """
    sections = {name: screen.section(n, name) for n, name in enumerate(_STEPS, 1)}
    end = screen.section(len(_STEPS) + 1, "the end")
    async with anyio.create_task_group() as tasks:
        stage = Stage(home, bridge, tasks)
        try:
            async with anyio.create_task_group() as tracks:
                for names in _TRACKS:
                    track = Track(stage, sections[names[0]])
                    tracks.start_soon(track.run, [(sections[n], _STEPS[n]) for n in names])
        finally:
            recordings |= {name: client.recording for name, client in stage.clients.items()}
            for client in stage.clients.values():
                await client.close()
            tasks.cancel_scope.cancel()
    end.check("requests, each answered once", checks.each_answered_once, stage.recordings)
    end.check("no process left", checks.nothing_left, stage.recordings)
    end.close()
