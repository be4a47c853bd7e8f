"""What a client may start, and one way to talk to all of them.

The fixture agents and the scripted model take the same prompts: what one reads as a command the
other finds in its dialogue.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.process.judge import judge
from tests.support.client import RecordingClient
from tests.support.fixture_agents import fixture_command
from tests.support.gates import Gates
from tests.support.recording import Message, RpcError

ROOT = Path(__file__).parents[2]
#: seconds to start a process that imports LiteLLM
START = 40
#: A prompt that says `held`, then waits at the gate `held`.
HOLD = "say held; tool t; gate held; say late"
#: What the scripted model says; `say ...` it says back.
DIALOGUE = r"""
when: gate held
text: held
gate: held
text: late
when: empty
token: ""
think:
text: full
token: ""
turn
echo
"""


@dataclass(frozen=True)
class Subject:
    """A command, but for what differs from test to test."""

    name: str
    #: `acp_bridge`, `agent`; and the options of the bridge.
    module: str
    options: tuple[str, ...] = ()
    #: behaviours of a fixture agent; None for the built-in one.
    behaviours: tuple[str, ...] | None = None
    #: the gate of what it says after `cancelled`.
    leak: str = ""

    def command(self, model: str) -> list[str]:
        """`model`: of the built-in agent."""
        begin = [sys.executable, "-m", self.module, *self.options]
        if self.behaviours is None:
            return [*begin, "--model", model]
        return [*begin, "--", *fixture_command(*self.behaviours)]


#: Agents that do something else than they should when they are cancelled.
CANCELS = (
    ("cancel-end-turn",),
    ("cancel-error",),
    ("ignores-cancel",),
    ("ignores-cancel", "load-only"),
    ("ignores-cancel", "no-load-no-resume"),
    ("ignores-cancel", "never-ends"),
    ("slow-cancel",),
)
#: Agents that answer `cancelled` and go on: what they say then.
LEAKS = {
    ("leaks",): "message",
    ("leaks", "load-only"): "tool",
    ("leaks", "no-message-ids"): "plain",
    ("leaks", "reuses-ids"): "new-tool",
}
_QUICK = ("--drain-timeout", "0.3")
_ALWAYS = (*_QUICK, "--reload-after-cancel", "always")
BUILT_IN = (
    Subject("the built-in agent alone", "agent"),
    Subject("the built-in agent behind the bridge", "acp_bridge", _QUICK),
    Subject("the built-in agent, always restarted", "acp_bridge", _ALWAYS),
)
FOREIGN = tuple(
    Subject(f"an agent that {' and '.join(names)}", "acp_bridge", _QUICK, names, kind)
    for names, kind in ({**dict.fromkeys(CANCELS, ""), **LEAKS}).items()
)
SUBJECTS = (
    *BUILT_IN,
    *FOREIGN,
    Subject("an agent, always restarted", "acp_bridge", _ALWAYS, ()),
)


@dataclass
class Bench:
    """Where the subjects of one test are started."""

    folder: Path
    env: dict[str, str]
    gates: Gates

    @property
    def cwd(self) -> Path:
        return self.folder / "project"

    @asynccontextmanager
    async def start(
        self,
        subject: Subject,
        *,
        model: str = "",
        capabilities: Message | None = None,
        initialized: bool = True,
        **env: str,
    ) -> AsyncIterator[RecordingClient]:
        """Initialized; judged at the end. `model`: none for the dialogue above."""
        (self.folder / "dialogue").write_text(DIALOGUE)
        self.cwd.mkdir(exist_ok=True)
        self.gates.open_for_good("cancel", "end of input")
        given = {
            **self.env,
            "ACP_BRIDGE_HOME": str(self.folder / "home"),
            "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
            **env,
        }
        command = subject.command(model or f"scripted:{self.folder / 'dialogue'}")
        async with RecordingClient.start(command, env=given, exit_within=5) as client:
            if initialized:
                await client.initialize(capabilities, within=START)
            yield client
            client.close_stdin()
            assert await client.wait(within=5) == 0
        judge(client.recording, client.stderr.decode())
        judge_chunks(client)

    async def held(self, client: RecordingClient) -> object:
        """A prompt whose turn is in its middle; its id."""
        before = self.gates.times_reached("held")
        prompt = client.send_prompt(HOLD)
        await self.gates.reached("held", before + 1)
        await client.until_text("held")
        return prompt


def judge_chunks(client: RecordingClient) -> None:
    """No message has an empty chunk: clients show it as a bubble with nothing in it."""
    for update in client.updates():
        content = update.get("content")
        if update["sessionUpdate"].endswith("_chunk") and isinstance(content, dict):
            assert content.get("text") != "", update


async def fence(client: RecordingClient) -> list[Message]:
    """All that the other side had to say by itself has come: the updates since `fence` was called.

    A request that an agent answers itself comes back behind what it said before, whether it has the
    session still or is given it first.
    """
    mark = client.mark()
    about = {"sessionId": client.session_id}
    with contextlib.suppress(RpcError):  # an agent that doesn't know the method says so
        await client.request("_test/fence", about, within=START)
    return client.updates(client.session_id, mark)


def unasked(client: RecordingClient, since: int) -> list[Message]:
    """What was shown since then, though nobody had asked for it.

    A fence speaks for the client: the commands and the bridge's notices, which waited for that,
    may come with it.
    """
    updates = client.updates(since=since)
    return [
        update
        for update in updates
        if update["sessionUpdate"] != "available_commands_update"
        and not str(update.get("content", {}).get("text")).startswith("\n\n[acp-bridge] ")
    ]


def each(subjects: Sequence[Subject]) -> pytest.MarkDecorator:
    """The test runs once for each of these."""
    return pytest.mark.parametrize("subject", subjects, ids=lambda subject: subject.name)
