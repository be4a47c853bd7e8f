"""`session/load` and `resume`: the transcript as it was shown, from the journal."""

from pathlib import Path

import pytest

from tests.support.client import RecordingClient
from tests.support.recording import Message, RpcError
from tests.whole.bridge_support import World, fails, joined, shown, stopped
from tests.whole.tiny_agent import tiny_agent

pytestmark = pytest.mark.process

NO_SUCH = "00000000000000000000000000000000"


async def replay(client: RecordingClient, session_id: str, cwd: Path) -> list[Message]:
    """What a load shows before its response; nothing of the conversation follows it."""
    seen = client.mark()
    await client.load_session(session_id, cwd)
    lines = client.recording[seen:]
    end = seen + next(n for n, line in enumerate(lines) if "result" in (line.message or {}))
    assert joined(client.updates(session_id, end)) == []
    before = client.updates(session_id, seen)
    assert before[-1]["sessionUpdate"] == "available_commands_update"
    return joined(before)


@pytest.mark.hazard("R1.1", "R1.3", "R1.4", "R7.1", "K1.3")
async def test_loading_shows_the_same_each_time_before_the_response_and_changes_nothing(
    world: World,
) -> None:
    async with world.inside() as client:
        await client.prompt("think hard; say one two; tool t; tool-done t; terminal sleep 9")
        await client.prompt('update {"sessionUpdate":"plan","entries":[]}; say three')
        session = client.session_id
    live = shown(client)
    replays: list[list[Message]] = []
    for _ in range(2):
        async with world.inside(session=False) as client:
            for _ in range(2):
                replays.append(await replay(client, session, world.cwd))
    for again in replays[1:]:
        assert again == replays[0]
    users = [u for u in replays[0] if u["sessionUpdate"] == "user_message_chunk"]
    assert len(users) == 2
    # As it was shown, but for the live terminal.
    kept = [u for u in replays[0] if u not in users]
    assert kept == [_without_terminal(update) for update in live]
    assert "terminalId" in str(live)
    assert "terminalId" not in str(kept)


def _without_terminal(update: Message) -> Message:
    return {**update, "content": []} if "terminalId" in str(update) else update


@pytest.mark.hazard("R4.1", "R4.2", "R1", "T2")
async def test_loading_a_live_session_attaches_to_its_turn_and_cancel_still_works(
    world: World,
) -> None:
    async with world.inside() as client:
        running = client.send_prompt("say one two; tool t; gate g; say three; gate h")
        await world.gates.reached("g")
        await client.until_recorded(lambda: len(shown(client)) == 2)
        before, seen = shown(client), client.mark()
        loaded = await client.load_session(client.session_id, world.cwd)
        again = shown(client, seen)
        users = [u for u in again if u["sessionUpdate"] == "user_message_chunk"]
        assert [u for u in again if u not in users] == before
        assert loaded["modes"]["currentModeId"] == "plan"
        assert loaded["_meta"]["acp_bridge"]["agentSessionId"] == "0"
        seen = client.mark()
        world.gates.open("g")
        await client.until_text("three", since=seen)
        client.cancel()
        assert await stopped(client, running) == "cancelled"
        assert await client.prompt("say four") == {"stopReason": "end_turn"}
    assert len(world.log.pids()) == 1


@pytest.mark.hazard("R5.2", "R5.3")
async def test_a_load_applies_its_roots_and_servers_at_idle_and_refuses_another_folder(
    world: World,
) -> None:
    servers = [{"name": "s", "command": "/bin/s", "args": [], "env": []}]
    async with world.inside() as client:
        running = client.send_prompt("say one; gate g")
        await world.gates.reached("g")
        other = world.cwd / "other"
        about = {"sessionId": client.session_id, "mcpServers": []}
        await fails(client, "session/load", -32602, **about, cwd=str(other))
        roots = [str(other)]
        await client.load_session(
            client.session_id, world.cwd, additionalDirectories=roots, mcpServers=servers
        )
        assert len(world.log.pids()) == 1
        world.gates.open("g")
        assert await stopped(client, running) == "end_turn"
        assert await client.prompt("history; say two") == {"stopReason": "end_turn"}
        assert client.texts()[-2:] == ["say one; gate g", "two"]
        assert len(world.log.pids()) == 2
        # The same again is no reason for another process.
        await client.load_session(
            client.session_id, world.cwd, additionalDirectories=roots, mcpServers=servers
        )
        await client.prompt("say three")
        session = client.session_id
    resumed = world.log.received("session/resume")
    given = [message["params"] for message in resumed]
    assert [(p["cwd"], p["additionalDirectories"], p["mcpServers"]) for p in given] == [
        (str(world.cwd), roots, servers)
    ]
    # They are nobody's but this client's: the next one gives its own.
    async with world.inside(session=False) as client:
        await client.load_session(session, world.cwd, additionalDirectories=["/elsewhere"])
        await client.prompt("say four")
    last = world.log.received("session/resume")[-1]["params"]
    assert (last["additionalDirectories"], last["mcpServers"]) == (["/elsewhere"], [])


@pytest.mark.hazard("R4", "R5")
@pytest.mark.parametrize("written", ["{}/", "{}/.", "{}//"])
async def test_the_same_folder_written_otherwise_is_the_same(world: World, written: str) -> None:
    async with world.inside() as client:
        await client.prompt("say one")
        cwd = written.format(world.cwd)
        about: Message = {"sessionId": client.session_id, "cwd": cwd, "mcpServers": []}
        await client.request("session/load", about)
        rows = (await client.request("session/list", {"cwd": f"{world.cwd}/"}))["sessions"]
        assert [row["sessionId"] for row in rows] == [client.session_id]
        assert await client.prompt("say two") == {"stopReason": "end_turn"}
    assert len(world.log.pids()) == 1


@pytest.mark.hazard("R2.1", "R3")
async def test_an_unknown_session_is_an_error_whatever_is_asked_of_it(world: World) -> None:
    async with world.inside() as client:
        unknown: Message = {"sessionId": NO_SUCH}
        setup: Message = {**unknown, "cwd": str(world.cwd), "mcpServers": []}
        await fails(client, "session/load", -32002, **setup)
        await fails(client, "session/resume", -32002, **setup)
        await fails(client, "session/close", -32002, **unknown)
        await fails(client, "session/set_mode", -32002, **unknown, modeId="plan")
        block = {"type": "text", "text": "say never"}
        await fails(client, "session/prompt", -32002, **unknown, prompt=[block])
        client.cancel(NO_SUCH)
        assert await client.request("session/delete", unknown) == {}
        assert await client.prompt("say one") == {"stopReason": "end_turn"}
        rows = (await client.request("session/list", {}))["sessions"]
        assert [row["sessionId"] for row in rows] == [client.session_id]
    assert len(world.log.received("session/new")) == 1


@pytest.mark.hazard("R3.1", "K2")
async def test_a_load_that_fails_is_visible_and_hurts_no_other_session(world: World) -> None:
    async with world.inside() as client:
        await client.prompt("say one")
        broken, file = client.session_id, world.home / "sessions" / f"{client.session_id}.db"
        await client.new_session(world.cwd)
        await client.prompt("say two")
        whole = client.session_id
    content = file.read_bytes()
    file.write_bytes(b"not a database at all")
    async with world.inside(session=False) as client:
        with pytest.raises(RpcError, match="journal can't be read"):
            await client.load_session(broken, world.cwd)
        assert "Traceback" in client.stderr.decode()
        client.stderr = b""
        await client.load_session(whole, world.cwd)
        assert client.texts() == ["two"]
        file.write_bytes(content)
        await client.load_session(broken, world.cwd)
        assert client.texts(broken) == ["one"]


@pytest.mark.hazard("R8.2", "R3")
@pytest.mark.parametrize("method", ["session/load", "session/resume"])
async def test_a_session_of_another_agent_is_refused_by_name_and_stays_as_it_was(
    world: World, method: str
) -> None:
    async with world.inside() as client:
        await client.prompt("say one")
        session = client.session_id
    setup = {"sessionId": session, "cwd": str(world.cwd), "mcpServers": []}
    other = tiny_agent(world.cwd, 'CAN = {"loadSession": True}\ndef session_load(*_): return {}\n')
    async with world.inside(command=other, session=False) as client:
        error = await fails(client, method, -32602, **setup)
        assert "sessionId" in error.message
        assert "fixture_agent.py" in error.message
        assert "tiny_agent.py" in error.message
        block = {"type": "text", "text": "say never"}
        await fails(client, "session/prompt", -32002, sessionId=session, prompt=[block])
        assert client.updates() == []
    async with world.inside(session=False) as client:
        await client.load_session(session, world.cwd)
        assert await client.prompt("history") == {"stopReason": "end_turn"}
        assert client.texts() == ["one", "say one"]


@pytest.mark.hazard("R1")
async def test_resume_replays_nothing_and_goes_on(world: World) -> None:
    async with world.inside() as client:
        await client.prompt("say one")
        session = client.session_id
    async with world.inside(session=False) as client:
        # mcpServers may be left out.
        result = await client.request(
            "session/resume", {"sessionId": session, "cwd": str(world.cwd)}
        )
        assert result["modes"]["currentModeId"] == "plan"
        assert client.updates() == []
        client.session_id = session
        assert await client.prompt("history") == {"stopReason": "end_turn"}
        assert client.texts() == ["say one"]


@pytest.mark.hazard("P2", "Q9")
async def test_a_load_that_runs_when_the_client_leaves_is_given_up_before_the_session_ends(
    world: World,
) -> None:
    """Without an error in the log, which `judge` would find."""
    async with world.inside() as client:
        await client.prompt("big 300000")
        session = client.session_id
    async with world.inside(session=False, client_limit=1) as client:
        client.pipe.pause_reading()
        params = {"sessionId": session, "cwd": str(world.cwd), "mcpServers": []}
        load = client.send_request("session/load", params)
        await client.logged("client.slow")
        client.close_stdin()
        await client.logged("agent.exited")
        client.pipe.resume_reading()
        assert (await client.answer_to(load))["error"]["code"] == -32800


async def test_a_load_right_after_the_start_takes_the_process_that_is_starting(
    world: World,
) -> None:
    async with world.inside() as client:
        await client.prompt("say one")
        session_id = client.session_id
    async with world.inside("slow-start", builtin=True, session=False) as client:
        loading = client.send_request(
            "session/load",
            {"sessionId": session_id, "cwd": str(world.cwd), "mcpServers": []},
        )
        await client.answer_to(loading)
        client.session_id = session_id
        prompt = client.send_prompt("history")
        await world.gates.reached("initialize")
        world.gates.open("initialize")
        assert await stopped(client, prompt) == "end_turn"
    assert len(world.log.pids()) == 2
