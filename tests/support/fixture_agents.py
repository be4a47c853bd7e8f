"""Starting the fixture agents, and reading what they logged."""

import json
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

from tests.support.client import RecordingClient

#: The fixture `start_agent`: behaviours, and `opened=False` for no session.
StartAgent = Callable[..., AbstractAsyncContextManager[RecordingClient]]

FOLDER = Path(__file__).parents[2] / "fixtures" / "agents"

#: Every behaviour there is.
BEHAVIOURS = sorted(
    path.stem.replace("_", "-")
    for path in (FOLDER / "behaviours").glob("*.py")
    if path.stem != "__init__"
)

#: The command of an agent that speaks version 2 alone.
V2_AGENT = [sys.executable, "-I", "-S", str(FOLDER / "v2_agent.py")]


def replay_command(file: Path, *options: str) -> list[str]:
    """The command of an agent that is made of this trace."""
    return [sys.executable, "-m", "acp_bridge", "replay", str(file), *options]


def replayed(name: str) -> list[str]:
    """The command of an agent that does again what one has done (fixtures/traces)."""
    return replay_command(FOLDER.with_name("traces") / f"{name}.jsons")


def fixture_command(*behaviours: str) -> list[str]:
    """The command that starts an agent with these behaviours; with none it behaves well."""
    command = [sys.executable, "-I", "-S", str(FOLDER / "fixture_agent.py")]
    return [*command, "--behaviour", ",".join(behaviours)] if behaviours else command


class FixtureLog:
    """The file `FIXTURE_LOG`: what every agent process of the test received and did, in order."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.env = {"FIXTURE_LOG": str(path)}

    def events(self, event: str | None = None) -> list[dict[str, Any]]:
        """`{"pid", "time" (monotonic seconds), "event", ...}`; kinds: fixtures/agents/README."""
        if not self.path.exists():
            return []
        lines = list(filter(None, map(_event, self.path.read_text().splitlines())))
        return [line for line in lines if event in (None, line["event"])]

    def received(self, method: str) -> list[dict[str, Any]]:
        """The messages with this method."""
        messages = [event["message"] for event in self.events("received")]
        return [message for message in messages if message.get("method") == method]

    def turns(self) -> list[dict[str, Any]]:
        """What the model was given: `{"pid", "session", "prompt", "history", "mode", "effort"}`."""
        return self.events("turn")

    def prompts(self) -> list[str]:
        return [turn["prompt"] for turn in self.turns()]

    def pids(self) -> list[int]:
        """The agent processes, in the order of their start."""
        return [event["pid"] for event in self.events("started")]


def _event(line: str) -> dict[str, Any] | None:
    """None for what a kill has cut off, or is being written."""
    try:
        found: dict[str, Any] = json.loads(line)
    except ValueError:
        return None
    return found
