"""The journal of a process that was killed, of several at once, and of one without space."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import anyio
import pytest

from acp_bridge.core.journal import Journal, PromptState, SessionExists, files
from acp_bridge.core.journal.connection import connect, wal_of
from acp_bridge.core.journal.files import read_info
from acp_bridge.core.journal.schema import sync_path
from tests.core.journal.sayings import text_of, transcript

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[4]
WRITER = "tests.core.journal.process.writer"


@contextmanager
def writer(home: Path, session: str, how: str) -> Iterator[IO[str]]:
    """The words that a writer says; it is killed at the end."""
    command = [sys.executable, "-m", WRITER, str(home), session, how]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout
        finally:
            process.kill()


def words_until(told: IO[str], number: int) -> list[str]:
    """What it says up to a number, the kill, and what was still in the pipe."""
    words = []
    for word in told:
        words.append(word.strip())
        if words[-1] == str(number):
            break
    return words


@pytest.mark.hazard("K1.3", "K2", "Q6", "R12")
@pytest.mark.parametrize("count", [1, 299, 310, 2222])
async def test_all_that_a_killed_writer_had_committed_is_there(home: Path, count: int) -> None:
    with writer(home, "s", "stream") as told:
        words = words_until(told, count)
    journal = Journal(home)
    session = await journal.open("s")
    shown = "".join(map(text_of, await transcript(session))).split()
    assert len(shown) > int(words[-1])
    assert shown == [str(number) for number in range(len(shown))]
    held = await session.recover()
    last = session.prompts()[-1]
    assert last.params == {"prompt": (last.seq - 1) * 300}
    assert all(
        prompt.state in (PromptState.DONE, PromptState.LEFT_OVER) for prompt in session.prompts()
    )
    interrupted = [p for p in session.prompts() if p.outcome == {"interrupted": True}]
    assert len(interrupted) + len(held) <= 1
    await session.compact(last.seq)
    assert "".join(map(text_of, await transcript(session))).split() == shown
    await journal.close()


def damage_index(home: Path) -> None:
    home.mkdir()
    (home / "index.db").write_bytes(b"no database" * 1000)


@pytest.mark.hazard("K2")
@pytest.mark.parametrize("damaged", [False, True])
async def test_bridges_that_start_at_the_same_time_share_one_listing(
    home: Path, damaged: bool
) -> None:
    if damaged:
        damage_index(home)
    names = ["s0", "s1"]
    command = [sys.executable, "-m", WRITER, str(home)]
    processes = [
        subprocess.Popen([*command, name, "list"], cwd=ROOT, stdout=subprocess.PIPE)  # noqa: ASYNC220
        for name in names
    ]
    for process in processes:
        assert process.communicate(timeout=20)[0] == b"ready\n"
        assert process.returncode == 0
    journal = Journal(home)
    assert sorted(row.session_id for row in (await journal.list())[0]) == names
    await journal.close()


async def test_a_disk_that_takes_no_more_stops_no_bridge_and_loses_nothing(home: Path) -> None:
    with writer(home, "s", "fill") as told:
        ready, count, last = told.read().split("\n", 2)
    assert (ready, last) == ("ready", "went on\n")
    journal = Journal(home)
    session = await journal.open("s")
    shown = "".join(map(text_of, await transcript(session))).split()
    assert shown == [str(number) for number in range(int(count) + 1)]
    assert session.prompts() == []
    await journal.close()


@pytest.mark.hazard("Q13")
async def test_a_look_into_a_new_session_s_file_takes_nothing_from_it(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own bridge looks into the folder while the file is made, and another one right after."""
    looking = []

    def sync(path: Path) -> None:
        for each in sorted((home / "sessions").glob("*.db")):
            looking.append(connection := connect(each, wait=1))
            connection.execute("SELECT count(*) FROM sqlite_master").fetchall()
        sync_path(path)

    monkeypatch.setattr(files, "sync_path", sync)
    session = await Journal(home).create("s", cwd="/", agent="a")
    for connection in looking:
        connection.close()
    look = f"import sys; from {read_info.__module__} import *; read_info(Path(sys.argv[1]))"
    path = Journal(home).path("s")
    await anyio.run_process([sys.executable, "-c", look, str(path)], cwd=ROOT)
    assert not session.gone
    assert session.accept("p", {"prompt": 1}) == 1


async def test_a_file_that_a_kill_left_half_made_gives_way(home: Path) -> None:
    await Journal(home).prepare()
    path = Journal(home).path("s")
    path.touch()
    wal_of(path).write_bytes(b"x" * 4096)
    session = await Journal(home).create("s", cwd="/", agent="a")
    assert session.accept("p", {"prompt": 1}) == 1
    assert not session.gone
    with pytest.raises(SessionExists):
        await Journal(home).create("s", cwd="/", agent="a")
