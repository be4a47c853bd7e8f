"""Names the files of a project on which other programs act without asking the user.

Commands in them are run by git, by an editor that opens the folder, by a shell that enters it, or
by a build server that has the user's secrets. So who writes such a file has a command run later.
"""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from itertools import pairwise

#: folders whose files are trusted at any depth
_FOLDERS = frozenset(
    (
        # hooks of git, and of the bridge
        *(".acp_bridge", "trusted-hooks", ".githooks", ".husky", ".lefthook"),
        # editors and agents
        *(".vscode", ".zed", ".idea", ".fleet", ".devcontainer", ".cursor", ".claude", ".codex"),
        # build servers
        *(".circleci", ".buildkite", ".woodpecker", ".teamcity", ".semaphore", ".gitlab", ".ci"),
    )
)
#: folders that are trusted only below another one
_FOLDERS_BELOW = frozenset(
    (forge, folder)
    for forge in (".github", ".gitea", ".forgejo")
    for folder in ("workflows", "actions")
)
#: the files of the data folder that hold secrets (the models' keys; where the user is notified),
#: and any other files of these names
KEYS_FILES = ("keys.env", "notify.toml")
#: patterns of names, in lower case
_FILES = (
    *KEYS_FILES,
    "hooks.toml",
    *(".pre-commit-config.y*ml", ".gitmodules", "lefthook.y*ml", ".lefthook.y*ml"),
    *("*.code-workspace", ".exrc", ".nvimrc", ".nvim.lua", ".vimrc", ".dir-locals.el", ".mcp.json"),
    *(".envrc", ".direnvrc", "mise.toml", ".mise.toml", "mise.local.toml", ".mise.local.toml"),
    *(".gitlab-ci*.y*ml", ".travis.y*ml", ".drone.y*ml", ".woodpecker*.y*ml", ".cirrus.y*ml"),
    *("azure-pipelines*.y*ml", "bitbucket-pipelines.y*ml", "appveyor.y*ml", ".appveyor.y*ml"),
    *("jenkinsfile*", "cloudbuild.y*ml", "buildspec*.y*ml"),
)


def is_keys_file(name: str) -> bool:
    return name.lower() in KEYS_FILES


def is_git_s(parts: Sequence[str]) -> bool:
    """Returns True if a file is git's own; `parts`: of its whole path."""
    return ".git" in map(str.lower, parts)


def is_trusted(parts: Sequence[str]) -> bool:
    """Returns True if other programs act on a file; `parts`: of its path in the project."""
    names = [part.lower() for part in parts]
    return (
        not _FOLDERS.isdisjoint(names)
        or any(pair in _FOLDERS_BELOW for pair in pairwise(names))
        or any(fnmatchcase(names[-1], pattern) for pattern in _FILES if names)
    )
