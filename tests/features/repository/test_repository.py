"""How a folder's repository stands, on real ones; nothing that stands in them is run."""

import os
from pathlib import Path

import anyio
import pytest

from acp_bridge.core.agents.deadline import Deadline, now
from acp_bridge.features.repository.notices import Standing, stands_otherwise
from acp_bridge.features.repository.repository import look
from tests.support.git import Repository, repository

pytestmark = pytest.mark.process

__all__ = ["repository"]


async def stands(folder: Path, deadline: Deadline | None = None) -> Standing | None:
    with anyio.fail_after(20):
        return await look(str(folder), 10, deadline)


async def test_it_is_told_by_commit_branch_and_changes(repository: Repository) -> None:
    clean = Standing(repository.commit, "main", changed=False)
    assert await stands(repository.folder) == clean
    assert await stands(repository.sub) == clean
    repository.write("other")
    assert await stands(repository.folder) == Standing(repository.commit, "main", changed=True)


async def test_a_file_that_was_only_touched_has_not_changed(repository: Repository) -> None:
    os.utime(repository.file, (1, 1))
    found = await stands(repository.folder)
    assert found is not None
    assert found.changed is False


async def test_a_commit_without_a_branch_and_packed_branches_are_known(
    repository: Repository,
) -> None:
    repository.git("pack-refs", "--all")
    assert await stands(repository.folder) == Standing(repository.commit, "main", changed=False)
    repository.git("checkout", "-q", "--detach")
    assert await stands(repository.folder) == Standing(repository.commit, "", changed=False)


async def test_a_branch_without_a_commit_is_known(repository: Repository) -> None:
    repository.git("checkout", "-q", "--orphan", "feature/new")
    assert await stands(repository.folder) == Standing("", "feature/new", None)


async def test_a_worktree_has_a_branch_of_its_own(repository: Repository, tmp_path: Path) -> None:
    repository.git("worktree", "add", "-q", "-b", "aside", str(tmp_path / "aside"))
    expected = Standing(repository.commit, "aside", changed=False)
    assert await stands(tmp_path / "aside") == expected


async def test_a_repository_with_other_ids_is_known(tmp_path: Path) -> None:
    made = Repository(tmp_path / "long", "--object-format=sha256")
    assert len(made.commit) == 64
    assert await stands(made.folder) == Standing(made.commit, "main", changed=False)


async def test_a_folder_without_a_repository_has_none(tmp_path: Path) -> None:
    assert await stands(tmp_path) == Standing()
    assert await stands(tmp_path / "gone") == Standing()


async def test_without_git_nothing_is_known(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(repository.sub))
    assert await stands(repository.folder) is None


async def test_a_git_of_the_folder_itself_is_none(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = repository.folder / "git"
    own.write_text("#!/bin/sh\ntouch planted\n")
    own.chmod(0o755)
    monkeypatch.chdir(repository.folder)
    monkeypatch.setenv("PATH", ".")
    assert await stands(repository.folder) is None
    assert not (repository.folder / "planted").exists()


@pytest.mark.parametrize("odd", ["ref: refs/heads/a/../../x", "ref: refs/heads/.invalid", "?", ""])
async def test_what_is_no_repository_as_it_should_be_is_not_known(
    repository: Repository, odd: str
) -> None:
    (repository.folder / ".git" / "HEAD").write_text(odd)
    assert await stands(repository.folder) is None


async def test_a_pipe_in_the_place_of_a_file_holds_nothing_up(repository: Repository) -> None:
    head = repository.folder / ".git" / "HEAD"
    head.unlink()
    os.mkfifo(head)
    assert await stands(repository.folder) is None


async def test_no_command_that_was_put_into_it_is_run(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Git itself would run the filter: that is looked at first."""
    planted = repository.folder / "planted"
    runs = f"touch {planted}; cat"
    (repository.folder / ".gitattributes").write_text("* filter=evil diff=evil\n")
    (repository.folder / ".git" / "info" / "attributes").write_text("* filter=evil diff=evil\n")
    for name in ("filter.evil.clean", "filter.evil.process", "diff.evil.textconv"):
        repository.git("config", name, runs)
    for name in ("core.fsmonitor", "diff.external", "core.sshCommand", "core.pager"):
        repository.git("config", name, runs)
    hook = repository.folder / ".git" / "hooks" / "post-index-change"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\n{runs}\n")
    hook.chmod(0o755)
    monkeypatch.setenv("GIT_EXTERNAL_DIFF", runs)
    repository.write("other")
    await anyio.run_process(["git", "status"], cwd=repository.folder, check=False)
    assert planted.exists()
    planted.unlink()
    assert await stands(repository.folder) == Standing(repository.commit, "main", changed=True)
    assert not planted.exists()


async def test_whether_files_have_changed_is_not_known_when_the_lease_is_over(
    repository: Repository,
) -> None:
    deadline = Deadline()
    deadline.set(now() - 1)
    found = await stands(repository.folder, deadline)
    assert found == Standing(repository.commit, "main", None)


# --- in words -------------------------------------------------------------------------------------

ONE = Standing("1" * 40, "main", changed=True)


def test_it_is_said_in_one_sentence_each() -> None:
    here = Standing("2" * 40, "", changed=False)
    said = stands_otherwise("a", ONE, here)
    assert "ended on `a`" in said
    assert f"There: commit `{'1' * 12}` on branch `main`, tracked files changed." in said
    assert f"Here: commit `{'2' * 12}` on no branch, no tracked file changed." in said
    assert "Here: no repository." in stands_otherwise("a", ONE, Standing())
    assert "no commit yet on branch `x`" in stands_otherwise("a", ONE, Standing("", "x"))


def test_what_is_not_known_is_no_difference() -> None:
    assert not ONE.is_other(ONE)
    assert not ONE.is_other(Standing(ONE.commit, "main", None))
    assert ONE.is_other(Standing(ONE.commit, "main", changed=False))
    assert ONE.is_other(Standing(ONE.commit, "aside", None))
    assert ONE.is_other(Standing())


def test_what_was_kept_is_read_and_anything_odd_is_nothing() -> None:
    assert Standing.of(ONE.kept) == ONE
    assert Standing.of({**ONE.kept, "changed": "yes"}) == Standing(ONE.commit, "main", None)
    assert Standing.of({}) is None
    assert Standing.of({"commit": 1, "branch": "main"}) is None
