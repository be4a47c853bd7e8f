"""`session/cancel` at a whole bridge: whatever the agent makes of it, the user gets `cancelled`."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.support.client import RecordingClient
from tests.support.fixture_agents import replayed
from tests.support.processes import marked
from tests.support.trace_reader import read_trace
from tests.whole.bridge_support import World, shown, stopped

pytestmark = pytest.mark.process


async def cancelled_at_gate(world: World, client: RecordingClient, text: str = "gate g") -> Any:
    """The id of a prompt that was cancelled while its turn stood at the gate `g`."""
    before = world.gates.times_reached("g")
    prompt = client.send_prompt(text)
    await world.gates.reached("g", before + 1)
    client.cancel()
    return prompt


@pytest.mark.hazard("C1.4", "C2.1", "C4.2", "C7.2", "C9")
async def test_a_cancel_ends_the_running_turn_alone_however_often_it_is_sent(
    world: World, tmp_path: Path
) -> None:
    file = tmp_path / "trace"
    async with world.inside(command=replayed("opencode"), trace=file) as client:
        client.side.permission = "allow"
        await client.prompt("say something")
        await client.prompt("run it")
        running = client.send_prompt("count")
        await client.until_text("X3")
        waiting = [client.send_prompt("say more"), client.send_prompt("say the rest")]
        # Read together: one that came after the answer would be meant for the next prompt.
        client.send_together(*[client.message("session/cancel")] * 3)
        assert await stopped(client, running) == "cancelled"
        assert [await stopped(client, prompt) for prompt in waiting] == ["end_turn", "end_turn"]
        texts = [each["content"]["text"] for each in shown(client) if "messageId" in each]
        assert texts.pop(2).startswith("X0 X1 X2 X3 X4")  # it says more when it is told to stop
        assert texts == ["A0 A1 A2 A3 A4 ", "RAN0 ", "Y0 Y1 Y2 Y3 Y4 ", "M0 M1 M2 "]
    asked = read_trace(file).methods("Proxy(0)", "Agent")
    assert asked.count("session/cancel") == 1
    assert asked.count("session/prompt") == 5
    assert not read_trace(file).methods("Proxy(0)", "Agent(2)")


@pytest.mark.hazard("C1.3", "C2.2")
async def test_a_cancel_with_nothing_unanswered_has_no_effect_on_a_later_prompt(
    world: World,
) -> None:
    async with world.inside() as client:
        client.cancel()
        assert await client.prompt("say one") == {"stopReason": "end_turn"}
        client.cancel()
        client.cancel()
        assert await client.prompt("say two") == {"stopReason": "end_turn"}
        assert client.texts() == ["one", "two"]
    assert world.log.received("session/cancel") == []


@pytest.mark.hazard("C3.1", "C20.2")
async def test_a_cancel_read_with_its_prompt_keeps_it_from_the_agent(world: World) -> None:
    async with world.inside() as client:
        client.send_together(
            client.prompt_message("say never", 100), client.message("session/cancel")
        )
        assert await stopped(client, 100) == "cancelled"
        assert await client.prompt("say after") == {"stopReason": "end_turn"}
    assert world.log.prompts() == ["say after"]


@pytest.mark.hazard("C5.1", "C13.1", "Q5")
@pytest.mark.parametrize("behaviour", ["cancel-end-turn", "cancel-error"])
async def test_whatever_the_agent_answers_to_a_cancelled_prompt_the_client_gets_cancelled(
    world: World, behaviour: str
) -> None:
    async with world.inside(behaviour) as client:
        prompt = await cancelled_at_gate(world, client, "say one; gate g")
        assert await stopped(client, prompt) == "cancelled"
        assert await client.prompt("say two") == {"stopReason": "end_turn"}
        assert len(client.recording.answers(prompt)) == 1
        session = client.session_id
    first = (await world.journal(session))[0]
    assert first.outcome == {"stopReason": "cancelled"}
    own = first.agent_outcome or {}
    assert own.get("stopReason") == "end_turn" or own["error"]["code"] == -32603
    assert len(world.log.pids()) == 1


@pytest.mark.hazard("C5.1", "C5.2", "C7.2")
async def test_a_cancel_read_before_the_answer_wins_and_a_second_one_in_the_drain_is_harmless(
    world: World,
) -> None:
    async with world.inside("slow-cancel") as client:
        first = await cancelled_at_gate(world, client)
        await world.gates.reached("cancel")
        client.cancel()
        waiting = client.send_prompt("say in the drain")
        client.cancel()
        assert await client.prompt("/queue") == {"stopReason": "end_turn"}
        assert client.recording.answers(first) == []
        world.gates.open("cancel")
        assert await stopped(client, first) == "cancelled"
        assert await stopped(client, waiting) == "end_turn"
    assert len(world.log.received("session/cancel")) == 1


@pytest.mark.hazard("C1", "C2.2", "C5.2")
@pytest.mark.parametrize("also_waiting", [False, True])
async def test_when_answer_and_cancel_are_both_there_to_be_read_one_prompt_at_most_is_cancelled(
    world: World, also_waiting: bool
) -> None:
    async with world.bridge() as client:
        assert client.process is not None
        prompts = [client.send_prompt("say one; gate g; say last")]
        await world.gates.reached("g")
        os.kill(client.process.pid, signal.SIGSTOP)
        if also_waiting:
            prompts.append(client.send_prompt("say two"))
        client.cancel()
        world.gates.open("g")
        await world.answered("say one; gate g; say last")
        os.kill(client.process.pid, signal.SIGCONT)
        ends = [await stopped(client, prompt) for prompt in prompts]
        assert sorted(set(ends)) in (["cancelled"], ["cancelled", "end_turn"], ["end_turn"])
        assert ends.count("cancelled") <= 1
        assert await client.prompt("say three") == {"stopReason": "end_turn"}
        assert client.texts()[-1] == "three"
    assert len(world.log.pids()) == 1


@pytest.mark.hazard("C8.1", "C8.2", "C9.2", "C10.2", "C12.1")
async def test_an_agent_that_ignores_cancel_is_killed_and_its_successor_has_the_memory(
    world: World,
) -> None:
    async with world.inside("ignores-cancel", "writer-lock", drain_timeout=0.3) as client:
        await client.prompt("say one")
        prompt = await cancelled_at_gate(world, client, "say two; tool t; child; gate g; say never")
        waiting = client.send_prompt("say three; history")
        assert await stopped(client, prompt) == "cancelled"
        # What it started has ended by the time that the client is told.
        assert world.log.pids()[0] not in marked(world.mark)
        ends = [u for u in client.updates() if u.get("toolCallId") == "t" and "status" in u]
        assert [u["status"] for u in ends] == ["in_progress", "failed"]
        assert await stopped(client, waiting) == "end_turn"
        assert client.texts()[3] == "say one | say two; tool t; child; gate g; say never"
    # One replacement, started in the drain, which got the session once the old one was dead.
    assert len(world.log.pids()) == 2
    assert len(world.log.received("session/resume")) == 1


@pytest.mark.hazard("C7.1", "C8.1", "C21")
async def test_an_agent_that_never_reads_can_be_cancelled_too(world: World) -> None:
    async with world.inside("never-reads-stdin", drain_timeout=0.2) as client:
        await world.gates.reached("stopped reading")
        prompt = client.send_prompt("say " + "x" * 200_000)
        client.cancel()
        assert await stopped(client, prompt) == "cancelled"
        running = client.send_prompt("say " + "y" * 200_000)
        await client.logged("turn.started")
        client.cancel()
        assert await stopped(client, running) == "cancelled"
    assert world.log.prompts() == []


@pytest.mark.hazard("C1.5", "C11")
async def test_with_on_cancel_clear_the_prompts_that_wait_are_cancelled_too(world: World) -> None:
    async with world.bridge(options=("--on-cancel", "clear")) as client:
        running = client.send_prompt("gate g")
        await world.gates.reached("g")
        waiting = [client.send_prompt("say two"), client.send_prompt("say three")]
        client.cancel()
        for prompt in (running, *waiting):
            assert await stopped(client, prompt) == "cancelled"
        assert await client.prompt("say four") == {"stopReason": "end_turn"}
    assert world.log.prompts() == ["gate g", "say four"]


@pytest.mark.hazard("C9")
async def test_with_reload_after_cancel_always_a_new_process_follows_each_cancel(
    world: World,
) -> None:
    options = ("--reload-after-cancel", "always")
    async with world.bridge("writer-lock", options=options) as client:
        for count in (1, 2):
            prompt = await cancelled_at_gate(world, client, f"say {count}; gate g")
            assert await stopped(client, prompt) == "cancelled"
            assert await client.prompt(f"history; say after {count}") == {"stopReason": "end_turn"}
            assert len(world.log.pids()) == count + 1
        assert "say 1; gate g" in client.text()
        assert "say 2; gate g" in client.text()


@pytest.mark.hazard("C13.1", "C13.2")
async def test_a_turn_that_finishes_in_the_drain_is_finished_for_good(world: World) -> None:
    async with world.inside("ignores-cancel") as client:
        prompt = await cancelled_at_gate(world, client, "say one; gate g; stop refusal")
        assert await client.prompt("/queue") == {"stopReason": "end_turn"}
        world.gates.open("g")
        assert await stopped(client, prompt) == "cancelled"
        assert await client.prompt("say two") == {"stopReason": "end_turn"}
        session = client.session_id
    first = (await world.journal(session))[0]
    assert (first.outcome, first.agent_outcome) == (
        {"stopReason": "cancelled"},
        {"stopReason": "refusal"},
    )
    assert len(world.log.pids()) == 1


@pytest.mark.hazard("C16.1", "C6")
async def test_a_card_that_a_cancel_closed_is_not_opened_again_by_its_agent(world: World) -> None:
    async with world.inside("ignores-cancel") as client:
        prompt = await cancelled_at_gate(world, client, "tool t; gate g; tool-done t; tool u")
        assert await client.prompt("/queue") == {"stopReason": "end_turn"}
        world.gates.open("g")
        assert await stopped(client, prompt) == "cancelled"
        cards = [(u["toolCallId"], u["status"]) for u in client.updates() if "toolCallId" in u]
        assert sorted(status for card, status in cards if card == "t") != ["in_progress"]
        assert {status for card, status in cards if card == "u"} <= {"in_progress", "failed"}
        for card in {card for card, _ in cards}:
            assert [s for c, s in cards if c == card and s != "in_progress"] != []


@pytest.mark.hazard("C23", "T2")
async def test_a_prompt_that_is_cancelled_while_it_waits_hushes_no_turn_that_runs(
    world: World,
) -> None:
    async with world.inside() as client:
        running = client.send_prompt("say one; gate g; say two")
        await world.gates.reached("g")
        waiting = client.send_prompt("say three")
        client.notify("$/cancel_request", {"requestId": waiting})
        assert await stopped(client, waiting) == "cancelled"
        world.gates.open("g")
        assert await stopped(client, running) == "end_turn"
        assert client.texts() == ["one", "two"]


@pytest.mark.hazard("C1.8")
async def test_a_cancel_with_an_id_stops_the_turn_and_is_answered(world: World) -> None:
    async with world.inside() as client:
        running = client.send_prompt("gate middle; say never")
        await world.gates.reached("middle")
        asked = client.send_request("session/cancel", {"sessionId": client.session_id})
        assert (await client.answer_to(asked))["result"] is None
        assert await stopped(client, running) == "cancelled"
        assert await client.prompt("say two") == {"stopReason": "end_turn"}
