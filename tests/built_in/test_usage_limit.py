"""A usage limit of the built-in agent's provider, behind the bridge: what waits is held."""

import time

import pytest

from tests.built_in.support import FIRST, Stack, conversation
from tests.support.model_replies import Status, Text

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.hazard("R17")]

LIMITED = Status(429, headers=(("Retry-After", "7200"),))


@pytest.mark.hazard("R17.2")
async def test_a_provider_that_takes_no_more_holds_what_waits_until_go_and_its_reset_is_told(
    stack: Stack,
) -> None:
    async with stack.start() as client:
        await client.new_session(stack.cwd)
        stack.provider.say(LIMITED)
        before = time.time()
        asked, waits = client.send_prompt("one"), client.send_prompt("two")
        error = (await client.answer_to(asked, within=FIRST))["error"]
        assert error["data"]["errorKind"] == "rate_limit"
        assert error["data"]["details"] == error["message"]
        assert 7200 <= error["data"]["resetsAt"] - before <= 7200 + FIRST
        await client.until_text("The agent has met a usage limit. The limit resets at ")
        assert len(stack.provider.requests) == 1
        stack.provider.say(Text("Fine."))
        await client.prompt("/queue go")
        assert (await client.answer_to(waits))["result"]["stopReason"] == "end_turn"
        assert conversation(stack.provider.requests[-1].body)[-1] == "user: two"


@pytest.mark.hazard("R12.1", "R17.5")
async def test_what_was_to_go_on_by_itself_is_left_over_when_its_bridge_has_ended(
    stack: Stack,
) -> None:
    resumes = {"ACP_BRIDGE_RESUME_AT_RESET": "on"}
    async with stack.start(env=resumes) as client:
        session = await client.new_session(stack.cwd)
        stack.provider.say(Status(429, headers=(("Retry-After", "40"),)))
        asked = client.send_prompt("one")
        client.send_prompt("two")
        assert "error" in await client.answer_to(asked, within=FIRST)
        await client.until_text("What waits is on hold, and goes on by itself then")
    sent = len(stack.provider.requests)
    async with stack.start(env=resumes) as client:
        loaded = await client.load_session(session, stack.cwd)
        await client.until_text("Left over, not run:\n\n- 2: two")
        assert "pause" not in loaded.get("_meta", {}).get("acp_bridge", {})
        assert len(stack.provider.requests) == sent
