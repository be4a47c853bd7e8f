"""Bridges that run, what killed ones have left, and who holds a session: seen, and left alone."""

import fcntl
import json
import os
import socket
from pathlib import Path

import pytest

from acp_bridge import __version__
from acp_bridge.core.agents.holder import Holder, write_holder
from acp_bridge.sharing.listening.run_files import Listed, LiveBridge, RunFile, listed, this_bridge
from acp_bridge.terminal.doctor import bridges
from acp_bridge.terminal.doctor.bridges import Held, held_sessions
from acp_bridge.terminal.shared.live import Answer
from tests.terminal.doctor.subjects import levels, subject, texts

SESSION = "3f2a" + "0" * 28


def bridge(socket: str = "/run/s.sock", version: str = __version__) -> LiveBridge:
    return LiveBridge(4711, "host", socket, 1, "codex", version)


def published(home: Path) -> RunFile:
    file = RunFile(home)
    file.write(this_bridge(home / "run" / "s.sock", protocol=1, agent="codex", version="9"))
    file.publish()
    return file


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    path = tmp_path / "sessions" / f"{SESSION}.lock"
    path.parent.mkdir()
    path.touch()
    return path


async def test_without_any_bridge_all_is_well_and_nothing_is_made(tmp_path: Path) -> None:
    found = await bridges.check(subject(tmp_path / "none"))
    assert (levels(found), texts(found)) == (["ok"], "no acp-bridge runs now -> ")
    assert os.listdir(tmp_path) == []


def test_what_killed_bridges_have_left_is_seen_and_stays(tmp_path: Path) -> None:
    live = published(tmp_path)
    run = tmp_path / "run"
    (run / "dead.json").write_text(json.dumps({"pid": 1}))
    (run / "new.draft").write_text("")
    (run / "s.sock").touch()
    before = sorted(os.listdir(run))
    found = listed(tmp_path)
    assert [each.agent for each in found.live] == ["codex"]
    assert found.dead == [None]
    assert found.sockets == [str(run / "s.sock")]
    assert sorted(os.listdir(run)) == before
    live.remove()


def test_run_files_of_killed_bridges_are_told_and_so_are_sockets_of_none(tmp_path: Path) -> None:
    stray, known = tmp_path / "stray.sock", tmp_path / "known.sock"
    for path in (stray, known):
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(path))
    sockets = [str(stray), str(known)]
    assert levels(bridges.left(Listed([], [bridge(str(known))], sockets))) == ["ok"]  # it is new
    for path in (stray, known):
        os.utime(path, (1, 1))
    found = bridges.left(Listed([], [bridge(str(known))], sockets))
    assert levels(found) == ["ok", "warning"]
    assert "the next bridge removes them" in texts(found)
    assert f"without a bridge: {stray} ->" in texts(found)


def test_a_bridge_is_told_with_the_sessions_that_it_holds() -> None:
    held = [Held(SESSION, "/run/s.sock", 4711), Held("b" * 32, "/run/other.sock", 1)]
    (found,) = bridges.running([Answer(bridge(), [])], held)
    assert (found.level.value, found.text) == ("ok", "process 4711 (codex) holds session 3f2a0000")
    assert found.data["sessions"] == [SESSION]


def test_one_that_is_silent_or_of_another_version_is_a_warning() -> None:
    silent, other = bridges.running(
        [Answer(bridge(), None), Answer(bridge(version="0.0.1"), [])], []
    )
    assert (silent.level.value, "kill 4711" in silent.next) == ("warning", True)
    assert "kill -9 4711" in silent.next  # what is stopped takes no other
    assert (other.level.value, "of version 0.0.1" in other.text) == ("warning", True)


def test_a_session_that_is_held_is_told_with_its_holder_and_its_process(lock: Path) -> None:
    home = lock.parent.parent
    assert held_sessions(home) == []
    fd = os.open(lock, os.O_RDWR)
    fcntl.flock(fd, fcntl.LOCK_EX)
    assert held_sessions(home) == [Held(SESSION, None, os.getpid())]
    write_holder(fd, Holder("/run/s.sock", 1, "codex"))
    assert held_sessions(home) == [Held(SESSION, "/run/s.sock", os.getpid())]
    os.close(fd)
    assert held_sessions(home) == []


def test_a_session_of_a_bridge_that_does_not_listen_is_well_and_one_of_a_dead_one_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bridges, "is_alive", lambda pid: pid == 77)
    assert bridges.others([bridge()], [Held(SESSION, "/run/s.sock", 1)]) == []
    held = [Held(SESSION, None, 77), Held("b" * 32, "/x", 78), Held("c" * 32, None, None)]
    nameless, lives, dead = bridges.others([bridge()], held)
    assert (lives.level.value, dead.level.value, nameless.level.value) == (
        "ok",
        "warning",
        "warning",
    )
    assert "process 77" in lives.text
    assert "no socket (--no-listen), holds session 3f2a0000" in lives.text
    assert "what process 78 has left, which has ended, holds session bbbbbbbb" in dead.text
    assert "holds session cccccccc" in nameless.text


def test_a_folder_whose_path_is_too_long_for_a_socket_is_no_trouble_by_itself(
    tmp_path: Path,
) -> None:
    assert bridges.sockets(tmp_path / ("x" * 200), subject(tmp_path)) == []
