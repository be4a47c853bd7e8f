"""The ends of a bridge, and what it leaves behind: no process, no secret."""

import signal
from pathlib import Path

import anyio
import pytest

from tests.support.processes import all_gone, marked
from tests.support.recording import Message, RpcError
from tests.whole.bridge_support import World, fails, kill_agent, stopped

pytestmark = pytest.mark.process

SECRETS = ("s3cr3t-env-value", "s3cr3t-header", "s3cr3t-credential", "s3cr3t-argument")


@pytest.mark.hazard("P1.2", "P2")
@pytest.mark.parametrize("how", ["EOF", "SIGTERM", "SIGKILL", "close"])
async def test_no_child_and_no_grandchild_of_the_agent_outlives_any_end(
    world: World, how: str
) -> None:
    behaviours = ("leaves-child", "leaves-grandchild", *(["never-ends"] if how == "EOF" else []))
    exits = -signal.SIGKILL if how == "SIGKILL" else 0
    async with world.bridge(*behaviours, exits=exits) as client:
        assert client.process is not None
        client.send_prompt("child; grandchild; gate g")
        await world.gates.reached("g")
        # The bridge, the guard, the agent, and two of each kind.
        assert len(marked(world.mark)) == 7
        if how == "EOF":
            client.close_stdin()
        elif how == "close":
            await client.request("session/close", {"sessionId": client.session_id})
            assert marked(world.mark) == [client.process.pid]
        else:
            client.terminate(signal.Signals[how])
        if how != "close":
            assert await client.wait(within=3) == exits
            await all_gone(world.mark)


@pytest.mark.hazard("P2", "P1")
async def test_an_agent_that_neither_reads_nor_ends_holds_up_no_end(world: World) -> None:
    async with world.bridge("never-reads-stdin", "never-ends") as client:
        await world.gates.reached("stopped reading")
        client.send_prompt("say " + "x" * 500_000)
        await client.logged("turn.started")
        client.close_stdin()
        assert await client.wait(within=3) == 0
        await all_gone(world.mark)


@pytest.mark.hazard("P2.5", "C21")
async def test_an_agent_that_has_all_the_time_to_end_holds_up_no_end_of_the_bridge(
    world: World,
) -> None:
    # Nothing but the bridge's own bound ends the wait for the agent.
    async with world.inside("never-ends", close_grace=1000, kill_timeout=1000) as client:
        await client.prompt("say one")
        client.close_stdin()
        await world.gates.reached("end of input")  # it is asked to end, and does not
        with anyio.fail_after(20):
            await client.closed.wait()
        await all_gone(world.mark)


@pytest.mark.hazard("P2.4")
@pytest.mark.parametrize(
    ("how", "state"),
    [("SIGHUP", "waiting"), ("EOF", "idle"), ("SIGTERM", "in a turn"), ("EOF", "deaf in a turn")],
)
async def test_an_agent_that_ignores_the_end_of_its_stdin_is_told_to_end_and_may_tidy_up(
    world: World, how: str, state: str
) -> None:
    behaviours = ("tidies-up", *(["ignores-cancel"] if "deaf" in state else []))
    async with world.bridge(*behaviours, session=state != "waiting") as client:
        if "turn" in state:
            client.send_prompt("gate g")
            await world.gates.reached("g")
        if how == "EOF":
            client.close_stdin()
        else:
            client.terminate(signal.Signals[how])
        assert await client.wait(within=3) == 0
        assert len(world.log.events("tidied")) == 1


@pytest.mark.hazard("P2")
async def test_an_agent_whose_session_is_closed_may_tidy_up(world: World) -> None:
    async with world.inside("tidies-up") as client:
        client.send_prompt("gate g")
        await world.gates.reached("g")
        await client.request("session/close", {"sessionId": client.session_id})
        assert len(world.log.events("tidied")) == 1


@pytest.mark.hazard("P2.5", "C21")
async def test_a_client_that_stopped_reading_holds_up_no_end(world: World) -> None:
    async with world.bridge() as client:
        client.pipe.pause_reading()
        client.send_prompt("big 1000000; " * 20)
        await client.logged("client.slow")
        client.terminate(signal.SIGTERM)
        assert await client.wait(within=3) == 0
        await all_gone(world.mark)


@pytest.mark.hazard("P2", "P8")
async def test_the_end_of_the_client_while_its_session_is_made_leaves_nothing(
    world: World,
) -> None:
    world.gates.open("initialize")
    async with world.bridge("slow-start") as client:
        client.send_request("session/new", {"cwd": str(world.cwd), "mcpServers": []})
        await world.gates.reached("initialize", 2)
        client.close_stdin()
        assert await client.wait(within=3) == 0
        await all_gone(world.mark)


@pytest.mark.hazard("K5.3")
async def test_no_secret_is_in_the_journal_or_in_the_log(world: World) -> None:
    env, header, credential, argument = SECRETS
    servers: list[Message] = [
        {"name": "e", "command": "/s", "args": [argument], "env": [{"name": "K", "value": env}]},
        {
            "type": "http",
            "name": "h",
            "url": "http://localhost",
            "headers": [{"name": "Authorization", "value": header}],
        },
    ]
    token = {"methodId": "browser", "_meta": {"token": credential}}
    log_file = world.home.with_name("log")
    options = ("--log-file", str(log_file), "--log-level", "debug")
    async with world.bridge("needs-auth", options=options, session=False) as client:
        await client.request("authenticate", token)
        await client.new_session(world.cwd, mcpServers=servers, _meta={"token": credential})
        await client.prompt("say one")
        for extra in (servers[:1], servers):
            await client.load_session(client.session_id, world.cwd, mcpServers=extra)
            await client.prompt(f"say {len(extra)} servers")
        with pytest.raises(RpcError):
            await client.prompt("die")
        assert await client.prompt("say two") == {"stopReason": "end_turn"}
        given = world.log.received("session/resume")[-1]["params"]["mcpServers"]
        assert given == servers
        files = [path for path in world.home.rglob("*") if path.is_file()] + [log_file]
        while_open = {path: path.read_bytes() for path in files}
    for path, content in [*while_open.items(), *((p, p.read_bytes()) for p in files if p.exists())]:
        for secret in SECRETS:
            assert secret.encode() not in content, (path, secret)
    assert log_file.stat().st_mode & 0o777 == 0o600
    assert "turn.ended" in log_file.read_text()


@pytest.mark.hazard("K5")
async def test_no_text_of_the_system_or_of_a_library_is_in_an_error_to_the_client(
    world: World, tmp_path: Path
) -> None:
    async with world.inside() as client:
        await kill_agent(world, client)
        gone = tmp_path / "project"
        gone.rename(tmp_path / "moved")
        for method in ("session/load", "session/new"):
            await fails(client, method, -32602, sessionId="x", cwd="relative", mcpServers=[])
        answer = await client.answer_to(client.send_prompt("say one"))
        told = str(answer.get("error", {}).get("message", ""))
        assert str(tmp_path) not in told
        assert "Errno" not in told
        for message in client.recording.incoming():
            assert "Traceback" not in str(message)


async def test_a_stop_reason_is_told_also_when_the_agent_dies_with_its_answer_written(
    world: World,
) -> None:
    # The agent's third request is the prompt.
    answer = '{"jsonrpc":"2.0","id":3,"result":{"stopReason":"end_turn"}}'
    async with world.inside() as client:
        prompt = client.send_prompt(f"say one; raw {answer}; exit 1")
        assert await stopped(client, prompt) == "end_turn"
        await client.logged("agent.exited")
        assert await client.prompt("say two") == {"stopReason": "end_turn"}
        assert client.texts() == ["one", "two"]
