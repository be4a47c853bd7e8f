"""A real repository with one commit."""

import os
import subprocess
from pathlib import Path

import pytest

#: so that nobody's own configuration counts.
_OWN = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}


class Repository:
    """One file in it is tracked."""

    def __init__(self, folder: Path, *how: str) -> None:
        self.folder = folder
        self.file = folder / "file.txt"
        self.sub = folder / "sub"
        self.sub.mkdir(parents=True)
        self.git("init", "-q", "-b", "main", *how)
        self.write("one")
        self.add()

    def git(self, *words: str) -> str:
        known = ("-c", "user.name=n", "-c", "user.email=n@example.org")
        done = subprocess.run(
            ["git", *known, *words],
            cwd=self.folder,
            env={**os.environ, **_OWN},
            check=True,
            capture_output=True,
            timeout=20,
        )
        return done.stdout.decode().strip()

    @property
    def commit(self) -> str:
        """The id of the commit that is checked out."""
        return self.git("rev-parse", "HEAD")

    def write(self, text: str) -> None:
        """Change the file that is tracked."""
        self.file.write_text(text)

    def add(self) -> None:
        """Commit the file as it is now."""
        self.git("add", "file.txt")
        self.git("commit", "-q", "-m", "a commit")


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    """A repository of its own."""
    return Repository(tmp_path / "repository")
