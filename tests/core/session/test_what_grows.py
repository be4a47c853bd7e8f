"""What a session does for each of many grows with their number, and not with its square."""

import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from tests.core.session.living import DONE, Living, first, living
from tests.core.session.memory import ClientEnd
from tests.core.session.played_agent import PlayedAgent

#: how many there are of each, and how many times as many.
FEW, TIMES = 20, 10
#: how many times as much may be done for `TIMES` as many: in proportion, and a fifth.
MOST = 1.2 * TIMES
Way = Callable[[Living, PlayedAgent, int], Awaitable[None]]


class Count:
    """The lines of `acp_bridge` that have run; a loop's line counts each time."""

    def __init__(self) -> None:
        self.lines = 0

    def _trace(self, frame: FrameType, event: str, _: Any) -> Any:
        if "/acp_bridge/" not in frame.f_code.co_filename:
            return None
        self.lines += 1
        return self._trace


@contextmanager
def counted() -> Iterator[Count]:
    """Count what runs in this thread until the block is left, in calls that begin meanwhile."""
    count, before = Count(), sys.gettrace()
    sys.settrace(count._trace)
    try:
        yield count
    finally:
        sys.settrace(before)


async def cards(here: Living, agent: PlayedAgent, count: int) -> None:
    """Tool calls that are all open before the first one ends."""
    for number in range(count):
        agent.update(sessionUpdate="tool_call", toolCallId=f"{number}", title="t", status="pending")
    for number in range(count):
        agent.update(sessionUpdate="tool_call_update", toolCallId=f"{number}", status="completed")


async def questions(here: Living, agent: PlayedAgent, count: int) -> None:
    """Questions that are all open before the first one is answered."""
    options = [{"optionId": "a", "name": "a", "kind": "allow_once"}]
    for number in range(count):
        params = {"sessionId": "0", "toolCall": {"toolCallId": "c"}, "options": options}
        agent.says({"id": number, "method": "session/request_permission", "params": params})
    asked = [each["id"] for each in here.got if each.get("method") == "session/request_permission"]
    assert len(asked) == count
    for number in asked:
        here.client.answers(number, {"outcome": {"outcome": "selected", "optionId": "a"}})


async def requests(here: Living, agent: PlayedAgent, count: int) -> None:
    """Requests of a client that are all open before the agent answers the last one first."""
    asked = [here.asks("_x/y", n=number) for number in range(count)]
    got = [each for each in agent.sent.messages if each.get("method") == "_x/y"]
    for request in reversed(got):
        agent.answer(request, {})
    assert set(asked) <= here.answers().keys()


async def words(here: Living, agent: PlayedAgent, count: int) -> None:
    """Words, and plans, of one turn."""
    for number in range(count):
        agent.says_text(f"word {number}", f"m{number}")
        agent.update(sessionUpdate="plan", entries=[])


@pytest.mark.parametrize("way", [cards, questions, requests, words])
async def test_many_cost_in_proportion_to_their_number(way: Way, tmp_path: Path) -> None:
    spent = []
    for count in (FEW, FEW * TIMES):
        folder = tmp_path / str(count)
        folder.mkdir()
        async with living(folder, first=first()) as here:
            agent = await here.agent()
            turn, request = here.prompt(), await agent.asked("session/prompt")
            with counted() as count_of:
                await way(here, agent, count)
            spent.append(count_of.lines)
            agent.answer(request, DONE)
            await here.answered(turn)
    assert spent[0] > FEW
    assert spent[1] <= MOST * spent[0], spent


async def test_words_and_requests_cost_in_proportion_to_the_clients(tmp_path: Path) -> None:
    spent = []
    async with living(tmp_path, first=first()) as here:
        agent, clients = await here.agent(), list[ClientEnd]()
        turn, request = here.prompt(), await agent.asked("session/prompt")
        for count in (FEW, FEW * TIMES):
            while len(clients) < count:
                clients.append(ClientEnd())
                here.session.transcript.attach(clients[-1].client)
            with counted() as count_of:
                agent.says_text("word", f"{count}")
                for each in clients * 5:
                    here.session.transcript.end_quiet(each.client)
            spent.append(count_of.lines)
        agent.answer(request, DONE)
        await here.answered(turn)
    assert spent[1] <= MOST * spent[0], spent
