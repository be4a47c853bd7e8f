"""The steps of the demo: what its clients do, and which checks are made, on two tracks.

A track is a list of steps that one agent takes in order. The two tracks run at the same time, since
agents are slow to start. A step continues after a check that fails; a wait that fails ends the
track.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import anyio
from anyio.abc import TaskGroup

from acp_bridge.terminal.demo import checks
from acp_bridge.terminal.demo.client import Client
from acp_bridge.terminal.demo.recording import Recording, Unexpected
from acp_bridge.terminal.demo.screen import Screen, Section

#: how many of the last lines of a bridge's log are shown if a step could not be finished.
_LOG_LINES = 5
#: seconds that an agent deaf to cancels gets to stop before it is killed; half of the default.
DRAIN = 1.0

BOAT, SUNDAY = "My boat is called Heron.", "She sails on Sunday."
STORY, LONGER, WAITING = "Tell me a story.", "Tell me a longer story.", "Do you still remember?"
SING, DEAF, AGAIN, WHO = "Sing.", "Sing, be stubborn.", "Sing again.", "Who are you?"
REMEMBER = "Remember?"

#: The prompts that each agent has got at the end of the steps `cancel` and `deaf_agent`.
TOLD = [BOAT, SUNDAY, REMEMBER, STORY, REMEMBER]
SUNG = [SING, REMEMBER, WHO, WHO, DEAF, REMEMBER, WHO]


@dataclass(slots=True)
class Track:
    """Runs the steps of one agent.

    Each step goes on with the client and session of the one before.
    """

    #: an empty folder, used as the data folder and working folder.
    home: Path
    #: the command that starts a bridge.
    bridge: Sequence[str]
    tasks: TaskGroup
    #: the clients of both tracks, by name.
    clients: dict[str, Client]
    #: where the current step prints.
    section: Section
    #: the client that was started last.
    client: Client = field(init=False)
    _log: Path = field(init=False)

    async def run(self, steps: Sequence[tuple[Section, Step]]) -> None:
        """Run the steps in order; after a step that could not be finished, skip the rest."""
        failed = False
        for self.section, step in steps:
            if failed:
                self.section.fail("not tried, since a step before it was not finished")
            else:
                try:
                    await step(self)
                except Unexpected as unexpected:
                    failed = True
                    self.section.fail("the step could not be finished", unexpected)
                    log = self._log.read_text("utf-8", "replace") if self._log.exists() else ""
                    for line in log.splitlines()[-_LOG_LINES:]:
                        self.section.quote("log:", line)
            self.section.close()

    async def start(self, name: str, *arguments: str) -> Client:
        """Start a bridge with these options and a client of this `name` for it, and initialize it.

        ACP_BRIDGE_* variables of the user's environment are left out. Raises Unexpected.
        """
        own = {key: value for key, value in os.environ.items() if not key.startswith("ACP_BRIDGE_")}
        env = {**own, "ACP_BRIDGE_HOME": str(self.home), "ACP_BRIDGE_MODEL": "demo"}
        self._log = self.home / f"{name}.log"
        self.client = self.clients[name] = await Client.start(
            [*self.bridge, *arguments],
            env,
            self._log,
            self.tasks,
            lambda what: self.section.waiting(what),
        )
        await self.client.initialize()
        return self.client


Step = Callable[[Track], Awaitable[None]]


# --- the built-in agent --------------------------------------------------------------------------


async def three_at_once(track: Track) -> None:
    client = await track.start("built-in")
    await client.new_session(track.home)
    prompts = [client.prompt(text) for text in (BOAT, SUNDAY, REMEMBER)]
    await client.answered(*prompts)
    texts = [f"I will keep that in mind: {text}" for text in (BOAT, SUNDAY)]
    texts.append(f"You told me: {BOAT}; {SUNDAY}")
    check, record = track.section.check, client.recording
    check("each answered once, in the order of asking", checks.answered_in_order, record, prompts)
    check("updates before the answer of their turn", checks.streamed, record, prompts, texts)


async def cancel(track: Track) -> None:
    client = track.client
    story = client.prompt(STORY)
    await client.streaming(story, 20)
    client.cancel()
    await client.answered(story)
    then = client.prompt(REMEMBER)
    await client.answered(then)
    check, record = track.section.check, client.recording
    check("the answer is 'cancelled'", checks.cancelled, record, story)
    check("nothing of it follows", checks.nothing_follows, record, story)
    check("the next prompt works", checks.recalls, record, then, TOLD[:-1])


async def bridge_killed(track: Track) -> None:
    client = track.client
    story, waiting = client.prompt(LONGER), client.prompt(WAITING)
    await client.accepted(waiting)
    await client.streaming(story, 20)
    await client.kill_bridge()
    other = await track.start("after kill -9")
    load = other.load_session(client.session_id, track.home)
    await other.result(load)
    listing = other.prompt("/queue")
    await other.answered(listing)
    run = other.prompt("/queue run")
    await other.answered(run)
    check, before, after = track.section.check, client.recording, other.recording
    check("replayed as it was shown", checks.replayed, before, after, load)
    title = "the waiting prompt is left over, not run"
    check(title, checks.left_over, before, waiting, after, load, listing, run)
    check("/queue run runs it", checks.recalls, after, run, [*TOLD, LONGER])


# --- another agent, which counts cancels and can ignore them -------------------------------------


async def interrupt(track: Track) -> None:
    folder = track.home / "singer"
    folder.mkdir()
    agent = [sys.executable, "-I", str(Path(__file__).with_name("stubborn_agent.py")), str(folder)]
    client = await track.start("singer", "--drain-timeout", str(DRAIN), "--", *agent)
    await client.new_session(track.home)
    song = client.prompt(SING)
    await client.streaming(song, 10)
    new, count = client.prompt(REMEMBER, delivery="interrupt"), client.prompt(WHO)
    await client.answered(song, new, count)
    check, record = track.section.check, client.recording
    check("'cancelled', then the new one runs", checks.superseded, record, song, new)
    check("it is answered", checks.recalls, record, new, [SING])
    check("cancels that the agent got", checks.cancels_counted, record, count, 1)


async def deaf_agent(track: Track) -> None:
    client = track.client
    before, deaf = client.prompt(WHO), client.prompt(DEAF)
    await client.answered(before)
    await client.streaming(deaf, 10)
    client.cancel()
    then, after = client.prompt(REMEMBER), client.prompt(WHO)
    await client.answered(deaf)
    client.look_at(checks.agent_process(client.recording, before))
    await client.answered(then, after)
    check, record = track.section.check, client.recording
    title = f"'cancelled' after a drain of {DRAIN:g} s"
    check(title, checks.cancelled, record, deaf, drained=DRAIN)
    check("nothing of it follows", checks.nothing_follows, record, deaf)
    check("killed, restarted", checks.replaced, record, deaf, before, after)
    check("session reloaded", checks.recalls, record, then, SUNG[:-2])


async def agent_killed(track: Track) -> None:
    client = track.client
    song = client.prompt(AGAIN)
    await client.streaming(song, 10)
    client.kill_agent()
    await client.answered(song)
    then = client.prompt(REMEMBER)
    await client.answered(then)
    check, record = track.section.check, client.recording
    check("the prompt is answered", checks.failed, record, song)
    check("nothing of it follows", checks.nothing_follows, record, song)
    check("the session goes on", checks.recalls, record, then, [*SUNG, AGAIN])


# --- all of it -----------------------------------------------------------------------------------

#: The number of the track of each step and its function, by its title, in the order of printing.
_STEPS: dict[str, tuple[int, Step]] = {
    "three at once": (0, three_at_once),
    "cancel": (0, cancel),
    "interrupt": (1, interrupt),
    "deaf agent": (1, deaf_agent),
    "agent killed": (1, agent_killed),
    "bridge killed": (0, bridge_killed),
}


async def play(
    home: Path, screen: Screen, bridge: Sequence[str], recordings: dict[str, Recording]
) -> None:
    """Run all steps and print them; fills in `recordings`, by client, also when cancelled.

    `home` is an empty folder. No process is left running, however it ends.
    """
    tracks: tuple[list[tuple[Section, Step]], ...] = ([], [])
    for number, (name, (track, step)) in enumerate(_STEPS.items(), 1):
        tracks[track].append((screen.section(number, name), step))
    end = screen.section(len(_STEPS) + 1, "the end")
    clients: dict[str, Client] = {}
    async with anyio.create_task_group() as tasks:
        try:
            async with anyio.create_task_group() as running:
                for steps in tracks:
                    section, _ = steps[0]
                    running.start_soon(Track(home, bridge, tasks, clients, section).run, steps)
        finally:
            recordings |= {name: client.recording for name, client in clients.items()}
            for client in clients.values():
                await client.close()
            tasks.cancel_scope.cancel()
    every = [*recordings.values()]
    end.check("requests, each answered once", checks.each_answered_once, every)
    end.check("no process left", checks.nothing_left, every)
    end.close()
