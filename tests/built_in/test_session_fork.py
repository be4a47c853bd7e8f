"""A fork of a session of the built-in agent, made by a process of its own."""

import pytest

from tests.built_in.support import START, Stack
from tests.support.client import RecordingClient

pytestmark = [pytest.mark.process, pytest.mark.slow]

DIALOGUE = "turn\nremember"


async def fork(stack: Stack, client: RecordingClient, source: str) -> str:
    params = {"sessionId": source, "cwd": str(stack.cwd), "mcpServers": []}
    return str((await client.request("session/fork", params, within=START))["sessionId"])


@pytest.mark.hazard("P12")
async def test_a_fork_has_what_was_said_and_goes_its_own_way(stack: Stack) -> None:
    """In the other bridge the first process makes it, before the model library is loaded."""
    file = stack.folder / "dialogue"
    file.write_text(DIALOGUE)
    model = f"scripted:{file}"
    async with stack.start(model=model) as client:
        source = await client.new_session(stack.cwd)
        await client.prompt("seven", source, START)
        await goes_its_own_way(stack, client, source)
    async with stack.start(model=model) as client:
        await goes_its_own_way(stack, client, source)


async def goes_its_own_way(stack: Stack, client: RecordingClient, source: str) -> None:
    new = await fork(stack, client, source)
    for said in ("eight", "nine"):
        mark = client.mark()
        await client.prompt(said, new, START)
        assert "seven" in client.text(new, mark)
    assert "eight" in client.text(new, mark)
    await client.load_session(source, stack.cwd)
    mark = client.mark()
    await client.prompt("ten", source, START)
    assert "seven" in client.text(source, mark)
    assert "eight" not in client.text(source, mark)
