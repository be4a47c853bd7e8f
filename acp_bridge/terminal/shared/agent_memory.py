"""Moves what the built-in agent remembers of a session; the agent itself knows the form.

Another agent's memory can't be moved: its new session is given the transcript.
"""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

from acp_bridge.core.journal import SessionInfo
from acp_bridge.core.protocol import Json
from acp_bridge.core.wire.jsonrpc import encode, read_object
from acp_bridge.terminal.cli.options import BUILT_IN
from acp_bridge.terminal.shared.bundle import Bundle

#: seconds that the agent has for one export or import.
_PATIENCE: Final = 60.0


def take_out(home: Path, info: SessionInfo) -> list[Json]:
    """Return the records that the built-in agent has of a session; [] if there are none."""
    if info.agent != BUILT_IN or info.agent_session_id is None:
        return []
    lines = _carry(["out", str(home), info.agent_session_id], b"") or b""
    return [record for line in lines.split(b"\n") if (record := read_object(line))]


def put_in(home: Path, bundle: Bundle, session_id: str, cwd: str) -> bool:
    """Give the built-in agent the memory in a bundle, as a session `session_id` in `cwd`.

    Return False if the bundle has none, or the agent can't take it.
    """
    if bundle.agent != BUILT_IN or not bundle.memory:
        return False
    lines = b"".join(map(encode, bundle.memory))
    return _carry(["in", str(home), session_id, cwd], lines) is not None


def take_back(home: Path, session_id: str) -> None:
    """Remove the file that `put_in` has made for a session, if it is there."""
    with suppress(OSError):
        (home / "agent" / f"{session_id}.jsonl").unlink()


def _carry(arguments: list[str], lines: bytes) -> bytes | None:
    """Run `agent.carry` with `lines` as its input; returns its output, None if it failed."""
    command = [sys.executable, "-I", "-m", "agent.carry", *arguments]  # isolated: invariant P14
    try:
        done = subprocess.run(
            command, input=lines, capture_output=True, timeout=_PATIENCE, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
