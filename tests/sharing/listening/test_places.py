"""Where sockets are: in a folder that is the user's alone, under a path that is short enough."""

import os
import socket
import stat
from pathlib import Path

import pytest

from acp_bridge.sharing.listening.places import NoPlace, new_socket_path, private_folder, run_folder

NAME = "0123456789abcdef.sock"


def test_a_socket_is_in_the_run_folder_of_its_home(short: Path) -> None:
    path = new_socket_path(short, {"XDG_RUNTIME_DIR": str(short / "elsewhere")})
    assert path.parent == run_folder(short)
    private_folder(path.parent)
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


@pytest.mark.parametrize("bytes_of_the_path", [107, 108])
def test_a_path_that_no_socket_can_have_leads_to_the_runtime_folder(
    short: Path, bytes_of_the_path: int
) -> None:
    runtime = short / "r"
    runtime.mkdir(mode=0o700)
    room = bytes_of_the_path - len(f"{short}//run/{NAME}")
    home = short / ("h" * room)
    path = new_socket_path(home, {"XDG_RUNTIME_DIR": str(runtime)})
    assert path.parent == (run_folder(home) if bytes_of_the_path == 107 else runtime / "acp-bridge")
    private_folder(path.parent)
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))


@pytest.mark.parametrize("given", ["", "relative", "/does/not/exist", "{short}/open"])
def test_a_runtime_folder_that_others_could_use_is_passed_over(short: Path, given: str) -> None:
    (short / "open").mkdir()
    (short / "open").chmod(0o777)
    path = new_socket_path(short / ("h" * 99), {"XDG_RUNTIME_DIR": given.format(short=short)})
    assert path.parent == Path("/tmp") / f"acp-bridge-{os.getuid()}"
    private_folder(path.parent)
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_data_folder_that_is_made_on_the_way_is_the_user_s_alone(tmp_path: Path) -> None:
    private_folder(tmp_path / "home" / "run")
    assert stat.S_IMODE((tmp_path / "home").stat().st_mode) == 0o700


def test_a_folder_that_was_open_to_others_is_made_private(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run").chmod(0o777)
    private_folder(tmp_path / "run")
    assert stat.S_IMODE((tmp_path / "run").stat().st_mode) == 0o700


def test_a_link_is_no_private_folder_wherever_it_leads(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "run").symlink_to("real")
    with pytest.raises(OSError, match=r"Not a directory|Too many levels"):
        private_folder(tmp_path / "run")


def test_another_user_s_folder_is_no_private_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "run").mkdir(mode=0o700)
    monkeypatch.setattr(os, "getuid", lambda: 4711)
    with pytest.raises(NoPlace, match="another user"):
        private_folder(tmp_path / "run")
    assert stat.S_IMODE((tmp_path / "run").stat().st_mode) == 0o700


def test_a_folder_that_can_not_be_made_private_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run").chmod(0o777)
    monkeypatch.setattr(os, "fchmod", lambda *_: None)  # as on a file system without modes
    with pytest.raises(NoPlace, match="private"):
        private_folder(tmp_path / "run")
