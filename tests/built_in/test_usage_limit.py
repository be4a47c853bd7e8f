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
