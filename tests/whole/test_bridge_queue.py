"""The queue of a whole bridge: prompts accepted at any time, run one by one, each answered once."""

import json
import os
import signal

import pytest

from tests.support.recording import RpcError
from tests.whole.bridge_support import TELL_ACCEPTED, World, accepted, stopped

pytestmark = pytest.mark.process


@pytest.mark.hazard("Q1.1", "Q2.1", "Q2.2", "Q3.3", "Q9")
async def test_prompts_sent_at_once_run_in_order_one_at_a_time_and_each_is_answered(
    world: World,
) -> None:
    async with world.inside() as client:
        prompts = [client.send_prompt(f"gate g; say {word}") for word in ("one", "two", "three")]
        for number, prompt in enumerate(prompts, 1):
            await world.gates.reached("g", number)
            assert len(world.log.prompts()) == number
            world.gates.open("g")
            assert await stopped(client, prompt) == "end_turn"
        assert client.texts() == ["one", "two", "three"]
        assert [turn["history"] for turn in world.log.turns()][-1] == world.log.prompts()[:-1]


@pytest.mark.hazard("Q10.2", "C4.1")
async def test_accepting_listing_and_cancelling_do_not_wait_for_the_running_turn(
    world: World,
) -> None:
    async with world.inside(capabilities=TELL_ACCEPTED) as client:
        running = client.send_prompt("gate g")
        await world.gates.reached("g")
        waiting = client.send_prompt("say waiting")
        await accepted(client, waiting)
        listed = await client.request("session/list", {"cwd": str(world.cwd)})
        assert [s["sessionId"] for s in listed["sessions"]] == [client.session_id]
        assert await client.prompt("/queue") == {"stopReason": "end_turn"}
        assert "1 waiting.\n\n- 2: say waiting" in client.text()
        client.cancel()
        assert await stopped(client, running) == "cancelled"
        assert await stopped(client, waiting) == "end_turn"


@pytest.mark.hazard("Q10.2", "C20", "C3.1")
async def test_accepting_listing_and_cancelling_do_not_wait_for_an_agent_that_starts(
    world: World,
) -> None:
    world.gates.open("initialize")
    async with world.inside("slow-start", capabilities=TELL_ACCEPTED) as client:
        await client.prompt("say before")
        os.kill(world.log.pids()[0], signal.SIGKILL)
        await client.logged("agent.exited")
        cancelled, kept = client.send_prompt("say never"), client.send_prompt("say kept")
        await world.gates.reached("initialize", 2)
        await accepted(client, cancelled)
        await accepted(client, kept)
        assert (await client.request("session/list", {}))["sessions"]
        client.cancel()
        assert await stopped(client, cancelled) == "cancelled"
        world.gates.open("initialize")
        assert await stopped(client, kept) == "end_turn"
    assert world.log.prompts() == ["say before", "say kept"]


@pytest.mark.hazard("P6.1", "P11.1", "Q2")
async def test_sessions_run_side_by_side_and_the_death_of_one_agent_hurts_no_other(
    world: World,
) -> None:
    async with world.inside() as client:
        one, two = client.session_id, await client.new_session(world.cwd)
        assert one != two
        stands = client.send_prompt("say one; gate g", one)
        await world.gates.reached("g")
        assert await client.prompt("say two", two) == {"stopReason": "end_turn"}
        with pytest.raises(RpcError, match="SIGKILL"):
            await client.prompt("die", two)
        world.gates.open("g")
        assert await stopped(client, stands) == "end_turn"
        assert client.texts(one) == ["one"]
        assert client.texts(two) == ["two"]
        assert await client.prompt("say three", two) == {"stopReason": "end_turn"}


@pytest.mark.hazard("P6.1", "P11.1")
async def test_a_session_that_waits_for_its_agent_to_start_holds_up_no_other(world: World) -> None:
    world.gates.open("initialize")
    async with world.inside("slow-start") as client:
        new = client.send_request("session/new", {"cwd": str(world.cwd), "mcpServers": []})
        await world.gates.reached("initialize", 2)
        assert await client.prompt("say first") == {"stopReason": "end_turn"}
        loaded = await client.load_session(client.session_id, world.cwd)
        assert loaded["modes"]["currentModeId"] == "plan"
        world.gates.open("initialize")
        assert (await client.answer_to(new))["result"]["sessionId"] != client.session_id


@pytest.mark.hazard("Q8.1", "Q9")
async def test_a_prompt_that_fails_in_any_way_leaves_the_session_free(world: World) -> None:
    async with world.inside() as client:
        for bad in (None, [], "text", [1], [{"type": 1}], [{"type": "text", "text": 1}]):
            with pytest.raises(RpcError) as caught:
                await client.request(
                    "session/prompt", {"sessionId": client.session_id, "prompt": bad}
                )
            assert caught.value.code == -32602
        with pytest.raises(RpcError, match="the model failed"):
            await client.prompt("fail")
        assert await client.prompt("stop max_tokens") == {"stopReason": "max_tokens"}
        assert await client.prompt("say free") == {"stopReason": "end_turn"}


@pytest.mark.hazard("Q5", "Q9.2", "C1.6")
async def test_a_cancel_request_removes_a_queued_prompt_and_no_other(world: World) -> None:
    async with world.inside() as client:
        running = client.send_prompt("gate g; say one")
        await world.gates.reached("g")
        queued, next_one = client.send_prompt("say never"), client.send_prompt("say three")
        client.notify("$/cancel_request", {"requestId": queued})
        assert await stopped(client, queued) == "cancelled"
        world.gates.open("g")
        assert await stopped(client, running) == "end_turn"
        assert await stopped(client, next_one) == "end_turn"
        assert client.texts() == ["one", "three"]
    assert not world.log.received("session/cancel")


async def test_a_cancel_request_of_the_running_prompt_is_a_cancel(world: World) -> None:
    async with world.inside() as client:
        running = client.send_prompt("gate g")
        await world.gates.reached("g")
        client.notify("$/cancel_request", {"requestId": running})
        assert await stopped(client, running) == "cancelled"
    assert len(world.log.received("session/cancel")) == 1


@pytest.mark.hazard("Q9.2")
async def test_an_id_that_is_in_flight_is_refused_and_the_first_prompt_goes_on(
    world: World,
) -> None:
    async with world.inside() as client:
        first = client.send_prompt("gate g; say one")
        await world.gates.reached("g")
        block = {"type": "text", "text": "say again"}
        again = {"sessionId": client.session_id, "prompt": [block]}
        client.send_request("session/prompt", again, first)
        refused = await client.answer_to(first)
        assert refused["error"]["code"] == -32600
        seen = client.mark()
        world.gates.open("g")
        assert (await client.until(lambda m: m.get("id") == first, since=seen))["result"]
    assert world.log.prompts() == ["gate g; say one"]


@pytest.mark.hazard("P9.1", "P9.2")
async def test_an_update_that_trails_the_answer_is_shown_and_holds_up_nothing(
    world: World,
) -> None:
    # The agent's third request is the prompt; its real answer comes later and is dropped.
    answer = '{"jsonrpc":"2.0","id":3,"result":{"stopReason":"end_turn"}}'
    usage = {"sessionUpdate": "usage_update", "used": 10, "size": 100}
    async with world.inside() as client:
        told = f"say one; raw {answer}; gate g; update {json.dumps(usage)}; gate h"
        assert await client.prompt(told) == {"stopReason": "end_turn"}
        assert usage not in client.updates()
        world.gates.open("g")
        await client.until_recorded(lambda: usage in client.updates())


@pytest.mark.hazard("Q2.1", "V4")
async def test_a_prompt_without_an_id_never_goes_past_the_queue(world: World) -> None:
    async with world.inside() as client:
        words = [{"type": "text", "text": "say never"}]
        client.notify("session/prompt", {"sessionId": client.session_id, "prompt": words})
        assert await client.prompt("say one") == {"stopReason": "end_turn"}
        assert client.texts() == ["one"]
    assert len(world.log.received("session/prompt")) == 1
