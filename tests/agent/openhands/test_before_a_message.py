"""What is made sure of before a message is sent: the server takes it as consent to what waits."""

from pathlib import Path

import anyio
import pytest

from agent.openhands import stopping
from agent.openhands.turn_words import MAY_GO_ON, STILL_RUNS
from tests.agent.openhands import events as told
from tests.agent.openhands.agent_server import Conversation, FakeServer, say_hello
from tests.agent.openhands.conftest import Adapt
from tests.agent.openhands.test_on_a_server import error_of, lose_policy, prompt


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stop that has no effect is given up soon."""
    monkeypatch.setattr(stopping, "_AGAIN", 0.01)
    monkeypatch.setattr(stopping, "_LOOKS", 3)


def left_waiting(fake: FakeServer, cwd: Path) -> Conversation:
    """A conversation with an action that waits for an answer."""
    left = fake.add(str(cwd), told.user("q"), told.action("a1"), status="waiting_for_confirmation")
    left.waiting = ["a1"]
    return left


async def test_actions_that_wait_are_refused_though_the_feed_tells_the_state_late(
    adapt: Adapt, fake: FakeServer, cwd: Path
) -> None:
    left = left_waiting(fake, cwd)
    fake.first_snapshot = anyio.Event()
    async with adapt(opens=False) as client:
        await client.load_session(left.id, cwd)
        running = client.send_prompt("again")
        await client.until_text("Hello there.")
        fake.first_snapshot.set()
        assert (await client.answer_to(running))["result"]["stopReason"] == "end_turn"
        assert left.ran == []


async def test_actions_that_came_to_wait_while_nobody_was_connected_are_refused(
    adapt: Adapt, fake: FakeServer
) -> None:
    async with adapt() as client:
        await client.prompt("one")
        fake.first_snapshot = anyio.Event()
        await fake.cut()
        await fake.only.wait_for_consent("a1")  # another client's run
        running = client.send_prompt("two")
        await fake.until(lambda: len(fake.messages()) == 2)
        fake.first_snapshot.set()
        assert (await client.answer_to(running))["result"]["stopReason"] == "end_turn"
        assert fake.only.ran == []


async def test_where_a_refusal_is_never_taken_no_message_is_sent(
    adapt: Adapt, fake: FakeServer, cwd: Path, hasty: None
) -> None:
    left = left_waiting(fake, cwd)
    fake.deeds["POST events/respond_to_confirmation"] = [503] * 3
    async with adapt(opens=False) as client:
        await client.load_session(left.id, cwd)
        error = await error_of(client, "session/prompt", prompt(client, "again"))
        assert "not sent" in error.message
        assert (left.ran, "POST events" in fake.asked) == ([], False)
        await client.prompt("once more")
        assert (left.ran, left.last_message is None) == ([], False)


async def test_where_a_run_does_not_stop_no_message_is_sent_into_it(
    adapt: Adapt, fake: FakeServer, hasty: None
) -> None:
    async def run_for_ever(it: Conversation) -> None:
        await it.emit(told.delta("X0 "))
        await anyio.sleep_forever()

    fake.on_message = run_for_ever
    async with adapt() as client:
        running = client.send_prompt("hello")
        await client.until_text("X0")
        fake.deeds["POST interrupt"] = [503] * 5
        client.cancel()
        assert (await client.answer_to(running))["result"]["stopReason"] == "cancelled"
        assert STILL_RUNS in client.text()
        error = await error_of(client, "session/prompt", prompt(client, "again"))
        assert ("not sent" in error.message, fake.messages()) == (True, ["hello"])
        fake.deeds.clear()
        fake.on_message = say_hello
        mark = client.mark()
        await client.prompt("once more")
        assert client.text(since=mark) == "Hello there."


async def test_a_load_that_can_not_stop_what_was_left_running_says_that_it_may_go_on(
    adapt: Adapt, fake: FakeServer, cwd: Path
) -> None:
    left = fake.add(str(cwd), told.user("q"), status="running")
    fake.deeds["POST interrupt"] = [503] * 5
    fake.deeds["GET"] = [200, 200, *[503] * 15]  # what is asked to open it, then nothing
    async with adapt(opens=False) as client:
        await client.load_session(left.id, cwd)
        assert MAY_GO_ON in client.text()
        assert left.interrupts == 0
        fake.deeds.clear()
        left.status = "finished"
        assert (await client.prompt("again"))["stopReason"] == "end_turn"


@pytest.mark.hazard("R13")
async def test_a_policy_that_may_be_lost_is_set_again_though_the_feed_tells_the_state_late(
    adapt: Adapt, fake: FakeServer
) -> None:
    async with adapt() as client:
        await lose_policy(client, fake)
        fake.first_snapshot = anyio.Event()
        await fake.cut()
        running = client.send_prompt("two")
        await fake.until(lambda: len(fake.messages()) == 2)
        assert fake.only.policy["kind"] == "AlwaysConfirm"
        fake.first_snapshot.set()
        assert (await client.answer_to(running))["result"]["stopReason"] == "end_turn"
