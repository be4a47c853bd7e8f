"""What the model is given and the user chooses in a session: read from the provider's requests.

One bridge and one session serve all tests.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from agent.tools.standard import standard_tools
from tests.agent.mcp_servers.support import odd
from tests.built_in.support import (
    ANTHROPIC,
    FIRST,
    KEY,
    START,
    Provider,
    Stack,
    choose,
    conversation,
    results,
    stack_in,
    system,
    tool_names,
)
from tests.support.client import RecordingClient
from tests.support.model_replies import Call, Json, Text
from tests.support.recording import RpcError

pytestmark = [pytest.mark.process, pytest.mark.slow]

#: none is there, but for that of a model that nobody asks
ENVIRONMENT = {
    **dict.fromkeys(["OPENAI_API_KEY", "ANTHROPIC_API_KEY"], ""),
    **dict.fromkeys(["OPENAI_BASE_URL", "ANTHROPIC_BASE_URL"], ""),
    "MISTRAL_API_KEY": "mistral-0123456789",
    "DEPLOY_TOKEN": "deploy-0123456789",
}
GUIDE = "Indent with tabs here."


@dataclass
class Desk:
    stack: Stack
    client: RecordingClient
    #: how a session was refused before there was a key
    refusal: RpcError

    @property
    def provider(self) -> Provider:
        return self.stack.provider

    def write_keys(self, *names: str) -> None:
        lines = [f"{name}={value}" for name, value in self.stack.keys.items() if name in names]
        (self.stack.home / "keys.env").write_text("\n".join(lines))

    async def asked(self, prompt: str) -> Json:
        """The last request for it."""
        await self.client.prompt(prompt, within=FIRST)
        return self.provider.requests[-1].body


@pytest.fixture(scope="module")
async def desk(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Desk]:
    folder: Path = tmp_path_factory.mktemp("session")
    async with stack_in(folder) as stack, stack.start(env=ENVIRONMENT) as client:
        (stack.cwd / "AGENTS.md").write_text(GUIDE)
        with pytest.raises(RpcError) as refused:
            await client.new_session(stack.cwd)
        desk = Desk(stack, client, refused.value)
        desk.write_keys("OPENAI_API_KEY", "OPENAI_BASE_URL")
        await client.new_session(stack.cwd, mcpServers=[odd("polite", mark=stack.mark)])
        client.side.permission = "allow"
        yield desk


async def test_without_a_key_its_variable_is_named_and_one_given_later_is_used(desk: Desk) -> None:
    assert desk.refusal.code == -32000
    assert "OPENAI_API_KEY" in desk.refusal.message
    desk.provider.say(Text("Hello."))
    await desk.asked("Hi")
    assert desk.provider.requests[-1].headers["authorization"] == f"Bearer {KEY}"


async def test_the_model_is_given_the_projects_guide_and_all_tools(desk: Desk) -> None:
    desk.provider.say(Call("mcp__polite__echo", '{"text": "hello"}'))
    desk.provider.say(Text("It said so."))
    body = await desk.asked("Let the server say hello")
    assert GUIDE in system(body)
    own = {tool.name for tool in standard_tools()}
    assert tool_names(body) == {*own, "mcp__polite__echo"}
    assert results(body)[-1] == '["echo", {"text": "hello"}]'


@pytest.mark.hazard("K5.1")
async def test_secrets_are_masked_and_keys_of_models_are_not_in_a_commands_environment(
    desk: Desk,
) -> None:
    desk.provider.say(Call("shell", '{"command": "echo the $DEPLOY_TOKEN; env"}'))
    desk.provider.say(Text("I saw it."))
    output = results(await desk.asked("Show the environment"))[-1].splitlines()
    assert output[0] == "the ***"
    assert "DEPLOY_TOKEN=***" in output
    assert not [line for line in output if line.startswith("MISTRAL_API_KEY=")]
    kept = [path.read_bytes() for path in desk.stack.home.rglob("*") if path.is_file()]
    everything = f"{kept} {desk.client.recording} {desk.client.stderr!r} " + str(
        [request.body for request in desk.provider.requests]
    )
    for secret in ("mistral-0123456789", "deploy-0123456789"):
        assert secret not in everything


async def test_a_model_that_is_chosen_in_a_turn_is_asked_next(desk: Desk) -> None:
    with pytest.raises(RpcError, match=r"-32000 .*ANTHROPIC_API_KEY"):
        await choose(desk.client, "model", ANTHROPIC)
    desk.write_keys(*desk.stack.keys)
    desk.client.side.permission = "never"
    since = desk.client.mark()
    desk.provider.say(Call("shell", '{"command": "echo seven"}'))
    prompt = desk.client.send_prompt("Who answers?")
    ask = await desk.client.until(
        lambda message: message.get("method") == "session/request_permission", since, FIRST
    )
    await choose(desk.client, "model", ANTHROPIC)
    desk.provider.say(Text("The other one."))
    allowed = {"outcome": "selected", "optionId": "allow_once"}
    desk.client.answer(ask["id"], {"outcome": allowed})
    assert (await desk.client.answer_to(prompt, START))["result"]["stopReason"] == "end_turn"
    first, second = desk.provider.requests[-2:]
    assert (first.path, second.path) == ("/v1/chat/completions", "/v1/messages")
    assert second.headers["x-api-key"] == KEY
    assert f"anthropic/{second.body['model']}" == ANTHROPIC
    assert conversation(second.body)[:-2] == conversation(first.body)
    assert results(second.body)[-1] == "seven\n"
