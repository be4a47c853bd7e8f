"""The connection cut, swallowed and delayed at every point of a turn: each word, each prompt once.

The points are those of a turn of SAY: what the adapter asks over HTTP, and what the server says on
the socket. A point that a turn never reaches is red too: then nothing was proved.
"""

import anyio
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
#: of the second turn: the first has shown that all is well
FRAMES = (
    "execution_status idle",
    "MessageEvent user",
    "last_user_message_id",
    "execution_status running",
    "StreamingDeltaEvent",
    "MessageEvent agent",
    "execution_status finished",
    "full_state finished",
)
TURN = [
    *(Point("POST events", 2, when) for when in When),
    *(Point(name, 2, When.BEFORE) for name in FRAMES[1:4]),
    *(Point("StreamingDeltaEvent", number, When.BEFORE) for number in (5, 6, 7, 8)),
    Point("StreamingDeltaEvent", 6, When.HALF),
    *(Point(name, 2, When.BEFORE) for name in FRAMES[5:7]),
    Point("MessageEvent agent", 2, When.HALF),
    *(Point("full_state finished", 2, when) for when in (When.BEFORE, When.HALF)),
]


@pytest.mark.parametrize("point", TURN, ids=str)
async def test_cut_in_a_turn_each_word_and_each_prompt_is_there_once(
    stand: Stand, proxy: Proxy, point: Point
) -> None:
    async with stand.client(url=proxy.url) as client:
        await client.prompt("SAY A 4", within=PATIENCE)
        proxy.strike(point, Deed.CUT)
        running = client.send_prompt("SAY B 4")
        answer = stop_reason(await client.answer_to(running, PATIENCE))
        assert proxy.struck.is_set(), proxy.points
        asked = await stand.api.messages(await stand.conversation())
        if point == Point("POST events", 2, When.BEFORE):
            # The server never got it: it is not sent again unseen, and the user is told.
            assert asked in (["SAY A 4"], ["SAY A 4", "SAY B 4"])
            assert answer == "end_turn" if len(asked) == 2 else answer.startswith("error")
        else:
            assert asked == ["SAY A 4", "SAY B 4"]
            assert answer == "end_turn"
        assert numbers(client.text(), "A") == [0, 1, 2, 3]
        assert numbers(client.text(), "B") == ([0, 1, 2, 3] if answer == "end_turn" else [])
        assert (await client.prompt("SAY C 3", within=PATIENCE))["stopReason"] == "end_turn"
        assert numbers(client.text(), "C") == [0, 1, 2]
        assert len(await stand.api.messages(await stand.conversation())) == len(asked) + 1


@pytest.mark.parametrize("when", [When.BEFORE, When.HALF])
@pytest.mark.parametrize("name", ["ActionEvent", "ObservationEvent"])
async def test_cut_at_a_command_it_runs_once_and_has_one_card(
    stand: Stand, proxy: Proxy, name: str, when: When
) -> None:
    file = stand.cwd / "lines"
    async with stand.client(url=proxy.url) as client:
        await set_policy(stand, client, "NeverConfirm")
        proxy.strike(Point(name, 1, when), Deed.CUT)
        answer = await client.prompt(run_command(f"echo once >> {file}"), within=PATIENCE)
        assert proxy.struck.is_set(), proxy.points
        assert answer["stopReason"] == "end_turn"
        assert file.read_text() == "once\n"
        (card,) = cards(client)
        assert (card.begun, card.ends) == (1, ["completed"])
        assert client.text().count("DONE") == 1
        assert client.text().count("I call.") == 1


async def test_a_lost_answer_is_looked_up_before_the_socket_tells_and_never_sent_again(
    stand: Stand, proxy: Proxy
) -> None:
    async with stand.client(url=proxy.url) as client:
        await client.prompt("SAY A 4", within=PATIENCE)
        proxy.strike(Point("execution_status idle", 1, When.BEFORE), Deed.DELAY)
        proxy.strike(Point("POST events", 2, When.ANSWERED), Deed.CUT)
        running = client.send_prompt("SAY B 4")
        looked = proxy.count("GET search")
        await proxy.passed("GET search", looked + 1, PATIENCE)
        await stand.api.until_status(await stand.conversation(), "finished")
        proxy.go()
        assert stop_reason(await client.answer_to(running, PATIENCE)) == "end_turn"
        assert await stand.api.messages(await stand.conversation()) == ["SAY A 4", "SAY B 4"]
        assert numbers(client.text(), "B") == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "point",
    [
        Point("socket", 1, When.BEFORE),
        Point("socket", 1, When.ANSWERED),
        Point("full_state idle", 1, When.BEFORE),
        Point("full_state idle", 1, When.HALF),
    ],
    ids=str,
)
async def test_cut_before_the_first_turn_it_connects_again(
    stand: Stand, proxy: Proxy, point: Point
) -> None:
    proxy.strike(point, Deed.CUT)
    async with stand.client(url=proxy.url) as client:
        assert (await client.prompt("SAY A 4", within=PATIENCE))["stopReason"] == "end_turn"
        assert proxy.struck.is_set(), proxy.points
        assert numbers(client.text(), "A") == [0, 1, 2, 3]
        assert await stand.api.messages(await stand.conversation()) == ["SAY A 4"]


async def test_cut_again_and_again_in_one_turn(stand: Stand, proxy: Proxy) -> None:
    async with stand.client(url=proxy.url) as client:
        await client.prompt("SAY A 1", within=PATIENCE)
        running = client.send_prompt("SAY B 6 GATE cuts AT 3")
        await client.until_text("B2", within=PATIENCE)
        for _ in range(3):
            before = proxy.count("full_state running")
            await proxy.cut_all()
            await proxy.passed("full_state running", before + 1, PATIENCE)
        stand.model.open("cuts")
        assert stop_reason(await client.answer_to(running, PATIENCE)) == "end_turn"
        assert numbers(client.text(), "B") == list(range(6))


async def test_what_ended_while_nobody_was_connected_is_shown_and_ends_the_turn(
    stand: Stand, proxy: Proxy
) -> None:
    async with stand.client(url=proxy.url) as client:
        running = client.send_prompt("SAY B 6 GATE away AT 3")
        await client.until_text("B2", within=PATIENCE)
        await proxy.cut_all(refuse=True)
        stand.model.open("away")
        await stand.api.until_status(await stand.conversation(), "finished")
        proxy.accept()
        assert stop_reason(await client.answer_to(running, PATIENCE)) == "end_turn"
        assert numbers(client.text(), "B") == list(range(6))


@pytest.mark.parametrize(
    "point",
    [
        Point("POST events", 1, When.ANSWERED),
        Point("StreamingDeltaEvent", 2, When.BEFORE),
        Point("MessageEvent agent", 1, When.BEFORE),
        Point("full_state finished", 1, When.BEFORE),
    ],
    ids=str,
)
async def test_delayed_it_is_waited_for(stand: Stand, proxy: Proxy, point: Point) -> None:
    async with stand.client(url=proxy.url) as client:
        proxy.strike(point, Deed.DELAY)
        running = client.send_prompt("SAY A 4")
        with anyio.fail_after(PATIENCE):
            await proxy.struck.wait()
        await stand.api.until_status(await stand.conversation(), "finished")
        proxy.go()
        assert stop_reason(await client.answer_to(running, PATIENCE)) == "end_turn"
        assert numbers(client.text(), "A") == [0, 1, 2, 3]
        assert await stand.api.messages(await stand.conversation()) == ["SAY A 4"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "point",
    [
        Point("POST events", 1, When.ANSWERED),
        Point("StreamingDeltaEvent", 2, When.BEFORE),
        Point("full_state finished", 1, When.BEFORE),
    ],
    ids=str,
)
async def test_swallowed_the_turn_still_ends(stand: Stand, proxy: Proxy, point: Point) -> None:
    """A peer that is gone without a word is noticed by what it doesn't answer."""
    async with stand.client(url=proxy.url) as client:
        proxy.strike(point, Deed.SWALLOW)
        running = client.send_prompt("SAY A 4")
        assert stop_reason(await client.answer_to(running, 2 * PATIENCE)) == "end_turn"
        assert numbers(client.text(), "A") == [0, 1, 2, 3]
        assert await stand.api.messages(await stand.conversation()) == ["SAY A 4"]


async def test_cut_while_a_question_is_open_it_is_asked_once_and_its_answer_counts(
    stand: Stand, proxy: Proxy
) -> None:
    path = stand.cwd / "asked-once"
    async with stand.client(url=proxy.url) as client:
        await set_policy(stand, client, "AlwaysConfirm")
        client.side.permission = "never"
        running = client.send_prompt(run_command(f"touch {path}"))
        asked = await client.until_request("session/request_permission", within=PATIENCE)
        await proxy.cut_all()
        allow = next(o for o in asked["params"]["options"] if o["kind"] == "allow_once")
        chosen = {"outcome": {"outcome": "selected", "optionId": allow["optionId"]}}
        client.answer(asked["id"], chosen)
        assert stop_reason(await client.answer_to(running, PATIENCE)) == "end_turn"
        assert path.exists()
        assert len(client.recording.requests("session/request_permission")) == 1
        (card,) = cards(client)
        assert (card.begun, card.ends) == (1, ["completed"])


@pytest.mark.parametrize("when", [When.BEFORE, When.ANSWERED])
async def test_a_cut_refusal_refuses(stand: Stand, proxy: Proxy, when: When) -> None:
    path = stand.cwd / "refused"
    async with stand.client(url=proxy.url) as client:
        await set_policy(stand, client, "AlwaysConfirm")
        client.side.permission = "reject"
        proxy.strike(Point("POST respond_to_confirmation", 1, when), Deed.CUT)
        running = client.send_prompt(run_command(f"touch {path}"))
        await client.answer_to(running, PATIENCE)
        assert proxy.struck.is_set()
        client.side.permission = "reject"
        await client.prompt("SAY A 2", within=PATIENCE)
        assert not path.exists()


async def test_a_cut_interrupt_interrupts(stand: Stand, proxy: Proxy) -> None:
    async with stand.client(url=proxy.url) as client:
        proxy.strike(Point("POST interrupt", 1, When.BEFORE), Deed.CUT)
        running = client.send_prompt("SAY X 9 GATE cutinterrupt AT 3")
        await client.until_text("X2", within=PATIENCE)
        client.cancel()
        assert stop_reason(await client.answer_to(running, PATIENCE)) == "cancelled"
        mark = client.mark()
        await client.prompt("SAY Y 3", within=PATIENCE)
        assert numbers(client.text(since=mark), "Y") == [0, 1, 2]
        assert not numbers(client.text(since=mark), "X")
        stand.model.open("cutinterrupt")
