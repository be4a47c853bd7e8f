"""What the model is told before the first prompt, of any tree."""

import os
from collections.abc import Callable
from datetime import date
from pathlib import Path

import anyio
import pytest

from agent.session.system_prompt import git_branch, system_prompt

MAIN = "ref: refs/heads/main\n"


async def told(cwd: Path, *roots: Path) -> str:
    with anyio.fail_after(5):
        return await system_prompt(cwd, roots)


def repository(folder: Path, head: str = MAIN) -> Path:
    (folder / ".git").mkdir(parents=True)
    (folder / ".git" / "HEAD").write_text(head)
    return folder


async def test_it_says_where_and_when(tmp_path: Path) -> None:
    before = date.today()
    text = await told(repository(tmp_path / "here"), tmp_path / "there")
    assert f"- Working directory: {tmp_path / 'here'}\n" in text
    assert f"- Further directories: {tmp_path / 'there'}\n" in text
    # It may have become midnight.
    assert any(f"- Date: {day.isoformat()}\n" in text for day in (before, date.today()))
    assert "- Git branch: main" in text


async def test_what_is_not_there_is_not_mentioned(tmp_path: Path) -> None:
    text = await told(tmp_path / "nowhere", tmp_path / "nowhere")
    assert "Git branch" not in text
    assert "Further directories" not in text
    assert "instructions to agents" not in text


def test_the_branch_is_known_in_a_folder_of_the_repository(tmp_path: Path) -> None:
    folder = repository(tmp_path, "ref: refs/heads/mend/the-door\n") / "a" / "b"
    folder.mkdir(parents=True)
    assert git_branch(folder) == "mend/the-door"


def test_a_commit_that_is_checked_out_is_named(tmp_path: Path) -> None:
    assert git_branch(repository(tmp_path, "0123456789" * 4)) == "none, at commit 012345678901"


@pytest.mark.parametrize("absolute", [True, False])
def test_a_worktree_or_a_submodule_has_its_own_branch(tmp_path: Path, absolute: bool) -> None:
    own = repository(tmp_path) / ".git" / "worktrees" / "side"
    own.mkdir(parents=True)
    (own / "HEAD").write_text("ref: refs/heads/side\n")
    folder = tmp_path / "side"
    folder.mkdir()
    (folder / ".git").write_text(f"gitdir: {own if absolute else '../.git/worktrees/side'}\n")
    assert git_branch(folder) == "side"


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _loop(path: Path) -> None:
    path.symlink_to(path)


def _garbage(path: Path) -> None:
    path.write_bytes(b"\0\xff" * 50_000)


ODD: list[Callable[[Path], None]] = [_fifo, _loop, _garbage, Path.mkdir]


@pytest.mark.parametrize("odd", ODD)
async def test_an_odd_tree_neither_fails_nor_blocks(
    tmp_path: Path, odd: Callable[[Path], None]
) -> None:
    odd(tmp_path / "AGENTS.md")
    odd(tmp_path / ".git")
    inner = tmp_path / "inner"
    (inner / ".git").mkdir(parents=True)
    odd(inner / ".git" / "HEAD")
    assert "Git branch" not in await told(tmp_path, inner)


async def test_what_waits_in_a_pipe_is_left_there(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "AGENTS.md")
    pipe = os.open(tmp_path / "AGENTS.md", os.O_RDWR)
    try:
        os.write(pipe, b"waiting")
        assert "waiting" not in await told(tmp_path)
        assert os.read(pipe, 10) == b"waiting"
    finally:
        os.close(pipe)


async def test_every_root_has_its_instructions(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "AGENTS.md").write_text(f"Rules of {name}.")
    text = await told(tmp_path / "a", tmp_path / "b", tmp_path / "a")
    assert text.index("Rules of a.") < text.index("Rules of b.")
    assert text.count("Rules of a.") == 1
    assert str(tmp_path / "b" / "AGENTS.md") in text


async def test_instructions_are_bounded_together_and_it_is_said(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "AGENTS.md").write_text("é" * 100_000)
    (tmp_path / "b" / "AGENTS.md").write_text("Rules of b.")
    text = await told(tmp_path, tmp_path / "b")
    assert len(text.encode()) < 50_000
    assert "Rules of b." not in text
    assert text.count("[The rest is left out: read the file if you need it.]") == 2


async def test_whole_instructions_are_not_called_cut(tmp_path: Path) -> None:
    (tmp_path / "AGENTS.md").write_text("x" * 40_000)
    text = await told(tmp_path)
    assert "left out" not in text
    assert "x" * 40_000 in text


async def test_instructions_that_lie_outside_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("private")
    for name in ("inside", "outside"):
        (tmp_path / name).mkdir()
    (tmp_path / "outside" / "AGENTS.md").symlink_to(tmp_path / "key")
    (tmp_path / "inside" / "CLAUDE.md").write_text("Rules.")
    (tmp_path / "inside" / "AGENTS.md").symlink_to("CLAUDE.md")
    text = await told(tmp_path / "inside", tmp_path / "outside")
    assert "Rules." in text
    assert "private" not in text
