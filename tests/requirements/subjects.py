"""What a client may start, and one way to talk to all of them.

The fixture agents and the scripted model take the same prompts: what one reads as a command the
other finds in its dialogue.
"""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.client import RecordingClient
from tests.support.fixture_agents import fixture_command
from tests.support.gates import Gates
from tests.support.recording import Message
from tests.whole.judge import judge

ROOT = Path(__file__).parents[2]
#: seconds to start a process that imports LiteLLM
START = 40
#: A prompt that says `held`, then waits at a gate: `held`, or `again`.
HOLD = "say held; tool t; gate {gate}; say late"
#: What the scripted model says; `say ...` it says back.
DIALOGUE = r"""
when: gate held
text: held
gate: held
text: late
when: gate again
text: held
gate: again
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

    @property
    def restarts(self) -> bool:
        """A cancel costs the process."""
        ignores = "ignores-cancel" in (self.behaviours or ())
        # Text between turns may be anybody's: it is dropped, and no more.
        return ignores or self.leak not in ("", "plain") or "always" in self.options

    def command(self, model: str) -> list[str]:
        """`model`: of the built-in agent."""
        begin = [sys.executable, "-m", self.module, *self.options]
        if self.behaviours is None:
            return [*begin, "--model", model]
        return [*begin, "--", *fixture_command(*self.behaviours)]


#: Agents that do something else than they should when they are cancelled: one stays alive, one is
#: killed. tests/core has the others, without a process.
CANCELS: tuple[tuple[str, ...], ...] = (
    ("cancel-error",),
    ("ignores-cancel",),
)
#: Agents that answer `cancelled` and go on: what they say then.
LEAKS: dict[tuple[str, ...], str] = {
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
SUBJECTS = (*BUILT_IN, *FOREIGN)
BRIDGED = tuple(subject for subject in SUBJECTS if subject.module == "acp_bridge")


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
        env: Mapping[str, str] | None = None,
    ) -> AsyncIterator[RecordingClient]:
        """Initialized; judged at the end. `model`: none for the dialogue above."""
        (self.folder / "dialogue").write_text(DIALOGUE)
        self.cwd.mkdir(exist_ok=True)
        self.gates.open_for_good("cancel", "end of input")
        given = {
            **self.env,
            "ACP_BRIDGE_HOME": str(self.folder / "home"),
            "ACP_BRIDGE_LOG_LEVEL": "info",
            "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
            **(env or {}),
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

    async def held(self, client: RecordingClient, gate: str = "held") -> object:
        """A prompt whose turn is in its middle; its id."""
        before, seen = self.gates.times_reached(gate), client.mark()
        prompt = client.send_prompt(HOLD.format(gate=gate))
        await self.gates.reached(gate, before + 1)
        await client.until_text("held", since=seen)
        return prompt


def judge_chunks(client: RecordingClient) -> None:
    """No message has an empty chunk: clients show it as a bubble with nothing in it."""
    for update in client.updates():
        content = update.get("content")
        if update["sessionUpdate"].endswith("_chunk") and isinstance(content, dict):
            assert content.get("text") != "", update


async def unasked(client: RecordingClient, since: int, *, reopened: int = 0) -> list[Message]:
    """What was shown since then, once all has come that the other side had to say by itself.

    `reopened`: how often a bridge has given the session to another process by then. A listing is
    asked of the agent, too, which answers it behind all that it said before; and it names no
    session: in this one the client has not spoken.
    """
    if reopened:
        await client.logged("session.reopened", reopened, within=START)
    await client.request("session/list", {}, within=START)
    return client.updates(since=since)


def each(subjects: Sequence[Subject]) -> pytest.MarkDecorator:
    """The test runs once for each of these."""
    return pytest.mark.parametrize("subject", subjects, ids=lambda subject: subject.name)
