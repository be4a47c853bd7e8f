"""Clients and agents of both versions, in each pairing; every message is judged by its schema.

Where each cell is proven (v2/v1: a client of version 2, an agent of version 1):

| | v1/v1 | v1/v2 | v2/v1 | v2/v2 |
|---|---|---|---|---|
| prompt, three in order, cancel | B | A | V | here |
| permission | B | A | Q | here |
| a deaf agent | B | A | here | here |
| `kill -9` of the agent, of the bridge | B | A | here | here |
| load, also what the other version recorded | here | here | here | here |
| sent again: waits, runs, done, stopped | K | here | S | here |
| sent again: withdrawn | K | here | S | here |
| sent again after `kill -9`: done, interrupted, left over | P | here | here | here |
| a second client of the other version | here | here | here | here |

A: test_bridge_v2_agent.py. B: test_bridge_cancel.py, test_bridge_queue.py, test_bridge_drain.py,
test_bridge_restart.py, test_bridge_recovery.py and their neighbours. K: tests/core/bridge/
test_prompt_keys.py. P: test_bridge_prompt_keys.py. Q, S, V: tests/versions/test_v2_questions.py,
test_v2_sent_again.py, test_v2_clients.py.
"""

import os
import signal
from typing import Any

import pytest

from acp_bridge.core.updates.notices import INTERRUPTED
from tests.support.processes import all_gone
from tests.support.waiting import until
from tests.whole.bridge_support import World
from tests.whole.pairing import Pairing, Speaker, second

pytestmark = [pytest.mark.process, pytest.mark.hazard("X1", "X3")]

BOTH = Pairing(2, 2)
OF_CLIENTS_OF_2 = [Pairing(2, 1), BOTH]
ALL = [Pairing(1, 1), Pairing(1, 2), *OF_CLIENTS_OF_2]
#: those whose prompts with a key are proven nowhere else.
KEYED = [Pairing(1, 2), BOTH]


def of(pairings: list[Pairing]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("pairing", pairings, ids=str)


async def stop(world: World, speaker: Speaker, gate: str) -> None:
    """Let a client say Stop while its turn stands at a gate."""
    speaker.client.cancel()
    await until(lambda: world.log.received("session/cancel"))
    world.gates.open(gate)


# --- turns ----------------------------------------------------------------------------------------


@pytest.mark.hazard("X3.1")
@of([BOTH])
async def test_three_prompts_run_in_their_order_each_with_its_own_end(
    world: World, pairing: Pairing
) -> None:
    async with pairing.inside(world) as it:
        sent = [it.send(f"gate g{n}; say {n}") for n in range(3)]
        for number, prompt in enumerate(sent):
            await world.gates.reached(f"g{number}")
            assert [bool(it.client.recording.answers(each)) for each in sent] == [
                n <= number for n in range(3)
            ]
            world.gates.open(f"g{number}")
            assert await it.ended(prompt) == "end_turn"
        assert it.said() == "012"
        assert it.ends() == ["end_turn"] * 3
        ids = [(await it.answer(each))["messageId"] for each in sent]
        shown = [each for each in it.client.updates() if each["sessionUpdate"] == "user_message"]
        assert [each["messageId"] for each in shown] == ids


@of([BOTH])
async def test_a_stop_ends_the_turn_and_withdraws_what_waits(
    world: World, pairing: Pairing
) -> None:
    async with pairing.inside(world, drain_timeout=20) as it:
        runs = it.send("say before; gate g; say after")
        await world.gates.reached("g")
        waits = it.send("say waits")
        await stop(world, it, "g")
        assert await it.ended(runs) == "cancelled"
        assert await it.answer(waits) == -32800
        assert await it.prompt("say next") == "end_turn"
        assert it.said() == "beforenext"
        assert it.ends() == ["cancelled", "end_turn"]
        assert world.log.turns()[0]["pid"] == world.log.turns()[1]["pid"]


@of([BOTH])
@pytest.mark.parametrize("answer", ["allow", "reject"])
async def test_a_permission_is_asked_and_its_answer_reaches_the_agent(
    world: World, pairing: Pairing, answer: Any
) -> None:
    async with pairing.inside(world) as it:
        it.client.side.permission = answer
        assert await it.prompt("permission") == "end_turn"
        assert it.said() == f"[{answer}]"
        (asked,) = it.client.recording.requests("session/request_permission")
        assert asked["params"]["subject"]["type"] == "tool_call"


@of(OF_CLIENTS_OF_2)
async def test_a_killed_agent_ends_the_turn_with_an_error_and_is_replaced(
    world: World, pairing: Pairing
) -> None:
    async with pairing.inside(world) as it:
        runs = it.send("say before; gate g")
        await world.gates.reached("g")
        await it.client.until_text("before")
        os.kill(world.log.turns()[-1]["pid"], signal.SIGKILL)
        assert await it.ended(runs) == -32603
        assert await it.prompt("say after") == "end_turn"
        assert it.said() == "beforeafter"
        assert it.ends() == ["error", "end_turn"]


def send_back_once(world: World) -> None:
    """Let a hook send the agent back after the first turn that ends well."""
    world.home.mkdir()
    again = "test -e once || { touch once; echo '; gate g; say mended' >&2; exit 2; }"
    (world.home / "hooks.toml").write_text(f"[[Stop]]\ncommand = '''{again}'''\n")


@of(OF_CLIENTS_OF_2)
@pytest.mark.parametrize("comes_again", [False, True])
@pytest.mark.hazard("Q11.1")
async def test_the_feedback_of_a_hook_runs_inside_the_prompt_and_has_no_end_of_its_own(
    world: World, pairing: Pairing, comes_again: bool
) -> None:
    send_back_once(world)
    async with pairing.inside(world) as it:
        asked = it.send("say done")
        await world.gates.reached("g")
        assert it.ends() == []
        if comes_again:
            await it.load(it.client.session_id, world)
        world.gates.open("g")
        assert await it.ended(asked) == "end_turn"
        assert it.said().endswith("mended")
        assert await it.prompt("say next") == "end_turn"
        assert it.ends() == ["end_turn"] * 2


@of(OF_CLIENTS_OF_2)
@pytest.mark.hazard("Q11")
async def test_a_turn_has_ended_when_another_prompt_goes_before_the_feedback_of_its_hook(
    world: World, pairing: Pairing
) -> None:
    send_back_once(world)
    async with pairing.inside(world, drain_timeout=20) as it:
        stopped = it.send("gate x")
        await world.gates.reached("x")
        second, first = (it.send(f"say {n}", delivery="interrupt") for n in ("two", "one"))
        await until(lambda: world.log.received("session/cancel"))
        world.gates.open("x")
        assert await it.ended(stopped) == "cancelled"
        assert await it.ended(first) == "end_turn"
        assert await it.ended(second) == "end_turn"
        await world.gates.reached("g")
        assert it.ends() == ["cancelled", "end_turn", "end_turn"]
        world.gates.open("g")
        await it.client.until_recorded(lambda: len(it.ends()) == 4)
        assert await it.prompt("say next") == "end_turn"
        assert it.said().startswith("onetwo")
        assert it.said().endswith("mendednext")


# --- what outlives a bridge -----------------------------------------------------------------------


@of(OF_CLIENTS_OF_2)
@pytest.mark.hazard("K1.3", "R12")
async def test_after_a_kill_of_the_bridge_the_session_shows_what_was_shown(
    world: World, pairing: Pairing
) -> None:
    async with pairing.killed(world) as it:
        session = it.client.session_id
        assert await it.prompt("say one") == "end_turn"
        it.send("say two; gate g; say never")
        await world.gates.reached("g")
        await it.client.until_text("onetwo")
        it.client.kill()
    await all_gone(world.mark)
    async with pairing.inside(world, session=False) as it:
        await it.load(session, world)
        assert it.said() == "onetwo"
        assert it.words() == ["say one", "say two; gate g; say never"]
        assert INTERRUPTED in it.client.text(session)
        assert it.ends() == []
        assert await it.prompt("say three") == "end_turn"
        assert world.log.prompts() == ["say one", "say two; gate g; say never", "say three"]


@of(ALL)
async def test_a_session_that_one_version_recorded_is_loaded_in_each(
    world: World, pairing: Pairing
) -> None:
    async with pairing.inside(world) as it:
        assert await it.prompt("say one; tool t; say two") == "end_turn"
        session = it.client.session_id
    for client in (1, 2):
        async with Pairing(client, pairing.agent).inside(world, session=False) as it:
            await it.load(session, world)
            assert it.said() == "onetwo"
            assert it.words() == ["say one; tool t; say two"]
            kinds = {each["sessionUpdate"] for each in it.client.updates(session)}
            assert "tool_call_update" in kinds


# --- sent again under a key -----------------------------------------------------------------------


@of(KEYED)
@pytest.mark.hazard("X2.1")
async def test_sent_again_while_it_waits_runs_or_has_ended_it_runs_once(
    world: World, pairing: Pairing
) -> None:
    async with pairing.inside(world) as it:
        it.send("gate first")
        await world.gates.reached("first")
        attempts = [it.send("gate g; say once", "k"), it.send("gate g; say once", "k")]
        world.gates.open("first")
        await world.gates.reached("g")
        attempts.append(it.send("gate g; say once", "k"))
        world.gates.open("g")
        answers = [await it.answer(each) for each in attempts]
        assert await it.ended(attempts[0]) == "end_turn"
        answers.append(await it.answer(it.send("gate g; say once", "k")))
        assert all(each == answers[0] for each in answers)
        assert await it.answer(it.send("say other", "k")) == -32602
        assert world.log.prompts() == ["gate first", "gate g; say once"]
        assert it.said() == "once"
        assert it.version == 1 or it.ends() == ["end_turn"] * 2


@of(KEYED)
@pytest.mark.hazard("X2")
async def test_sent_again_when_it_was_stopped_or_withdrawn_it_stays_so(
    world: World, pairing: Pairing
) -> None:
    async with pairing.inside(world, drain_timeout=20) as it:
        runs, waits = it.send("say one; gate g", "runs"), it.send("say two", "waits")
        await world.gates.reached("g")
        it.client.notify("$/cancel_request", {"requestId": waits})
        assert await it.answer(waits) in (-32800, {"stopReason": "cancelled"})
        await stop(world, it, "g")
        assert await it.ended(runs) == "cancelled"
        assert await it.answer(it.send("say one; gate g", "runs")) == await it.answer(runs)
        assert await it.answer(it.send("say two", "waits")) == await it.answer(waits)
        assert world.log.prompts() == ["say one; gate g"]
        assert it.version == 1 or it.ends() == ["cancelled"]


@of([*KEYED, Pairing(2, 1)])
@pytest.mark.hazard("X2", "K1", "R12")
async def test_sent_again_after_a_kill_it_is_answered_interrupted_or_left_over(
    world: World, pairing: Pairing
) -> None:
    done, runs, waits = "say done", "say one; gate g; say never", "say waits"
    async with pairing.killed(world) as it:
        session = it.client.session_id
        first = it.send(done, "done")
        assert await it.ended(first) == "end_turn"
        ended = await it.answer(first)
        it.send(runs, "runs")
        await world.gates.reached("g")
        it.send(waits, "waits")
        # It is on disk by then: what the bridge handles next is answered behind it.
        await it.client.request("_acp_bridge/queue/list", {"sessionId": session})
        it.client.kill()
    await all_gone(world.mark)
    async with pairing.inside(world, session=False) as it:
        await it.load(session, world)
        again = await it.answer(it.send(done, "done"))
        interrupted = await it.answer(it.send(runs, "runs"))
        if pairing.client == 1:
            assert (again, interrupted) == (ended, -32603)
        else:
            assert again["messageId"]
            assert interrupted["messageId"]
        held = it.send(waits, "waits")
        await it.client.until_text("This prompt was sent before, and is left over as number 3")
        assert await it.prompt("say after") == "end_turn"
        assert it.client.recording.answers(held) == []
        assert await it.prompt("/queue run") == "end_turn"
        assert await it.ended(held) == "end_turn"
    assert world.log.prompts() == [done, runs, "say after", waits]


# --- clients of both ------------------------------------------------------------------------------


@of(ALL)
async def test_a_second_client_of_the_other_version_sees_prompts_and_stops(
    world: World, pairing: Pairing
) -> None:
    async with pairing.inside(world, drain_timeout=20) as it:
        assert await it.prompt("say one") == "end_turn"
        session = it.client.session_id
        async with second(world, 3 - pairing.client, session) as other:
            assert other.said() == "one"
            runs = it.send("say two; gate g")
            await world.gates.reached("g")
            waits = other.send("say three")
            other.client.cancel()  # it withdraws its own, and not the turn of the other
            assert await other.answer(waits) in (-32800, {"stopReason": "cancelled"})
            await stop(world, it, "g")
            assert await it.ended(runs) == "cancelled"
            assert await other.prompt("say four") == "end_turn"
            for each in (it, other):
                await each.client.until_text("four")
                assert each.said() == "onetwofour"
                assert each.words()[-1] == "say four" or each.version == 1
            old, new = (it, other) if it.version == 1 else (other, it)
            assert not [e for e in old.client.updates() if e["sessionUpdate"] == "state_update"]
            await new.client.until_recorded(lambda: new.ends()[-2:] == ["cancelled", "end_turn"])
    assert world.log.prompts() == ["say one", "say two; gate g", "say four"]
