"""Between a cancel and the end of its turn: nothing is changed any more, and nothing waits."""

from typing import Any

import pytest

from acp_bridge.core.settings import Delivery
from tests.support.client import RecordingClient
from tests.support.client_side import never_answers
from tests.support.recording import Message
from tests.whole.bridge_support import World, stopped

pytestmark = pytest.mark.process

#: long enough that no test sees its end.
PATIENT: dict[str, Any] = {"drain_timeout": 60.0}
IMPATIENT: dict[str, Any] = {"drain_timeout": 0.3}


def asked(client: RecordingClient, method: str) -> list[Message]:
    return client.recording.requests(method)


@pytest.mark.hazard("C15.1")
async def test_a_permission_is_released_at_once_though_the_client_never_answers(
    world: World,
) -> None:
    async with world.inside(**PATIENT) as client:
        client.side.permission = "never"
        prompt = client.send_prompt("tool t; permission 2")
        requests = [await client.until_request("session/request_permission", n) for n in (1, 2)]
        client.cancel()
        assert await stopped(client, prompt) == "cancelled"
        called_back = [m["params"]["requestId"] for m in asked(client, "$/cancel_request")]
        assert sorted(called_back) == sorted(request["id"] for request in requests)
        for request in requests:  # the client's late answers hurt nobody
            client.answer(request["id"], {"outcome": {"outcome": "cancelled"}})
        assert await client.prompt("say after") == {"stopReason": "end_turn"}


@pytest.mark.hazard("C15.1")
async def test_a_pending_question_is_released_too_when_the_turn_is_cancelled(world: World) -> None:
    async with world.inside("ignores-cancel", **PATIENT) as client:
        client.side.handlers["elicitation/create"] = never_answers
        prompt = client.send_prompt("elicit")
        await client.until_request("elicitation/create")
        client.cancel()
        # It ignores the cancel, but ends its turn since its question is answered.
        assert await stopped(client, prompt) == "cancelled"
        assert len(asked(client, "$/cancel_request")) == 1


@pytest.mark.hazard("C19.1", "C19.2", "C15", "C18", "C3")
async def test_a_cancelled_agent_may_still_look_but_changes_nothing_through_the_client(
    world: World,
) -> None:
    async with world.inside("ignores-cancel", drain_timeout=60) as client:
        client.side.files["/w/f"] = "content"
        client.side.permission = "allow"
        prompt = client.send_prompt(
            "terminal; gate g; read /w/f; terminal-output; terminal-kill; terminal-release;"
            " write /w/g; elicit; permission; terminal; say end"
        )
        await world.gates.reached("g")
        await client.until_text("[terminal term-1]")
        client.cancel()
        assert await client.prompt("/queue") == {"stopReason": "end_turn"}
        seen = client.mark()
        world.gates.open("g")
        assert await stopped(client, prompt) == "cancelled"
        assert client.text(since=seen) == (
            "[read content][output ok][kill ok][release ok][write error -32800]"
            "[elicit error -32800][permission cancelled][terminal error -32800]end"
        )
        assert "/w/g" not in client.side.files
        assert len(asked(client, "terminal/create")) == 1
        for method in ("fs/write_text_file", "elicitation/create", "session/request_permission"):
            assert asked(client, method) == []


@pytest.mark.hazard("C19.3", "C10")
async def test_after_a_kill_the_agents_terminals_are_released_and_its_requests_called_back(
    world: World,
) -> None:
    async with world.inside("ignores-cancel", **IMPATIENT) as client:
        client.side.handlers["terminal/wait_for_exit"] = never_answers
        prompt = client.send_prompt("terminal sleep 1000; terminal-wait")
        waiting = await client.until_request("terminal/wait_for_exit")
        client.cancel()
        assert await stopped(client, prompt) == "cancelled"
        assert asked(client, "terminal/release")[0]["params"] == {
            "sessionId": client.session_id,
            "terminalId": "term-1",
        }
        assert client.side.terminals == []
        called_back = [m["params"]["requestId"] for m in asked(client, "$/cancel_request")]
        assert called_back == [waiting["id"]]
        client.answer(waiting["id"], {"exitCode": 0})
        assert await client.prompt("say after") == {"stopReason": "end_turn"}


@pytest.mark.hazard("C19.3")
async def test_a_terminal_that_the_client_made_for_a_dead_agent_is_released(world: World) -> None:
    async with world.inside("ignores-cancel", **IMPATIENT) as client:
        client.side.handlers["terminal/create"] = never_answers
        prompt = client.send_prompt("terminal sleep 1000")
        request = await client.until_request("terminal/create")
        client.cancel()
        assert await stopped(client, prompt) == "cancelled"
        client.answer(request["id"], {"terminalId": "late"})
        released = await client.until_request("terminal/release")
        assert released["params"]["terminalId"] == "late"


@pytest.mark.hazard("C2", "C11.3", "Q5")
@pytest.mark.parametrize("by", ["the prompt", "the option"])
async def test_a_superseder_sends_one_cancel_and_runs_next(world: World, by: str) -> None:
    options = ("--delivery", "interrupt" if by == "the option" else "queue")
    interrupt = {"_meta": {"acp_bridge": {"delivery": "interrupt"}, "kept": 1}}
    extra: dict[str, Any] = interrupt if by == "the prompt" else {}
    queue: dict[str, Any] = {"_meta": {"acp_bridge": {"delivery": "queue"}}}
    async with world.bridge("slow-cancel", options=options) as client:
        running = client.send_prompt("say one; gate g")
        await world.gates.reached("g")
        queued = client.send_prompt("say queued", **queue)
        urgent = client.send_prompt("say urgent", **extra)
        await world.gates.reached("cancel")
        world.gates.open("cancel")
        assert await stopped(client, running) == "cancelled"
        assert await stopped(client, urgent) == "end_turn"
        assert await stopped(client, queued) == "end_turn"
        assert client.texts() == ["one", "urgent", "queued"]
    assert len(world.log.received("session/cancel")) == 1
    told = [message["params"] for message in world.log.received("session/prompt")][1]
    assert told.get("_meta") == ({"kept": 1} if by == "the prompt" else None)


@pytest.mark.hazard("C11.2")
async def test_a_users_cancel_in_the_drain_of_a_supersede_cancels_the_superseder_too(
    world: World,
) -> None:
    async with world.inside("slow-cancel", delivery=Delivery.INTERRUPT) as client:
        running = client.send_prompt("say one; gate g")
        await world.gates.reached("g")
        urgent = client.send_prompt("say urgent")
        await world.gates.reached("cancel")
        client.cancel()
        assert await stopped(client, urgent) == "cancelled"
        world.gates.open("cancel")
        assert await stopped(client, running) == "cancelled"
        assert await client.prompt("say after") == {"stopReason": "end_turn"}
    assert world.log.prompts() == ["say one; gate g", "say after"]
    assert len(world.log.received("session/cancel")) == 1


@pytest.mark.hazard("C11.2")
async def test_a_users_cancel_before_the_superseder_wins_as_well(world: World) -> None:
    async with world.inside("slow-cancel", delivery=Delivery.INTERRUPT) as client:
        running = client.send_prompt("gate g")
        await world.gates.reached("g")
        client.cancel()
        await world.gates.reached("cancel")
        urgent = client.send_prompt("say urgent")
        assert await client.prompt("/queue") == {"stopReason": "end_turn"}
        world.gates.open("cancel")
        assert await stopped(client, running) == "cancelled"
        assert await stopped(client, urgent) == "end_turn"
    assert len(world.log.received("session/cancel")) == 1


@pytest.mark.hazard("C11", "C12.1")
async def test_a_cancel_while_the_replacement_loads_stops_the_next_prompt_and_not_the_reload(
    world: World,
) -> None:
    async with world.inside("ignores-cancel", "slow-load", **IMPATIENT) as client:
        await client.prompt("say one")
        running, waiting = client.send_prompt("gate g"), client.send_prompt("say never")
        await world.gates.reached("g")
        client.cancel()
        assert await stopped(client, running) == "cancelled"
        await world.gates.reached("load")
        client.cancel()
        assert await stopped(client, waiting) == "cancelled"
        world.gates.open("load")
        assert await client.prompt("history") == {"stopReason": "end_turn"}
        assert client.texts()[-1] == "say one | gate g"
    assert len(world.log.pids()) == 2


@pytest.mark.hazard("R9.3")
async def test_settings_pass_while_a_turn_runs_and_wait_while_a_process_comes(
    world: World,
) -> None:
    async with world.inside("ignores-cancel", "slow-load", **IMPATIENT) as client:
        about = {"sessionId": client.session_id}
        running = client.send_prompt("gate g")
        await world.gates.reached("g")
        effort = {**about, "configId": "effort", "value": "high"}
        assert (await client.request("session/set_config_option", effort))["configOptions"]
        client.cancel()
        assert await stopped(client, running) == "cancelled"
        await world.gates.reached("load")
        mode = client.send_request("session/set_mode", {**about, "modeId": "edit"})
        waiting = client.send_prompt("say two")
        world.gates.open("load")
        assert (await client.answer_to(mode))["result"] == {}
        assert await stopped(client, waiting) == "end_turn"
    last = world.log.turns()[-1]
    assert (last["mode"], last["effort"]) == ("edit", "high")


@pytest.mark.hazard("C8.2", "C10.2", "C19", "R9", "P12")
async def test_the_end_of_a_bad_turn_has_one_order_for_the_client_and_for_the_next_process(
    world: World,
) -> None:
    async with world.inside("ignores-cancel", "permissive-default", **IMPATIENT) as client:
        about = {"sessionId": client.session_id}
        effort = {**about, "configId": "effort", "value": "high"}
        await client.request("session/set_config_option", effort)
        await client.request("session/set_mode", {**about, "modeId": "plan"})
        first = client.send_prompt("terminal sleep 1000; tool t; gate g")
        following = client.send_prompt("say two")
        await world.gates.reached("g")
        client.cancel()
        assert await stopped(client, following) == "end_turn"
        told = [event for m in client.recording.incoming() if (event := _event(m, first))]
        assert told == ["terminal/release", "failed", "failed", "cancelled", "two"]
    old, new = world.log.pids()
    methods = [
        event["message"]["method"]
        for event in world.log.events("received")
        if event["pid"] == new and "method" in event["message"]
    ]
    assert methods[:5] == [
        "initialize",
        "session/resume",
        "session/set_config_option",
        "session/set_mode",
        "session/prompt",
    ]
    assert [turn["pid"] for turn in world.log.turns()] == [old, new]


def _event(message: Message, first: Any) -> str | None:
    """What the order is about: of the cards' ends, the first answer, and the text."""
    if message.get("method") == "terminal/release":
        return "terminal/release"
    if message.get("id") == first and "result" in message:
        return str(message["result"]["stopReason"])
    update = (message.get("params") or {}).get("update") or {}
    if update.get("sessionUpdate") == "agent_message_chunk":
        text = str(update["content"]["text"])
        return None if text.startswith("[") else text
    return update.get("status") if update.get("status") == "failed" else None


@pytest.mark.hazard("P12.2", "C8.2")
async def test_a_replacement_starts_in_the_drain_but_gets_the_session_only_after_the_kill(
    world: World,
) -> None:
    behaviours = ("ignores-cancel", "writer-lock", "load-only", "slow-start")
    world.gates.open("initialize")
    async with world.inside(*behaviours, drain_timeout=2.0) as client:
        await client.prompt("say one")
        prompt = client.send_prompt("gate g")
        await world.gates.reached("g")
        client.cancel()
        # It starts before the old one is dead.
        await world.gates.reached("initialize", 2)
        assert client.recording.answers(prompt) == []
        assert world.log.received("session/load") == []
        world.gates.open("initialize")
        assert await stopped(client, prompt) == "cancelled"
        assert await client.prompt("say two") == {"stopReason": "end_turn"}
    assert len(world.log.received("session/load")) == 1


async def test_a_replacement_that_is_not_needed_ends_again(world: World) -> None:
    world.gates.open("initialize")
    async with world.inside("slow-cancel", "slow-start", drain_timeout=2.0) as client:
        prompt = client.send_prompt("gate g")
        await world.gates.reached("g")
        client.cancel()
        await world.gates.reached("initialize", 2)
        world.gates.open("cancel")
        assert await stopped(client, prompt) == "cancelled"
        assert await client.prompt("say two") == {"stopReason": "end_turn"}
    assert {turn["pid"] for turn in world.log.turns()} == {world.log.pids()[0]}
