"""The time that clients on sockets may take of the bridge."""

from contextlib import ExitStack
from functools import partial
from time import perf_counter
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from acp_bridge.core.clients import socket_share
from acp_bridge.core.clients.socket_share import SocketShare


@pytest.mark.hazard("V5")
async def test_as_much_time_as_they_take_together_is_left_to_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, left, lines = [0.0], list[float](), list[int]()

    def take(data: bytes) -> None:
        lines.append(data.count(b"\n"))
        now[0] += 0.004

    async def sleep(seconds: float) -> None:
        left.append(seconds)

    monkeypatch.setattr(socket_share, "perf_counter", lambda: now[0])
    monkeypatch.setattr(socket_share, "sleep", sleep)
    share = SocketShare()
    async with anyio.create_task_group() as tasks:
        for _ in range(2):
            tasks.start_soon(share.feed, take, b"x\n" * 100)
    assert max(lines) <= 32
    assert sum(lines) == 200
    assert sum(left) == pytest.approx(now[0])


@pytest.mark.hazard("V5")
@pytest.mark.parametrize("logins", [["flood"], ["flood 1", "flood 2"]])
async def test_a_client_that_sends_little_goes_before_all_that_send_much(
    monkeypatch: pytest.MonkeyPatch, logins: list[str]
) -> None:
    """It waits for the step that is taken, and for no other one, however many there are."""
    now, order, began = [0.0], list[str](), anyio.Event()

    def work(name: str) -> None:
        now[0] += 0.002
        order.append(name)
        if len(order) == 50:
            began.set()

    async def sleep(_: float) -> None:
        await anyio.lowlevel.checkpoint()

    monkeypatch.setattr(socket_share, "perf_counter", lambda: now[0])
    monkeypatch.setattr(socket_share, "sleep", sleep)
    share = SocketShare()

    async def floods(login: str) -> None:
        sharer = share.sharer(login)
        for _ in range(10):
            await share.step(partial(work, "flood"), sharer)

    async with anyio.create_task_group() as tasks:
        for number in range(16):
            tasks.start_soon(floods, logins[number % len(logins)])
        await began.wait()
        for login in ("quiet", logins[0]):  # the second one has a login that floods
            before = len(order)
            await share.step(partial(work, "quiet"), share.sharer(login))
            late = order.index("quiet", before) - before
            assert late <= (2 if login == "quiet" else 2 * len(logins))
    assert order.count("flood") == 160


async def test_a_turn_that_was_waited_for_in_vain_is_nobody_s_loss() -> None:
    share, taken, pausing = SocketShare(), list[int](), anyio.Event()
    heavy = share.sharer()
    heavy.charge(1, perf_counter())

    def slow() -> None:
        pausing.set()
        share._owed = 0.01  # a pause follows

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(share.step, slow)
        await pausing.wait()
        async with anyio.create_task_group() as given_up:
            given_up.start_soon(share.step, partial(taken.append, 1), heavy)
            await anyio.lowlevel.checkpoint()
            await anyio.lowlevel.checkpoint()
            given_up.cancel_scope.cancel()
        with anyio.fail_after(5):
            await share.step(partial(taken.append, 2), heavy)
    assert taken == [2]


async def test_a_client_that_has_worked_little_does_not_wait_for_a_pause() -> None:
    share, taken = SocketShare(), list[str]()
    heavy, pausing = share.sharer(), anyio.Event()
    heavy.charge(1, perf_counter())

    def slow() -> None:
        share._owed = 30.0  # a long pause follows
        pausing.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(share.step, slow, heavy)
        await pausing.wait()
        tasks.start_soon(share.step, partial(taken.append, "heavy"), heavy)
        with anyio.fail_after(5):
            await share.step(partial(taken.append, "light"), share.sharer())
        assert taken == ["light"]
        tasks.cancel_scope.cancel()


async def test_what_is_sent_comes_whole_and_in_order_and_a_message_or_two_cost_no_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def sleep(seconds: float) -> Any:
        raise AssertionError(seconds)

    monkeypatch.setattr(socket_share, "perf_counter", lambda: 0.0)
    monkeypatch.setattr(socket_share, "sleep", sleep)
    share, taken = SocketShare(), bytearray()
    data = b"".join(b"%d\r\x0b\n" % number for number in range(100)) + b"rest"
    await share.feed(taken.extend, data)
    assert bytes(taken) == data


class Line:
    """A client that has sent so much of a line."""

    def __init__(self, unfinished: int) -> None:
        self.unfinished = unfinished
        self.told: list[str] = []

    def drop_unfinished(self) -> None:
        self.unfinished = 0


@pytest.mark.hazard("V5")
def test_who_has_sent_most_of_what_does_not_end_is_let_go_when_all_of_it_is_too_much(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(socket_share, "MOST_UNFINISHED", 100)
    share, lines = SocketShare(), [Line(10), Line(60), Line(30)]
    with ExitStack() as here:
        for line in lines:
            here.enter_context(share.counted(line, line.told.append))
        share.bound()
        assert [line.told for line in lines] == [[], [], []]
        lines[0].unfinished += 1
        share.bound()
        assert [len(line.told) for line in lines] == [0, 1, 0]
        assert "don't end" in lines[1].told[0]
    assert [line.unfinished for line in lines] == [0, 0, 0]
    share.bound()
    assert [len(line.told) for line in lines] == [0, 1, 0]
