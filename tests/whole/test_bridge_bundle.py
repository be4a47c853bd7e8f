"""A session that was exported beside one bridge goes on behind another, from another home."""

from collections.abc import Sequence

import pytest

from acp_bridge.core.records import replace
from tests.support.recording import Message
from tests.whole.bridge_support import World, accepted
from tests.whole.test_bridge_memory import STUBBORN
from tests.whole.tiny_agent import tiny_agent

pytestmark = pytest.mark.process

ABLE: Message = {"_meta": {"acp_bridge": {"cursors": True, "accepted": True}}}


async def exported(world: World, agent: Sequence[str], file: str) -> str:
    """A session with a turn and a prompt that waits, whose bridge is killed; a cursor of it."""
    async with world.bridge(command=agent, capabilities=ABLE, exits=-9) as client:
        await client.prompt("the first words")
        await client.prompt("/queue hold")
        await accepted(client, client.send_prompt("it waits"))
        own = [
            message["params"].get("_meta", {}).get("acp_bridge", {})
            for message in client.recording.incoming()
            if message.get("method") == "session/update"
        ]
        assert await world.command("export", client.session_id, file) == (0, "", "")
        client.kill()
        await client.wait()
    return next(str(each["cursor"]) for each in own if "cursor" in each)


@pytest.mark.hazard("R12", "R13.6", "R13.7", "K10", "N5")
async def test_an_imported_session_is_shown_its_agent_is_given_it_and_what_waited_is_held(
    world: World,
) -> None:
    agent, file = tiny_agent(world.cwd, STUBBORN), str(world.cwd / "file")
    cursor = await exported(world, agent, file)
    other = replace(world, home=world.home / "other")
    code, new, err = await other.command("import", file)
    assert (code, err) == (0, "")
    async with other.bridge(command=agent, capabilities=ABLE, session=False) as client:
        params = {"sessionId": new.strip(), "cwd": str(world.cwd), "mcpServers": []}
        after = {"_meta": {"acp_bridge": {"after": cursor}}}
        answer = await client.answer_to(client.send_request("session/resume", {**params, **after}))
        assert answer["error"]["data"]["reason"] == "cursor"
        await client.load_session(new.strip(), world.cwd)
        assert "1 blocks" in client.text()
        assert "it waits" in client.text()
        seen = client.mark()
        await client.prompt("go on")
        assert "2 blocks" in client.texts(since=seen)
        heard = (world.cwd / "heard").read_text()
        assert "User: the first words" in heard
        assert "it waits" not in heard
        seen = client.mark()
        await client.prompt("/queue run")
        assert client.texts(since=seen)[-1] == "1 blocks"
