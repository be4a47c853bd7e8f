"""Who may see what waits, and how it is listed."""

from pathlib import Path

import pytest

from tests.core.bridge.remote import remote_bench
from tests.core.bridge.test_rights import LOOKS
from tests.core.bridge.test_state import TOOL
from tests.core.sessions.agent import until
from tests.core.sessions.bench import bench

pytestmark = pytest.mark.hazard("N6")


@pytest.mark.parametrize("may", ["look", "approve", "all"])
async def test_every_login_lists_loads_attaches_and_sees_what_is_live_and_waits(
    tmp_path: Path, may: str
) -> None:
    async with remote_bench(tmp_path) as it:
        owner = await it.remote()
        session_id = await it.new(owner)
        assert await owner.stop_reason(owner.prompt(session_id, "hello")) == "end_turn"
        client = await it.remote(may)
        for method in LOOKS:
            assert await client.ask(method, {**it.setup(), "sessionId": session_id}) is not None
        assert (await client.ask("session/list", {}))["sessions"][0]["sessionId"] == session_id
        assert (await client.ask("_acp_bridge/live", {}))["sessions"][0]["sessionId"] == session_id
        answer = await client.ask("_acp_bridge/queue/list", {"sessionId": session_id})
        assert answer == {"prompts": []}
        assert "echo hello" in client.texts(session_id)


async def test_what_is_live_is_listed_with_what_it_waits_for(tmp_path: Path) -> None:
    async with bench(tmp_path) as it:
        stranger = await it.joined(observer=True)
        assert await stranger.ask("_acp_bridge/live", {}) == {"sessions": []}
        one, two = await it.new(), await it.new()
        await it.editor.stop_reason(it.editor.prompt(one, "A title"))
        gate = it.agent.stops_at("session/prompt")
        for text in ("runs", "waits"):
            it.editor.prompt(two, text)
        await until(lambda: gate.reached)
        asked = {"sessionId": "agent-1-2", "toolCall": TOOL, "options": []}
        it.agent.processes[0].says(
            {"id": 7, "method": "session/request_permission", "params": asked}
        )
        await it.editor.got("session/request_permission")
        first, second = (await stranger.ask("_acp_bridge/live", {}))["sessions"]
        assert type(first.pop("seconds")) is int
        assert first == {
            "sessionId": one,
            "cwd": "/w",
            "agent": "agent",
            "title": "A title",
            "state": "idle",
            "waiting": 0,
            "clients": 1,
        }
        wanted = {
            "state": "permission",
            "waiting": 1,
            "asks": "Edit x (nothing but this title is known)",
        }
        assert {key: second[key] for key in wanted} == wanted
        gate.open()
