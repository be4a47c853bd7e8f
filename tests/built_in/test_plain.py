"""A model of the user's own server: the whole stack asks it without LiteLLM."""

from pathlib import Path

import pytest

from tests.built_in.support import FIRST, OPENAI, START, Stack, agent_pid, choose, conversation
from tests.support.model_replies import Call, Text

pytestmark = [pytest.mark.process, pytest.mark.slow]

#: no other model is named, since LiteLLM would be loaded for that; memory may be looked at
ENVIRONMENT = {"ACP_BRIDGE_MODELS": "", "ACP_BRIDGE_DEBUGGABLE": "1"}


def has_litellm(pid: int) -> bool:
    """By the libraries that it alone brings in."""
    return "tiktoken" in Path(f"/proc/{pid}/maps").read_text()


async def test_the_first_prompt_goes_to_the_first_process_and_litellm_is_loaded_for_another_model(
    stack: Stack,
) -> None:
    (stack.cwd / "a.txt").write_text("seven")
    async with stack.start(model="openai/mine-4", env=ENVIRONMENT) as client:
        await client.new_session(stack.cwd)
        first = agent_pid(client)
        stack.provider.say(Call("read_file", '{"path": "a.txt"}'))
        stack.provider.say(Text("Seven."))
        await client.prompt("What is in a.txt?", within=START)
        assert client.text() == "Seven."
        assert (agent_pid(client), has_litellm(first)) == (first, False)
        await choose(client, "model", OPENAI)
        stack.provider.say(Text("Still seven."))
        await client.prompt("Sure?", within=FIRST)
        assert has_litellm(first)
        assert [request.body["model"] for request in stack.provider.requests[1:]] == [
            "mine-4",
            "gpt-4o",
        ]
        assert conversation(stack.provider.requests[-1].body)[-1] == "user: Sure?"
