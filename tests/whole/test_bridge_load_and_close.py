"""Load, close and delete of one session, one on top of the other."""

import json
import threading
from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest

from acp_bridge.core.journal import Journal, JournalError, SessionJournal, history
from acp_bridge.terminal.cli.naming import agent_name
from tests.support.client import RecordingClient
from tests.support.fixture_agents import fixture_command
from tests.support.recording import is_answer
from tests.whole.bridge_support import World, fails, stopped

pytestmark = pytest.mark.process

#: 4 MB: far more than a pipe takes, so that a client that does not read stops a replay.
MESSAGES = 80
TEXT = "x" * 50_000


async def keep_long_session(world: World, held: str | None = None) -> str:
    """A session with a long history, and a prompt that waits, that no bridge has open."""
    journal = Journal(world.home)
    agent = agent_name(fixture_command())
    session = await journal.create("a" * 32, cwd=str(world.cwd), agent=agent)
    for number in range(MESSAGES):
        content = {"type": "text", "text": TEXT}
        update = {"sessionUpdate": "agent_message_chunk", "content": content}
        line = {"update": {**update, "messageId": f"m{number}"}}
        session.record(0, json.dumps(line).encode())
    if held:
        session.accept("1", {"prompt": [{"type": "text", "text": held}]})
    await journal.close()
    return "a" * 32


def setup(client: RecordingClient, world: World) -> dict[str, Any]:
    return {"sessionId": client.session_id, "cwd": str(world.cwd), "mcpServers": []}


def in_short(client: RecordingClient, *requests: int) -> list[str]:
    """The messages and the answers to these requests, in the order of the wire."""
    said = []
    for message in client.recording.incoming():
        update = message.get("params", {}).get("update", {})
        if update.get("messageId", "").startswith("m"):
            said.append(update["messageId"])
        elif (answered := [id_ for id_ in requests if is_answer(id_, message)]) != []:
            said.append(f"answer {answered[0]}")
    return said


@pytest.mark.hazard("R1")
async def test_a_load_that_comes_while_another_waits_its_turn_is_replayed_alone(
    world: World,
) -> None:
    async with world.inside(session=False, client_limit=1) as client:
        client.session_id = await keep_long_session(world)
        one = client.send_request("session/load", setup(client, world))
        two = client.send_request("session/load", setup(client, world))
        await client.answer_to(one)
        three = client.send_request("session/load", setup(client, world))
        await client.answer_to(three)
        whole = [f"m{number}" for number in range(MESSAGES)]
        assert in_short(client, one, two, three) == [
            *(*whole, f"answer {one}"),
            *(*whole, f"answer {two}"),
            *(*whole, f"answer {three}"),
        ]


@pytest.mark.hazard("Q8", "R3.2")
async def test_a_session_goes_on_after_a_replay_that_the_client_gave_up(world: World) -> None:
    async with world.inside(session=False, client_limit=1) as client:
        client.session_id = await keep_long_session(world)
        await client.request("session/load", setup(client, world))
        client.pipe.pause_reading()
        slow = client.stderr.count(b"client.slow")
        load = client.send_request("session/load", setup(client, world))
        await client.logged("client.slow", slow + 1)
        client.notify("$/cancel_request", {"requestId": load})
        client.pipe.resume_reading()
        assert (await client.answer_to(load))["error"]["code"] == -32800
        seen = client.mark()
        assert await stopped(client, client.send_prompt("say one")) == "end_turn"
        assert client.texts(since=seen) == ["one"]


@pytest.mark.hazard("Q8", "R3.2")
async def test_a_session_goes_on_after_a_replay_that_the_journal_broke_off(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    replay = SessionJournal.replay

    async def broken(self: SessionJournal, **more: Any) -> AsyncIterator[list[dict[str, Any]]]:
        async for page in replay(self, **more):
            yield page
            raise JournalError("broken")

    async with world.inside() as client:
        running = client.send_prompt("say one; gate g; say two")
        await world.gates.reached("g")
        await client.until_text("one")
        with monkeypatch.context() as patch:
            patch.setattr(SessionJournal, "replay", broken)
            await fails(client, "session/load", -32603, **setup(client, world))
        client.stderr = b""  # it had to say so
        seen = client.mark()
        world.gates.open("g")
        assert await stopped(client, running) == "end_turn"
        assert client.texts(since=seen) == ["two"]


async def test_a_prompt_is_answered_before_the_close_that_comes_during_a_replay(
    world: World,
) -> None:
    async with world.inside(session=False, client_limit=1) as client:
        client.session_id = await keep_long_session(world)
        await client.request("session/load", setup(client, world))
        prompt = client.send_prompt("gate never")
        await world.gates.reached("never")
        client.pipe.pause_reading()
        load = client.send_request("session/load", setup(client, world))
        close = client.send_request("session/close", {"sessionId": client.session_id})
        await client.logged("turn.ended")
        client.pipe.resume_reading()
        await client.answer_to(close)
        said = in_short(client, prompt, load, close)
        assert said[-1] == f"answer {close}"
        assert f"answer {prompt}" in said
        assert f"answer {load}" in said
        assert await stopped(client, prompt) == "cancelled"


@pytest.mark.hazard("R4")
async def test_a_load_right_behind_a_close_opens_the_session_again(world: World) -> None:
    async with world.inside() as client:
        await client.prompt("say one")
        client.send_together(
            client.message("session/close", 100),
            {"id": 101, "method": "session/load", "params": setup(client, world)},
        )
        assert (await client.answer_to(100))["result"] == {}
        assert "result" in await client.answer_to(101)
        assert await stopped(client, client.send_prompt("say two")) == "end_turn"


async def test_a_close_that_the_client_gave_up_closes_all_the_same(world: World) -> None:
    async with world.inside("ignores-cancel", drain_timeout=0.3) as client:
        prompt = client.send_prompt("gate never")
        await world.gates.reached("never")
        close = client.send_request("session/close", {"sessionId": client.session_id})
        client.notify("$/cancel_request", {"requestId": close})
        assert (await client.answer_to(close))["error"]["code"] == -32800
        load = client.send_request("session/load", setup(client, world))
        assert "result" in await client.answer_to(load)
        assert await stopped(client, prompt) == "cancelled"
        assert await stopped(client, client.send_prompt("say two")) == "end_turn"


@pytest.mark.hazard("R1", "R12")
async def test_a_held_prompt_that_starts_during_a_replay_is_shown_behind_it(world: World) -> None:
    async with world.inside(session=False, client_limit=1) as client:
        client.session_id = await keep_long_session(world, held="say held")
        await client.request("session/load", setup(client, world))
        client.pipe.pause_reading()
        since = client.mark()
        load = client.send_request("session/load", setup(client, world))
        run = client.send_prompt("/queue run")
        await client.logged("turn.started")
        client.pipe.resume_reading()
        await client.answer_to(run)
        said = client.recording.incoming(since)
        (shown,) = [n for n, m in enumerate(said) if '"say held"' in json.dumps(m)]
        (loaded,) = [n for n, m in enumerate(said) if is_answer(load, m)]
        assert loaded < shown


class SlowReading:
    """While it is patched in, a page of a replay is read only when the test lets it go on."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._read_rows, self._close = history.read_rows, SessionJournal.close
        self._begun, self._through = threading.Event(), threading.Event()
        self._closed = anyio.Event()

        async def close(journal: SessionJournal) -> None:
            await self._close(journal)
            self._closed.set()

        patch.setattr(history, "read_rows", self._held_up)
        patch.setattr(SessionJournal, "close", close)

    def _held_up(self, *args: Any) -> Any:
        self._begun.set()
        assert self._through.wait(5)
        return self._read_rows(*args)

    async def begun(self) -> None:
        assert await anyio.to_thread.run_sync(self._begun.wait, 5)

    async def go_on_when_closed(self) -> None:
        """Let it go on when a journal has been closed."""
        with anyio.fail_after(5):
            await self._closed.wait()
        self._through.set()


async def is_deleted_under(world: World, client: RecordingClient, load: int, delete: int) -> None:
    """The load of the client's session came before its deletion, or was told that there is none."""
    assert "result" in await client.answer_to(delete)
    answer = await client.answer_to(load)
    assert answer.get("error", {"code": -32002})["code"] == -32002
    assert not (world.home / "sessions" / f"{client.session_id}.db").exists()
    await fails(client, "session/load", -32002, **setup(client, world))


@pytest.mark.hazard("Q9", "K6", "R2.1")
async def test_a_load_that_reads_while_the_session_is_deleted_says_that_it_is_unknown(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world.inside(session=False, client_limit=1) as client:
        client.session_id = await keep_long_session(world)
        await client.request("session/load", setup(client, world))
        with monkeypatch.context() as patch:
            reading = SlowReading(patch)
            load = client.send_request("session/load", setup(client, world))
            await reading.begun()
            delete = client.send_request("session/delete", {"sessionId": client.session_id})
            await reading.go_on_when_closed()
        assert (await client.answer_to(load))["error"]["code"] == -32002
        await is_deleted_under(world, client, load, delete)


@pytest.mark.hazard("Q9", "K6", "R2")
@pytest.mark.parametrize("moment", ["waiting", "opening", "behind"])
async def test_a_load_beside_a_deletion_comes_before_it_or_says_that_the_session_is_unknown(
    world: World, moment: str
) -> None:
    async with world.inside(session=False, client_limit=1) as client:
        client.session_id = await keep_long_session(world)
        if moment != "opening":
            await client.request("session/load", setup(client, world))
        client.pipe.pause_reading()
        load, delete = 100, 101
        requests: list[dict[str, Any]] = [
            {"id": load, "method": "session/load", "params": setup(client, world)},
            client.message("session/delete", delete),
        ]
        if moment == "behind":
            requests.reverse()
        client.send_together(requests[0])
        if moment == "waiting":
            await client.logged("client.slow", 2)
        client.send_together(requests[1])
        client.pipe.resume_reading()
        await is_deleted_under(world, client, load, delete)
