"""Run files: who lives is told by a lock, and what a dead bridge has left is removed."""

import fcntl
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from acp_bridge.sharing.listening.places import run_folder
from acp_bridge.sharing.listening.run_files import LiveBridge, RunFile, live_bridges, this_bridge

#: Publishes a run file and keeps it until it is killed.
BRIDGE = """
import sys
from pathlib import Path
from acp_bridge.sharing.listening.run_files import RunFile, this_bridge
file = RunFile(Path(sys.argv[1]))
file.write(this_bridge(Path(sys.argv[2]), protocol=1, agent="other", version="0"))
if sys.argv[3] == "ready":
    file.publish()
print("there", flush=True)
sys.stdin.read()
"""


def described(home: Path, agent: str = "codex") -> LiveBridge:
    return this_bridge(home / "run" / "s.sock", protocol=1, agent=agent, version="9")


def published(home: Path, agent: str = "codex") -> RunFile:
    file = RunFile(home)
    file.write(described(home, agent))
    file.publish()
    return file


def left(home: Path) -> list[str]:
    return sorted(os.listdir(run_folder(home)))


def bound(path: Path) -> None:
    """Leave a socket behind, as a process that was killed does."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))


def test_a_home_without_a_run_folder_has_no_bridge(tmp_path: Path) -> None:
    assert live_bridges(tmp_path) == []
    assert os.listdir(tmp_path) == []


def test_a_bridge_is_listed_from_its_file_s_name_on_until_it_is_removed(tmp_path: Path) -> None:
    file = RunFile(tmp_path)
    assert live_bridges(tmp_path) == []
    file.write(described(tmp_path))
    assert live_bridges(tmp_path) == []
    file.publish()
    other = published(tmp_path, "other")
    assert {bridge.agent for bridge in live_bridges(tmp_path)} == {"codex", "other"}
    file.remove()
    assert live_bridges(tmp_path) == [described(tmp_path, "other")]
    other.remove()
    other.remove()
    assert left(tmp_path) == []


def test_what_is_told_of_a_bridge_has_its_process_and_its_host(tmp_path: Path) -> None:
    file = published(tmp_path)
    (found,) = live_bridges(tmp_path)
    assert (found.pid, found.host) == (os.getpid(), socket.gethostname())
    assert (found.socket, found.protocol) == (str(tmp_path / "run" / "s.sock"), 1)
    assert (found.agent, found.version) == ("codex", "9")
    file.remove()


def test_files_and_folder_are_the_user_s_alone(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir(mode=0o755)
    file = published(tmp_path)
    assert run_folder(tmp_path).stat().st_mode & 0o777 == 0o700
    (path,) = run_folder(tmp_path).iterdir()
    assert path.stat().st_mode & 0o777 == 0o600
    file.remove()


@pytest.mark.process
@pytest.mark.parametrize("how_far", ["draft", "ready"])
def test_what_a_killed_bridge_has_left_is_removed_with_its_socket(
    tmp_path: Path, how_far: str
) -> None:
    path = tmp_path / "run" / "s.sock"
    words = [sys.executable, "-c", BRIDGE, str(tmp_path), str(path), how_far]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as bridge:
        assert bridge.stdout is not None
        assert bridge.stdout.readline() == b"there\n"
        bound(path)
        assert len(live_bridges(tmp_path)) == (how_far == "ready")
        assert len(left(tmp_path)) == 2  # while it lives nothing is removed
        bridge.send_signal(signal.SIGKILL)
    assert live_bridges(tmp_path) == []
    assert left(tmp_path) == []


def test_a_socket_that_refuses_does_not_prove_that_its_bridge_is_dead(tmp_path: Path) -> None:
    file = published(tmp_path)
    bound(tmp_path / "run" / "s.sock")  # nobody listens on it
    assert len(live_bridges(tmp_path)) == 1
    assert len(left(tmp_path)) == 2
    file.remove()


def test_a_dead_bridge_s_file_never_leads_to_the_removal_of_anything_but_a_socket(
    tmp_path: Path,
) -> None:
    kept = tmp_path / "kept"
    kept.write_text("mine")
    file = RunFile(tmp_path)
    file.write(this_bridge(kept, protocol=1, agent="codex", version="9"))
    file.publish()
    os.close(file._fd)  # it has died
    assert live_bridges(tmp_path) == []
    assert left(tmp_path) == []
    assert kept.read_text() == "mine"


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"pid": 1}', b"\xff", b"[" * 9999, b'{"pid": "1"}']
)
def test_a_file_that_can_not_be_read_is_passed_over_while_it_is_locked(
    tmp_path: Path, content: bytes
) -> None:
    run_folder(tmp_path).mkdir(mode=0o700)
    path = run_folder(tmp_path) / "odd.json"
    path.write_bytes(content)
    with path.open("rb") as odd:
        fcntl.flock(odd, fcntl.LOCK_EX)
        assert live_bridges(tmp_path) == []
        assert left(tmp_path) == ["odd.json"]
    assert live_bridges(tmp_path) == []
    assert left(tmp_path) == []


def test_what_is_no_run_file_is_left_alone(tmp_path: Path) -> None:
    run_folder(tmp_path).mkdir(mode=0o700)
    (run_folder(tmp_path) / "notes.txt").write_text("mine")
    (run_folder(tmp_path) / "folder.json").mkdir()
    os.mkfifo(run_folder(tmp_path) / "pipe.json")
    (run_folder(tmp_path) / "link.json").symlink_to(tmp_path / "elsewhere")
    assert live_bridges(tmp_path) == []
    assert left(tmp_path) == ["folder.json", "link.json", "notes.txt", "pipe.json"]


def test_a_reader_that_sees_a_file_before_it_is_locked_costs_its_bridge_no_life(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, seen = fcntl.flock, list[int]()

    def flock(fd: int, how: int) -> None:
        if how & fcntl.LOCK_EX and not seen:
            seen.append(fd)
            live_bridges(tmp_path)
        real(fd, how)

    monkeypatch.setattr(fcntl, "flock", flock)
    file = published(tmp_path)
    assert seen
    assert len(live_bridges(tmp_path)) == 1
    file.remove()
