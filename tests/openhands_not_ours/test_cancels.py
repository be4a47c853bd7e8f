"""Stop at every moment of a turn: what runs ends, and the next prompt is not touched."""

import pytest

from tests.openhands_not_ours.proxy import Deed, Point, Proxy, When
from tests.openhands_not_ours.stand import (
    PATIENCE,
    Stand,
    cards,
    numbers,
    run_command,
    set_policy,
    stop_reason,
)

pytestmark = pytest.mark.process


async def test_in_the_stream_it_is_answered_and_nothing_of_it_follows(stand: Stand) -> None:
    async with stand.client() as client:
        running = client.send_prompt("SAY X 9 GATE stream AT 3")
        await client.until_text("X2", within=PATIENCE)
        client.cancel()
        assert stop_reason(await client.answer_to(running, PATIENCE)) == "cancelled"
        conversation = await stand.conversation()
        assert (await stand.api.conversation(conversation))["execution_status"] == "paused"
        mark = client.mark()
        stand.model.open("stream")
        answer = await client.prompt("SAY Y 3", within=PATIENCE)
        assert answer["stopReason"] == "end_turn"
        assert numbers(client.text(since=mark), "Y") == [0, 1, 2]
        assert not numbers(client.text(since=mark), "X")


async def test_in_a_command_it_ends_the_command(stand: Stand) -> None:
    begun, ended = stand.cwd / "begun", stand.cwd / "ended"
    async with stand.client() as client:
        await set_policy(stand, client, "NeverConfirm")
        command = f"touch {begun}; sleep 20; touch {ended}"
        running = client.send_prompt(run_command(command))
        await client.until_recorded(
            lambda: any("sleep 20" in str(card.fields) for card in cards(client)), PATIENCE
        )
        client.cancel()
        assert stop_reason(await client.answer_to(running, PATIENCE)) == "cancelled"
        (card,) = cards(client)
        assert (card.begun, card.ends) == (1, ["failed"])
        mark = client.mark()
        answer = await client.prompt("SAY Y 3", within=PATIENCE)
        assert answer["stopReason"] == "end_turn"
        assert numbers(client.text(since=mark), "Y") == [0, 1, 2]
        assert not ended.exists()


@pytest.mark.parametrize("when", [When.BEFORE, When.ANSWERED])
async def test_while_the_message_is_on_its_way_nothing_runs_when_it_is_answered(
    stand: Stand, proxy: Proxy, when: When
) -> None:
    path = stand.cwd / "on-its-way"
    async with stand.client(url=proxy.url) as client:
        await set_policy(stand, client, "NeverConfirm")
        proxy.strike(Point("POST events", 1, when), Deed.DELAY)
        running = client.send_prompt(run_command(f"sleep 3; touch {path}"))
        await proxy.struck.wait()
        client.cancel()
        proxy.go()
        assert stop_reason(await client.answer_to(running, PATIENCE)) == "cancelled"
        conversation = await stand.conversation()
        assert (await stand.api.conversation(conversation))["execution_status"] != "running"
        await client.prompt("SAY Y 3", within=PATIENCE)
        assert numbers(client.text(), "Y") == [0, 1, 2]
        assert not path.exists()


async def test_directly_behind_the_prompt_and_twice(stand: Stand) -> None:
    async with stand.client() as client:
        running = client.send_prompt("SAY X 9 GATE behind AT 0")
        client.cancel()
        client.cancel()
        assert stop_reason(await client.answer_to(running, PATIENCE)) == "cancelled"
        stand.model.open("behind")
        mark = client.mark()
        answer = await client.prompt("SAY Y 3", within=PATIENCE)
        assert answer["stopReason"] == "end_turn"
        assert numbers(client.text(since=mark), "Y") == [0, 1, 2]
        assert not numbers(client.text(since=mark), "X")


async def test_with_nothing_running_it_hurts_no_later_prompt(stand: Stand) -> None:
    async with stand.client() as client:
        client.cancel()
        assert (await client.prompt("SAY A 2", within=PATIENCE))["stopReason"] == "end_turn"
        client.cancel()
        assert (await client.prompt("SAY B 2", within=PATIENCE))["stopReason"] == "end_turn"
        assert numbers(client.text(), "A") == numbers(client.text(), "B") == [0, 1]


@pytest.mark.parametrize("bridged", [True])
async def test_a_prompt_that_interrupts_runs_next_and_the_one_before_is_cancelled(
    stand: Stand,
) -> None:
    async with stand.client() as client:
        running = client.send_prompt("SAY X 9 GATE interrupted AT 3")
        await client.until_text("X2", within=PATIENCE)
        meta = {"acp_bridge": {"delivery": "interrupt"}}
        instead = client.send_prompt("SAY Y 3", _meta=meta)
        assert stop_reason(await client.answer_to(running, PATIENCE)) == "cancelled"
        assert stop_reason(await client.answer_to(instead, PATIENCE)) == "end_turn"
        assert numbers(client.text(), "Y") == [0, 1, 2]
        stand.model.open("interrupted")


async def test_the_server_can_not_be_reached_it_says_that_the_run_may_go_on(
    stand: Stand, proxy: Proxy
) -> None:
    async with stand.client(url=proxy.url) as client:
        running = client.send_prompt("SAY X 9 GATE unreachable AT 3")
        await client.until_text("X2", within=PATIENCE)
        await proxy.cut_all(refuse=True)
        client.cancel()
        assert stop_reason(await client.answer_to(running, PATIENCE)) == "cancelled"
        proxy.accept()
        stand.model.open("unreachable")
        mark = client.mark()
        answer = await client.prompt("SAY Y 3", within=PATIENCE)
        assert answer["stopReason"] == "end_turn"
        assert numbers(client.text(since=mark), "Y") == [0, 1, 2]
        assert not numbers(client.text(since=mark), "X")
