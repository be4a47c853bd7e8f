"""The process without a session: who gets it, and how it ends."""

from collections.abc import Awaitable, Callable

import anyio
import anyio.lowlevel
import pytest

from acp_bridge.core.agents.link import Link
from acp_bridge.core.agents.process import StartFailed
from acp_bridge.core.agents.process_pool import Sharing
from acp_bridge.core.wire.jsonrpc import RpcError
from tests.core.session.waiting import beside, quiet
from tests.core.sessions.agent import Json, Process, until
from tests.core.sessions.room import into, room

# --- who gets it -----------------------------------------------------------------------------


@pytest.mark.hazard("P12.1")
async def test_two_who_take_at_once_get_a_process_each() -> None:
    async with room() as it:
        first, second = await it.both()
        assert first is not second
        assert it.links == [first, second]
        assert it.pool.link is None


@pytest.mark.hazard("P12")
async def test_of_two_who_take_at_once_one_gets_the_process_that_waits() -> None:
    async with room() as it:
        waits = await it.pool.ready()
        got = await it.both()
        assert waits in got
        assert got == it.links
        assert it.pool.link is None


async def test_all_who_want_a_process_that_stays_get_the_same_one() -> None:
    async with room() as it:
        gate = it.agent.stops_at("initialize")
        got: list[Link] = []

        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(into, got, it.pool.ready)
            await until(lambda: gate.reached)
            gate.open()
        assert got == it.links * 3
        assert it.pool.take_ready() is got[0]
        assert it.pool.take_ready() is None


@pytest.mark.hazard("P11.1")
async def test_nobody_waits_for_the_start_of_a_process_that_another_one_needs() -> None:
    async with room() as it:
        gate, got = it.agent.stops_at("initialize"), list[Link]()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(into, got, it.pool.take)
            await until(lambda: gate.reached)
            before = it.agent.script["initialize"]
            it.agent.script["initialize"] = {"protocolVersion": 1}
            await into(got, it.pool.take)
            assert got == it.links[1:]
            await it.pool.ready()
            assert it.links[2] is it.pool.link
            it.agent.script["initialize"] = before
            gate.open()
        assert got == [it.links[1], it.links[0]]


@pytest.mark.hazard("P11", "Q1")
async def test_who_wanted_a_process_that_stays_gets_another_when_a_session_takes_it() -> None:
    async with room() as it:
        gate, got = it.agent.stops_at("initialize"), list[Link]()

        async def want(work: Callable[[], Awaitable[Link]]) -> None:
            got.append(await work())

        async with anyio.create_task_group() as tasks:
            for _ in range(2):
                tasks.start_soon(want, it.pool.ready)
            await until(lambda: gate.reached)
            tasks.start_soon(want, it.pool.take)
            await anyio.lowlevel.checkpoint()
            gate.open()
        first, second = it.links
        assert (got.count(first), got.count(second)) == (1, 2)
        assert it.pool.link is second


async def test_a_claim_on_a_process_that_does_not_start_is_followed_by_a_try_of_its_own() -> None:
    async with room() as it:
        gate, got = it.agent.stops_at("initialize"), list[Link]()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(it.pool.warm)
            await until(lambda: gate.reached)
            tasks.start_soon(into, got, it.pool.take)
            await anyio.lowlevel.checkpoint()
            it.agent.processes[0].dies()
            gate.open()
        assert got == it.links[1:]


async def test_who_gives_up_a_start_leaves_no_process_and_the_next_gets_another() -> None:
    async with room() as it:
        gate = it.agent.stops_at("initialize")
        got: list[Link] = []
        given_up = anyio.CancelScope()

        async def give_up() -> None:
            with given_up:
                await it.pool.take()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(give_up)
            await until(lambda: gate.reached)
            tasks.start_soon(into, got, it.pool.take)
            given_up.cancel()
            gate.open()
        first, second = it.links
        assert first.dead.is_set()
        assert got == [second]


@pytest.mark.hazard("P11")
async def test_who_has_waited_in_vain_for_a_start_of_another_waits_for_no_further_one() -> None:
    async with room() as it:
        it.shares = Sharing.RESTING
        starts, got = it.agent.stops_at("initialize"), list[Link]()

        async def fails() -> None:
            with pytest.raises(RpcError):
                await it.pool.take()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(fails)
            await until(lambda: starts.reached == 1)
            for _ in range(3):
                tasks.start_soon(into, got, it.pool.take)
            await quiet()
            assert len(it.agent.processes) == 1
            it.agent.processes[0].dies()
            await until(lambda: starts.reached == 4)
            starts.open()
        assert len(got) == 3


# --- the one that is started ahead of any need ------------------------------------------------


async def test_a_session_that_is_loaded_while_the_first_process_starts_waits_for_that_one() -> None:
    async with room() as it:
        assert await it.pool.take_coming() is None
        gate = it.agent.stops_at("initialize")
        got: list[Link | None] = []

        async def new() -> None:
            got.append(await it.pool.take())

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(it.pool.warm)
            await until(lambda: gate.reached)
            tasks.start_soon(into, got, it.pool.take_coming)
            # the second one is not kept waiting: it starts its own
            tasks.start_soon(into, got, it.pool.take_coming)
            await until(lambda: got)
            assert got == [None]
            tasks.start_soon(new)
            gate.open()
        first, second = it.links
        assert got == [None, first, second]
        assert it.pool.link is None
        assert await it.pool.take_coming() is None


async def test_a_process_that_a_new_session_waits_for_is_not_promised_to_a_load() -> None:
    async with room() as it:
        gate = it.agent.stops_at("initialize")
        got: list[Link] = []

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(it.pool.warm)
            await until(lambda: gate.reached)
            tasks.start_soon(into, got, it.pool.take)
            await anyio.lowlevel.checkpoint()
            assert await it.pool.take_coming() is None
            gate.open()
        assert got == it.links


async def test_a_load_that_gives_up_leaves_the_process_that_was_started() -> None:
    async with room() as it:
        gate = it.agent.stops_at("initialize")
        given_up = anyio.CancelScope()

        async def load() -> None:
            with given_up:
                await it.pool.take_coming()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(it.pool.warm)
            await until(lambda: gate.reached)
            tasks.start_soon(load)
            await anyio.lowlevel.checkpoint()
            given_up.cancel()
            await anyio.lowlevel.checkpoint()
            gate.open()
        assert it.links == [it.pool.link]


async def test_a_load_that_gives_up_as_the_process_comes_has_it_or_leaves_it() -> None:
    async with room() as it:
        gate = it.agent.stops_at("initialize")
        given_up = anyio.CancelScope()
        got: list[Link | None] = []

        async def load() -> None:
            with given_up:
                got.append(await it.pool.take_coming())

        async def warm() -> None:
            await it.pool.warm()
            given_up.cancel()  # it was handed over, and the load has not seen it yet

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(warm)
            await until(lambda: gate.reached)
            tasks.start_soon(load)
            await anyio.lowlevel.checkpoint()
            gate.open()
        assert it.links == (got or [it.pool.link])


async def test_a_load_that_waited_for_a_process_that_did_not_start_is_told_so() -> None:
    async with room() as it:
        it.agent.unstartable = StartFailed("no", permanent=True)
        got: list[Link | None] = []

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(it.pool.warm)
            await anyio.lowlevel.checkpoint()
            tasks.start_soon(into, got, it.pool.take_coming)
        assert got == [None]


# --- who gives up -----------------------------------------------------------------------------


async def test_one_who_gives_up_waiting_for_the_start_of_another_stops_nothing() -> None:
    async with room() as it:
        gate = it.agent.stops_at("initialize")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(it.pool.ready)
            await until(lambda: gate.reached)
            with anyio.move_on_after(0) as given_up:
                await it.pool.take()
            assert given_up.cancelled_caught
            gate.open()
        assert it.links == [it.pool.link]


@pytest.mark.hazard("P3")
async def test_a_process_that_dies_while_it_waits_is_given_to_nobody() -> None:
    async with room() as it:
        first = await it.pool.ready()
        it.agent.processes[0].exits()
        assert it.pool.link is None
        assert await it.pool.take() is it.links[1]
        assert first.gone


# --- given back ------------------------------------------------------------------------------


async def test_a_process_of_which_no_session_came_is_the_next_ones() -> None:
    async with room() as it:
        link = await it.pool.take()
        await it.pool.give_back(link)
        await it.pool.give_back(link)
        assert await it.pool.take() is link
        assert it.agent.living == [link.connection]


async def test_a_process_that_is_given_back_while_another_waits_is_killed() -> None:
    async with room() as it:
        link = await it.pool.take()
        other = await it.pool.ready()
        await it.pool.give_back(link)
        assert it.agent.living == [other.connection]
        assert it.pool.link is other


async def test_of_one_that_is_given_back_and_one_that_starts_meanwhile_one_is_kept() -> None:
    async with room() as it:
        link = await it.pool.take()
        gate = it.agent.stops_at("initialize")
        it.tasks.start_soon(it.pool.warm)
        await until(lambda: gate.reached)
        await it.pool.give_back(link)
        gate.open()
        assert await it.pool.ready() is link
        await until(lambda: it.agent.living == [link.connection])


async def test_a_process_that_is_gone_is_not_taken_back() -> None:
    async with room() as it:
        link = await it.pool.take()
        it.agent.processes[0].exits()
        await it.pool.give_back(link)
        assert it.pool.link is None
        assert it.agent.living == []


# --- starts that fail ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("failure", "said"),
    [
        (StartFailed("command not found: x", permanent=True), r"not be started: command not found"),
        (RpcError(-32603, "no key"), "no key"),
        (OSError(24, "too many files"), "too many files"),
    ],
)
async def test_a_start_that_fails_is_said_to_who_needs_it_and_tried_again_by_the_next(
    failure: Exception, said: str
) -> None:
    async with room() as it:
        it.agent.unstartable = failure
        for _ in range(2):
            with pytest.raises((RpcError, OSError), match=said):
                await it.pool.take()
        await it.pool.warm()  # says it to nobody
        it.agent.unstartable = None
        await it.pool.warm()
        assert it.pool.link is it.links[-1]


async def test_a_process_that_refuses_to_initialize_is_killed() -> None:
    async with room() as it:
        it.agent.script["initialize"] = RpcError(-32000, "who are you")
        with pytest.raises(RpcError, match="who are you"):
            await it.pool.ready()
        assert it.pool.link is None
        assert it.agent.living == []


async def test_an_agent_that_does_not_answer_in_time_is_killed_and_named() -> None:
    async with room(seconds=0.01) as it:
        it.agent.stops_at("initialize")
        with pytest.raises(RpcError, match=r"did not answer initialize within 0.01 s"):
            await it.pool.ready()
        assert it.agent.living == []
        assert it.pool.link is None


@pytest.mark.hazard("P3", "P15")
async def test_an_agent_that_dies_right_after_it_answered_is_not_started_again_and_again() -> None:
    async with room() as it:
        before = it.agent.script["initialize"]

        async def initialize(process: Process, params: Json) -> Json:
            it.tasks.start_soon(dies, process)
            return dict(before)

        async def dies(process: Process) -> None:
            process.dies()

        it.agent.script["initialize"] = initialize
        assert (await it.pool.ready()).gone
        assert len(it.agent.processes) == 1
        assert it.pool.link is None


@pytest.mark.hazard("P15.2")
async def test_it_is_read_no_further_while_the_client_does_not_read() -> None:
    async with room() as it:
        link = await it.pool.ready()
        it.editor.sent.stuck = 1 << 30
        async with beside(it.pool.room, link) as reading:
            assert not reading.ended
            it.editor.sent.take_all()
        it.asked = None
        await it.pool.room(link)


@pytest.mark.hazard("P3")
async def test_an_agent_that_dies_before_it_answers_initialize_fails_the_start() -> None:
    async with room() as it:
        gate = it.agent.stops_at("initialize")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(it.pool.warm)
            await until(lambda: gate.reached)
            it.agent.processes[0].dies()
        assert it.pool.link is None


# --- the end ---------------------------------------------------------------------------------


async def test_the_process_that_waits_may_end_by_itself_when_all_ends() -> None:
    async with room() as it:
        await it.pool.close(1)
        await it.pool.ready()
        await it.pool.close(7)
        assert [process.grace for process in it.agent.processes] == [7]
        assert it.pool.link is None
