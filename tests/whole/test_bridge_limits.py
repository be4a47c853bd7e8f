"""Two bridges on one session, a disk that is full, a client that doesn't read, lines too long."""

import json
import os
from pathlib import Path

import pytest

from acp_bridge.core.journal import Journal
from tests.support.client import RecordingClient
from tests.support.recording import Message
from tests.whole.bridge_support import World, fails, full_disk, refused, stopped

pytestmark = [pytest.mark.process, pytest.mark.usefixtures("whole_starts")]


def memory(client: RecordingClient) -> int:
    """Bytes of the bridge's own that are in memory."""
    assert client.process is not None
    pages = Path(f"/proc/{client.process.pid}/statm").read_text().split()
    return (int(pages[1]) - int(pages[2])) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.hazard("K3.4", "P12")
async def test_a_second_bridge_is_told_that_a_session_is_open_and_gets_it_when_it_is_closed(
    world: World,
) -> None:
    async with world.bridge("writer-lock", options=("--no-listen",)) as first:
        await first.prompt("say one")
        setup = {"sessionId": first.session_id, "cwd": str(world.cwd), "mcpServers": []}
        async with world.inside("writer-lock", session=False, lease_timeout=0.3) as second:
            error = await fails(second, "session/load", -32600, **setup)
            assert first.process
            told = "open in another acp-bridge; close it there first, or end that one: kill"
            assert error.args[0].endswith(f"{told} {first.process.pid}")
            done, _, told = await world.command("cancel", first.session_id)
            assert (done, f"process {first.process.pid}, " in told) == (1, True)
        async with world.inside("writer-lock", session=False) as second:
            waiting = second.send_request("session/load", setup)
            assert await first.prompt("say two") == {"stopReason": "end_turn"}
            assert second.recording.answers(waiting) == []
            await first.request("session/close", {"sessionId": first.session_id})
            assert "result" in await second.answer_to(waiting)
            assert second.texts() == ["one", "two"]
            second.session_id = first.session_id
            assert await second.prompt("history") == {"stopReason": "end_turn"}
            assert second.texts()[-1] == "say one | say two"


@pytest.mark.hazard("P11", "P6.1")
async def test_a_load_that_waits_for_another_bridge_holds_up_no_other_session(
    world: World,
) -> None:
    async with world.bridge(options=("--no-listen",)) as first:
        await first.prompt("say one")
        taken = first.session_id
        async with world.inside(session=False, lease_timeout=600) as second:
            ours = await second.new_session(world.cwd)
            about: Message = {"cwd": str(world.cwd), "mcpServers": []}
            waiting = second.send_request("session/load", {**about, "sessionId": taken})
            await second.request("session/load", {**about, "sessionId": ours})
            await second.request("session/close", {"sessionId": ours})
            await second.request("session/resume", {**about, "sessionId": ours})
            await second.request("session/delete", {"sessionId": ours})
            assert second.recording.answers(waiting) == []
            await first.request("session/close", {"sessionId": taken})
            assert "result" in await second.answer_to(waiting)
            assert second.texts(taken) == ["one"]


@pytest.mark.hazard("K3.2", "P12.2", "K1")
async def test_a_session_is_free_as_soon_as_the_bridge_that_had_it_was_killed(
    world: World,
) -> None:
    async with world.bridge("writer-lock", "leaves-grandchild", exits=-9) as first:
        await first.prompt("say one")
        session = first.session_id
        first.kill()
        await first.wait()
    async with world.inside("writer-lock", session=False) as second:
        await second.load_session(session, world.cwd)
        assert await second.prompt("history") == {"stopReason": "end_turn"}
        assert second.texts() == ["one", "say one"]


@pytest.mark.hazard("K1", "Q8", "Q9")
async def test_a_prompt_that_cannot_be_kept_is_refused_and_a_turn_goes_on_visibly_unrecorded(
    world: World,
) -> None:
    async with world.bridge() as client:
        running = client.send_prompt("say one; gate g; say two; gate h; say three")
        await world.gates.reached("g")
        await client.until_text("one")
        with full_disk(client):
            error = await refused(client, "say never")
            assert error.code == -32603
            assert "not taken" in error.args[0]
            world.gates.open("g")
            await client.until_text("two")
            await client.until_text("[acp-bridge] The journal can't be written")
        world.gates.open("h")
        assert await stopped(client, running) == "end_turn"
        assert client.text().count("[acp-bridge] The journal can't be written") == 1
        assert await client.prompt("say four") == {"stopReason": "end_turn"}
        session = client.session_id
    assert "say never" not in world.log.prompts()
    async with world.inside(session=False) as client:
        await client.load_session(session, world.cwd)
        assert client.texts() == ["one", "two", "three", "four"]


@pytest.mark.hazard("C4.2", "C7.1", "C21")
async def test_a_client_that_does_not_read_bounds_the_memory_and_can_cancel_all_the_same(
    world: World,
) -> None:
    async with world.bridge() as client:
        await client.prompt("say one")
        before = memory(client)
        client.pipe.pause_reading()
        running = client.send_prompt("big 1000000; " * 60 + "gate end")
        waiting = client.send_prompt("say two")
        await client.logged("client.slow")
        assert memory(client) - before < 40_000_000
        assert world.gates.times_reached("end") == 0
        client.cancel()
        await client.logged("how=cancelled")
        client.pipe.resume_reading()
        assert await stopped(client, running) == "cancelled"
        assert await stopped(client, waiting) == "end_turn"
        assert len(client.text()) < 40_000_000
        assert client.texts()[-1] == "two"


@pytest.mark.hazard("C7.3", "C4", "C10")
async def test_an_agent_that_was_not_read_for_its_client_is_read_again_after_a_cancel(
    world: World,
) -> None:
    # Nobody is killed within the test: what ends the turn is the agent's own answer.
    async with world.inside(client_limit=1_000_000, drain_timeout=600) as client:
        client.pipe.pause_reading()
        running = client.send_prompt("big 1000000; " * 10 + "gate end")
        await client.logged("client.slow")
        assert world.gates.times_reached("end") == 0
        client.cancel()
        await client.logged("how=cancelled")
        client.pipe.resume_reading()
        assert await stopped(client, running) == "cancelled"
        assert await stopped(client, client.send_prompt("say two")) == "end_turn"
        assert client.texts()[-1] == "two"
    assert len(world.log.pids()) == 1


@pytest.mark.hazard("R6.2", "R1")
async def test_a_history_larger_than_what_may_wait_loads_in_bounded_memory(world: World) -> None:
    async with world.bridge() as client:
        await client.prompt("")
        session = client.session_id
    home = Journal(world.home)
    journal = await home.open(session)
    for number in range(600):
        update = {"sessionUpdate": "agent_message_chunk", "messageId": f"m{number}"}
        content = {"type": "text", "text": f"{number} " + "x" * 100_000}
        journal.record(0, json.dumps({"update": {**update, "content": content}}).encode() + b"\n")
    await home.close()
    async with world.bridge(session=False) as client:
        before = memory(client)
        client.pipe.pause_reading()
        setup = {"sessionId": session, "cwd": str(world.cwd), "mcpServers": []}
        loading = client.send_request("session/load", setup)
        await client.logged("session.opened")
        await client.logged("client.slow")
        assert memory(client) - before < 40_000_000
        client.pipe.resume_reading()
        assert "result" in await client.answer_to(loading, within=20)
        said = [text.split()[0] for text in client.texts(session) if text[:1].isdigit()]
        assert said == [str(n) for n in range(600)]


@pytest.mark.hazard("P6.1", "Q10")
async def test_the_stream_of_one_session_that_nobody_reads_holds_up_no_other_for_good(
    world: World,
) -> None:
    async with world.bridge() as client:
        one, two = client.session_id, await client.new_session(world.cwd)
        client.pipe.pause_reading()
        streams = client.send_prompt("big 1000000; " * 15, one)
        await client.logged("client.slow")
        other = client.send_prompt("say two", two)
        await client.logged("turn.started", 2)
        client.pipe.resume_reading()
        assert await stopped(client, other) == "end_turn"
        assert await stopped(client, streams) == "end_turn"
        assert len(client.text(one)) == 15_000_000


@pytest.mark.hazard("P5.2")
async def test_a_line_over_the_limit_is_refused_alone(world: World) -> None:
    over = 65 * 1024 * 1024
    async with world.bridge() as client:
        seen = client.mark()
        client.send_together({"id": "long", "method": "x", "params": "x" * over})
        refusal = await client.until(lambda m: "error" in m, since=seen, within=20)
        assert refusal["id"] == "long"  # read from the head of the line
        assert refusal["error"]["code"] in (-32600, -32700)
        assert await client.prompt("say one") == {"stopReason": "end_turn"}
