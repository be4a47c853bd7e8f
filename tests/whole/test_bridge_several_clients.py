"""Several clients of one real bridge: on its stdin and on its socket, with equal ids."""

import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.support.client import RecordingClient
from tests.support.recording import RpcError
from tests.whole.bridge_support import World, stopped
from tests.whole.test_bridge_socket import listening

pytestmark = pytest.mark.process

PERMISSION = "session/request_permission"


@asynccontextmanager
async def joined(world: World, editor: RecordingClient) -> AsyncIterator[RecordingClient]:
    """One more client of the editor's bridge, which has its session."""
    bridge = await listening(world, editor)
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(bridge.socket)
        reading, writing = os.dup(connection.fileno()), os.dup(connection.fileno())
    async with RecordingClient(reading, writing) as client:
        await client.initialize({})
        await client.request("_acp_bridge/attach", {"sessionId": editor.session_id})
        client.session_id = editor.session_id
        yield client
        client.close_stdin()


@pytest.mark.hazard("V2.2", "V3")
async def test_requests_of_equal_ids_are_given_up_and_answered_each_for_its_client(
    world: World,
) -> None:
    async with world.bridge(capabilities={}) as editor, joined(world, editor) as other:
        editor.side.permission = other.side.permission = "never"
        running = editor.send_request(*prompted(editor, "permission; gate g; say one"), "same")
        (mine,) = [await editor.until_request(PERMISSION)]
        theirs = await other.until_request(PERMISSION)
        waiting = other.send_request(*prompted(other, "say never"), "same")
        other.notify("$/cancel_request", {"requestId": waiting})
        assert await stopped(other, waiting) == "cancelled"
        # An error settles nothing; the choice of the other does; what comes later is dropped.
        editor.answer_error(mine["id"], RpcError(-32601, "no such method"))
        other.answer(theirs["id"], {"outcome": {"outcome": "selected", "optionId": "allow"}})
        await world.gates.reached("g")
        editor.answer(mine["id"], {"outcome": {"outcome": "selected", "optionId": "reject"}})
        world.gates.open("g")
        assert await stopped(editor, running) == "end_turn"
        await other.until_text("one")
        assert editor.text() == other.text() == "[permission allow]one"
        assert world.log.prompts() == ["permission; gate g; say one"]


def prompted(client: RecordingClient, text: str) -> tuple[str, dict[str, Any]]:
    words = [{"type": "text", "text": text}]
    return "session/prompt", {"sessionId": client.session_id, "prompt": words}
