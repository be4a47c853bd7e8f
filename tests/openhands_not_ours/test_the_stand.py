"""What the tests stand on: the real server, its model, and the proxy between."""

import json
import uuid

import anyio
import httpx
import pytest

from tests.openhands_not_ours.model import ModelServer, words
from tests.openhands_not_ours.proxy import Deed, Point, Proxy, When
from tests.openhands_not_ours.server import KEY, AgentServer, Api

pytestmark = pytest.mark.process


async def _new(api: Api, server: AgentServer) -> str:
    conversation = str(uuid.uuid4())
    profiles = await api.ask("GET", "/api/agent-profiles")
    workspace = {"kind": "LocalWorkspace", "working_dir": str(server.folder / "work")}
    body = {
        "conversation_id": conversation,
        "agent_profile_id": profiles["active_agent_profile_id"],
        "workspace": workspace,
    }
    await api.ask("POST", "/api/conversations", body)
    return conversation


async def test_a_turn_of_the_server_with_the_model_of_the_tests(
    server: AgentServer, model: ModelServer
) -> None:
    api = Api(server.url)
    conversation = await _new(api, server)
    await api.say(conversation, "SAY HELLO 3")
    await api.until_status(conversation, "finished")
    assert await api.messages(conversation) == ["SAY HELLO 3"]
    assert await api.messages(conversation, "agent") == [words("HELLO", 3)]
    assert len(model.asked("SAY HELLO 3")) == 1
    await api.close()


async def test_a_point_is_cut_once_before_or_after_the_server_has_done_it(
    server: AgentServer, proxy: Proxy
) -> None:
    api, through = Api(server.url), Api(proxy.url)
    conversation = await _new(through, server)
    proxy.strike(Point("POST events", 1, When.BEFORE), Deed.CUT)
    with pytest.raises(httpx.TransportError):
        await through.say(conversation, "SAY A 1")
    proxy.strike(Point("POST events", 2, When.ANSWERED), Deed.CUT)
    with pytest.raises(httpx.TransportError):
        await through.say(conversation, "SAY B 1")
    await through.say(conversation, "SAY C 1")
    await api.until_status(conversation, "finished")
    assert await api.messages(conversation) == ["SAY B 1", "SAY C 1"]
    assert proxy.struck.is_set()
    await api.close()
    await through.close()


async def test_what_is_delayed_goes_on_and_what_is_swallowed_never(
    server: AgentServer, proxy: Proxy
) -> None:
    through = Api(proxy.url)
    conversation = await _new(through, server)
    proxy.strike(Point(f"GET {'ID'}", 1, When.BEFORE), Deed.DELAY)
    found = []
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:

            async def look() -> None:
                found.append(await through.conversation(conversation))

            tasks.start_soon(look)
            await proxy.struck.wait()
            assert not found
            proxy.go()
    assert json.dumps(found[0]["id"]) == json.dumps(conversation)
    proxy.strike(Point("GET ID", 2, When.ANSWERED), Deed.SWALLOW)
    with anyio.move_on_after(0.5) as limit:
        await through.conversation(conversation)
    assert limit.cancelled_caught
    await through.close()


async def test_without_the_key_nothing_is_told(server: AgentServer) -> None:
    async with httpx.AsyncClient(base_url=server.url) as client:
        assert (await client.get("/api/conversations/search")).status_code == 401
    assert KEY not in (server.folder / "log").read_text("utf-8", "replace")
