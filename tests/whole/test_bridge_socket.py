"""The socket of a real bridge: it comes with `initialize`, goes with the bridge, and is guarded."""

import os
import signal
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from acp_bridge.sharing.listening.places import run_folder
from acp_bridge.sharing.listening.run_files import LiveBridge, live_bridges
from tests.sharing.listening.talk import Talk
from tests.support.client import RecordingClient
from tests.whole.bridge_support import World
from tests.whole.tiny_agent import tiny_agent

pytestmark = pytest.mark.process

HELLO = {"protocolVersion": 1, "clientCapabilities": {}}

#: An agent whose tool connects to a socket, in a process that has lost its parents.
CONNECTING = r"""
import socket

def _x_connect(id, params):
    readable, writable = os.pipe()
    if os.fork() == 0:
        os.setsid()
        above = os.getpid()
        if os.fork():
            os._exit(0)
        while os.getppid() == above:
            time.sleep(0.001)
        talk = socket.socket(socket.AF_UNIX)
        talk.connect(params["path"])
        talk.send(json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
            "protocolVersion": 1, "clientCapabilities": {}}}).encode() + b"\n")
        os.write(writable, talk.recv(65536))
        os._exit(0)
    os.wait()
    os.close(writable)
    return {"said": os.fdopen(readable).read()}
"""


def is_there(path: str) -> bool:
    return Path(path).exists()


async def listening(world: World, client: RecordingClient) -> LiveBridge:
    """The bridge of this client, as soon as it listens."""
    pid = client.process and client.process.pid
    with anyio.fail_after(5):
        while True:
            for bridge in live_bridges(world.home):
                if bridge.pid == pid:
                    return bridge
            await anyio.lowlevel.checkpoint()


async def test_a_second_client_joins_a_bridge_over_its_socket(world: World) -> None:
    async with world.bridge() as client:
        bridge = await listening(world, client)
        talk = Talk(bridge.socket)
        try:
            told = await talk.ask("initialize", HELLO)
            assert told["agentCapabilities"]["loadSession"] is True
        finally:
            talk.close()
        assert await client.prompt("say one") == {"stopReason": "end_turn"}


@pytest.mark.parametrize("how", ["EOF", "SIGTERM"])
async def test_at_the_end_of_a_bridge_its_socket_is_gone_and_its_clients_are_let_go(
    world: World, how: str
) -> None:
    async with world.bridge() as client:
        bridge = await listening(world, client)
        talk = Talk(bridge.socket)
        try:
            await talk.ask("initialize", HELLO)
            if how == "EOF":
                client.close_stdin()
            else:
                client.terminate(signal.SIGTERM)
            assert await talk.line() is None
        finally:
            talk.close()
        assert await client.wait(within=3) == 0
        assert os.listdir(run_folder(world.home)) == []
        assert not is_there(bridge.socket)


async def test_a_killed_bridge_is_listed_no_more_and_the_next_look_tidies_up(world: World) -> None:
    async with world.bridge(exits=-signal.SIGKILL) as client:
        bridge = await listening(world, client)
        client.terminate(signal.SIGKILL)
        await client.wait(within=3)
        assert is_there(bridge.socket)
        assert live_bridges(world.home) == []
        assert not is_there(bridge.socket)


@pytest.mark.parametrize("how", ["option", "variable"])
async def test_a_bridge_that_is_not_to_listen_leaves_no_trace(world: World, how: str) -> None:
    options = ["--no-listen"] if how == "option" else []
    env = {"ACP_BRIDGE_LISTEN": "off"} if how == "variable" else {}
    async with world.bridge(options=options, env=env) as client:
        assert await client.prompt("say one") == {"stopReason": "end_turn"}
    assert not run_folder(world.home).exists()


async def test_a_bridge_that_can_not_listen_serves_its_stdin_as_ever(world: World) -> None:
    world.home.mkdir()
    run_folder(world.home).write_text("no folder")
    async with world.bridge() as client:
        await client.logged("socket.none")
        assert await client.prompt("say one") == {"stopReason": "end_turn"}


@pytest.mark.hazard("V6.1")
async def test_what_an_agent_has_started_can_neither_join_its_own_bridge_nor_another(
    world: World, tmp_path: Path
) -> None:
    command = tiny_agent(tmp_path, CONNECTING)
    async with world.bridge() as other, world.bridge(command=command) as client:
        for bridge in (await listening(world, client), await listening(world, other)):
            answer = await client.request("_x/connect", {"path": bridge.socket})
            assert "agents and what they start" in answer["said"]
            assert answer["said"].count("\n") == 1
