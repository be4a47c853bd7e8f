"""Whose Stop ends what, where several clients have one session."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from acp_bridge.core.settings import OnCancel
from tests.core.bridge.remote import remote_bench
from tests.core.sessions.agent import Agent, Gate, until
from tests.core.sessions.bench import Bench, Served, bench


@dataclass(slots=True)
class Busy:
    """A session in which the agent has the first client's prompt, and a second client."""

    it: Bench
    id: str
    gate: Gate
    first: Served
    other: Served
    running: Any

    async def stops(self, client: Served) -> None:
        client.notify("session/cancel", {"sessionId": self.id})
        await client.handled()

    @property
    def cancelled(self) -> bool:
        """The agent was told to end its turn."""
        return bool(self.it.agent.params("session/cancel"))


@asynccontextmanager
async def busy(home: Path, **more: Any) -> AsyncIterator[Busy]:
    async with bench(home, drain_timeout=60, **more) as it:
        session_id = await it.new()
        other = await it.attached(session_id)
        gate = it.agent.stops_at("session/prompt")
        running = it.editor.prompt(session_id, "runs")
        await until(lambda: gate.reached)
        yield Busy(it, session_id, gate, it.editor, other, running)
        gate.open()


@pytest.mark.hazard("V4.8", "C1")
async def test_a_stop_of_one_that_waits_for_nothing_leaves_the_turn_of_another_alone(
    tmp_path: Path,
) -> None:
    async with busy(tmp_path) as here:
        await here.stops(here.other)
        assert not here.cancelled
        waits = here.other.prompt(here.id, "waits")
        here.gate.open()
        assert await here.first.stop_reason(here.running) == "end_turn"
        assert await here.other.stop_reason(waits) == "end_turn"


@pytest.mark.hazard("V4.8", "C3")
async def test_a_stop_ends_the_oldest_of_its_clients_own_prompts(tmp_path: Path) -> None:
    async with busy(tmp_path) as here:
        first, second = (here.other.prompt(here.id, text) for text in ("one", "two"))
        await here.stops(here.other)
        assert await here.other.stop_reason(first) == "cancelled"
        assert (here.cancelled, here.other.answers(second)) == (False, [])
        behind = here.first.prompt(here.id, "behind")
        await here.stops(here.first)
        await until(lambda: here.cancelled)
        here.gate.open()
        assert await here.first.stop_reason(here.running) == "cancelled"
        assert await here.other.stop_reason(second) == "end_turn"
        assert await here.first.stop_reason(behind) == "end_turn"


@pytest.mark.hazard("V4.8")
async def test_what_a_stop_clears_and_what_it_beats_are_prompts_of_the_same_client(
    tmp_path: Path,
) -> None:
    async with busy(tmp_path, on_cancel=OnCancel.CLEAR) as here:
        others = here.other.prompt(here.id, "others")
        mine = here.first.prompt(here.id, "mine")
        await here.stops(here.first)
        here.gate.open()
        assert await here.first.stop_reason(here.running) == "cancelled"
        assert await here.first.stop_reason(mine) == "cancelled"
        assert await here.other.stop_reason(others) == "end_turn"


@pytest.mark.hazard("V4.8", "C11")
async def test_a_prompt_that_another_has_put_first_is_not_ended_by_the_stop_of_who_it_displaces(
    tmp_path: Path,
) -> None:
    async with busy(tmp_path) as here:
        block = {"type": "text", "text": "first"}
        meta = {"acp_bridge": {"delivery": "interrupt"}}
        params = {"sessionId": here.id, "prompt": [block], "_meta": meta}
        takes_over = here.other.send("session/prompt", params)
        await until(lambda: here.cancelled)
        await here.stops(here.first)
        here.first.cancel_request(here.running)
        await here.first.handled()
        here.gate.open()
        assert await here.first.stop_reason(here.running) == "cancelled"
        assert await here.other.stop_reason(takes_over) == "end_turn"


@pytest.mark.hazard("V4")
async def test_a_turn_of_one_that_has_closed_the_session_is_ended_by_anybody_who_has_it(
    tmp_path: Path,
) -> None:
    async with busy(tmp_path) as here:
        await here.first.ask("session/close", {"sessionId": here.id})
        stranger, watcher = await here.it.joined(), await here.it.attached(here.id, observer=True)
        for client in (stranger, watcher):
            await here.stops(client)
        assert not here.cancelled
        await here.stops(here.other)
        assert here.cancelled
        here.gate.open()
        assert await here.first.stop_reason(here.running) == "cancelled"


@pytest.mark.hazard("V4", "V5")
async def test_a_turn_of_one_that_is_gone_is_ended_by_anybody_who_has_the_session(
    tmp_path: Path,
) -> None:
    async with bench(tmp_path, drain_timeout=60) as it:
        session_id = await it.new()
        gone = await it.attached(session_id)
        gate = it.agent.stops_at("session/prompt")
        gone.prompt(session_id, "hello")
        await until(lambda: gate.reached)
        gone.leaves()
        await gone.parted.wait()
        assert it.agent.params("session/cancel") == []
        it.editor.notify("session/cancel", {"sessionId": session_id})
        await until(lambda: it.agent.params("session/cancel"))
        gate.open()


@pytest.mark.hazard("V2", "C3")
async def test_the_turn_that_runs_is_cancelled_for_everybody_by_the_method_for_that(
    tmp_path: Path,
) -> None:
    async with busy(tmp_path) as here:
        stranger = await here.it.joined(observer=True)
        answer = await stranger.ask("_acp_bridge/cancel", {"sessionId": here.id})
        assert answer == {"cancelled": True}
        here.gate.open()
        assert await here.first.stop_reason(here.running) == "cancelled"
        answer = await stranger.ask("_acp_bridge/cancel", {"sessionId": here.id})
        assert answer == {"cancelled": False}
        error = await stranger.refused("_acp_bridge/cancel", {"sessionId": "nobody's"})
        assert error.code == -32002


@pytest.mark.hazard("V2", "C3")
async def test_a_cancel_that_names_a_prompt_counts_only_while_that_prompt_runs(
    tmp_path: Path,
) -> None:
    async with busy(tmp_path) as here:
        watcher = await here.it.attached(here.id, state=True)
        told = [each["params"] for each in await watcher.got("_acp_bridge/state")][-1]
        seen = told["turn"]["promptId"]

        async def stop(prompt_id: object) -> bool:
            about = {"sessionId": here.id, "promptId": prompt_id}
            return bool((await watcher.ask("_acp_bridge/cancel", about))["cancelled"])

        waits = here.first.prompt(here.id, "next")
        for other in ("another", None, ""):
            assert await stop(other) is False
        assert not here.cancelled
        assert await stop(seen) is True
        assert await stop(seen) is True  # it is being stopped, and nothing else is
        here.gate.open()
        assert await here.first.stop_reason(here.running) == "cancelled"
        assert await here.first.stop_reason(waits) == "end_turn"
        again = here.it.agent.stops_at("session/prompt")
        later = here.first.prompt(here.id, "later")
        await until(lambda: again.reached)
        assert await stop(seen) is False
        again.open()
        assert await here.first.stop_reason(later) == "end_turn"
        error = await watcher.refused("_acp_bridge/cancel", {"sessionId": here.id, "promptId": 5})
        assert error.code == -32602


@pytest.mark.hazard("V2", "V4")
@pytest.mark.parametrize("by", ["method", "word"])
async def test_what_waits_in_a_hold_is_no_turn_that_anybody_could_end(
    tmp_path: Path, by: str
) -> None:
    async with busy(tmp_path) as here:
        await here.first.ask("_acp_bridge/hold", {"sessionId": here.id})
        waits = here.first.prompt(here.id, "next")
        here.gate.open()
        assert await here.first.stop_reason(here.running) == "end_turn"
        if by == "method":
            answer = await here.other.ask("_acp_bridge/cancel", {"sessionId": here.id})
            assert answer == {"cancelled": False}
        else:
            stop = here.other.prompt(here.id, "/queue stop")
            assert await here.other.stop_reason(stop) == "end_turn"
        assert here.first.answers(waits) == []
        await here.first.ask("_acp_bridge/go", {"sessionId": here.id})
        assert await here.first.stop_reason(waits) == "end_turn"


@pytest.mark.hazard("V2.2", "P13")
async def test_two_clients_have_requests_of_one_id_and_cancel_each_its_own(tmp_path: Path) -> None:
    async with busy(tmp_path) as here:
        for client in (here.first, here.other):
            block = {"type": "text", "text": "same"}
            client.send("session/prompt", {"sessionId": here.id, "prompt": [block]}, "same")
        here.other.cancel_request("same")
        assert await here.other.stop_reason("same") == "cancelled"
        assert here.first.answers("same") == []
        here.other.cancel_request(here.running)  # an id of another's
        await here.other.handled()
        assert not here.cancelled
        here.gate.open()
        assert await here.first.stop_reason("same") == "end_turn"


@pytest.mark.hazard("C13")
async def test_a_cancelled_answer_has_what_else_the_agent_said_in_its_own(tmp_path: Path) -> None:
    agent, more = Agent(), {"usage": {"totalTokens": 7}, "_meta": {"x": 1}}
    agent.script["session/prompt"] = {"stopReason": "end_turn", **more}
    async with busy(tmp_path, agent=agent) as here:
        await here.stops(here.first)
        await until(lambda: here.cancelled)
        here.gate.open()
        answer = await here.first.result(here.running)
        assert answer == {"stopReason": "cancelled", **more}


@pytest.mark.hazard("C7")
async def test_a_stop_of_a_remote_client_comes_through_while_much_waits_for_it(
    tmp_path: Path,
) -> None:
    async with remote_bench(tmp_path) as it:
        client = await it.remote()
        session_id = await it.new(client)
        gate = it.agent.stops_at("session/prompt")
        client.prompt(session_id, "go")
        await until(lambda: gate.reached)
        (process,) = it.agent.processes
        client.way.stuck = 1 << 20  # a slow line
        for method in ("_x/looks", "_x/looks", "session/cancel"):
            client.says({"method": method, "params": {"sessionId": session_id}})
        await until(lambda: "session/cancel" in process.methods())
        client.way.take_all()
        gate.open()
