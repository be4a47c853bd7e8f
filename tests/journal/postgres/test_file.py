"""A session's writes while its database is away, and when it is there again."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from acp_bridge.journal import Journal, SessionJournal
from acp_bridge.journal.errors import DatabaseAway
from acp_bridge.journal.postgres import log
from acp_bridge.journal.postgres.connection import Database
from acp_bridge.journal.postgres.files import opened
from acp_bridge.journal.reading import transcript
from acp_bridge.settings import DatabaseUrl
from tests.support.waiting import until

SESSION = "s"


class Way:
    """The way of writes into the log, which can be cut and barred."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._put = log.put
        self.cut = False
        self.bar = anyio.Event()
        self.bar.set()
        self.waits = 0
        monkeypatch.setattr(log, "put", self.put)
        monkeypatch.setattr(Database, "_kept", self.kept)

    async def kept(self, *_: Any) -> None:
        if self.cut:
            raise DatabaseAway("cut")

    async def put(self, *args: Any) -> bool:
        self.waits += 1
        await self.bar.wait()
        self.waits -= 1
        return await self._put(*args)


@pytest.fixture
def way(monkeypatch: pytest.MonkeyPatch) -> Way:
    return Way(monkeypatch)


@asynccontextmanager
async def bridge(url: DatabaseUrl, home: Path) -> AsyncIterator[Journal]:
    def follow(until: float | None) -> None:
        pass

    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            async with opened(url, home, 60, tasks, follow) as journal:
                yield journal
                await journal.close()
            tasks.cancel_scope.cancel()


async def began(journal: Journal) -> SessionJournal:
    """A session with one prompt, whose turn has begun."""
    session = await journal.create(SESSION, cwd="/x", agent="a")
    await session.sync()
    return session


def says(text: str) -> bytes:
    """What the agent says, as the journal records it."""
    head = '{"update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":'
    return f'{head}"{text}"}}}}}}'.encode()


async def said(url: DatabaseUrl, home: Path) -> str:
    """What the session says on another machine."""
    async with bridge(url, home) as journal:
        await journal.open(SESSION)
        return said_in(home)


def said_in(home: Path) -> str:
    """What its copy in a data folder says."""
    (copies,) = home.glob("databases/*")
    return "".join(each["update"]["content"]["text"] for each in transcript(copies, SESSION))


async def is_true(look: Callable[[], object]) -> None:
    await until(look, 10)


async def test_what_is_said_while_what_was_kept_is_made_is_made_too(
    database: DatabaseUrl, tmp_path: Path, way: Way
) -> None:
    async with bridge(database, tmp_path / "here") as journal:
        session = await began(journal)
        session.record(1, says("one "))
        await is_true(lambda: not session.in_flight)
        way.cut = True
        session.record(1, says("two "))
        await is_true(lambda: session.behind)
        way.cut, way.bar = False, anyio.Event()
        await is_true(lambda: way.waits)
        session.record(1, says("three "))
        way.bar.set()
        await is_true(lambda: not session.behind)
        session.record(1, says("four "))
        await session.sync()
    assert await said(database, tmp_path / "there") == "one two three four "
