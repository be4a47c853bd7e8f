"""What tests say to the agent on the wire, again and again."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.client import RecordingClient
from tests.support.recording import Message, RpcError


async def opened(client: RecordingClient, cwd: Path, **more: Any) -> str:
    """Make a session, of whose request `more` are further parameters; returns its id."""
    await client.initialize()
    return await client.new_session(cwd, **more)


def kinds(client: RecordingClient, since: int = 0) -> list[str]:
    return [update["sessionUpdate"] for update in client.updates(since=since)]


def of_kind(client: RecordingClient, kind: str, since: int = 0) -> list[Message]:
    return [u for u in client.updates(since=since) if u["sessionUpdate"] == kind]


async def error_of(client: RecordingClient, method: str, params: Any) -> RpcError:
    with pytest.raises(RpcError) as caught:
        await client.request(method, params)
    return caught.value
