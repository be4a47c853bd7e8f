"""The story that the demo tells: what its client does, and which checks are made of it.

A check that fails is printed and the story goes on; a wait that fails ends it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ParamSpec

import anyio
from anyio.abc import TaskGroup

from acp_bridge.demo import checks
from acp_bridge.demo.client import Client
from acp_bridge.demo.recording import Recording, Unexpected
from acp_bridge.demo.screen import Screen

P = ParamSpec("P")

#: The bridge, by the interpreter that runs the demo, and out of reach of the user's own modules.
BRIDGE = (sys.executable, "-I", "-m", "acp_bridge")
#: Seconds that an agent gets to stop before it is killed: half of the default, to be brief.
DRAIN = 1.0

BOAT, SUNDAY = "My boat is called Heron.", "She sails on Sunday."
STORY, LONGER, LAST = "Tell me a story.", "Tell me a longer story.", "Tell me a last story."
REMEMBER, WAITING = "Remember?", "Do you still remember?"
SING, DEAF, WHO = "Sing.", "Sing, be stubborn.", "Who are you?"


class Demo:
    """The clients of the demo, and the steps that they take."""

    def __init__(self, home: Path, screen: Screen, bridge: Sequence[str] = BRIDGE) -> None:
        """`home`: an empty folder, for everything that is kept."""
        self.recordings: dict[str, Recording] = {}
        self._home = home
        self._screen = screen
        self._bridge = bridge
        self._clients: list[Client] = []
        self._tasks: TaskGroup

    async def run(self) -> None:
        """All steps. Whatever ends it, no process is left."""
        async with anyio.create_task_group() as self._tasks:
            try:
                await self._steps()
            except Unexpected as unexpected:
                self._screen.failed("the step could not be finished", unexpected)
                self._screen.say(f"     Not tried: what follows.{self._last_words()}")
            finally:
                for client in self._clients:
                    await client.close()
                self._tasks.cancel_scope.cancel()
        self._screen.step(7, "the end")
        everything = list(self.recordings.values())
        self._check("requests, each answered once", checks.each_answered_once, everything)
        self._check("no process left", checks.nothing_left, everything)

    async def _steps(self) -> None:
        self._screen.step(0, "start")
        builtin = await self._start("built-in")
        singer = await self._start("singer", *_other_agent(self._home))
        clients = (builtin, singer)
        hellos = [await client.initialize() for client in clients]
        for client, hello in zip(clients, hellos, strict=True):
            await client.result(hello)
            await client.new_session(self._home)
        self._screen.step(1, "three at once")
        await self._three_at_once(builtin)
        self._screen.step(2, "cancel")
        await self._cancel(builtin)
        self._screen.step(3, "interrupt")
        before = await self._interrupt(singer)
        self._screen.step(4, "deaf agent")
        await self._deaf_agent(singer, before)
        self._screen.step(5, "agent killed")
        await self._agent_killed(builtin)
        self._screen.step(6, "bridge killed")
        await self._bridge_killed(builtin)

    # --- the steps -----------------------------------------------------------------------------

    async def _three_at_once(self, client: Client) -> None:
        prompts = await client.prompts(BOAT, SUNDAY, REMEMBER)
        await client.answered(*prompts)
        texts = [f"I will keep that in mind: {text}" for text in (BOAT, SUNDAY)]
        texts.append(f"You told me: {BOAT}; {SUNDAY}")
        record = client.recording
        self._check(
            "each answered once, in the order of asking", checks.answered_in_order, record, prompts
        )
        self._check(
            "updates before the answer of their turn", checks.streamed, record, prompts, texts
        )

    async def _cancel(self, client: Client) -> None:
        story = await client.prompt(STORY)
        await client.streaming(story, 20)
        await client.cancel()
        await client.answered(story)
        then = await client.prompt(REMEMBER)
        await client.answered(then)
        told = [BOAT, SUNDAY, REMEMBER, STORY]
        record = client.recording
        self._check("the answer is 'cancelled'", checks.cancelled, record, story)
        self._check("nothing of it follows", checks.nothing_follows, record, story)
        self._check("the next prompt works", checks.recalls, record, then, told)

    async def _interrupt(self, client: Client) -> int:
        song = await client.prompt(SING)
        await client.streaming(song, 10)
        new = await client.prompt(REMEMBER, delivery="interrupt")
        count = await client.prompt(WHO)
        await client.answered(song, new, count)
        record = client.recording
        self._check("'cancelled', then the new one runs", checks.superseded, record, song, new)
        self._check("it is answered", checks.recalls, record, new, [SING])
        self._check("cancels that the agent got", checks.cancels_counted, record, count, 1)
        return count

    async def _deaf_agent(self, client: Client, before: int) -> None:
        record = client.recording
        deaf = await client.prompt(DEAF)
        await client.streaming(deaf, 10)
        await client.cancel()
        then, after = await client.prompts(REMEMBER, WHO)
        await client.answered(deaf)
        client.look_at(checks.agent_process(record, before))
        await client.answered(then, after)
        told = [SING, REMEMBER, WHO, DEAF]
        title = f"'cancelled' after a drain of {DRAIN:g} s"
        self._check(title, checks.cancelled, record, deaf, drained=DRAIN)
        self._check("nothing of it follows", checks.nothing_follows, record, deaf)
        self._check("killed, restarted", checks.replaced, record, deaf, before, after)
        self._check("session reloaded", checks.recalls, record, then, told)

    async def _agent_killed(self, client: Client) -> None:
        story = await client.prompt(LONGER)
        await client.streaming(story, 20)
        client.kill_agent()
        await client.answered(story)
        then = await client.prompt(REMEMBER)
        await client.answered(then)
        told = [BOAT, SUNDAY, REMEMBER, STORY, REMEMBER, LONGER]
        record = client.recording
        self._check("the prompt is answered", checks.failed, record, story)
        self._check("nothing of it follows", checks.nothing_follows, record, story)
        self._check("the session goes on", checks.recalls, record, then, told)

    async def _bridge_killed(self, client: Client) -> None:
        story = await client.prompt(LAST)
        waiting = await client.prompt(WAITING)
        await client.accepted(waiting)
        await client.streaming(story, 20)
        client.kill_bridge()
        await client.gone()
        other = await self._start("after kill -9")
        await other.result(await other.initialize())
        load = await other.load_session(client.session_id, self._home)
        await other.result(load)
        listing = await other.prompt("/queue")
        await other.answered(listing)
        run = await other.prompt("/queue run")
        await other.answered(run)
        told = [BOAT, SUNDAY, REMEMBER, STORY, REMEMBER, LONGER, REMEMBER, LAST]
        before, after = client.recording, other.recording
        self._check("replayed as it was shown", checks.replayed, before, after, load)
        title = "the waiting prompt is held, not run"
        self._check(title, checks.held, before, waiting, after, load, listing, run)
        self._check("/queue run runs it", checks.recalls, after, run, told)

    # --- what they need ------------------------------------------------------------------------

    async def _start(self, name: str, *arguments: str) -> Client:
        own = {
            name: value for name, value in os.environ.items() if not name.startswith("ACP_BRIDGE_")
        }
        client = await Client.start(
            [*self._bridge, *arguments],
            {**own, "ACP_BRIDGE_HOME": str(self._home)},
            self._home / "log",
            self._tasks,
            self._screen.waiting,
        )
        self._clients.append(client)
        self.recordings[name] = client.recording
        return client

    def _last_words(self) -> str:
        """The end of what the bridges logged."""
        log = self._home / "log"
        lines = log.read_text("utf-8", "replace").splitlines()[-5:] if log.exists() else []
        return "".join(f"\n     log: {line}" for line in lines)

    def _check(
        self, title: str, check: Callable[P, checks.Finding], *args: P.args, **kwargs: P.kwargs
    ) -> None:
        try:
            finding = check(*args, **kwargs)
        except Unexpected as unexpected:
            self._screen.failed(title, unexpected)
        else:
            self._screen.passed(title, finding.detail, finding.seconds)


def _other_agent(home: Path) -> list[str]:
    """Options and command for the agent that counts cancels and can ignore them."""
    folder = home / "singer"
    folder.mkdir()
    file = Path(__file__).with_name("stubborn_agent.py")
    return ["--drain-timeout", str(DRAIN), "--", sys.executable, "-I", str(file), str(folder)]
