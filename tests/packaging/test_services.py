"""The unit for systemd and the file for a container: what they name is there, and what they start.

What the container's steps make is tried by hand (CONTRIBUTING.md): they need the package index.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from acp_bridge.terminal.cli import options
from acp_bridge.terminal.commands import serve

ROOT = Path(__file__).parents[2]
UNIT = ROOT / "packaging/acp-bridge-serve.service"
CONTAINER = ROOT / "packaging/Containerfile"


def instructions() -> list[tuple[str, str]]:
    """The lines of the container's file, each with its first word."""
    text = re.sub(r"^#.*\n", "", CONTAINER.read_text("utf-8"), flags=re.MULTILINE)
    lines = text.replace("\\\n", " ").splitlines()
    return [(line.split()[0], line.partition(" ")[2]) for line in lines if line.strip()]


def served(words: list[str]) -> None:
    """Raise SystemExit if these are no arguments of `acp-bridge`."""
    assert words[0] == "serve"
    own, _ = options.split(words[1:])
    given = serve.parser().parse_args(own)
    assert given.what not in ("token", "tokens", "revoke")


def test_both_start_a_server() -> None:
    (start,) = re.findall(r"^ExecStart=(.+)$", UNIT.read_text("utf-8"), re.MULTILINE)
    served(shlex.split(start)[1:])
    (command,) = [json.loads(rest) for word, rest in instructions() if word == "CMD"]
    served(command)


def test_what_the_container_takes_from_the_checkout_is_there() -> None:
    for word, rest in instructions():
        if word == "COPY":
            *taken, _ = rest.split()
            assert all((ROOT / name).exists() for name in taken)


def test_the_container_does_not_run_as_root() -> None:
    words = [word for word, _ in instructions()]
    assert words.index("USER") < words.index("ENTRYPOINT")


@pytest.mark.process
def test_systemd_finds_nothing_wrong_with_the_unit(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("there is no systemd-analyze here")
    program = tmp_path / ".local/bin/acp-bridge"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    runtime = tmp_path / "runtime"
    runtime.mkdir(mode=0o700)
    done = subprocess.run(
        ["systemd-analyze", "--user", "--man=no", "verify", str(UNIT)],
        env={**os.environ, "HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(runtime)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
