"""One run: the operations of its script, performed; then every session is loaded and compared."""

from __future__ import annotations

import json
import os
import random
import signal
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import nullcontext, suppress
from pathlib import Path

import anyio

from tests.crash.__main__ import why
from tests.crash.rounds import steps
from tests.fuzz import script
from tests.fuzz.check import Check
from tests.fuzz.fleet import Fleet
from tests.fuzz.newer import Actors
from tests.fuzz.operations import Operations
from tests.fuzz.place import Place
from tests.fuzz.script import Operation
from tests.fuzz.watcher import Watchers
from tests.support.postgres import Cluster


class Run:
    """Performs a script. `play` raises Lost, or what shows a bug of the fuzzer itself."""

    def __init__(self, seed: int, folder: Path) -> None:
        """Nothing is started before `play`."""
        self._place = Place(folder, script.behaviours(seed), script.options(seed))
        self._place.keeps = script.keeps(seed)
        self._ledger = self._place.ledger
        others = script.has_two(seed) or script.is_watched(seed) or script.is_acted(seed)
        self._ledger.several = script.keeps(seed) or others or script.is_far(seed)
        self._ledger.reuses_ids = "reuses-ids" in self._place.behaviours
        self._ledger.replays_late = "late-replay" in self._place.behaviours
        self._seed = seed
        self._operations = Operations(self._place)
        self._fleet = Fleet(self._place, self._operations)
        self._watchers = Watchers(self._fleet) if script.is_watched(seed) else None
        self._actors = Actors(self._fleet) if script.is_acted(seed) else None
        self._perform: dict[str, Callable[[Operation], Awaitable[None] | None]] = {
            name: getattr(self, f"_do_{name}", None) or getattr(self._operations, f"do_{name}")
            for name in script.WEIGHTS
        }

    async def play(self, count: int) -> Counter[str]:
        """What happened how often."""
        self._place.folder.joinpath("project").mkdir()
        self._place.home.mkdir(mode=0o700)
        (self._place.home / "hooks.toml").write_text(script.hooks(self._seed))
        try:
            async with anyio.create_task_group() as self._place.tasks:
                try:
                    await self._operate(count)
                    await Check(self._place).run()
                finally:
                    self._place.tasks.cancel_scope.cancel()
        finally:
            self._place.kill_all()
        return self._ledger.counts

    def show(self) -> None:
        """Print what each client sent and got, and what the agents logged."""
        for number, recording in enumerate(self._place.recordings):
            for record in recording:
                print(number, f"{record.time:.3f}", record.direction, record.raw[:400])
        for event in self._place.log.events():
            print("agent", json.dumps(event)[:400])

    async def _operate(self, count: int) -> None:
        fleet, operations = self._fleet, self._operations
        await fleet.start()
        if script.is_far(self._seed):
            await fleet.start_far()
        for operation in script.operations(self._seed, count):
            operations.note_new_sessions()
            operations.callers = fleet.callers
            which = script.place(operation.who, len(operations.callers))
            operations.caller = operations.callers[which]
            far = fleet.far and script.goes_far(self._seed, operation)
            if fleet.far and far:
                operations.caller = fleet.far.first
            done = self._perform[operation.kind](operation)
            if done is not None:
                await done
            if self._watchers and operation.who < script.WATCHED:
                await self._watchers.step(random.Random(f"{self._seed}.{operation.who}"))
            if self._actors and (acts := script.acts(self._seed, operation)):
                await self._actors.step(acts)
            if fleet.far and far:
                await fleet.far.step(far)
            await self._pause(operation.rng)
            self._ledger.counts["operations"] += 1
        operations.note_new_sessions()
        if self._watchers:
            await self._watchers.leave()
        if self._actors:
            await fleet.settle()
            await self._actors.leave()
        await fleet.end_all(random.Random(f"{self._seed}.end"))

    async def _pause(self, rng: random.Random) -> None:
        """Mostly nothing: what is sent together is read together."""
        caller, kind = self._operations.caller, rng.random()
        if kind < 0.45 or not caller.listening or not caller.is_here:
            return
        if kind < 0.65:
            await steps(rng.randrange(200))
        elif kind < 0.85:
            mark, wanted = caller.client.mark(), rng.randrange(1, 12)
            with anyio.move_on_after(0.1), suppress(ConnectionError):
                await caller.client.until_recorded(lambda: caller.client.mark() > mark + wanted)
        elif caller.ids:
            await caller.answered(caller.ids[-1], within=0.5)

    # --- clients and bridges -------------------------------------------------------------------

    async def _do_restart(self, operation: Operation) -> None:
        await self._fleet.restart(operation.rng)

    async def _do_other(self, operation: Operation) -> None:
        await self._fleet.change_other(operation.rng)

    async def _do_end_kept(self, operation: Operation) -> None:
        await self._fleet.end_kept(operation.rng)

    async def _do_talk(self, operation: Operation) -> None:
        if len(self._fleet.callers) < 2:
            await self._fleet.join(operation.rng)
        self._operations.callers = self._fleet.callers
        await self._operations.do_talk(operation)

    async def _do_join(self, operation: Operation) -> None:
        await self._fleet.join(operation.rng)

    async def _do_leave(self, operation: Operation) -> None:
        """At once, or a moment after something that it has asked."""
        await steps(operation.rng.choice([0, 0, 50]))
        joined = [life for life in self._fleet.all if life.second]
        if joined:
            await operation.rng.choice(joined).leave()

    # --- the world around ----------------------------------------------------------------------

    def _do_open_gate(self, operation: Operation) -> None:
        names = ["g"] * 6 + ["cancel", "load", "initialize", "late-replay", "die"]
        names += [f"leak-{kind}" for kind in ("message", "tool", "write")]
        operation.rng.choice(self._fleet.all).gates.open(operation.rng.choice(names))

    def _do_kill_agent(self, operation: Operation) -> None:
        """The newest one mostly; its guard is left alone."""
        living = self._place.pids()
        agents = [pid for pid in self._place.log.pids() if pid in living]
        if not agents:
            return
        pid = agents[-1] if operation.rng.random() < 0.6 else operation.rng.choice(agents)
        try:
            os.kill(pid, operation.rng.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM]))
        except ProcessLookupError:
            return
        self._ledger.counts["agent: killed"] += 1


def attempt(
    seed: int, count: int, show: bool, server: Cluster | None = None
) -> tuple[Counter[str], str]:
    """One run, in a process of its own: what happened, and why it failed, if it did.

    `show`: print every line that went over the wire if it failed. `server`: its bridges keep their
    sessions there, in a database of the run.
    """
    with (
        tempfile.TemporaryDirectory(prefix="fuzz-", ignore_cleanup_errors=True) as folder,
        server.a_database() if server else nullcontext() as url,
    ):
        os.environ |= {"ACP_BRIDGE_JOURNAL": url} if url else {}
        run = Run(seed, Path(folder))
        try:
            return anyio.run(run.play, count), ""
        except Exception as exc:
            if show:
                run.show()
            return Counter(), why(exc)
