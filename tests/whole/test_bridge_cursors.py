"""A real bridge is killed in the middle of a message: its client goes on at its cursor."""

import signal
from typing import Any

import pytest

from tests.support.client import RecordingClient
from tests.support.recording import Message
from tests.whole.bridge_support import World

pytestmark = [pytest.mark.process, pytest.mark.hazard("N5")]
CURSORS: Message = {"_meta": {"acp_bridge": {"cursors": True}}}


def told(client: RecordingClient) -> list[tuple[str, Any]]:
    """Return the texts that a client got in updates with a cursor, each with that."""
    params = [each["params"] for each in client.recording.requests("session/update")]
    own = [(each["update"], each.get("_meta", {}).get("acp_bridge", {})) for each in params]
    return [(update["content"]["text"], mark["cursor"]) for update, mark in own if "cursor" in mark]


@pytest.mark.hazard("N5.1")
async def test_after_a_kill_each_cursor_goes_on_where_it_was(world: World) -> None:
    async with world.bridge(capabilities=CURSORS, exits=-signal.SIGKILL) as first:
        session_id = first.session_id
        await first.prompt("say one; say two; say three")
        first.send_prompt("say four; say five; gate g")
        await world.gates.reached("g")
        await first.until_text("five")
        had = told(first)
        first.terminate(signal.SIGKILL)
    assert len(had) >= 5
    whole = "".join(text for text, _ in had)
    async with world.bridge(capabilities=CURSORS, session=False) as second:
        since = 0
        for at, (_, cursor) in enumerate(had):
            after = {"_meta": {"acp_bridge": {"after": cursor}}}
            given = {"sessionId": session_id, "cwd": str(world.cwd), "mcpServers": [], **after}
            await second.request("session/resume", given, 20)
            new, since = told(second)[since:], len(told(second))
            seen = "".join(text for text, _ in had[: at + 1])
            words, _, end = "".join(text for text, _ in new).partition("\n\n[acp-bridge]")
            assert "Interrupted" in end
            assert (seen + words).replace("say four; say five; gate g", "") == whole
