"""keys.env: one line is changed, everything else stays, and nobody else can read it."""

import errno
import os
import stat
from io import StringIO
from pathlib import Path
from typing import NoReturn

import pytest
from dotenv import dotenv_values
from hypothesis import given
from hypothesis import strategies as st

from acp_bridge.core.keys import file
from acp_bridge.core.keys.file import Unusable, remove_key, set_key
from agent.providers.all_models import AllModels
from agent.settings import Settings

NAME = "OPENAI_API_KEY"
OTHERS = """# mine
export GROQ_API_KEY="gsk_x"  # work

MISTRAL_API_KEY='two
lines'
no assignment
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    return home


def keys(home: Path) -> Path:
    return home / "keys.env"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_folder_and_the_file_are_made_for_the_user_alone(tmp_path: Path) -> None:
    os.umask(before := os.umask(0))
    try:
        os.umask(0)
        set_key(tmp_path / "new" / "home", NAME, "sk-1")
    finally:
        os.umask(before)
    assert mode(tmp_path / "new" / "home") == 0o700
    assert mode(keys(tmp_path / "new" / "home")) == 0o600
    assert os.listdir(tmp_path / "new" / "home") == ["keys.env"]


def test_other_lines_and_comments_stay_as_they_are(home: Path) -> None:
    keys(home).write_text(OTHERS)
    set_key(home, NAME, "sk-1")
    assert keys(home).read_text() == OTHERS + f"{NAME}=sk-1\n"
    assert remove_key(home, NAME)
    assert keys(home).read_text() == OTHERS


def test_the_line_that_was_there_is_replaced_in_its_place_and_further_ones_go(home: Path) -> None:
    keys(home).write_text(f"# a\n\n{NAME}=old\nB_KEY=b\nexport {NAME}=older\n# z")
    set_key(home, NAME, "new")
    assert keys(home).read_text() == f"# a\n\n{NAME}=new\nB_KEY=b\n# z"


def test_a_file_without_a_newline_at_its_end_gets_one_first(home: Path) -> None:
    keys(home).write_text("B_KEY=b")
    set_key(home, NAME, "k")
    assert keys(home).read_text() == f"B_KEY=b\n{NAME}=k\n"


def test_lines_that_end_as_on_windows_go_on_so(home: Path) -> None:
    keys(home).write_bytes(b"B_KEY=b\r\n")
    set_key(home, NAME, "k")
    assert keys(home).read_bytes() == f"B_KEY=b\r\n{NAME}=k\r\n".encode()


@given(
    st.text(st.characters(min_codepoint=32, exclude_characters="\x7f"), min_size=1).filter(
        lambda text: text.splitlines() == [text]
    )
)
def test_whatever_is_kept_is_read_again_as_it_was(value: str) -> None:
    try:
        value.encode()
    except UnicodeEncodeError:
        return
    text = file._with("A_KEY='x'\n# c\n", NAME, f"{NAME}={file._quoted(value)}") + "Z_KEY=z\n"
    read = dotenv_values(stream=StringIO(text), interpolate=False)
    assert read == {"A_KEY": "x", NAME: value, "Z_KEY": "z"}


def test_what_is_not_there_is_not_removed_and_nothing_is_made(tmp_path: Path, home: Path) -> None:
    assert not remove_key(home, NAME)
    assert not remove_key(tmp_path / "none", NAME)
    assert os.listdir(home) == []
    assert not (tmp_path / "none").exists()


def test_a_file_that_others_could_read_is_the_user_s_alone_from_then_on(home: Path) -> None:
    keys(home).write_text("B_KEY=b\n")
    keys(home).chmod(0o644)
    set_key(home, NAME, "k")
    assert mode(keys(home)) == 0o600


def test_a_file_that_anybody_may_write_is_not_taken_over(home: Path) -> None:
    keys(home).write_text("OPENAI_BASE_URL=http://evil\n")
    keys(home).chmod(0o666)
    with pytest.raises(Unusable, match="chmod 600"):
        set_key(home, NAME, "k")
    assert keys(home).read_text() == "OPENAI_BASE_URL=http://evil\n"


def test_a_link_stays_and_what_it_leads_to_is_changed(home: Path, tmp_path: Path) -> None:
    target = tmp_path / "dotfiles"
    target.write_text("B_KEY=b\n")
    keys(home).symlink_to(target)
    set_key(home, NAME, "k")
    assert keys(home).is_symlink()
    assert target.read_text() == f"B_KEY=b\n{NAME}=k\n"
    assert mode(target) == 0o600


def test_a_link_to_nowhere_is_not_followed(home: Path, tmp_path: Path) -> None:
    keys(home).symlink_to(tmp_path / "planted")
    with pytest.raises(Unusable, match="not there"):
        set_key(home, NAME, "k")
    assert not (tmp_path / "planted").exists()


@pytest.mark.parametrize("kind", ["folder", "pipe", "not text", "home is a file"])
def test_what_is_no_file_of_keys_is_refused_and_left(home: Path, kind: str) -> None:
    match kind:
        case "folder":
            keys(home).mkdir()
        case "pipe":
            os.mkfifo(keys(home))
        case "not text":
            keys(home).write_bytes(b"\xff\xfe=1\n")
        case "home is a file":
            home.rmdir()
            home.write_text("")
    with pytest.raises(Unusable):
        set_key(home, NAME, "k")
    assert not home.is_dir() or os.listdir(home) == ["keys.env"]


@pytest.mark.parametrize("call", ["os.fsync", "pathlib.Path.replace"])
def test_a_full_disk_leaves_the_old_file_and_nothing_else(
    home: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    def full(*args: object) -> NoReturn:
        raise OSError(errno.ENOSPC, "No space left on device")

    keys(home).write_text("B_KEY=b\n")
    monkeypatch.setattr(call, full)
    with pytest.raises(Unusable, match="No space left"):
        set_key(home, NAME, "sk-secret")
    assert os.listdir(home) == ["keys.env"]
    assert keys(home).read_text() == "B_KEY=b\n"


def test_what_one_that_was_killed_has_left_does_no_harm(home: Path, tmp_path: Path) -> None:
    (home / ".keys.env.new").symlink_to(tmp_path / "planted")
    set_key(home, NAME, "k")
    assert os.listdir(home) == ["keys.env"]
    assert not (tmp_path / "planted").exists()


def test_an_agent_that_runs_finds_the_new_key_and_loses_one_that_is_removed(home: Path) -> None:
    models = AllModels(Settings(home / "agent", keys(home)), {})
    assert models.default == "demo"
    set_key(home, NAME, "sk-1")
    assert models.default.startswith("openai/")
    assert remove_key(home, NAME)
    assert models.default == "demo"


def test_all_values_are_known_to_whoever_masks_them_also_a_line_that_is_only_a_key(
    home: Path,
) -> None:
    keys(home).write_text("sk-pasted-alone\nB_KEY='b b'\nC_KEY\n'broken\n")
    assert {"sk-pasted-alone", "b b"} <= set(file.values(home))
    assert file.values(home / "none") == []
