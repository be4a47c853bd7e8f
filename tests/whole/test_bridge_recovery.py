"""A load, a restart or an effect that fails once takes nothing with it."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from acp_bridge.core.journal import JournalError, SessionJournal
from acp_bridge.core.session.prompts.prompts import Prompts
from tests.whole.bridge_support import World, fails, refused, stopped
from tests.whole.tiny_agent import tiny_agent

pytestmark = pytest.mark.process

KEEPS_OLD = """
CAN = {"loadSession": True, "sessionCapabilities": {"list": {}}}
os.chdir(os.path.dirname(os.path.abspath(__file__)))

def session_list(id, params):
    return {"sessions": [{"sessionId": "old", "cwd": os.getcwd()}]}

def session_load(id, params):
    if not os.path.exists("good"):
        return {"error": {"code": -32603, "message": "no"}}
    update("old", **text("as it was"))
    return {}

def session_prompt(id, params):
    if params["prompt"][0]["text"] == "die":
        os._exit(1)
    return {"stopReason": "end_turn"}
"""


@pytest.mark.hazard("R3")
async def test_a_session_of_the_agent_that_would_not_load_loads_whole_the_next_time(
    world: World,
) -> None:
    command = tiny_agent(world.cwd, KEEPS_OLD)
    setup = {"sessionId": "old", "cwd": str(world.cwd), "mcpServers": []}
    async with world.inside(command=command, session=False) as client:
        await fails(client, "session/load", -32603, **setup)
        (world.cwd / "good").touch()
        await client.load_session("old", world.cwd)
        assert client.text() == "as it was"


@pytest.mark.hazard("R3")
async def test_a_session_of_the_agent_is_not_made_anew_when_a_restart_can_not_load_it(
    world: World,
) -> None:
    command = tiny_agent(world.cwd, KEEPS_OLD)
    (world.cwd / "good").touch()
    async with world.inside(command=command, session=False) as client:
        await client.load_session("old", world.cwd)
        (world.cwd / "good").unlink()
        await refused(client, "die")
        assert "would not load" in str(await refused(client, "again"))
        (world.cwd / "good").touch()
        assert await stopped(client, client.send_prompt("and again")) == "end_turn"


@pytest.mark.hazard("Q6.1")
async def test_an_interrupted_turn_is_said_by_the_load_after_one_that_failed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world.bridge(exits=-9) as client:
        client.send_prompt("say half; tool t; gate never")
        await world.gates.reached("never")
        await client.until(lambda m: '"t"' in str(m).replace("'", '"'))
        session_id = client.session_id
        client.kill()
    replay = SessionJournal.replay

    async def broken(self: SessionJournal, *, turn: int) -> AsyncIterator[list[dict[str, Any]]]:
        monkeypatch.setattr(SessionJournal, "replay", replay)
        raise JournalError("broken")
        yield []

    monkeypatch.setattr(SessionJournal, "replay", broken)
    async with world.inside(session=False) as client:
        setup = {"sessionId": session_id, "cwd": str(world.cwd), "mcpServers": []}
        await fails(client, "session/load", -32603, **setup)
        client.stderr = b""  # it had to say so
        await client.load_session(session_id, world.cwd)
        assert "Interrupted" in client.text()
        assert "failed" in [update.get("status") for update in client.updates()]


@pytest.mark.hazard("P6", "Q9")
async def test_an_effect_that_fails_takes_no_answer_with_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails_(self: Prompts, key: int, answer: object) -> None:
        raise RuntimeError

    monkeypatch.setattr(Prompts, "note", fails_)
    async with world.inside() as client:
        prompt = client.send_prompt("gate never")
        await world.gates.reached("never")
        client.cancel()
        assert await stopped(client, prompt) == "cancelled"
        client.stderr = b""  # it had to say so
