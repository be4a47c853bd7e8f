"""A client of version 2 in front of a bridge; the schema judges all that it says and hears."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from acp_bridge.core.protocol import Json
from tests.support.client import RecordingClient
from tests.support.v2_schema import HELLO, V2Connection
from tests.whole.bridge_support import World
from tests.whole.test_bridge_v2_agent import v2_agent


@asynccontextmanager
async def v2_client(
    world: World, *, command: Sequence[str] | None = None, session: bool = True, **settings: Any
) -> AsyncIterator[RecordingClient]:
    """A client of version 2, in a session if it is to be, by default of an agent of version 2."""
    command = v2_agent() if command is None else command
    async with world.inside(command=command, initialized=False, **settings) as client:
        await client.request("initialize", HELLO)
        if session:
            opened: Json = await client.request("session/new", {"cwd": str(world.cwd)})
            client.session_id = opened["sessionId"]
        yield client
    judged = V2Connection(whole=True)
    for record in client.recording:
        assert record.message is not None
        judged.judge("client" if record.direction == "out" else "agent", record.message)
