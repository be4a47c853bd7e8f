"""What tests of hooks in a session share: real commands, an agent that the test plays."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from acp_bridge.core.protocol import REQUEST_PERMISSION, SESSION_PROMPT
from acp_bridge.features.hooks.definitions import Hook, HookEvent
from acp_bridge.features.hooks.found import FoundHooks
from acp_bridge.features.hooks.in_session import HooksOfSession
from tests.core.session.living import Living, living
from tests.core.session.played_agent import PlayedAgent
from tests.core.session.waiting import until

OPTIONS = [
    {"optionId": "always", "name": "Always", "kind": "allow_always"},
    {"optionId": "yes", "name": "Yes", "kind": "allow_once"},
    {"optionId": "no", "name": "No", "kind": "reject_once"},
]
CALL = {"toolCallId": "t", "title": "rm -r build", "kind": "execute", "rawInput": {"command": "x"}}
#: A hook that leaves its group and its session behind, and runs on.
LEAVES = "setsid sh -c 'echo $$ > pid; touch began; sleep 60' & sleep 60"


@asynccontextmanager
async def hooked(
    tmp_path: Path,
    *hooks: tuple[HookEvent, str],
    agent: PlayedAgent,
    steers: bool = False,
    **more: Any,
) -> AsyncIterator[Living]:
    """A session with an agent and these hooks, which run in a folder of their own.

    `steers` is of `living`.
    """
    (work := tmp_path / "work").mkdir()
    found = FoundHooks(tuple(Hook(event, command, timeout=20) for event, command in hooks), **more)
    own: dict[str, Any] = {"found": [HooksOfSession(found)], "cwd": str(work), "steers": steers}
    async with living(tmp_path / "home", first=agent, **own) as here:
        yield here


def given(tmp_path: Path, name: str) -> dict[str, Any]:
    """Return what a hook got on stdin, which it kept in a file."""
    found: dict[str, Any] = json.loads((tmp_path / "work" / name).read_text())
    return found


def alive(pid: int) -> bool:
    """Return True for a process that runs; one that nobody has collected yet is dead."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


async def waits_at(tmp_path: Path, name: str) -> None:
    """Wait for a file that a hook makes."""
    await until((tmp_path / "work" / name).exists)


async def asks(here: Living, agent: PlayedAgent, options: Any = OPTIONS) -> None:
    """Let the agent ask for a permission in a turn."""
    here.prompt()
    await agent.asked(SESSION_PROMPT)
    params = {"sessionId": "0", "toolCall": CALL, "options": options}
    agent.asks(REQUEST_PERMISSION, params, "p")


async def told(agent: PlayedAgent) -> Any:
    """Return what the agent is told of the permission, waited for."""
    await until(lambda: [m for m in agent.sent.messages if m.get("id") == "p"])
    (answer,) = [m for m in agent.sent.messages if m.get("id") == "p"]
    return answer["result"]["outcome"]


def asked_of_client(here: Living) -> list[Any]:
    return [m for m in here.got if m.get("method") == REQUEST_PERMISSION]
