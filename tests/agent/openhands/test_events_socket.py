"""The end of a feed: bounded, whatever the server does, and taken twice as once."""

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream

from agent.openhands import events_socket
from agent.openhands.events_socket import open_socket
from agent.openhands.server import Server
from tests.agent.openhands.agent_server import KEY, FakeServer
from tests.agent.openhands.conftest import Adapt
from tests.agent.openhands.server_socket import ServerSocket


async def test_a_server_that_never_takes_the_end_is_left_within_five_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert events_socket._CLOSE <= 5
    monkeypatch.setattr(events_socket, "_CLOSE", 0.1)
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    port = listener.extra(SocketAttribute.local_port)

    async def serve(stream: SocketStream) -> None:
        async with stream:
            await ServerSocket(stream).open(await stream.receive())
            await anyio.sleep_forever()

    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, serve)
        with anyio.fail_after(5):
            async with open_socket(f"http://127.0.0.1:{port}", KEY, "any"):
                pass
        tasks.cancel_scope.cancel()


async def test_a_server_is_left_twice_as_once(fake: FakeServer) -> None:
    server = Server(fake.url, KEY, str)
    await server.ready()
    for _ in range(2):
        with anyio.fail_after(5):
            await server.aclose()


async def test_the_feed_of_a_closed_session_is_ended(adapt: Adapt, fake: FakeServer) -> None:
    async with adapt() as client:
        await client.prompt("hello")
        await client.request("session/close", {"sessionId": client.session_id})
        await fake.until(lambda: not fake.only.sockets)
