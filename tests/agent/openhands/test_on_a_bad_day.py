"""The server refuses, is busy, fails, is cut off: each prompt once, each word once, one error."""

from functools import partial
from pathlib import Path

import anyio
import pytest

from agent.openhands import patience
from agent.openhands.turn_words import BUSY, LOST, MAY_GO_ON, NOT_KNOWN, NOT_SENT, STARTING
from tests.agent.openhands import events as told
from tests.agent.openhands.agent_server import KEY, Conversation, Cut, FakeServer
from tests.agent.openhands.conftest import Adapt
from tests.agent.openhands.test_on_a_server import error_of, prompt
from tests.support.client import RecordingClient


def posts(fake: FakeServer, name: str) -> int:
    return fake.asked.count(f"POST {name}")


class Gated:
    """An agent's run that stops at a gate in the middle of its words."""

    def __init__(self, fake: FakeServer) -> None:
        self.gate = anyio.Event()
        self.reached = anyio.Event()
        fake.on_message = self.run

    async def run(self, it: Conversation) -> None:
        await it.emit(told.delta("A0 "), told.delta("A1 "))
        self.reached.set()
        await self.gate.wait()
        await it.emit(told.delta("A2 "), told.agent("A0 A1 A2 "))


async def in_a_turn(client: RecordingClient) -> int:
    """The request whose turn has come to the gate."""
    running: int = client.send_prompt("hello")
    await client.until_text("A1 ")
    return running


def _has_connected(fake: FakeServer, count: int) -> bool:
    return fake.asked.count("socket") >= count


# the message


async def test_a_message_whose_answer_is_cut_is_found_and_its_turn_ends_as_any(
    adapt: Adapt, fake: FakeServer
) -> None:
    fake.deeds["POST events"] = [Cut.AFTER]
    async with adapt() as client:
        assert (await client.prompt("hello"))["stopReason"] == "end_turn"
        assert client.text() == "Hello there."
        assert posts(fake, "events") == 1


async def test_a_message_that_never_came_is_an_error_and_is_not_sent_again(
    adapt: Adapt, fake: FakeServer
) -> None:
    fake.deeds["POST events"] = [Cut.BEFORE]
    async with adapt() as client:
        error = await error_of(client, "session/prompt", prompt(client, "hello"))
        assert error.data == {"details": NOT_KNOWN}
        assert (posts(fake, "events"), fake.messages()) == (1, [])
        assert (await client.prompt("again"))["stopReason"] == "end_turn"


@pytest.mark.parametrize("status", [500, 502, 503])
async def test_a_message_that_the_server_failed_at_is_looked_for_too(
    adapt: Adapt, fake: FakeServer, status: int
) -> None:
    fake.deeds["POST events"] = [status]
    async with adapt() as client:
        await error_of(client, "session/prompt", prompt(client, "hello"))
        assert posts(fake, "events") == 1


@pytest.mark.parametrize("status", [400, 422])
async def test_a_message_that_the_server_refuses_is_an_error_in_its_words(
    adapt: Adapt, fake: FakeServer, status: int
) -> None:
    fake.deeds["POST events"] = [status]
    async with adapt() as client:
        error = await error_of(client, "session/prompt", prompt(client, "hello"))
        assert error.message == f"The agent-server refused (HTTP {status}): it is {status}"


async def test_without_room_for_a_run_the_message_is_kept_and_only_the_run_asked_for(
    adapt: Adapt, fake: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent.openhands.turn._LONGEST_PAUSE", 0.02)
    fake.deeds["POST events"], fake.deeds["POST run"] = [429], [429, 429]
    async with adapt() as client:
        assert (await client.prompt("hello"))["stopReason"] == "end_turn"
        assert (posts(fake, "events"), posts(fake, "run")) == (1, 3)
        assert client.text().count(BUSY) == 1


async def test_a_run_that_is_going_is_waited_for(adapt: Adapt, fake: FakeServer) -> None:
    """409 comes from the route for runs alone."""
    fake.deeds["POST events"], fake.deeds["POST run"] = [429], [409]
    gated = Gated(fake)
    async with adapt() as client:
        running = client.send_prompt("hello")
        await fake.until(lambda: posts(fake, "run") == 1)
        await fake._begin(fake.only, False, "")  # another client's
        gated.gate.set()
        assert (await client.answer_to(running))["result"]["stopReason"] == "end_turn"
        assert posts(fake, "run") == 1


async def test_an_answer_that_never_comes_holds_up_no_turn(adapt: Adapt, fake: FakeServer) -> None:
    fake.deeds["POST events"] = [Cut.NEVER]
    async with adapt() as client:
        assert (await client.prompt("hello"))["stopReason"] == "end_turn"
        assert client.text() == "Hello there."


# the feed


async def test_a_feed_that_is_cut_in_a_message_shows_each_word_once(
    adapt: Adapt, fake: FakeServer
) -> None:
    gated = Gated(fake)
    async with adapt() as client:
        running = await in_a_turn(client)
        for count in (2, 3, 4):
            await fake.cut()
            await fake.until(partial(_has_connected, fake, count))
        gated.gate.set()
        assert (await client.answer_to(running))["result"]["stopReason"] == "end_turn"
        assert client.text() == "A0 A1 A2 "


async def test_what_ended_while_nobody_was_connected_ends_the_turn(
    adapt: Adapt, fake: FakeServer
) -> None:
    gated = Gated(fake)
    fake.refusals = []
    async with adapt() as client:
        running = await in_a_turn(client)
        fake.refusals = [503, 503]
        await fake.cut()
        gated.gate.set()
        assert (await client.answer_to(running))["result"]["stopReason"] == "end_turn"
        assert client.text() == "A0 A1 A2 "


async def test_a_feed_that_died_without_a_cut_is_found_out(adapt: Adapt, fake: FakeServer) -> None:
    gated = Gated(fake)
    async with adapt() as client:
        running = await in_a_turn(client)
        fake.deafen()
        gated.gate.set()
        assert (await client.answer_to(running))["result"]["stopReason"] == "end_turn"
        assert client.text() == "A0 A1 A2 "


async def test_a_server_that_is_lost_in_a_turn_is_told_of_once(
    adapt: Adapt, fake: FakeServer
) -> None:
    gated = Gated(fake)
    async with adapt() as client:
        running = await in_a_turn(client)
        fake.deeds["GET"] = [503] * 9
        fake.refusals = [503] * 1000
        await fake.cut()
        await fake.until(lambda: not fake.deeds["GET"])  # looked at three times
        fake.refusals = []
        gated.gate.set()
        assert (await client.answer_to(running))["result"]["stopReason"] == "end_turn"
        assert client.text().count(LOST) == 1


async def test_a_feed_whose_first_snapshot_comes_late_misses_nothing(
    adapt: Adapt, fake: FakeServer
) -> None:
    fake.first_snapshot = anyio.Event()
    async with adapt() as client:
        running = client.send_prompt("hello")
        await client.until_text("Hello there.")
        fake.first_snapshot.set()
        assert (await client.answer_to(running))["result"]["stopReason"] == "end_turn"
        assert client.text() == "Hello there."


async def test_a_server_that_has_too_many_connections_is_tried_again(
    adapt: Adapt, fake: FakeServer
) -> None:
    fake.closes = [(1013, "Too many connections for this conversation"), (1011, "")]
    async with adapt() as client:
        assert (await client.prompt("hello"))["stopReason"] == "end_turn"
        assert fake.asked.count("socket") == 3


@pytest.mark.parametrize(
    ("close", "code", "words"),
    [
        ((1013, "credential_binding_activation_required"), -32000, "credentials again"),
        ((4001, "Authentication failed"), -32000, "the right key"),
        ((4004, "Conversation not found"), -32603, "does not have this conversation"),
    ],
    ids=["credentials", "key", "gone"],
)
async def test_what_ends_the_feed_for_good_is_said_by_its_reason_and_not_tried_again(
    adapt: Adapt, fake: FakeServer, close: tuple[int, str], code: int, words: str
) -> None:
    fake.closes = [close]
    async with adapt() as client:
        error = await error_of(client, "session/prompt", prompt(client, "hello"))
        assert (error.code, words in error.message) == (code, True)
        await error_of(client, "session/prompt", prompt(client, "again"))
        assert fake.asked.count("socket") == 1
        assert posts(fake, "events") == 0


@pytest.mark.parametrize("status", [401, 403, 404])
async def test_a_feed_that_is_refused_before_it_is_open_is_not_tried_again(
    adapt: Adapt, fake: FakeServer, status: int
) -> None:
    fake.refusals = [status]
    async with adapt() as client:
        await error_of(client, "session/prompt", prompt(client, "hello"))
        assert fake.asked.count("socket") == 1


async def test_a_conversation_that_is_deleted_in_a_turn_ends_it(
    adapt: Adapt, fake: FakeServer
) -> None:
    Gated(fake)
    async with adapt() as client:
        running = await in_a_turn(client)
        fake.conversations.clear()
        answer = await client.answer_to(running)
        assert "error" in answer


# the key


async def test_the_key_goes_in_headers_of_requests_and_in_the_first_frame_of_the_feed(
    adapt: Adapt, fake: FakeServer
) -> None:
    async with adapt() as client:
        await client.prompt("hello")
        feeds = [head for head in fake.heads if "upgrade: websocket" in head.lower()]
        assert feeds
        assert not [head for head in feeds if KEY in head]
        assert not [head for head in fake.heads if KEY in head.split("\r\n")[0]]


async def test_a_wrong_key_is_an_authentication_error(
    adapt: Adapt, fake: FakeServer, cwd: Path
) -> None:
    async with adapt(opens=False, key="another-key") as client:
        error = await error_of(client, "session/new", {"cwd": str(cwd), "mcpServers": []})
        assert (error.code, "another-key" in error.message) == (-32000, False)
        error = await error_of(client, "authenticate", {"methodId": "session-api-key"})
        assert error.code == -32000


# no server


async def test_a_server_that_is_not_there_is_named(
    adapt: Adapt, fake: FakeServer, cwd: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "_START", 0.2)
    async with adapt(opens=False, url="http://127.0.0.1:9") as client:
        error = await error_of(client, "session/new", {"cwd": str(cwd), "mcpServers": []})
        assert error.message == "The agent-server can't be reached at http://127.0.0.1:9."


async def test_a_prompt_waits_for_the_server_with_a_word_and_not_for_ever(
    adapt: Adapt, fake: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with adapt() as client:
        await client.prompt("one")
        monkeypatch.setattr(patience, "_SIGN_OF_LIFE", 0.1)
        fake.refusals = [503] * 1000
        await fake.cut()
        await fake.until(lambda: fake.asked.count("socket") > 2)
        error = await error_of(client, "session/prompt", prompt(client, "two"))
        assert error.message == NOT_SENT
        assert client.text().count(STARTING) == 6
        fake.refusals = []
        assert (await client.prompt("three"))["stopReason"] == "end_turn"
        assert fake.messages() == ["one", "three"]


# a cancel


async def run_for_ever(it: Conversation) -> None:
    await it.emit(told.delta("X0 "))
    await anyio.sleep_forever()


async def test_a_cancel_stops_the_run_and_the_next_prompt_is_not_touched(
    adapt: Adapt, fake: FakeServer
) -> None:
    fake.on_message = run_for_ever
    async with adapt() as client:
        running = client.send_prompt("hello")
        await client.until_text("X0")
        client.cancel()
        assert (await client.answer_to(running))["result"]["stopReason"] == "cancelled"
        assert (fake.only.status, fake.only.run) == ("paused", None)
        assert posts(fake, "pause") == 0
        fake.on_message = _say
        assert (await client.prompt("again"))["stopReason"] == "end_turn"
        assert client.text() == "X0 Well."


async def _say(it: Conversation) -> None:
    await it.emit(told.agent("Well."))


async def test_after_cancelled_nothing_is_shown_until_the_client_speaks(
    adapt: Adapt, fake: FakeServer
) -> None:
    fake.on_message = run_for_ever
    async with adapt() as client:
        running = client.send_prompt("hello")
        await client.until_text("X0")
        client.cancel()
        await client.answer_to(running)
        mark = client.mark()
        await fake.only.emit(told.user("theirs"), told.agent("for them"))
        fake.on_message = _say
        other = client.send_request("session/list", {})
        await client.answer_to(other)
        assert client.updates(since=mark) == []
        await client.prompt("again")
        assert client.text(since=mark) == "for themWell."


async def test_actions_that_wait_are_refused_before_anything_else_is_sent(
    adapt: Adapt, fake: FakeServer
) -> None:
    async def ask(it: Conversation) -> None:
        await it.wait_for_consent("a1", "a2")

    fake.on_message = ask
    async with adapt() as client:
        client.side.permission = "never"
        running = client.send_prompt("hello")
        await client.until_request("session/request_permission")
        client.cancel()
        assert (await client.answer_to(running))["result"]["stopReason"] == "cancelled"
        fake.on_message = _say
        await client.prompt("again")
        assert fake.only.ran == []
        sent = [each for each in fake.asked if each.startswith("POST")]
        refused = sent.index("POST events/respond_to_confirmation")
        assert sent.index("POST events", refused) > refused


async def test_actions_that_waited_before_a_load_are_refused_before_the_next_prompt(
    adapt: Adapt, fake: FakeServer, cwd: Path
) -> None:
    left = fake.add(str(cwd), told.user("q"), told.action("a1"), status="waiting_for_confirmation")
    left.waiting = ["a1"]
    async with adapt(opens=False) as client:
        await client.load_session(left.id, cwd)
        await client.prompt("again")
        assert left.ran == []
        ends = [u["status"] for u in client.updates() if u.get("toolCallId") == "a1"]
        assert ends == ["pending", "failed"]


async def test_one_question_names_all_actions_that_wait(adapt: Adapt, fake: FakeServer) -> None:
    async def ask(it: Conversation) -> None:
        if not it.ran:
            await it.wait_for_consent("a1", "a2")

    fake.on_message = ask
    async with adapt() as client:
        client.side.permission = "allow"
        await client.prompt("hello")
        (asked,) = client.recording.requests("session/request_permission")
        assert asked["params"]["toolCall"]["title"] == "2 actions: `a1`; `a2`"
        assert fake.only.ran == ["a1", "a2"]


@pytest.mark.parametrize("deed", [Cut.BEFORE, Cut.AFTER, 503])
async def test_a_refusal_whose_answer_is_lost_refuses_all_the_same(
    adapt: Adapt, fake: FakeServer, deed: Cut | int
) -> None:
    async def ask(it: Conversation) -> None:
        if len(fake.messages()) == 1 and not it.ran and not _refused(it):
            await it.wait_for_consent("a1")

    fake.on_message = ask
    fake.deeds["POST events/respond_to_confirmation"] = [deed]
    async with adapt() as client:
        client.side.permission = "reject"
        assert (await client.prompt("hello"))["stopReason"] == "end_turn"
        assert fake.only.ran == []


def _refused(it: Conversation) -> bool:
    return any(raw["kind"] == "UserRejectObservation" for raw in it.events)


async def test_a_server_that_can_not_be_reached_for_a_cancel_is_told_of_and_stopped_later(
    adapt: Adapt, fake: FakeServer
) -> None:
    gated = Gated(fake)
    async with adapt() as client:
        running = await in_a_turn(client)
        fake.deeds["POST interrupt"] = [503] * 5
        fake.deeds["GET"] = [503] * 15
        client.cancel()
        assert (await client.answer_to(running))["result"]["stopReason"] == "cancelled"
        assert MAY_GO_ON in client.text()
        mark = client.mark()
        fake.deeds.clear()
        fake.on_message = _say
        await client.prompt("again")
        assert fake.only.interrupts == 1
        assert client.text(since=mark) == "Well."
        assert not gated.gate.is_set()


async def test_a_message_that_arrives_after_it_was_given_up_is_stopped(
    adapt: Adapt, fake: FakeServer
) -> None:
    fake.deeds["POST events"] = [Cut.BEFORE]
    async with adapt() as client:
        await error_of(client, "session/prompt", prompt(client, "hello"))
        fake.on_message = run_for_ever
        await fake._message(fake.only, [{"type": "text", "text": "hello"}])  # delayed on its way
        await fake._begin(fake.only, False, "saved")
        await fake.until(lambda: fake.only.interrupts and fake.only.run is None)


async def test_a_message_like_one_that_was_refused_is_another_client_s_and_runs(
    adapt: Adapt, fake: FakeServer
) -> None:
    fake.deeds["POST events"] = [422]
    async with adapt() as client:
        await error_of(client, "session/prompt", prompt(client, "hello"))
        await fake._message(fake.only, [{"type": "text", "text": "hello"}])
        await fake._begin(fake.only, False, "saved")
        await client.until_text("Hello there.")
        assert fake.only.interrupts == 0
