"""A bridge and the fixture agents behind it, and what must hold of every run.

What a bridge said is judged when it has ended, whatever the test was about: judge.py.
"""

import json
import os
import resource
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from acp_bridge.core.journal import Journal, PromptRow
from acp_bridge.core.settings import Settings
from acp_bridge.terminal.cli.naming import agent_name, former_names
from tests.support import processes
from tests.support.client import RecordingClient
from tests.support.fixture_agents import FixtureLog, fixture_command
from tests.support.gates import Gates
from tests.support.inside import inside
from tests.support.recording import Message, RpcError
from tests.support.waiting import until
from tests.whole.judge import PROMPT, judge, stop_reason

ROOT = Path(__file__).parents[2]
#: for what starts an interpreter.
_SECONDS = 30.0
#: for `initialize`: the client wants to hear of every prompt that is accepted.
TELL_ACCEPTED: Message = {"_meta": {"acp_bridge": {"accepted": True}}}


@dataclass
class World:
    """Where a test's bridges and agents live."""

    #: the sessions' working directory.
    cwd: Path
    #: where bridges keep their journals.
    home: Path
    env: dict[str, str]
    log: FixtureLog
    gates: Gates
    mark: str
    monkeypatch: pytest.MonkeyPatch
    #: the same prompt text was sent more than once on purpose.
    repeats: bool = False

    @asynccontextmanager
    async def bridge(
        self,
        *behaviours: str,
        options: Sequence[str] = (),
        command: Sequence[str] | None = None,
        capabilities: Message | None = None,
        env: dict[str, str] | None = None,
        initialized: bool = True,
        session: bool = True,
        exits: int = 0,
    ) -> AsyncIterator[RecordingClient]:
        """A bridge process with an agent of these behaviours, initialized and in a session.

        When the body is through, its stdin is closed and it has 3 s to exit, with `exits`.
        """
        agent = fixture_command(*behaviours) if command is None else command
        behind = ["--", *agent] if agent else []  # else the built-in one
        words = [sys.executable, "-m", "acp_bridge", *options, *behind]
        own = {"ACP_BRIDGE_HOME": str(self.home), "ACP_BRIDGE_LOG_LEVEL": "debug"}
        given = {**self.env, **own, "PYTHONPATH": str(ROOT), **(env or {})}
        async with RecordingClient.start(words, env=given) as client:
            await self._open(client, capabilities, initialized, session)
            yield client
            client.pipe.resume_reading()
            client.close_stdin()
            assert await client.wait(within=3) == exits
            if not exits:
                await client.stderr_ended()
        judge(client.recording, client.stderr.decode())

    @asynccontextmanager
    async def inside(
        self,
        *behaviours: str,
        command: Sequence[str] | None = None,
        capabilities: Message | None = None,
        initialized: bool = True,
        session: bool = True,
        **settings: Any,
    ) -> AsyncIterator[RecordingClient]:
        """The same with the bridge in this process, and with settings in place of options.

        It starts in a tenth of the time: for all that is not about the bridge's own process.
        """
        for name, value in self.env.items():
            self.monkeypatch.setenv(name, value)
        command = fixture_command(*behaviours) if command is None else command
        former = former_names(command)
        chosen = Settings(
            tuple(command), agent_name(command), self.home, **{"former_names": former, **settings}
        )
        async with inside(chosen) as client:
            await self._open(client, capabilities, initialized, session)
            yield client
        judge(client.recording, client.stderr.decode())

    async def command(self, *words: str, env: dict[str, str] | None = None) -> tuple[int, str, str]:
        """The exit code, stdout and stderr of a command in a terminal of its own."""
        command = [sys.executable, "-m", "acp_bridge", *words]
        own = {"ACP_BRIDGE_HOME": str(self.home), "PYTHONPATH": str(ROOT)}
        with anyio.fail_after(_SECONDS):
            done = await processes.run(command, {**self.env, **own, **(env or {})}, self.cwd)
        return done.returncode, done.stdout.decode(), done.stderr.decode()

    async def _open(
        self,
        client: RecordingClient,
        capabilities: Message | None,
        initialized: bool,
        session: bool,
    ) -> None:
        if initialized:
            await client.initialize(capabilities)
            if session:
                await client.new_session(self.cwd)

    async def journal(self, session_id: str) -> list[PromptRow]:
        """What the journal says of a session's prompts, when no bridge has it open."""
        journal = Journal(self.home)
        try:
            return (await journal.open(session_id)).prompts()
        finally:
            await journal.close()

    async def answered(self, prompt: str) -> None:
        """Until the agent has written its answer, whether or not the bridge has read it."""
        await until(lambda: prompt in [event["prompt"] for event in self.log.events("answered")])

    def judge(self) -> None:
        """What must hold of every agent that a test had."""
        assert self.log.events("overlap") == []  # invariant Q2
        assert self.log.events("locked out") == []  # invariant P12
        sent = Counter(json.dumps(message["params"]) for message in self.log.received(PROMPT))
        # invariant Q5
        assert self.repeats or not [text for text, times in sent.items() if times > 1]


@contextmanager
def full_disk(client: RecordingClient) -> Iterator[None]:
    """No file that the bridge writes can grow."""
    assert client.process is not None
    pid, endless = client.process.pid, resource.RLIM_INFINITY
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, endless))
    try:
        yield
    finally:
        with suppress(ProcessLookupError):  # it was killed meanwhile
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (endless, endless))


async def stopped(client: RecordingClient, prompt: Any, within: float = 5) -> Any:
    """The stop reason of a prompt, when it is answered; an error is shown as its code."""
    answer = await client.answer_to(prompt, within)
    return answer["error"]["code"] if "error" in answer else stop_reason(answer)


async def accepted(client: RecordingClient, prompt: Any) -> None:
    """Until the bridge has told that it has the prompt on disk (see TELL_ACCEPTED)."""
    await client.until(
        lambda m: m.get("method") == "_acp_bridge/accepted" and m["params"]["requestId"] == prompt
    )


async def kill_agent(world: World, client: RecordingClient) -> None:
    """SIGKILL to the newest one, and until the bridge has noticed."""
    before = client.stderr.count(b"agent.exited")
    os.kill(world.log.pids()[-1], signal.SIGKILL)
    await client.logged("agent.exited", before + 1)


async def fails(client: RecordingClient, method: str, code: int, **params: Any) -> RpcError:
    """A request that is answered with an error of this code."""
    with pytest.raises(RpcError) as caught:
        await client.request(method, params)
    assert caught.value.code == code
    return caught.value


async def refused(client: RecordingClient, text: str) -> RpcError:
    """The error of a prompt."""
    with pytest.raises(RpcError) as caught:
        await client.prompt(text)
    return caught.value


def shown(client: RecordingClient, since: int = 0) -> list[Message]:
    """The conversation of the client's session: what any replay must have in common with it."""
    return joined(client.updates(client.session_id, since))


def joined(updates: list[Message]) -> list[Message]:
    """Token chunks joined to messages, without what is of the session and not said in it."""
    whole: list[Message] = []
    for update in updates:
        last = whole[-1] if whole else {}
        if update["sessionUpdate"] == "available_commands_update":
            continue
        if _same_message(last, update):
            text = last["content"]["text"] + update["content"]["text"]
            whole[-1] = {**last, "content": {**last["content"], "text": text}}
        else:
            whole.append(update)
    return whole


def _same_message(one: Message, other: Message) -> bool:
    return (
        "messageId" in one
        and one["sessionUpdate"] == other["sessionUpdate"]
        and one["messageId"] == other.get("messageId")
    )
