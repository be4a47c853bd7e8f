"""An agent with far too many open requests: others work on, and nothing is lost or asked twice."""

import pytest

from acp_bridge.core.agents.requests import MOST_OPEN
from tests.support.client import RecordingClient
from tests.support.client_side import never_answers
from tests.support.recording import Message
from tests.whole.bridge_support import World
from tests.whole.tiny_agent import tiny_agent

pytestmark = [pytest.mark.process, pytest.mark.usefixtures("whole_starts")]

PERMISSION, READ = "session/request_permission", "fs/read_text_file"
CALLED_BACK = "$/cancel_request"
NOTICE = f"[acp-bridge] The agent has {MOST_OPEN} open requests."
MANY = 5 * MOST_OPEN // 2
#: what one read of a pipe may bring beyond the bound.
MOST_ASKED = 2 * MOST_OPEN
ALLOWED: Message = {"outcome": {"outcome": "selected", "optionId": "yes"}}
#: sends MANY requests at once, and ends its turn when each has an answer.
FLOODS = rf"""
MANY = {MANY}
open_, refused, prompts, ids = set(), 0, [], iter(range(10**6))

def session_new(id, params):
    return {{"sessionId": str(id)}}

def session_prompt(id, params):
    global refused
    words = params["prompt"][0]["text"]
    if words not in ("permissions", "files"):
        return {{"stopReason": "end_turn"}}
    prompts.append((id, params["sessionId"]))
    refused = 0
    options = [{{"optionId": "yes", "name": "Yes", "kind": "allow_once"}}]
    for n in [next(ids) for _ in range(MANY)]:
        open_.add(f"r{{n}}")
        if words == "permissions":
            send(id=f"r{{n}}", method="session/request_permission", params={{
                "sessionId": params["sessionId"], "options": options,
                "toolCall": {{"toolCallId": f"t{{n}}", "rawInput": {{"command": "echo"}}}}}})
        else:
            send(id=f"r{{n}}", method="fs/read_text_file", params={{
                "sessionId": params["sessionId"], "path": f"/tmp/{{n}}"}})

def answer(id, message):
    global refused
    open_.remove(id)
    refused += "error" in message
    if not open_:
        prompt, session = prompts.pop()
        update(session, **text(f"all answered, {{refused}} refused"))
        send(id=prompt, result={{"stopReason": "end_turn"}})

def session_cancel(id, params):
    pass
"""


def asked(client: RecordingClient, method: str) -> list[int]:
    """The ids of all requests of this method that the client was ever sent."""
    return [each["id"] for each in client.recording.requests(method)]


async def flooded(client: RecordingClient, words: str, method: str) -> int | str:
    """Let the agent flood a client that answers nothing; returns when the session says so."""
    client.side.handlers[method] = never_answers
    prompt: int | str = client.send_prompt(words)
    await client.until_text(NOTICE, within=30)
    return prompt


async def answer_all(client: RecordingClient, method: str, result: Message) -> None:
    """Answer what is open, and what comes then, until the agent says that all have an answer."""
    client.side.handlers[method] = lambda params: result
    for each in asked(client, method):
        client.answer(each, result)
    await client.until_text("all answered", within=30)


@pytest.mark.hazard("P6.5")
async def test_beyond_the_bound_an_agent_that_asks_a_person_is_not_read_on(world: World) -> None:
    async with world.bridge(command=tiny_agent(world.cwd, FLOODS)) as client:
        flooding = client.session_id
        prompt = await flooded(client, "permissions", PERMISSION)
        other = await client.new_session(world.cwd)
        for _ in range(3):  # another session works as ever, and no more is asked meanwhile
            await client.prompt("hello", other)
        assert MOST_OPEN <= len(asked(client, PERMISSION)) < MOST_ASKED
        await answer_all(client, PERMISSION, ALLOWED)
        answer = await client.answer_to(prompt)
        assert answer["result"]["stopReason"] == "end_turn"
        assert len(asked(client, PERMISSION)) == MANY
        assert "0 refused" in client.text(flooding)
        assert client.text(flooding).count(NOTICE) == 1


@pytest.mark.hazard("P6.5")
async def test_a_stop_ends_a_flood_at_once_and_the_next_prompt_runs(world: World) -> None:
    async with world.bridge(command=tiny_agent(world.cwd, FLOODS)) as client:
        prompt = await flooded(client, "permissions", PERMISSION)
        client.cancel()
        answer = await client.answer_to(prompt, within=20)
        assert answer["result"]["stopReason"] == "cancelled"
        off = [each["params"]["requestId"] for each in client.recording.requests(CALLED_BACK)]
        assert sorted(off) == sorted(asked(client, PERMISSION))
        assert len(off) < MOST_ASKED
        assert await client.prompt("hello", within=20) == {"stopReason": "end_turn"}


@pytest.mark.hazard("P6")
async def test_beyond_the_bound_requests_for_files_are_refused_and_the_turn_goes_on(
    world: World,
) -> None:
    able = {"fs": {"readTextFile": True}}
    async with world.bridge(command=tiny_agent(world.cwd, FLOODS), capabilities=able) as client:
        flooding = client.session_id
        prompt = await flooded(client, "files", READ)
        await client.prompt("hello", await client.new_session(world.cwd))
        assert len(asked(client, READ)) == MOST_OPEN
        await answer_all(client, READ, {"content": ""})
        answer = await client.answer_to(prompt)
        assert answer["result"]["stopReason"] == "end_turn"
        assert f"{MANY - MOST_OPEN} refused" in client.text(flooding)
        assert client.text(flooding).count(NOTICE) == 1
