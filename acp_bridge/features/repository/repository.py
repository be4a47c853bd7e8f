"""Finds which commit a working folder's repository has, and whether files differ from it.

Nothing that stands in the repository is run.

An agent, or whoever made the repository, may have put commands into its configuration: filters, a
monitor of the file system, hooks. So what is checked out is read here, and git, which alone knows
whether files have changed, is given a repository without a configuration: one of ours, with the
index, the objects and the files of the other. The user's own configuration is not read either.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import anyio

from acp_bridge.core.agents.deadline import Deadline
from acp_bridge.core.runtime import waits
from acp_bridge.core.runtime.threads import NoThread, in_thread
from acp_bridge.features.repository.notices import Standing

#: bytes of a file in a repository that are read.
_LARGEST: Final = 16 * 1024 * 1024
_COMMIT: Final = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
#: the name of a branch in HEAD; a repository with another kind of refs has `.invalid` there.
_BRANCH: Final = re.compile(r"ref: (refs/heads/((?!\.)[^\s\\:?*\[~^\x00-\x20]+))")
#: git says by its exit code whether tracked files differ from the commit, and runs nothing.
_DIFF: Final = (
    *("-c", "core.fsmonitor=false", "-c", f"core.hooksPath={os.devnull}"),
    *("diff", "--quiet", "--no-ext-diff", "--no-textconv", "--ignore-submodules=all", "HEAD", "--"),
)


class _Unknown(Exception):
    """The commit or the branch of the repository can't be told."""


@dataclass(frozen=True, slots=True)
class _Found:
    #: the folder that is its working tree.
    root: Path
    #: the git folder of this working tree, and the one that all trees of the repository share.
    own: Path
    common: Path
    commit: str
    branch: str


async def look(folder: str, within: float, deadline: Deadline | None) -> Standing | None:
    """Return the commit, the branch, and if files have changed, of the repository of a folder.

    All empty if the folder is in no repository; None if it can't be told `within` so many seconds,
    or git is not there. The guard of git follows `deadline`.
    """
    from shutil import which

    with anyio.move_on_after(within), suppress(NoThread, OSError, ValueError, _Unknown):
        git = await in_thread(which, "git", abandon_on_cancel=True)
        if git is None or not os.path.isabs(git):  # that may be the folder's own
            return None
        found = await in_thread(_find, folder, abandon_on_cancel=True)
        if found is None:
            return Standing()
        changed = await _is_changed(git, found, deadline) if found.commit else None
        return Standing(found.commit, found.branch, changed)
    return None


# --- what is checked out --------------------------------------------------------------------------


def _find(folder: str) -> _Found | None:
    """Return the repository that a folder is in, or None if it is in none.

    Raises OSError, ValueError, _Unknown.
    """
    here = Path(os.path.realpath(folder))
    for root in (here, *here.parents):
        own = root / ".git"
        if not own.is_dir():
            if (link := _text(own)) is None:
                continue
            own = root / link.removeprefix("gitdir:").strip()
        if (head := _text(own / "HEAD")) is None:
            continue
        common = own / (_text(own / "commondir") or "")
        commit, branch = _checked_out(common, head)
        return _Found(root, own, common, commit, branch)
    return None


def _checked_out(common: Path, head: str) -> tuple[str, str]:
    """Return the commit and the branch that HEAD's text names, or ""; raises as `_find` does.

    `common`: the git folder that all working trees share.
    """
    if _COMMIT.fullmatch(head):
        return head, ""
    found = _BRANCH.fullmatch(head)
    if found is None or ".." in head:
        raise _Unknown
    ref, branch = found.groups()
    commit = _text(common / ref) or _packed(common, ref)
    if commit and not _COMMIT.fullmatch(commit):
        raise _Unknown
    return commit, branch


def _packed(common: Path, ref: str) -> str:
    lines = (_text(common / "packed-refs") or "").splitlines()
    return next((line.split(" ")[0] for line in lines if line.endswith(f" {ref}")), "")


def _text(path: Path) -> str | None:
    """Return the text of a file without the blanks around it; None if it is not there."""
    from acp_bridge.features.hooks import trust

    try:
        found = trust.read_text(path, _LARGEST)
    except trust.NotTrustable as error:
        raise _Unknown from error
    return found[1].strip() if found else None


# --- whether files have changed -------------------------------------------------------------------


async def _is_changed(git: str, found: _Found, deadline: Deadline | None) -> bool | None:
    from shutil import rmtree

    from acp_bridge.features.hooks.definitions import Hook, HookEvent
    from acp_bridge.features.hooks.run import run

    bare = await in_thread(_bare, found.commit)
    env = {
        "LC_ALL": "C",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_DIR": bare,
        "GIT_WORK_TREE": str(found.root),
        "GIT_INDEX_FILE": str(found.own / "index"),
        "GIT_OBJECT_DIRECTORY": str(found.common / "objects"),
    }
    try:
        asks = Hook(HookEvent.TURN_END, (git, *_DIFF), timeout=waits.REPOSITORY)
        ran = await run(asks, b"", str(found.root), env, deadline)
    finally:
        with anyio.CancelScope(shield=True):
            await in_thread(rmtree, bare, True)
    return {0: False, 1: True}.get(ran.exit_code) if ran.problem is None else None


def _bare(commit: str) -> str:
    """Return the path of a new, temporary git folder that has nothing but a HEAD at `commit`."""
    from tempfile import mkdtemp

    bare = Path(mkdtemp(prefix="acp-bridge-"))
    (bare / "refs").mkdir()
    (bare / "HEAD").write_text(f"{commit}\n")
    if len(commit) > 40:
        how = "[core]\n\trepositoryformatversion = 1\n[extensions]\n\tobjectformat = sha256\n"
        (bare / "config").write_text(how)
    return str(bare)
