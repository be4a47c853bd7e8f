"""The data folder and what is kept there: looked at, and never touched."""

import errno
import os
import sqlite3
import sys
from pathlib import Path
from typing import NoReturn

import pytest

from acp_bridge.core.journal import Journal
from acp_bridge.terminal.doctor import data_folder, looking, sessions
from acp_bridge.terminal.doctor.data_folder import Space, fsync_took, rights, room, size
from acp_bridge.terminal.doctor.looking import IndexState, Sessions, index_state, look_at_sessions
from tests.terminal.doctor.subjects import levels, subject, texts

LOTS = Space(10**12, 10**6, read_only=False)


def tree(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    """Every file below a folder, with its mode, its time and its content."""
    return {
        str(path): (
            path.lstat().st_mode,
            path.lstat().st_mtime_ns,
            path.read_bytes() if path.is_file() else b"",
        )
        for path in [folder, *sorted(folder.rglob("*"))]
    }


async def test_a_folder_that_is_not_there_is_well_and_stays_so(tmp_path: Path) -> None:
    home = tmp_path / "none" / "home"
    found = [*await data_folder.check(subject(home)), *await sessions.check(subject(home))]
    assert set(levels(found)) == {"ok"}
    assert os.listdir(tmp_path) == []


async def test_a_folder_that_can_not_be_made_or_is_none_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for home in (tmp_path / "file", tmp_path / "file" / "home"):
        assert levels(await data_folder.check(subject(home))) == ["error"]


async def test_a_folder_that_is_there_is_timed_and_nothing_in_it_changes(tmp_path: Path) -> None:
    os.chmod(tmp_path, 0o700)
    os.utime(tmp_path, ns=(1, 1))
    found = await data_folder.check(subject(tmp_path))
    assert "yours alone" in texts(found)
    assert "fsyncMs" in found[-1].data
    assert os.listdir(tmp_path) == []


@pytest.mark.hazard("S3")
async def test_others_who_may_write_there_are_a_warning(tmp_path: Path) -> None:
    os.chmod(tmp_path, 0o775)
    found = await data_folder.check(subject(tmp_path))
    assert levels(found)[0] == "warning"
    assert found[0].next == f"chmod 700 {tmp_path}"
    os.chmod(tmp_path, 0o755)
    found = await data_folder.check(subject(tmp_path))
    assert levels(found)[0] == "ok"
    assert "others may see which files" in found[0].text


def test_a_folder_that_can_not_be_used_is_an_error(tmp_path: Path) -> None:
    assert rights(tmp_path, tmp_path.stat(), usable=False).level.value == "error"
    if os.geteuid() == 0:
        os.chown(tmp_path, 4711, -1)
        assert "another user" in rights(tmp_path, tmp_path.stat(), usable=True).text


@pytest.mark.parametrize(
    ("space", "level", "told"),
    [
        (LOTS, "ok", "1 TB free"),
        (Space(10**8, 10, read_only=False), "warning", "nearly full (100 MB free)"),
        (Space(10**5, 10, read_only=False), "error", "full (100 KB free)"),
        (Space(10**12, 0, read_only=False), "error", "no more files"),
        (Space(10**12, None, read_only=False), "ok", "free"),
        (Space(10**12, 10, read_only=True), "error", "read-only"),
    ],
)
def test_the_disk_is_judged_by_its_room(space: Space, level: str, told: str) -> None:
    found = room(Path("/h"), space)
    assert (found.level.value, told in found.text) == (level, True)


async def test_a_disk_that_takes_nothing_is_an_error_and_one_that_is_read_only_is_one_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(fd: int) -> NoReturn:
        raise OSError(errno.ENOSPC, "No space left on device")

    os.chmod(tmp_path, 0o700)
    monkeypatch.setattr(os, "fsync", full)
    found = await data_folder.check(subject(tmp_path))
    assert levels(found) == ["ok", "ok", "error"]
    assert "can't be written: No space left on device" in texts(found)
    assert os.listdir(tmp_path) == []
    read_only = Space(10**12, 10, read_only=True)
    monkeypatch.setattr(data_folder, "_space", lambda folder: read_only)
    assert levels(await data_folder.check(subject(tmp_path))) == ["error"]


@pytest.mark.skipif(sys.platform != "linux", reason="there is no /proc")
@pytest.mark.parametrize("home", ["/proc", "/proc/none/home", "/sys"])
async def test_a_folder_on_no_disk_is_one_error_that_speaks_of_no_full_disk(home: str) -> None:
    found = await data_folder.check(subject(Path(home)))
    assert levels(found) == ["error"]
    assert "on no disk" in found[0].text
    assert found[0].next == "choose another folder with --home or ACP_BRIDGE_HOME"


async def test_a_disk_that_does_not_tell_its_size_is_well_if_it_takes_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.chmod(tmp_path, 0o700)
    monkeypatch.setattr(data_folder, "_space", lambda folder: Space(None, None, read_only=False))
    found = [
        *await data_folder.check(subject(tmp_path)),
        *await data_folder.check(subject(tmp_path / "none" / "home")),
    ]
    assert set(levels(found)) == {"ok"}
    assert os.listdir(tmp_path) == []


def test_a_slow_disk_is_a_warning() -> None:
    assert fsync_took(0.005).level.value == "ok"
    assert fsync_took(0.5).level.value == "warning"
    assert fsync_took(0.005).text == "an fsync takes 5.0 ms"


def test_sizes_are_told_in_units() -> None:
    assert [size(n) for n in (12, 1500, 2_340_000)] == ["12 bytes", "1.5 KB", "2.34 MB"]


async def test_sessions_are_counted_beside_a_bridge_that_has_them_open_and_left_as_they_are(
    tmp_path: Path,
) -> None:
    journal = Journal(tmp_path)
    try:
        for number in range(3):
            await journal.create(f"{number}" * 32, cwd="/w", agent="a")
            await journal.touch(f"{number}" * 32, title="t")
        before = tree(tmp_path)
        found = await sessions.check(subject(tmp_path))
        after = tree(tmp_path)
    finally:
        await journal.close()
    assert levels(found) == ["ok", "ok"]
    assert "3 sessions, " in texts(found)
    assert {name: seen for name, seen in after.items() if not name.endswith("-shm")} == {
        name: seen for name, seen in before.items() if not name.endswith("-shm")
    }


@pytest.mark.parametrize(
    ("kind", "state"),
    [
        ("none", IndexState.MISSING),
        ("garbage", IndexState.DAMAGED),
        ("empty", IndexState.DAMAGED),
        ("without its table", IndexState.DAMAGED),
        ("cut", IndexState.DAMAGED),
        ("newer", IndexState.NEWER),
        ("whole", IndexState.WHOLE),
        ("folder", IndexState.UNREADABLE),
        ("pipe", IndexState.UNREADABLE),
    ],
)
async def test_the_list_of_sessions_is_told_apart_and_not_mended(
    tmp_path: Path, kind: str, state: IndexState
) -> None:
    index = tmp_path / "index.db"
    journal = Journal(tmp_path)
    await journal.create("a" * 32, cwd="/w", agent="a")
    await journal.touch("a" * 32, title="t")
    await journal.close()
    match kind:
        case "none":
            index.unlink()
        case "garbage":
            index.write_bytes(b"no database at all" * 500)
        case "empty":
            index.write_bytes(b"")
        case "without its table":
            index.unlink()
            with sqlite3.connect(index) as db:
                db.execute("PRAGMA user_version=1")
            db.close()
        case "cut":
            index.write_bytes(index.read_bytes()[:1500])
        case "newer":
            with sqlite3.connect(index) as db:
                db.execute("PRAGMA user_version=99")
            db.close()
        case "folder":
            index.unlink()
            index.mkdir()
        case "pipe":
            index.unlink()
            os.mkfifo(index)
    before = tree(tmp_path)
    assert index_state(tmp_path) is state
    assert tree(tmp_path) == before
    assert sessions.index(tmp_path, state).level.value == {
        IndexState.DAMAGED: "warning",
        IndexState.NEWER: "error",
        IndexState.UNREADABLE: "error",
    }.get(state, "ok")


async def test_a_session_that_can_not_be_read_is_named_and_hides_no_other(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    await journal.create("a" * 32, cwd="/w", agent="a")
    await journal.touch("a" * 32, title="t")
    await journal.close()
    (tmp_path / "sessions" / "bad0bad0bad0.db").write_bytes(b"no database" * 99)
    found = look_at_sessions(tmp_path, 5)
    assert found.unreadable == ("bad0bad0bad0",)
    assert "bad0bad0" in texts(sessions.files(tmp_path, found))


async def test_what_holds_no_session_is_named_unless_it_is_just_being_made(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    await journal.create("a" * 32, cwd="/w", agent="a")
    await journal.close()
    folder = tmp_path / "sessions"
    for name in ("emptied.db", "new.db"):
        (folder / name).touch()
    os.utime(folder / "emptied.db", (1, 1))
    (folder / "folder.db").mkdir()
    os.mkfifo(folder / "pipe.db")
    (folder / "nowhere.db").symlink_to("nothing")
    (folder / "loop.db").symlink_to("loop.db")
    found = look_at_sessions(tmp_path, 5)
    assert found.unreadable == ("emptied", "folder", "loop", "nowhere", "pipe")
    assert (found.count, found.not_looked_at) == (7, 0)


async def test_a_listed_session_whose_file_is_gone_or_empty_is_named_at_once(
    tmp_path: Path,
) -> None:
    journal = Journal(tmp_path)
    for name in ("a", "b", "c"):
        await journal.create(name * 32, cwd="/w", agent="a")
        await journal.touch(name * 32, title="t")
    await journal.delete("c" * 32, known=True)
    await journal.close()
    (tmp_path / "sessions" / f"{'a' * 32}.db").unlink()
    emptied = tmp_path / "sessions" / f"{'b' * 32}.db"
    emptied.write_bytes(b"")
    found = look_at_sessions(tmp_path, 5)
    assert found.unreadable == ("a" * 32, "b" * 32)
    assert (found.count, found.not_looked_at) == (2, 0)
    assert "from a backup" in texts(sessions.files(tmp_path, found))


async def test_a_session_that_has_the_agent_s_id_is_looked_at_under_that_id(
    tmp_path: Path,
) -> None:
    journal = Journal(tmp_path)
    whole, gone = "3f0c5c6a-0a0b-4a2e-9f10-1e7f0ad40a11", "of the agent/2"
    for name in (whole, gone):
        await journal.create(name, cwd="/w", agent="a", agent_session_id=name)
    await journal.close()
    journal.path(gone).write_bytes(b"")
    found = look_at_sessions(tmp_path, 5)
    assert (found.count, found.unreadable) == (2, (gone,))


async def test_a_session_that_is_made_while_the_doctor_looks_is_not_said_to_be_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal(tmp_path)
    await journal.create("a" * 32, cwd="/w", agent="a")
    await journal.close()
    monkeypatch.setattr(looking, "_session_files", lambda folder: [])  # as it was a moment before
    found = look_at_sessions(tmp_path, 5)
    assert found.unreadable == ()


async def test_sessions_that_can_not_be_looked_at_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "sessions").write_text("no folder")
    (found,) = await sessions.check(subject(tmp_path))
    assert found.level.value == "error"
    assert f"{tmp_path}/sessions can't be looked at: Not a directory" in found.text


def test_what_there_was_no_time_for_is_said() -> None:
    found = sessions.files(Path("/h"), Sessions(9, 10, (), 4))
    assert "4 of them were not opened" in texts(found)
