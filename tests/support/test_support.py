"""Gates, the recording client over pipes, and the search for processes do what tests rely on."""

import os
import signal
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from tests.support.client import RecordingClient
from tests.support.client_side import never_answers
from tests.support.fixture_agents import FixtureLog
from tests.support.gates import Gates
from tests.support.processes import MARK, all_gone, descendants, kill_marked, marked
from tests.support.recording import RpcError
from tests.support.waiting import until


def arrive(gates: Gates, name: str) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(gates.path)
    connection.sendall(name.encode() + b"\n")
    connection.settimeout(5)
    return connection


def is_open(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return connection.recv(16) == b"go\n"
    except BlockingIOError:
        return False


async def test_a_gate_lets_its_waiters_through_one_by_one_in_order(gates: Gates) -> None:
    with arrive(gates, "g") as first, arrive(gates, "g") as second:
        await gates.reached("g", 2)
        gates.open("g")
        assert (is_open(first), is_open(second)) == (True, False)
        gates.open("g")
        assert is_open(second)


async def test_a_gate_opened_ahead_lets_one_through(gates: Gates) -> None:
    gates.open("g")
    with arrive(gates, "g") as first, arrive(gates, "g") as second:
        await gates.reached("g", 2)
        assert sorted([is_open(first), is_open(second)]) == [False, True]


async def test_a_gate_open_for_good_lets_all_through(gates: Gates) -> None:
    with arrive(gates, "g") as first:
        await gates.reached("g")
        gates.open_for_good("g")
        with arrive(gates, "g") as second:
            await gates.reached("g", 2)
            assert is_open(first)
            assert is_open(second)


async def test_a_waiter_that_has_gone_takes_nobodys_place(gates: Gates) -> None:
    with arrive(gates, "g") as gone_one:
        await gates.reached("g")
    assert gone_one.fileno() == -1
    with arrive(gates, "g") as second:
        await gates.reached("g", 2)
        gates.open("g")
        assert is_open(second)


async def test_a_gate_that_is_never_reached_is_named(gates: Gates) -> None:
    with pytest.raises(TimeoutError, match="'g' not reached 1 times"):
        await gates.reached("g", within=0.01)


class Peer:
    """The other side of a client's pipes, by hand."""

    def __init__(self, read_fd: int, write_fd: int) -> None:
        self.reader = os.fdopen(read_fd, "rb")
        self.writer = os.fdopen(write_fd, "wb", buffering=0)


@asynccontextmanager
async def connected() -> AsyncGenerator[tuple[RecordingClient, Peer]]:
    there, here_write = os.pipe()
    here_read, back = os.pipe()
    peer = Peer(there, back)
    with peer.reader, peer.writer:
        async with RecordingClient(here_read, here_write) as client:
            yield client, peer


async def test_the_client_records_both_ways_and_finds_the_answer_by_id_and_type() -> None:
    async with connected() as (client, peer):
        asked = client.send_request("m", {"a": 1})
        sent = peer.reader.readline()
        peer.writer.write(b'{"id":"0","result":1}\nnot json\n{"id":0,"result":2}\n')
        assert (await client.answer_to(asked))["result"] == 2
        assert client.recording[0].raw == sent
        assert [record.direction for record in client.recording] == ["out", "in", "in", "in"]
        assert client.recording[2].message is None


async def test_a_wait_ends_when_the_output_ends() -> None:
    async with connected() as (client, peer):
        peer.writer.close()
        with pytest.raises(ConnectionError):
            await client.until(lambda _: False)


async def test_a_request_can_be_left_unanswered_and_answered_later() -> None:
    async with connected() as (client, peer):
        client.side.handlers["m"] = never_answers
        peer.writer.write(b'{"id":7,"method":"m"}\n{"id":8,"method":"unknown"}\n')
        await client.until_request("unknown")
        assert b'"id":8,"error"' in peer.reader.readline()
        client.answer(7, {})
        assert b'"id":7,"result"' in peer.reader.readline()


async def test_an_error_in_the_body_of_gates_or_client_is_raised_as_it_is() -> None:
    for error in (AssertionError("mine"), KeyboardInterrupt("mine")):
        with pytest.raises(type(error), match="mine"):
            async with Gates():
                raise error
        with pytest.raises(type(error), match="mine"):
            async with connected():
                raise error


async def test_a_client_can_be_cancelled_from_outside() -> None:
    with anyio.CancelScope() as scope:
        async with connected() as (client, _):
            scope.cancel()
            await client.until(lambda _: False)
    assert scope.cancelled_caught


async def test_an_error_answer_raises_its_code() -> None:
    async with connected() as (client, peer):
        peer.writer.write(b'{"id":0,"error":{"code":-32002,"message":"unknown"}}\n')
        with pytest.raises(RpcError) as raised:
            await client.request("m", {})
        assert raised.value.code == -32002


async def test_what_a_full_pipe_does_not_take_is_sent_in_order_later() -> None:
    async with connected() as (client, peer):
        client.send_raw(b"x" * 300_000 + b"\n")
        client.send_raw(b"last\n")
        assert client.pipe.unsent_bytes > 0
        lines = await anyio.to_thread.run_sync(lambda: [peer.reader.readline() for _ in "12"])
        assert [len(line) for line in lines] == [300_001, 5]


async def test_a_client_that_pauses_reads_nothing_until_it_resumes() -> None:
    async with connected() as (client, peer):
        client.pipe.pause_reading()
        peer.writer.write(b'{"method":"m"}\n')
        await anyio.wait_all_tasks_blocked()
        assert client.recording == []
        client.pipe.resume_reading()
        await client.until_request("m")


@pytest.mark.process
async def test_processes_are_found_by_their_mark_wherever_they_went(mark: str) -> None:
    command = ["sh", "-c", "sleep 1000 & echo started; exec sleep 1000"]
    async with RecordingClient.start(command, env={MARK: mark}) as client:
        await client.until_recorded(lambda: client.recording)
        # One in the middle of its exec shows no environment.
        await until(lambda: len(marked(mark)) >= 2)
        assert set(marked(mark)) <= set(descendants(os.getpid()))
        with pytest.raises(TimeoutError, match="sleep 1000"):
            await all_gone(mark, within=0.01)
        kill_marked(mark)
        assert await client.wait() == -signal.SIGKILL
        await all_gone(mark)


async def test_a_client_that_stops_reading_twice_reads_again() -> None:
    async with connected() as (client, peer):
        client.pipe.pause_reading()
        peer.writer.write(b'{"id":0}\n')
        for _ in range(5):  # the reader waits now
            await anyio.lowlevel.checkpoint()
        client.pipe.pause_reading()
        client.pipe.resume_reading()
        await client.until_recorded(lambda: len(client.recording))


async def test_a_gate_survives_one_that_is_gone_when_it_opens(
    gates: Gates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.support.gates._Waiter.is_gone", lambda self: False)
    gone = arrive(gates, "g")
    await gates.reached("g")
    gone.close()
    gates.open_for_good("g")


def test_the_log_of_agents_is_read_up_to_what_a_kill_has_cut_off(tmp_path: Path) -> None:
    log = FixtureLog(tmp_path / "log")
    log.path.write_text('\n{"event": "one"}\n\n{"event": "cut o\n{"event": "two"}\n\n{"ev')
    assert [event["event"] for event in log.events()] == ["one", "two"]
