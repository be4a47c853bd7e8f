"""The listener: who connects is served, or told why not; nothing is left behind it."""

import errno
import os
import shutil
import socket
import stat
import threading
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import anyio
import pytest

from acp_bridge.core.runtime import waits
from acp_bridge.core.wire.stdio import Reader, Writer
from acp_bridge.sharing.listening import listener as listening
from acp_bridge.sharing.listening import peers
from acp_bridge.sharing.listening.listener import MOST_CLIENTS, Listener
from acp_bridge.sharing.listening.places import new_socket_path, run_folder
from acp_bridge.sharing.listening.run_files import RunFile, live_bridges, this_bridge
from tests.sharing.listening.talk import Talk
from tests.support.waiting import until


class Joined:
    """Stands in for the bridge: whoever joins hears what it says, until it leaves."""

    def __init__(self) -> None:
        self.count = 0
        self.trouble: Exception | None = None
        self.gone = anyio.Event()

    async def join(self, incoming: Reader, outgoing: Writer) -> None:
        self.count += 1
        if self.trouble:
            raise self.trouble
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(outgoing.run)
            while data := await incoming.read():
                outgoing.write(data)
            tasks.cancel_scope.cancel()
        self.gone.set()


class World:
    """A listener that listens, and whoever joins."""

    def __init__(self, listener: Listener, joined: Joined, scope: anyio.CancelScope) -> None:
        self.listener, self.joined, self.scope = listener, joined, scope
        self.ended = anyio.Event()
        self.talks: list[Talk] = []

    def talk(self, path: str | Path | None = None) -> Talk:
        """Connect; the connection is closed behind the test."""
        self.talks.append(Talk(path or self.path))
        return self.talks[-1]

    @property
    def path(self) -> Path:
        assert self.listener.bound
        assert self.listener.bound.path
        return self.listener.bound.path


@asynccontextmanager
async def listens(home: Path) -> AsyncIterator[World]:
    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            joined, path = Joined(), new_socket_path(home, os.environ)
            listener = Listener(tasks, home, path, "codex", joined.join)
            world = World(listener, joined, anyio.CancelScope())

            async def run() -> None:
                with world.scope:
                    await listener.run()
                world.ended.set()

            tasks.start_soon(run)
            await listener.settled.wait()
            try:
                yield world
            finally:
                for talk in world.talks:
                    talk.close()
                tasks.cancel_scope.cancel()


async def test_who_connects_is_served_on_a_socket_that_is_the_user_s_alone(short: Path) -> None:
    async with listens(short) as it:
        assert it.path.parent == run_folder(short)
        assert stat.S_IMODE(it.path.stat().st_mode) == 0o600
        (listed,) = live_bridges(short)
        assert (listed.socket, listed.agent, listed.pid) == (str(it.path), "codex", os.getpid())
        talk = it.talk(listed.socket)
        talk.send(id=1)
        assert await talk.line() == {"jsonrpc": "2.0", "id": 1}
        talk.close()
        await it.joined.gone.wait()


async def test_what_a_killed_bridge_has_left_goes_when_the_next_one_listens(short: Path) -> None:
    dead = RunFile(short)
    dead.write(this_bridge(short / "s.sock", protocol=1, agent="dead", version="9"))
    dead.publish()
    os.close(dead._fd)  # it was killed
    async with listens(short) as it:
        assert len(os.listdir(run_folder(short))) == 2
        assert it.path in run_folder(short).iterdir()


async def test_a_long_home_listens_in_the_runtime_folder_and_is_listed_in_its_own(
    short: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(short))
    home = short / ("h" * 99)
    async with listens(home) as it:
        assert it.path.parent == short / "acp-bridge"
        (listed,) = live_bridges(home)
        it.talk(listed.socket).close()
        it.scope.cancel()
        await it.ended.wait()
        assert os.listdir(short / "acp-bridge") == []


async def test_at_the_end_socket_and_file_are_gone_and_who_is_served_stays(short: Path) -> None:
    async with listens(short) as it:
        path, talk = it.path, it.talk()
        talk.send(id=1)
        await talk.line()
        it.scope.cancel()
        await it.ended.wait()
        assert os.listdir(run_folder(short)) == []
        with pytest.raises(OSError, match="No such file"):
            it.talk(path)
        talk.send(id=2)
        assert await talk.line() == {"jsonrpc": "2.0", "id": 2}


@pytest.mark.hazard("V7.7")
@pytest.mark.parametrize("gone", ["folder", "socket", "run file", "replaced"])
async def test_a_socket_or_a_run_file_that_was_removed_is_made_again_at_the_next_look(
    short: Path, gone: str
) -> None:
    async with listens(short) as it:
        before, stays = it.path, it.talk()
        stays.send(id=1)
        await stays.line()
        if gone == "folder":
            shutil.rmtree(run_folder(short))
        for path in run_folder(short).iterdir() if gone != "folder" else ():
            if gone != "run file" or path != before:
                path.unlink()
            if gone == "replaced":
                path.write_text("")
        it.listener.look_again()
        await until(lambda: [each.socket for each in live_bridges(short)] == [str(before)])
        talk = it.talk(before)
        talk.send(id=2)
        assert await talk.line()
        stays.send(id=3)
        assert await stays.line() == {"jsonrpc": "2.0", "id": 3}
        assert len(os.listdir(run_folder(short))) == 2


async def test_where_a_socket_stands_is_looked_at_without_anybody_s_word_too(
    short: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waits, "STANDING", 0.01)
    run_folder(short).write_text("")  # no place at first
    async with listens(short) as it:
        assert it.listener.bound is None
        run_folder(short).unlink()
        await until(lambda: live_bridges(short))
        shutil.rmtree(run_folder(short))
        await until(lambda: live_bridges(short) and it.listener.bound)
        it.talk().close()


@pytest.mark.hazard("V6")
async def test_who_may_not_connect_is_told_why_and_joins_nothing(
    short: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def check(*_: object) -> None:
        raise peers.Refused("no, because")

    async with listens(short) as it:
        monkeypatch.setattr(peers, "check", check)
        for _ in range(3):
            talk = it.talk()
            talk.send(id=1, method="initialize", params={})
            assert await talk.refusal() == "no, because"
        monkeypatch.undo()
        talk = it.talk()
        talk.send(id=1)
        assert await talk.line()
        assert it.joined.count == 1


@pytest.mark.hazard("V6.6")
async def test_a_peer_that_nobody_can_look_at_in_time_is_refused(
    short: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = threading.Event()
    monkeypatch.setattr(waits, "PEER", 0.01)
    async with listens(short) as it:
        try:
            monkeypatch.setattr(peers, "check", lambda *_: looked.wait())
            assert await it.talk().refusal() == peers.UNSEEN
        finally:
            looked.set()
        assert it.joined.count == 0


async def test_one_more_than_the_most_is_told_so_until_another_leaves(short: Path) -> None:
    async with listens(short) as it:
        talks = [it.talk() for _ in range(MOST_CLIENTS)]
        for talk in talks:
            talk.send(id=1)
            assert await talk.line()
        assert "64 clients" in await it.talk().refusal()
        talks.pop().close()
        await it.joined.gone.wait()
        last = it.talk()
        last.send(id=2)
        assert await last.line()


async def test_a_client_that_can_not_be_served_ends_nothing_else(short: Path) -> None:
    async with listens(short) as it:
        it.joined.trouble = RuntimeError("a bug")
        assert await it.talk().line() is None
        it.joined.trouble = None
        talk = it.talk()
        talk.send(id=1)
        assert await talk.line()


async def test_after_a_moment_without_descriptors_clients_are_accepted_again(
    short: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening, "_NO_ROOM", 0)
    async with AsyncExitStack() as stack:
        it = await stack.enter_async_context(listens(short))
        real, failed = socket.socket.accept, list[int]()

        def accept(self: socket.socket) -> tuple[socket.socket, object]:
            if not failed:
                failed.append(1)
                raise OSError(errno.EMFILE, "too many")
            return real(self)

        monkeypatch.setattr(socket.socket, "accept", accept)
        talk = it.talk()
        talk.send(id=1)
        assert await talk.line()
        assert failed


@pytest.mark.parametrize("why", ["file", "link", "bind"])
async def test_a_home_that_has_no_place_for_a_socket_costs_the_socket_alone(
    short: Path, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def bind(self: socket.socket, path: str) -> None:
        raise PermissionError(errno.EPERM, "no sockets here")

    if why == "file":
        run_folder(short).write_text("")
    elif why == "link":
        run_folder(short).symlink_to(short)
    else:
        monkeypatch.setattr(socket.socket, "bind", bind)
    async with listens(short) as it:
        assert it.listener.bound is None
        assert not it.ended.is_set()
    assert live_bridges(short) == []
    if why == "bind":
        assert os.listdir(run_folder(short)) == []
