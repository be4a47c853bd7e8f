"""A client of a real bridge loses its connection, and comes back under its name on the socket."""

import os
import random
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from tests.support.client import RecordingClient
from tests.support.waiting import until
from tests.whole.bridge_support import World, stopped
from tests.whole.test_bridge_socket import listening

pytestmark = [pytest.mark.process, pytest.mark.hazard("N2")]

PERMISSION = "session/request_permission"
NAMED: Any = {"_meta": {"acp_bridge": {"client": "a-real-client-0123", "state": True}}}


@asynccontextmanager
async def connected(world: World, editor: RecordingClient) -> AsyncIterator[RecordingClient]:
    """One more connection of the client with the name, which has the editor's session.

    It is cut at the end of the block.
    """
    bridge = await listening(world, editor)
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(bridge.socket)
        reading, writing = os.dup(connection.fileno()), os.dup(connection.fileno())
    async with RecordingClient(reading, writing) as client:
        client.side.permission = "never"
        client.session_id = editor.session_id
        await client.initialize(NAMED)
        params = {"sessionId": editor.session_id, "history": "pending"}
        await client.request("_acp_bridge/attach", params)
        await client.until_request("_acp_bridge/state")
        yield client


def keyed(client: RecordingClient, text: str) -> Any:
    return client.send_prompt(text, _meta={"acp_bridge": {"promptKey": text}})


def ends(client: RecordingClient) -> list[Any]:
    """How the prompts ended that were answered, as the client was told."""
    told = [each["params"] for each in client.recording.requests("_acp_bridge/state")]
    return [each["last"]["stopReason"] for each in told if "last" in each]


def state(client: RecordingClient) -> Any:
    return client.recording.requests("_acp_bridge/state")[-1]["params"]


@pytest.mark.hazard("X2", "V3", "N2.3")
async def test_one_whose_connection_hangs_has_its_prompt_and_its_question_on_the_next(
    world: World,
) -> None:
    text = "permission; gate g; say one"
    async with world.bridge(capabilities={}) as editor, connected(world, editor) as old:
        editor.side.permission = "never"
        keyed(old, text)
        first = await old.until_request(PERMISSION)
        old.pipe.pause_reading()
        async with connected(world, editor) as new:
            assert state(new)["turn"]["mine"] is True
            second = await new.until_request(PERMISSION)
            ids = [each["params"]["_meta"]["acp_bridge"]["question"] for each in (first, second)]
            assert ids[0] == ids[1]
            asked = keyed(new, text)
            new.answer(second["id"], {"outcome": {"outcome": "selected", "optionId": "allow"}})
            await world.gates.reached("g")
            world.gates.open("g")
            assert await stopped(new, asked) == "end_turn"
            old.pipe.resume_reading()
            await old.closed.wait()
            last = old.recording.incoming()[-1]
            assert last["method"] == "_acp_bridge/let_go"
    assert world.log.prompts() == [text]


@pytest.mark.hazard("N2.5")
async def test_after_a_cut_its_stop_ends_its_own_turn_and_nobody_elses(world: World) -> None:
    async with world.bridge(capabilities={}) as editor:
        async with connected(world, editor) as old:
            keyed(old, "say one; gate g; say never")
            await world.gates.reached("g")
        theirs = editor.send_prompt("say two")
        async with connected(world, editor) as new:
            new.cancel()
            await until(lambda: ends(new)[:1] == ["cancelled"])
            assert await stopped(editor, theirs) == "end_turn"
            world.gates.open("g")


@pytest.mark.hazard("X2", "N2.16")
@pytest.mark.parametrize("seed", range(3))
async def test_cut_at_any_moment_each_prompt_runs_once_and_is_answered(
    world: World, seed: int
) -> None:
    rng = random.Random(seed)
    texts = [f"say p{number}" for number in range(8)]
    async with world.bridge(capabilities={}) as editor:
        for _ in range(6):
            async with connected(world, editor) as client:
                for text in texts:
                    keyed(client, text)
                for _ in range(rng.randrange(400)):
                    await anyio.lowlevel.checkpoint()
        async with connected(world, editor) as client:
            for asked in [keyed(client, text) for text in texts]:
                assert await stopped(client, asked) == "end_turn"
    assert sorted(world.log.prompts()) == texts
