"""Words that join a running turn, behind the bridge, in both forms of a provider: what it
is sent has each of them once, after the last result, and a strict one takes it.

One process serves all of a way's tests.
"""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from acp_bridge.core.protocol import STEERING
from tests.agent.support import Fifo
from tests.built_in.support import (
    ANTHROPIC,
    FIRST,
    OPENAI,
    Stack,
    choose,
    conversation,
    stack_in,
)
from tests.support.client import RecordingClient
from tests.support.model_replies import Call, Gate, Json, Text

pytestmark = [pytest.mark.process, pytest.mark.slow]

#: it says that it runs, and ends when the test writes into the fifo
HELD = '{"command": "echo >running; read line <go; echo done"}'


class Desk:
    """A session that is open."""

    def __init__(self, stack: Stack, client: RecordingClient, running: Fifo) -> None:
        self.stack, self.client, self.running = stack, client, running

    @property
    def body(self) -> Json:
        """The last request that the provider got."""
        return self.stack.provider.requests[-1].body

    async def steers(self, text: str) -> str:
        params = {
            "sessionId": self.client.session_id,
            "prompt": [{"type": "text", "text": text}],
            "_meta": {"steering": {"idleBehavior": "promptRequired"}},
        }
        return str((await self.client.request(STEERING, params))["outcome"])

    async def ended(self, turn: object) -> None:
        assert (await self.client.answer_to(turn))["result"]["stopReason"] == "end_turn"


@pytest.fixture(scope="module")
async def desk(
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[Desk]:
    folder: Path = tmp_path_factory.mktemp("desk")
    async with stack_in(folder) as stack, stack.start() as client:
        running = Fifo(stack.cwd / "running")
        client.side.permission = "allow"
        await client.new_session(stack.cwd)
        stack.provider.say(Text("Hello."))
        await client.prompt("Hi", within=FIRST)
        yield Desk(stack, client, running)
        running.close()


@pytest.mark.parametrize("model", [OPENAI, ANTHROPIC])
async def test_words_that_come_while_a_command_runs_follow_the_results_of_all_calls(
    desk: Desk, model: str
) -> None:
    await choose(desk.client, "model", model)
    go = Fifo(desk.stack.cwd / "go")
    desk.stack.provider.say(
        Call("shell", HELD), Call("write_file", '{"path": "no.txt", "content": "no"}')
    )
    desk.stack.provider.say(Text("In verse, then."))
    turn = desk.client.send_prompt("a story")
    await desk.running.lines()
    assert await desk.steers("in verse") == "injected"
    assert await desk.steers("and short") == "injected"
    with go.path.open("w") as end:
        end.write("\n")
    await desk.ended(turn)
    *_, done, not_run, first, second = conversation(desk.body)
    assert (done, first, second) == ("result: done\n", "user: in verse", "user: and short")
    assert not_run.startswith("result: Not run: the user has said something meanwhile")
    assert not (desk.stack.cwd / "no.txt").exists()
    assert await desk.steers("too late") == "promptRequired"
    go.close()
    go.path.unlink()


@pytest.mark.parametrize("model", [OPENAI, ANTHROPIC])
async def test_an_answer_that_streams_goes_on_to_its_end_and_one_more_call_reads_them(
    desk: Desk, model: str
) -> None:
    await choose(desk.client, "model", model)
    desk.stack.provider.say(Text("Once upon "), Gate(model), Text("a time."))
    desk.stack.provider.say(Text("A rhyme."))
    since = desk.client.mark()
    turn = desk.client.send_prompt("another story")
    await desk.client.until_text("Once upon ", since)
    assert await desk.steers("in rhymes") == "injected"
    desk.stack.provider.open(model)
    await desk.ended(turn)
    assert desk.client.text(since=since).endswith("Once upon a time.A rhyme.")
    said = ["user: another story", "assistant: Once upon a time.", "user: in rhymes"]
    assert conversation(desk.body)[-3:] == said
    desk.stack.provider.say(Text("Fine."))
    await desk.client.prompt("thanks")
    assert conversation(desk.body)[-5:-1] == [*said, "assistant: A rhyme."]
