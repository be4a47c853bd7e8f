"""What other people's programs write in odd lines, through pipes to a real process."""

import json
from typing import Any

import pytest

from acp_bridge.core.runtime import waits
from tests.whole.bridge_support import World, refused
from tests.whole.tiny_agent import tiny_agent

pytestmark = pytest.mark.process

#: spreads all that it says over lines, or cuts its answer off and says nothing more.
_SPREADS = """
def send(**message):
    for line in json.dumps({"jsonrpc": "2.0", **message}, indent=2).splitlines():
        os.write(1, line.encode() + b"\\n")

def session_prompt(id, params):
    update("s", **text("hello"))
    if params["prompt"][0]["text"] == "cut":
        os.write(1, b'{"jsonrpc": "2.0", "id": %d, "result": {"stopReason":\\n' % id)
        return None
    return {"stopReason": "end_turn"}
"""


@pytest.mark.hazard("Q9")
async def test_an_agent_that_spreads_its_messages_over_lines_is_understood_and_a_cut_one_ends(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waits, "REST_OF_MESSAGE", 0.2)
    async with world.inside(command=tiny_agent(world.cwd, _SPREADS)) as client:
        await client.prompt("hi")
        error = await refused(client, "cut")
        await client.prompt("again")
        assert client.text() == "hello" * 3
    assert error.message == "the agent's answer can't be read: Parse error"


#: begins each message with the newline that should end it.
_NEWLINE_FIRST = """
def send(**message):
    os.write(1, b"\\n" + json.dumps({"jsonrpc": "2.0", **message}).encode())

def session_prompt(id, params):
    update("s", **text("hello"))
    return {"stopReason": "end_turn"}
"""


@pytest.mark.hazard("Q9")
async def test_an_agent_that_begins_its_messages_with_a_newline_is_understood(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waits, "REST_OF_MESSAGE", 0.1)
    async with world.inside(command=tiny_agent(world.cwd, _NEWLINE_FIRST)) as client:
        await client.prompt("hi")
        assert client.text() == "hello"


async def test_a_client_that_spreads_its_messages_over_lines_is_understood(
    world: World,
) -> None:
    async with world.bridge() as client:
        params: Any = {
            "sessionId": client.session_id,
            "prompt": [{"type": "text", "text": "say a"}],
        }
        message = {"jsonrpc": "2.0", "id": "odd", "method": "session/prompt", "params": params}
        client.send_raw(json.dumps(message, indent=2).encode() + b"\n")
        answer = await client.answer_to("odd")
        assert answer["result"]["stopReason"] == "end_turn"


#: closes its stdin at the end of its first turn, and lives on.
_CLOSES_STDIN = """
CAN = {"loadSession": True}
here = os.path.dirname(os.path.abspath(__file__))

def session_load(id, params):
    return {}

def session_prompt(id, params):
    update("s", **text(params["prompt"][0]["text"]))
    if params["prompt"][0]["text"] == "close":
        send(id=id, result={"stopReason": "end_turn"})
        os.close(0)
        while True:
            time.sleep(1)
    return {"stopReason": "end_turn"}
"""


@pytest.mark.hazard("P3.3")
async def test_an_agent_that_closes_its_stdin_between_turns_is_replaced_or_the_prompt_fails(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waits, "CUT_OFF_GRACE", 0.1)
    async with world.inside(command=tiny_agent(world.cwd, _CLOSES_STDIN)) as client:
        await client.prompt("close")
        error = await refused(client, "lost")
        assert "ended" in error.message
        await client.prompt("next")
        assert client.text().startswith("closenext")
