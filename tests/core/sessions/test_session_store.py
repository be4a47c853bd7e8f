"""Sessions of the journal are made, opened and erased under their lock, or not at all."""

import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from acp_bridge.core.agents import lease
from acp_bridge.core.agents.identity import AgentIdentity
from acp_bridge.core.journal import Journal, JournalError, SessionExists, SessionJournal
from acp_bridge.core.session.opening import Workspace
from acp_bridge.core.session.session import Session
from acp_bridge.core.sessions.session_store import SessionStore
from acp_bridge.core.wire.jsonrpc import RpcError
from tests.core.sessions.agent import Agent
from tests.core.sessions.world import Stepped, World, world

HERE = Workspace("/w")


class Kept(World):
    """A world, its store, and a process for a session."""

    async def create(self, session_id: str = "s") -> Session:
        """Create a session of the agent's session "0"."""
        link = await self.pool.take()
        link.agent_session_id = "0"
        session = await self.store.create(session_id, HERE, link)
        link.adopt(session.from_agent)
        return session

    async def do(self, what: str, session_id: str = "s") -> Session | None:
        """Create, open or erase a session."""
        if what == "create":
            return await self.create(session_id)
        if what == "open":
            return await self.store.open(session_id, HERE)
        await self.store.erase(session_id, known=False)
        return None

    @property
    def store(self) -> SessionStore:
        return SessionStore(self.context, self.pool)

    async def keep(self, session_id: str = "s") -> None:
        """Leave a session of this agent in the journal."""
        await (await self.journal.create(session_id, cwd="/w", agent="agent")).close()

    async def is_closed(self, session_id: str = "s") -> bool:
        """Return True when the lock is free, and the file has no log of open changes."""
        path = self.journal.path(session_id)
        return await self.is_free(session_id) and not list(path.parent.glob("*-wal"))


@asynccontextmanager
async def kept(home: Path) -> AsyncIterator[Kept]:
    async with world(home, Agent()) as it:
        yield Kept(it.context, it.bound)


def failing(*args: object, **given: object) -> Any:
    raise JournalError("the disk is full")


async def failing_soon(*args: object, **given: object) -> Any:
    raise JournalError("the disk is full")


# --- create ----------------------------------------------------------------------------------


@pytest.mark.hazard("K3", "P12")
async def test_a_new_session_is_locked_by_the_bridge_and_by_its_process(tmp_path: Path) -> None:
    async with kept(tmp_path) as it:
        session = await it.create()
        assert it.journal.path("s").is_file()
        assert (session.journal.info.agent, session.journal.info.agent_session_id) == ("agent", "0")
        assert not await it.is_free("s")
        os.close(session._lease)  # as the kernel does for a bridge that is killed
        assert not await it.is_free("s")
        it.agent.processes[0].dies()
        assert await it.is_free("s")
        session._lease = os.open(os.devnull, os.O_RDONLY)
        session.close()
        await session.closed.wait()
        assert await it.is_closed()


@pytest.mark.parametrize(
    ("where", "what"),
    [
        (Journal, "prepare"),
        (lease, "acquire"),
        (Journal, "create"),
        (SessionJournal, "used_ids"),
        (SessionJournal, "get"),
    ],
)
@pytest.mark.hazard("Q8", "K3")
async def test_a_journal_that_fails_while_a_session_is_made_leaves_nothing_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: Any, what: str
) -> None:
    async with kept(tmp_path) as it:
        with monkeypatch.context() as patch:
            patch.setattr(where, what, failing if where is SessionJournal else failing_soon)
            with pytest.raises(RpcError, match="the journal can't be written") as caught:
                await it.create()
        assert caught.value.code == -32603
        assert "disk" not in caught.value.message
        assert await it.is_closed()
        assert await it.listed() == []
        assert await it.create()


async def test_a_session_that_is_there_already_is_not_made_again(tmp_path: Path) -> None:
    async with kept(tmp_path) as it:
        await it.keep()
        with pytest.raises(SessionExists):
            await it.create()
        assert await it.is_closed()
        assert await it.listed() == ["s"]


# --- open ------------------------------------------------------------------------------------


@pytest.mark.hazard("K3", "P12")
async def test_a_session_is_opened_under_its_lock_and_closed_with_it(tmp_path: Path) -> None:
    async with kept(tmp_path) as it:
        await it.keep()
        session = await it.store.open("s", HERE)
        assert session is not None
        assert session.link is None
        assert not await it.is_free("s")
        session.close()
        await session.closed.wait()
        assert await it.is_closed()


@pytest.mark.hazard("R2.1")
async def test_a_session_that_the_journal_does_not_have_is_none_and_leaves_no_file(
    tmp_path: Path,
) -> None:
    async with kept(tmp_path) as it:
        for session_id in ("s", "", "../s", "\ud800", "a" * 9999):
            assert await it.store.open(session_id, HERE) is None
        assert os.listdir(tmp_path) == []


@pytest.mark.hazard("R2.1", "K3")
async def test_a_session_that_is_deleted_while_its_lock_is_waited_for_is_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with kept(tmp_path) as it:
        await it.keep()

        async def late(path: Path, timeout: float) -> int:  # noqa: ASYNC109
            await Journal(tmp_path).delete("s", known=True)
            return await acquire(path, timeout)

        acquire = lease.acquire
        monkeypatch.setattr(lease, "acquire", late)
        assert await it.store.open("s", HERE) is None
        assert await it.is_closed()


@pytest.mark.hazard("R8.2", "R3")
async def test_a_session_of_another_agent_is_refused_by_name_and_stays_as_it_was(
    tmp_path: Path,
) -> None:
    async with kept(tmp_path) as it:
        await (await it.journal.create("s", cwd="/v", agent="other")).close()
        with pytest.raises(RpcError, match="belongs to the agent 'other', this is 'agent'"):
            await it.store.open("s", HERE)
        assert await it.is_closed()
        rows, _ = await it.journal.list()
        assert [(row.agent, row.cwd) for row in rows] == [("other", "/v")]


@pytest.mark.hazard("R5")
async def test_a_session_that_is_opened_in_another_folder_is_listed_there(tmp_path: Path) -> None:
    async with kept(tmp_path) as it:
        await it.keep()
        session = await it.store.open("s", Workspace("/v"))
        assert session is not None
        rows, _ = await it.journal.list()
        assert [row.cwd for row in rows] == [session.workspace.cwd] == ["/v"]


@pytest.mark.hazard("R3", "K3")
@pytest.mark.parametrize(
    ("where", "what"),
    [
        (Journal, "prepare"),
        (lease, "acquire"),
        (Journal, "open"),
        (Journal, "touch"),
        (SessionJournal, "used_ids"),
        (SessionJournal, "get"),
        (SessionJournal, "prompts"),
        (SessionJournal, "recover"),
    ],
)
async def test_a_session_whose_journal_fails_is_not_open_and_can_be_opened_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: Any, what: str
) -> None:
    async with kept(tmp_path) as it:
        await it.keep()
        elsewhere = Workspace("/v")
        with monkeypatch.context() as patch:
            patch.setattr(where, what, failing if where is SessionJournal else failing_soon)
            with pytest.raises(RpcError, match=r"the (session's )?journal can't be") as caught:
                await it.store.open("s", elsewhere)
        assert caught.value.code == -32603
        assert "disk" not in caught.value.message
        assert "`acp-bridge doctor`" in caught.value.message
        assert "`acp-bridge show s`" in caught.value.message
        assert await it.is_closed()
        assert await it.store.open("s", elsewhere)


# --- erase, and another bridge ---------------------------------------------------------------


@pytest.mark.hazard("K3.1", "P12")
@pytest.mark.parametrize("what", ["create", "open", "erase"])
async def test_a_session_that_another_bridge_holds_is_refused_and_left_alone(
    tmp_path: Path, what: str
) -> None:
    async with kept(tmp_path) as it:
        if what != "create":
            await it.keep()
        await it.journal.prepare()
        others = await lease.acquire(it.journal.lock_path("s"), 0)
        with pytest.raises(RpcError, match="open in another acp-bridge") as caught:
            await it.do(what)
        assert caught.value.code == -32600
        assert await it.listed() == ([] if what == "create" else ["s"])
        os.close(others)
        assert await it.is_closed()


@pytest.mark.parametrize("known", [True, False])
async def test_an_erased_session_is_gone_and_its_agents_id_is_known_if_that_is_asked_for(
    tmp_path: Path, known: bool
) -> None:
    async with kept(tmp_path) as it:
        session = await it.create()
        session.close()
        await session.closed.wait()
        await it.store.erase("s", known=known)
        assert await it.listed() == []
        assert await it.journal.known_agent_ids(AgentIdentity("agent")) == (
            {"0", "s"} if known else set()
        )
        assert os.listdir(tmp_path / "sessions") == []
        await it.store.erase("s", known=known)  # an unknown one is no error
        assert os.listdir(tmp_path / "sessions") == []


@pytest.mark.hazard("Q8")
async def test_an_erasure_that_fails_lets_go_of_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with kept(tmp_path) as it:
        await it.keep()
        with monkeypatch.context() as patch:
            patch.setattr(Journal, "delete", failing_soon)
            with pytest.raises(JournalError):
                await it.store.erase("s", known=True)
        assert await it.is_free("s")
        await it.store.erase("s", known=True)


@pytest.mark.hazard("Q8.1", "K3")
@pytest.mark.parametrize("what", ["create", "open", "erase"])
async def test_a_caller_that_is_cancelled_at_any_moment_leaves_the_session_free(
    tmp_path: Path, what: str
) -> None:
    async with kept(tmp_path) as it:
        for number in it.moments():
            session_id, scope = f"s{number}", anyio.CancelScope()
            if what != "create":
                await it.keep(session_id)
            session: Session | None = None
            with scope:
                session = await Stepped(it.do(what, session_id), number, scope.cancel)
            if session:
                session.close()
                await session.closed.wait()
            elif what == "create":
                assert await it.listed() == []
            assert await it.is_closed(session_id)
            if not scope.cancel_called:
                break
        assert number > 2


# --- what a kill has left ----------------------------------------------------------------------


def cut_off(it: Kept, session_id: str, *, days: float) -> list[Path]:
    """Leave what a kill leaves of a file that is made; returns the files, the lock's last."""
    path, lock = it.journal.path(session_id), it.journal.lock_path(session_id)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    endings = ("", "-wal", "-shm", "-journal")
    files = [*(path.with_name(f"{path.stem}.new{each}") for each in endings), lock]
    for file in files:
        file.touch()
        os.utime(file, (time.time() - days * 86400,) * 2)
    return files


@pytest.mark.hazard("K3")
async def test_a_file_whose_making_was_cut_off_is_removed_a_day_later_unless_somebody_makes_it(
    tmp_path: Path,
) -> None:
    async with kept(tmp_path) as it:
        old, young = cut_off(it, "old", days=1.1), cut_off(it, "young", days=0.9)
        made = cut_off(it, "made", days=2)
        maker = await lease.acquire(it.journal.lock_path("made"), 0)
        await it.keep("whole")
        beside = cut_off(it, "whole", days=2)
        await it.store._sweep()
        os.close(maker)
        assert not any(each.exists() for each in (*old, *beside[:-1]))
        assert all(each.exists() for each in (*young, *made, beside[-1]))
        assert set(await it.listed()) >= {"whole"}
