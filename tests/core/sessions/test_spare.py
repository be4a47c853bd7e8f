"""The process that is kept ready for the next session: when it is started, replaced and ended."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from acp_bridge.core import errors
from acp_bridge.core.agents.link import Link
from acp_bridge.core.agents.process import Exit, StartFailed
from acp_bridge.core.sessions.pool import WarmTimes
from acp_bridge.core.wire.jsonrpc import RpcError
from tests.core.session.waiting import quiet
from tests.core.sessions.agent import Process, until
from tests.core.sessions.bench import bench
from tests.core.sessions.room import Room, into, room

#: seconds, as short as a test likes; and more than any test takes.
SOON, LONG = 0.01, 60.0
LOGIN = {"methodId": "token", "_meta": {"token": "t"}}


class Kept:
    """A room whose process is kept ready."""

    def __init__(self, it: Room, unused: float) -> None:
        self.room, self.agent, self.pool = it, it.agent, it.pool
        self.is_full = False
        self.pool.keep_warm(WarmTimes(unused, pause=0, grace=0), self._claimed)

    @contextmanager
    def _claimed(self) -> Iterator[None]:
        if self.is_full:
            raise errors.too_many_files(64)
        yield

    async def taken(self) -> Link:
        """Let a session take a process; returns that one when the next one is ready."""
        taken = await self.pool.take()
        await self.ready()
        return taken

    async def ready(self) -> Process:
        await until(lambda: self.pool.link)
        assert self.pool.link is self.room.links[-1]
        return self.agent.processes[-1]

    async def given_up(self) -> None:
        """Return when no further process is on its way."""
        await self.no_more()
        assert self.pool.link is None

    async def no_more(self) -> None:
        """Return when nobody keeps a process ready."""
        warmth = self.pool._warmth
        assert warmth
        await until(lambda: not warmth.decided.kept)


@asynccontextmanager
async def kept(unused: float = LONG) -> AsyncIterator[Kept]:
    async with room() as it:
        yield Kept(it, unused)


# --- when there is one ------------------------------------------------------------------------


async def test_the_next_session_takes_a_process_that_was_started_when_the_last_took_its_own() -> (
    None
):
    async with kept() as it:
        first = await it.pool.ready()
        await quiet()
        assert it.room.links == [first]  # none beside one that waits
        assert await it.taken() is first
        second = it.pool.link
        assert await it.pool.take() is second
        await it.ready()
        assert len(it.agent.processes) == 3


async def test_a_session_that_restarts_may_take_it_and_another_one_comes() -> None:
    async with kept() as it:
        await it.taken()
        spare = it.pool.link
        assert it.pool.take_ready() is spare
        await it.ready()
        assert it.pool.link is not spare


async def test_a_session_that_comes_while_it_starts_gets_it_and_the_next_one_another() -> None:
    async with kept() as it:
        await it.pool.take()
        gate = it.agent.stops_at("initialize")
        await until(lambda: gate.reached)
        got: list[Link] = []

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(into, got, it.pool.take)
            await quiet()
            gate.open()
        assert got == it.room.links[1:2]
        await it.ready()
        assert len(it.agent.processes) == 3


async def test_the_first_session_may_take_the_process_that_starts_with_the_bridge() -> None:
    async with kept() as it:
        gate, got = it.agent.stops_at("initialize"), list[Link]()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(it.pool.warm)
            await until(lambda: gate.reached)
            tasks.start_soon(into, got, it.pool.take)
            await quiet()
            gate.open()
        await it.ready()
        assert [*got, it.pool.link] == it.room.links


async def test_a_process_of_which_no_session_came_is_enough() -> None:
    async with kept() as it:
        link = await it.pool.take()
        await it.pool.give_back(link)
        await it.no_more()
        assert it.agent.living == [link.connection]


# --- when it ends -----------------------------------------------------------------------------


async def test_one_that_no_session_takes_is_ended_and_the_next_comes_with_the_next_session() -> (
    None
):
    async with kept(SOON) as it:
        session = await it.pool.take()
        await until(lambda: len(it.agent.processes) == 2)
        await it.given_up()
        assert it.agent.living == [session.connection]
        await it.pool.take()
        await until(lambda: len(it.agent.processes) == 4)


async def test_one_that_is_asked_something_is_not_ended_meanwhile() -> None:
    async with kept(SOON) as it:
        await it.taken()
        spare, gate = await it.ready(), it.agent.stops_at("session/list")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(spare.ask, "session/list", {})
            with anyio.move_on_after(5 * SOON):
                await it.given_up()
            assert spare.lives
            gate.open()
        await it.given_up()
        assert not spare.lives


async def test_none_is_started_when_the_bridge_has_begun_to_end() -> None:
    async with kept() as it:
        await it.pool.take()
        await it.pool.close(0)
        await it.given_up()
        assert len(it.agent.processes) == 1


# --- trouble ----------------------------------------------------------------------------------


async def test_one_that_dies_is_replaced_a_few_times_and_then_when_a_session_needs_one() -> None:
    async with kept() as it:
        await it.pool.take()
        for _ in range(3):
            (await it.ready()).dies()
        await it.given_up()
        assert len(it.agent.processes) == 4
        await it.taken()
        assert len(it.agent.processes) == 6


async def test_one_that_does_not_start_is_tried_a_few_times_and_then_with_the_next_session() -> (
    None
):
    async with kept() as it:
        it.agent.script["initialize"] = {"protocolVersion": 1}
        await it.pool.take()
        it.agent.unstartable = StartFailed("no", permanent=False)
        await it.given_up()
        assert len(it.agent.processes) == 4
        it.agent.unstartable = None
        await it.taken()


async def test_none_is_started_without_room_for_a_session_beside_it() -> None:
    async with kept() as it:
        it.is_full = True
        await it.pool.take()
        await it.given_up()
        assert len(it.agent.processes) == 1
        it.is_full = False
        await it.taken()


# --- what it has read at its start ------------------------------------------------------------


@pytest.mark.hazard("R14")
async def test_a_login_elsewhere_replaces_it_and_one_of_its_own_does_not() -> None:
    async with kept() as it:
        session = await it.taken()
        spare = await it.ready()
        it.pool.note_change(spare.link)
        await quiet()
        assert it.pool.link is spare.link
        it.pool.note_change(session)
        await until(lambda: not spare.lives)
        await it.ready()
        assert len(it.agent.living) == 2


@pytest.mark.hazard("R14")
async def test_a_login_while_it_starts_replaces_it() -> None:
    async with kept() as it:
        session = await it.pool.take()
        gate = it.agent.stops_at("initialize")
        await until(lambda: gate.reached)
        it.pool.note_change(session)
        gate.open()
        await until(lambda: len(it.agent.processes) == 3 and it.pool.link)
        assert [process.link for process in it.agent.living] == [session, it.pool.link]


async def test_a_process_that_waits_for_another_reason_is_left_alone_by_a_login() -> None:
    async with kept() as it:
        first = await it.pool.ready()
        it.pool.note_change(it.agent.new_link(first.command, it.pool, "other"))
        await quiet()
        assert it.pool.link is first


@pytest.mark.hazard("R14")
@pytest.mark.parametrize(
    ("method", "params"),
    [("authenticate", {"methodId": "browser"}), ("authenticate", LOGIN), ("logout", {})],
)
async def test_whoever_logs_in_or_out_the_next_session_gets_a_process_that_knows_it(
    tmp_path: Path, method: str, params: Any
) -> None:
    async with bench(tmp_path, process_per_session=True, spare=LONG, spare_pause=0) as it:
        await it.new()
        await until(lambda: it.bridge._pool.link)
        session, spare = it.agent.processes
        session.login.wanted = 1.0
        it.agent.script["authenticate" if method == "logout" else "logout"] = {}
        asked = session if method == "authenticate" else spare
        await it.editor.ask(method, params)
        assert asked.params(method)
        if asked is session:
            await until(lambda: not spare.lives)
        await it.new()
        last = it.agent.processes[2] if asked is session else spare
        assert last.agent_session_id is not None
        assert bool(last.params("authenticate")) == (params is LOGIN)


@pytest.mark.hazard("P1")
async def test_a_bridge_keeps_one_for_the_next_session_and_it_ends_with_the_bridge(
    tmp_path: Path,
) -> None:
    async with bench(tmp_path, process_per_session=True, spare=LONG, spare_pause=0) as it:
        await it.new()
        await until(lambda: it.bridge._pool.link)
        spare = it.agent.processes[1]
        assert spare.params("session/new") == []
        await it.new()
        assert len(spare.params("session/new")) == 1
        await until(lambda: it.bridge._pool.link)
        assert len(it.agent.living) == 3


async def test_without_the_setting_no_process_is_kept(tmp_path: Path) -> None:
    async with bench(tmp_path) as it:
        await it.new()
        await quiet()
        assert len(it.agent.processes) == 1


# --- one that is dead, and nobody knows -------------------------------------------------------


async def _dies(process: Process, _: Any) -> Any:
    process.dies()
    await anyio.sleep_forever()


@pytest.mark.hazard("Q12.2")
@pytest.mark.parametrize("seconds", [0.0, LONG])
async def test_a_session_gets_another_process_if_the_one_that_waited_is_dead(
    seconds: float, tmp_path: Path
) -> None:
    async with bench(tmp_path, process_per_session=True, spare=seconds, spare_pause=0) as it:
        if seconds:
            await it.new()
        await until(lambda: it.bridge._pool.link)
        waited, opens = it.agent.processes[-1], it.agent.script["session/new"]

        async def answer(process: Process, given: Any) -> Any:
            return await (_dies if process is waited else opens)(process, given)

        it.agent.script["session/new"] = answer
        session = it.bridge._sessions.live[await it.new()]
        assert len(waited.params("session/new")) == 1
        assert session.link in [process.link for process in it.agent.living]


async def test_a_process_that_dies_of_making_a_session_is_not_followed_by_another(
    tmp_path: Path,
) -> None:
    async with bench(tmp_path) as it:
        await until(lambda: it.bridge._pool.link)

        async def fails(process: Process, _: Any) -> Any:
            process.dies(Exit(3, None))
            await anyio.sleep_forever()

        it.agent.script["session/new"] = fails
        with pytest.raises(RpcError, match="exit code 3"):
            await it.new()
        assert len(it.agent.processes) == 1


async def test_a_session_whose_processes_are_all_killed_is_not_tried_for_ever(
    tmp_path: Path,
) -> None:
    async with bench(tmp_path) as it:
        await until(lambda: it.bridge._pool.link)
        it.agent.script["session/new"] = _dies
        with pytest.raises(RpcError, match="ended before"):
            await it.new()
        assert len(it.agent.processes) == 2
