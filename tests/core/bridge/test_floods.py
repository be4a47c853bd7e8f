"""What one request of an agent costs does not grow with the number of those that are open."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import TypeAlias

import pytest

from acp_bridge.core.agents.requests import MOST_OPEN
from tests.core.bridge.test_questions import OPTIONS, PERMISSION, Turn, chosen, turn
from tests.core.sessions.agent import Json, until

Trace: TypeAlias = Callable[[FrameType, str, object], "Trace"]
#: the client on stdin reads files for the agent.
#: a client that is shown whole calls.
WHOLE = {"wholeCalls": True}

READS: Json = {"fs": {"readTextFile": True}}

#: the requests that are open when the cost is taken. It may differ by what a collector or a timer
#: runs meanwhile, and not by a line for each of the hundreds that have come. Of the calls that are
#: asked about the journal has the newest 200 alone (`updates.asking`).
FEW, MANY = 250, MOST_OPEN - 10


def steps(work: Callable[[], object]) -> int:
    """Return how many lines of Python are run for `work`."""
    run = 0

    def note(frame: FrameType, event: str, _: object) -> Trace:
        nonlocal run
        run += event == "line"
        return note

    before = sys.gettrace()
    sys.settrace(note)
    try:
        work()
    finally:
        sys.settrace(before)
    return run


class Flood:
    """An agent that asks again and again in its turn."""

    def __init__(self, here: Turn, method: str) -> None:
        self._here, self._method = here, method
        self.count = 0

    def ask(self) -> None:
        self.count += 1
        call = {"toolCallId": f"t{self.count}", "rawInput": {"command": "ls"}}
        given: Json = {"toolCall": call, "options": OPTIONS}
        if self._method != PERMISSION:
            given = {"path": f"/tmp/{self.count}"}
        self._here.asks(self._method, self.count, **given)

    def grows(self, to: int) -> None:
        while self.count < to:
            self.ask()

    def update(self, call: str) -> None:
        """Say something new of a call."""
        said = {"sessionUpdate": "tool_call_update", "toolCallId": call, "title": "Looks"}
        self._here.process.shows(self._here.process.agent_session_id, said)

    def take_back(self, request_id: int) -> None:
        params = {"requestId": request_id}
        self._here.process.says({"method": "$/cancel_request", "params": params})


@pytest.mark.parametrize("method", [PERMISSION, "fs/read_text_file"])
@pytest.mark.hazard("P6.4")
async def test_one_more_and_one_that_is_withdrawn_cost_the_same_beside_a_thousand_open_ones(
    tmp_path: Path, method: str
) -> None:
    async with turn(tmp_path, READS) as here:
        flood = Flood(here, method)
        flood.grows(FEW)
        asking, withdrawing = steps(flood.ask), steps(lambda: flood.take_back(FEW))
        flood.grows(MANY)
        assert steps(flood.ask) < asking + FEW
        assert steps(lambda: flood.take_back(MANY)) < withdrawing + FEW
        here.gate.open()


@pytest.mark.hazard("P6.4")
async def test_an_update_of_a_call_costs_the_same_beside_a_thousand_open_permissions(
    tmp_path: Path,
) -> None:
    async with turn(tmp_path, READS) as here:
        flood = Flood(here, PERMISSION)
        flood.grows(FEW)
        flood.update("t1")  # the first one is looked at more closely
        few = steps(lambda: flood.update("t2"))
        flood.grows(MANY)
        assert steps(lambda: flood.update("t3")) < few + FEW
        here.gate.open()


@pytest.mark.hazard("P6", "V9")
async def test_many_updates_of_a_call_ask_once_anew_each_of_the_many_that_are_about_it(
    tmp_path: Path,
) -> None:
    async with turn(tmp_path) as here:
        there = await here.it.attached(here.id, **WHOLE)
        for number in range(1, 101):
            call = {"toolCallId": "one", "rawInput": {"command": f"echo {number}"}}
            here.asks(PERMISSION, number, toolCall=call, options=OPTIONS)
        await until(lambda: len(there.asked(PERMISSION)) == 100)
        session, said = here.process.agent_session_id, {"sessionUpdate": "tool_call_update"}
        updates = [
            {**said, "toolCallId": "one", "rawInput": {"force": n}, "title": f"Looks {n}"}
            for n in range(50)
        ]
        told = [{"sessionId": session, "update": each} for each in updates]
        here.process.says(*({"method": "session/update", "params": each} for each in told))
        await until(lambda: len(there.asked(PERMISSION)) == 200)
        await here.it.settled()
        asked = there.asked(PERMISSION)
        assert len(asked) == 200
        shown = [each["params"]["toolCall"] for each in asked[100:]]
        assert [each["rawInput"]["command"] for each in shown] == [
            f"echo {number}" for number in range(1, 101)
        ]
        assert {(each["title"], each["rawInput"]["force"]) for each in shown} == {("Looks 49", 49)}
        for each in asked[:100]:  # what was shown before counts no more
            there.answers_with(each, chosen("yes"))
        for each in asked[100:]:
            there.answers_with(each, chosen("no"))
        await until(lambda: here.answers(100))
        assert {str(here.answers(n)) for n in range(1, 101)} == {str([chosen("no")])}
        here.gate.open()


async def test_a_request_behind_updates_in_one_read_shows_its_own_word_and_is_asked_once(
    tmp_path: Path,
) -> None:
    async with turn(tmp_path) as here:
        there = await here.it.attached(here.id, **WHOLE)
        session = here.process.agent_session_id
        said = {"sessionUpdate": "tool_call_update", "toolCallId": "one"}
        here.asks(PERMISSION, 1, toolCall={"toolCallId": "one", "title": "A"}, options=OPTIONS)
        await until(lambda: len(there.asked(PERMISSION)) == 1)

        def update(command: str) -> Json:
            params = {"sessionId": session, "update": {**said, "rawInput": {"command": command}}}
            return {"method": "session/update", "params": params}

        params = {
            "sessionId": session,
            "toolCall": {"toolCallId": "one", "rawInput": {"command": "rm"}},
            "options": OPTIONS,
        }
        asks = {"id": 2, "method": PERMISSION, "params": params}
        here.process.says(update("ls"), asks, update("cat"))
        await until(lambda: len(there.asked(PERMISSION)) == 4)
        await here.it.settled()
        shown = [each["params"]["toolCall"]["rawInput"] for each in there.asked(PERMISSION)[1:]]
        assert [each["command"] for each in shown] == ["rm", "cat", "cat"]
        assert shown[0]["command (on its card)"] == "ls"
        here.gate.open()
