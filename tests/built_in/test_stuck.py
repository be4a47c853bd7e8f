"""A model that goes round in circles, seen from both ends: by its provider and by the client."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from agent.model import NOTE
from tests.built_in.support import (
    ANTHROPIC,
    FIRST,
    Provider,
    choose,
    conversation,
    stack_in,
)
from tests.support.client import RecordingClient
from tests.support.model_replies import Call, End, Json, Step, Text

pytestmark = [pytest.mark.process, pytest.mark.slow]

SAME = Call("shell", '{"command": "echo seven"}')
POLLED = Call("shell", '{"command": "echo line >>build.log; cat build.log"}')
ENDED = "The turn was ended"


@dataclass
class Desk:
    client: RecordingClient
    provider: Provider

    async def prompt(self, text: str) -> tuple[str, str]:
        """The stop reason, and what the user was shown."""
        since = self.client.mark()
        answer = await self.client.prompt(text, within=FIRST)
        return answer["stopReason"], self.client.text(since=since)

    def notes(self) -> list[str]:
        """What the model was told last that is not of the user."""
        said = conversation(self.provider.requests[-1].body)
        return [line for line in said if line.startswith(f"user: {NOTE}")]


@pytest.fixture(scope="module")
async def desk(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Desk]:
    folder: Path = tmp_path_factory.mktemp("stuck")
    async with stack_in(folder) as stack, stack.start() as client:
        await client.new_session(stack.cwd)
        await choose(client, "mode", "auto")
        yield Desk(client, stack.provider)
        stack.provider.answer = None


@pytest.mark.parametrize("model", ["", ANTHROPIC])
async def test_the_same_call_for_ever_is_told_to_the_model_and_then_ends_the_turn(
    desk: Desk, model: str
) -> None:
    if model:
        await choose(desk.client, "model", model)
    asked = len(desk.provider.requests)
    desk.provider.answer = lambda body: [SAME]
    stop, shown = await desk.prompt("Go on for ever")
    assert stop == "max_turn_requests"
    assert ENDED in shown
    assert "the same call 4 times" in shown
    assert len(desk.provider.requests) - asked == 5
    assert "the same call 4 times" in desk.notes()[-1]
    desk.provider.answer = None
    desk.provider.say(Text("It was seven."))
    assert await desk.prompt("And now?") == ("end_turn", "It was seven.")


async def test_a_log_that_grows_may_be_looked_at_for_ever(desk: Desk) -> None:
    notes, asked = len(desk.notes()), len(desk.provider.requests)

    def until_built(body: Json) -> Sequence[Step]:
        looks = len(desk.provider.requests) - asked
        return [POLLED] if looks < 15 else [Text("Built.")]

    desk.provider.answer = until_built
    assert await desk.prompt("Wait for the build") == ("end_turn", "Built.")
    assert len(desk.provider.requests) - asked == 15
    assert len(desk.notes()) == notes


async def test_a_call_that_is_announced_and_not_made_is_asked_for(desk: Desk) -> None:
    desk.provider.answer = lambda body: [Text("One moment."), End("tool_use")]
    notes = len(desk.notes())
    for _ in range(2):
        assert await desk.prompt("Go on") == ("end_turn", "One moment.")
    stop, shown = await desk.prompt("Go on")
    assert stop == "max_turn_requests"
    assert ENDED in shown
    assert len(desk.notes()) == notes + 1
