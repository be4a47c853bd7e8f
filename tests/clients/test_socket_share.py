"""The time that clients on sockets may take of the bridge."""

from typing import Any

import anyio
import pytest

from acp_bridge.clients import socket_share
from acp_bridge.clients.socket_share import SocketShare


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
