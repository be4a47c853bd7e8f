"""How long the agent waits for a server that fails, and when it begins anew."""

from types import ModuleType

import pytest

from agent.openhands import live_feed, turn
from agent.openhands.backoff import pause_after
from tests.agent.openhands.agent_server import FakeServer
from tests.agent.openhands.conftest import Adapt


@pytest.mark.parametrize("part", [live_feed, turn])
def test_pauses_double_from_one_second_to_thirty(part: ModuleType) -> None:
    first, longest = part._FIRST_PAUSE, part._LONGEST_PAUSE
    pauses = [pause_after(failures, first, longest) for failures in range(1, 8)]
    assert pauses == [1, 2, 4, 8, 16, 30, 30]
    assert pause_after(10_000, first, longest) == 30


async def test_pauses_begin_anew_once_the_feed_was_live(
    adapt: Adapt, fake: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures: list[int] = []

    def note(count: int, first: float, longest: float) -> float:
        failures.append(count)
        return pause_after(count, first, longest)

    monkeypatch.setattr(live_feed, "pause_after", note)
    fake.refusals = [503] * 3
    async with adapt() as client:
        await client.prompt("one")
        fake.refusals = [503] * 2
        await fake.cut()
        await fake.until(lambda: fake.asked.count("socket") == 7)
        assert failures == [1, 2, 3, 1, 2, 3]


@pytest.mark.parametrize("deed", [500, 503])
async def test_a_read_is_tried_again(adapt: Adapt, fake: FakeServer, deed: int) -> None:
    fake.deeds["GET settings"] = [deed, deed]
    fake.deeds["GET events/search"] = [deed, deed]
    async with adapt() as client:
        assert (await client.prompt("hello"))["stopReason"] == "end_turn"
        assert fake.asked.count("GET settings") == 3


@pytest.mark.parametrize("deed", [500, 503])
async def test_a_write_is_not_tried_again(adapt: Adapt, fake: FakeServer, deed: int) -> None:
    async with adapt() as client:
        fake.deeds["POST condense"] = [deed]
        client.send_prompt("/compact")
        await client.prompt("hello")
        assert fake.asked.count("POST condense") == 1
