"""A new session in a folder where work goes on that no client has open says so."""

import json
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path

import anyio
import pytest

from acp_bridge.core.agents.holder import Holder
from acp_bridge.core.bridge import attendance
from acp_bridge.sharing.elsewhere.kept_work import KeptWork
from acp_bridge.sharing.listening.listener import BoundSocket
from acp_bridge.sharing.listening.places import new_socket_path
from tests.core.sessions.agent import Gate, until
from tests.core.sessions.bench import Bench, Served, bench
from tests.core.sessions.world import SETUP
from tests.sharing.elsewhere.test_passages import PERMISSION, listening

pytestmark = pytest.mark.hazard("V8")

HERE = "Work goes on in this folder that no client has open"


@pytest.fixture
def home(short: Path) -> Path:
    return short


async def left(it: Bench, *queued: str) -> tuple[str, Gate]:
    """Let work go on in a session that nobody has: the one client closes it, another has left."""
    session_id = await it.new()
    gone = await it.attached(session_id)
    gate = it.agent.stops_at("session/prompt")
    for text in ("mend the `roof`", *queued):
        gone.prompt(session_id, text)
    await until(lambda: gate.reached)
    await gone.handled()
    await it.editor.ask("session/close", {"sessionId": session_id})
    gone.leaves()
    await gone.parted.wait()
    return session_id, gate


async def told(it: Bench) -> str:
    """Make a session; returns the notice in it, waited for."""
    session_id = await it.new()
    await until(lambda: it.editor.texts(session_id))
    (text,) = it.editor.texts(session_id)
    return text


async def looked(it: Bench, session_id: str, client: Served) -> list[str]:
    """Return what is said in a session after one more look, which has ended."""
    await it.passages.kept_work.tell(it.bridge._sessions.live[session_id], it.bridge._clients[0])
    return client.texts(session_id)


async def test_work_of_this_bridge_is_named_with_the_way_back(home: Path) -> None:
    async with listening(home) as (it, _, _):
        session_id, gate = await left(it, "and the door")
        said = await told(it)
        assert HERE in said
        assert "- `mend the 'roof'`: a turn runs, 1 prompt waits" in said
        assert said.count(f"`acp-bridge attach {session_id}`") == 1
        gate.open()


async def test_work_of_another_bridge_is_named_once_its_client_is_gone(home: Path) -> None:
    async with listening(home) as (other, _, _), listening(home) as (it, _, _):
        session_id, gate = await left(other)
        assert f"`acp-bridge attach {session_id}`" in await told(it)
        gate.open()


async def test_work_of_another_agent_is_named_with_the_agent(home: Path) -> None:
    async with listening(home) as (other, _, _), listening(home, agent_name="b") as (it, _, _):
        _, gate = await left(other)
        assert "of the agent `agent`: a turn runs" in await told(it)
        gate.open()


async def test_a_question_that_nobody_can_answer_now_is_named(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attendance, "LINGER", 0)
    async with bench(home, keep=3600) as it:
        session_id, gate = await left(it)
        (process, *_) = it.agent.processes
        call = {"toolCallId": "t", "title": "List files", "rawInput": {"command": "rm `x`"}}
        asked = {**PERMISSION, "sessionId": "agent-1", "toolCall": call}
        process.says({"id": 7, "method": "session/request_permission", "params": asked})
        questions = it.bridge._sessions.live[session_id].audience._questions
        await until(lambda: questions.open)
        notice = await told(it)
        assert "it waits for an answer to `` List files: command: rm `x` `` (`acp-" in notice
        gate.open()


async def test_what_is_idle_or_has_a_client_or_is_elsewhere_is_not_work_that_is_left(
    home: Path,
) -> None:
    async with listening(home) as (other, _, _), listening(home) as (it, _, _):
        idle, gone = await other.new(), await other.joined()
        await other.editor.stop_reason(other.editor.prompt(idle, "done"))
        await other.editor.ask("session/close", {"sessionId": idle})
        await gone.ask("session/load", {**SETUP, "sessionId": idle})
        gate = other.agent.stops_at("session/prompt")
        seen = await other.new()
        other.editor.prompt(seen, "runs before somebody's eyes")
        await until(lambda: gate.reached)
        gone.leaves()
        await gone.parted.wait()
        elsewhere = (await other.editor.ask("session/new", {**SETUP, "cwd": "/x"}))["sessionId"]
        other.editor.prompt(elsewhere, "runs in another folder")
        await other.settled()
        there = await other.attached(elsewhere)
        await other.editor.ask("session/close", {"sessionId": elsewhere})
        there.leaves()
        await there.parted.wait()
        mine = await it.new()
        assert await looked(it, mine, it.editor) == []
        gate.open()


@asynccontextmanager
async def silent_holder(home: Path, it: Bench) -> AsyncIterator[socket.socket]:
    """A bridge that has a session of the folder, accepts connections and says nothing."""
    session_id = await it.new()
    await it.editor.stop_reason(it.editor.prompt(session_id, "done"))
    await it.editor.ask("session/close", {"sessionId": session_id})
    bound = BoundSocket(home, new_socket_path(home, os.environ), "agent")
    holder = json.dumps(asdict(Holder(str(bound.path), 1, "agent")))
    it.context.journal.lock_path(session_id).write_text(holder)
    yield bound.listener
    bound.close()


async def test_a_bridge_that_is_silent_costs_neither_the_session_nor_what_the_others_say(
    home: Path,
) -> None:
    async with (
        listening(home) as (other, _, _),
        bench(home) as it,
        silent_holder(home, it),
    ):
        _, gate = await left(other)
        sessions = it.bridge._sessions
        it.passages.kept_work = KeptWork(it.context, sessions.attaching, patience=0.2)
        assert HERE in await told(it)
        gate.open()


async def test_one_that_ends_the_connection_or_speaks_nonsense_is_left_out(home: Path) -> None:
    async with bench(home) as it, silent_holder(home, it) as listener:
        session_id = await it.new()
        answers = [b"", b"garbage\n", b'{"jsonrpc":"2.0","id":1,"result":{}}\n']
        hello = b'{"jsonrpc":"2.0","id":1,"result":{"agentCapabilities":{}}}\n'
        answers += [hello + b'{"jsonrpc":"2.0","id":2,"result":%s}\n' % each for each in ODD]

        async def serve() -> None:
            for answer in answers:
                await anyio.wait_readable(listener)
                connection, _ = listener.accept()
                connection.send(answer)
                connection.close()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(serve)
            for _ in answers:
                assert await looked(it, session_id, it.editor) == []


async def test_the_answer_does_not_wait_for_it_and_a_session_that_is_gone_is_told_nothing(
    home: Path,
) -> None:
    async with bench(home) as it, silent_holder(home, it):
        sessions = it.bridge._sessions
        it.passages.kept_work = KeptWork(it.context, sessions.attaching, patience=3600)
        session_id = await it.new()
        assert await it.editor.ask("session/close", {"sessionId": session_id}) == {}
        assert it.editor.texts(session_id) == []


ODD = [b"[]", b'{"sessions": 1}', b'{"sessions": [1, {}, {"sessionId": "x", "clients": 0}]}']
