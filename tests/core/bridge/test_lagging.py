"""Clients with cursors that read too slowly: they read on from the journal, at their own pace."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.core.bridge.keyed import keyed
from tests.core.bridge.resuming import cursor_in, flat, loaded, recorded, updates
from tests.core.bridge.test_cursors import TEXTS, Play, playing, said
from tests.core.bridge.test_subagents import at_work
from tests.core.sessions.agent import Json, until
from tests.core.sessions.bench import Served
from tests.core.sessions.world import SETUP
from tests.support.in_memory import MEMORY

#: bytes that make a client fall behind, and so many times that for one that is let go.
LIMIT, FLOOD = 1000, 32

pytestmark = pytest.mark.hazard("V4")


class Slow(Play):
    """A session in whose turns clients may read too slowly."""

    async def speaks(self, *texts: str, **more: object) -> None:
        """Let the agent say something; returns when it is read on after that."""
        self.says(*texts, **more)  # type: ignore[arg-type]
        await self.read_on()

    async def read_on(self) -> None:
        await self.process.link.room()

    async def behind(self, **own: Any) -> Served:
        """Return a client that has the session, and reads no more."""
        client = await self.it.attached(self.id, cursors=True, **own)
        await self.stops(client)
        return client

    async def stops(self, client: Served) -> None:
        client.way.stuck = LIMIT
        await self.read_on()

    async def reads(self, client: Served) -> None:
        """Let a client read on; it has all that there is."""
        client.way.take_all()
        await until(lambda: all(not view.lag for view in self.views if view.client.gone is False))

    @property
    def views(self) -> Any:
        return self.it.bridge._sessions.live[self.id].transcript.views


def in_order(client: Served, asked: Any) -> list[str]:
    """The words that a client was shown, that a prompt had ended, and the answer to a request."""
    found: list[str] = []
    for message in client.messages:
        params = message.get("params", {})
        if text := params.get("update", {}).get("content", {}).get("text"):
            found.append(text)
        elif params.get("ended"):
            found.append("ended")
        elif message.get("id") == asked:
            found.append("answer")
    return found


@asynccontextmanager
async def slow(home: Path, unread: float = 3600) -> AsyncIterator[Slow]:
    async with playing(home, client_limit=FLOOD * LIMIT, unread=unread) as it:
        yield Slow(it.it, it.id, it.process, it.gates)


@pytest.mark.hazard("V4.3")
async def test_nothing_is_kept_for_it_and_it_has_all_once_when_it_reads(tmp_path: Path) -> None:
    async with slow(tmp_path) as here:
        await here.prompt()
        await here.speaks("before")
        client = await here.behind()
        seen = len(client.messages)
        for _ in range(50):
            await here.speaks("x" * LIMIT)
        (view,) = (each for each in here.views if each.client.on_socket)
        assert len(client.messages) == seen
        assert view.lag.waiting_bytes == 0
        await here.reads(client)
        assert said(client) == ["hello", "before", "x" * LIMIT * 50]
        await here.speaks("live")
        assert said(client)[-1] == "live"
        assert flat(list(filter(recorded, updates(client)))) == flat(await loaded(here.it, here.id))
        assert all(map(cursor_in, filter(recorded, updates(client))))


@pytest.mark.hazard("V4.3")
async def test_it_is_written_no_more_than_it_takes_while_it_catches_up(tmp_path: Path) -> None:
    async with slow(tmp_path) as here:
        await here.prompt()
        client = await here.behind()
        for number in range(20):
            here.says(str(number) * 40, messageId=str(number))
            here.shows(sessionUpdate="tool_call", toolCallId=str(number), title="x")
        await here.read_on()
        seen = len(client.messages)
        client.way.stuck = LIMIT // 4
        await client.handled()
        assert len(client.messages) == seen + 1  # the answer to that
        await here.reads(client)
        assert len(list(filter(recorded, updates(client)))) == 41


async def test_an_answer_does_not_overtake_the_words_of_its_turn_nor_wait_for_later_ones(
    tmp_path: Path,
) -> None:
    async with slow(tmp_path) as here:
        client = await here.behind(state=True)
        asked = client.prompt(here.id, "mine")
        await until(lambda: here.gates)
        await here.speaks("words")
        here.gates[-1].open()
        await until(lambda: here.it.bridge._sessions.live[here.id].now.running is None)
        here.asked.append(0)
        await here.prompt("another's")
        await here.speaks("later")
        assert not client.answers(asked)
        await here.reads(client)
        assert in_order(client, asked) == ["words", "answer", "another's", "later"]


@pytest.mark.hazard("X3")
async def test_that_a_prompt_sent_again_has_ended_is_told_behind_the_words_of_its_turn(
    tmp_path: Path,
) -> None:
    async with slow(tmp_path) as here:
        client = await here.behind(accepted=True)
        prompt = keyed(here.id, "mine", "key")
        client.send("session/prompt", prompt)
        await until(lambda: here.gates)
        await here.speaks("words")
        here.gates[-1].open()
        await until(lambda: here.it.bridge._sessions.live[here.id].now.running is None)
        again = client.send("session/prompt", prompt)
        await client.handled()
        await here.reads(client)
        assert in_order(client, again) == ["words", "ended", "answer"]


async def test_it_is_asked_once_it_has_caught_up(tmp_path: Path) -> None:
    async with slow(tmp_path) as here:
        await here.prompt()
        client = await here.behind()
        here.says("why")
        options = [{"optionId": "yes", "name": "Yes", "kind": "allow_once"}]
        call = {"toolCallId": "t", "title": "Edit x"}
        params = {"sessionId": "agent-1", "toolCall": call, "options": options}
        here.process.says({"id": 7, "method": "session/request_permission", "params": params})
        await here.read_on()
        await here.it.editor.got("session/request_permission")
        assert not client.asked("session/request_permission")
        await here.reads(client)
        await client.got("session/request_permission")
        methods = [each.get("method") for each in client.messages]
        assert methods.index("session/request_permission") > methods.index("session/update")


async def test_states_are_shown_at_the_end_as_they_are_then(tmp_path: Path) -> None:
    async with slow(tmp_path) as here:
        await here.prompt()
        client = await here.behind()
        for used in range(1, 9):
            here.shows(sessionUpdate="usage_update", used=used, size=9)
        await here.speaks("a")
        seen = len(updates(client))
        await here.reads(client)
        shown_now = [each["update"] for each in updates(client)[seen:]]
        assert [each["used"] for each in shown_now if "used" in each] == [8]


@pytest.mark.hazard("V4.3")
async def test_one_that_takes_nothing_for_long_is_let_go(tmp_path: Path) -> None:
    async with slow(tmp_path, unread=0) as here:
        client = await here.it.attached(here.id, cursors=True)
        await here.prompt()
        await here.stops(client)
        with anyio.fail_after(20):  # before whatever else is patient with a client
            await client.parted.wait()
        assert client.messages[-1]["method"] == "_acp_bridge/let_go"


async def test_one_that_takes_a_few_bytes_now_and_then_stays(tmp_path: Path) -> None:
    async with slow(tmp_path, unread=0) as here:
        client = await here.it.attached(here.id, cursors=True)
        await here.prompt()
        client.way.stuck = 50 * LIMIT
        await here.speaks("a")
        while client.way.stuck > LIMIT:
            client.way.stuck -= 10
            await anyio.lowlevel.checkpoint()
        await here.reads(client)
        assert said(client)[-1] == "a"


async def test_what_is_said_while_it_catches_up_is_neither_lost_nor_doubled(tmp_path: Path) -> None:
    async with slow(tmp_path) as here:
        await here.prompt()
        client = await here.behind()
        (view,) = (each for each in here.views if each.client.on_socket)
        await here.speaks("first")
        client.way.take_all()
        for count in range(50):
            here.says(f"<{count}>", messageId=str(count))
            await anyio.lowlevel.checkpoint()
        await until(lambda: not view.lag)
        assert flat(list(filter(recorded, updates(client)))) == flat(await loaded(here.it, here.id))


@pytest.mark.parametrize("how", ["session/load", "session/resume"])
async def test_nothing_is_kept_while_it_is_slow_in_its_load(tmp_path: Path, how: str) -> None:
    async with slow(tmp_path) as here:
        first = await here.it.attached(here.id, cursors=True)
        await here.prompt()
        for number in range(60):
            here.says("a" * LIMIT, messageId=str(number))
        cursor = cursor_in(updates(first)[0])
        client = await here.it.joined(cursors=True)
        client.way.stuck = LIMIT
        given = {**SETUP, "sessionId": here.id}
        asked = client.send(how, here.after(cursor) if how == "session/resume" else given)
        await until(lambda: len(updates(client)) > 1)
        for number in range(100, 160):
            await here.speaks("b" * LIMIT, messageId=str(number))
        (view,) = (each for each in here.views if each.lag)
        assert view.lag.waiting_bytes == 0
        assert not client.answers(asked)
        assert len(updates(client)) < 60
        await here.reads(client)
        await client.result(asked)
        whole = flat(await loaded(here.it, here.id))[0 if how == "session/load" else len("hello") :]
        assert flat(list(filter(recorded, updates(client)))) == whole
        last = cursor_in(list(filter(recorded, updates(client)))[-1])
        assert last == cursor_in(await first.ask("session/load", given))
        texts = [m.get("id") or m["params"].get("update", {}) for m in client.messages]
        at = texts.index(asked)
        assert "b" * LIMIT not in str(texts[:at])


async def test_who_loads_the_session_is_asked_once_it_has_caught_up(tmp_path: Path) -> None:
    async with slow(tmp_path) as here:
        await here.prompt()
        here.says("a" * LIMIT)
        client = await here.it.joined(cursors=True)
        client.way.stuck = LIMIT
        asked = client.send("session/load", {**SETUP, "sessionId": here.id})
        await until(lambda: any(view.lag for view in here.views))
        options = [{"optionId": "yes", "name": "Yes", "kind": "allow_once"}]
        call = {"toolCallId": "t", "title": "Edit x"}
        params = {"sessionId": "agent-1", "toolCall": call, "options": options}
        here.says("why")
        here.process.says({"id": 7, "method": "session/request_permission", "params": params})
        await here.reads(client)
        await client.result(asked)
        await client.got("session/request_permission")
        methods = [each.get("method") for each in client.messages]
        assert "why" in client.texts(here.id)
        last = max(at for at, each in enumerate(methods) if each == "session/update")
        assert methods.index("session/request_permission") > last


async def test_the_end_of_a_card_with_which_a_load_ends_is_shown_once(tmp_path: Path) -> None:
    async with slow(tmp_path) as here:
        await here.prompt()
        here.shows(sessionUpdate="tool_call", toolCallId="t", title="x")
        await here.end()
        await here.prompt("more")
        client = await here.it.joined(cursors=True)
        await client.ask("session/load", {**SETUP, "sessionId": here.id})
        await here.reads(client)
        ends = [each["update"] for each in updates(client) if "toolCallId" in each["update"]]
        assert [each.get("status") for each in ends] == [None, "completed"]


async def test_what_it_says_itself_hides_nothing_else_that_it_lacks(tmp_path: Path) -> None:
    async with slow(tmp_path) as here:
        client = await here.behind()
        transcript = here.it.bridge._sessions.live[here.id].transcript
        (view,) = (each for each in here.views if each.lag)
        content = {"type": "text", "text": "another's"}
        told: Json = {"update": {"sessionUpdate": "agent_message_chunk", "content": content}}
        transcript.show(told)
        own = {"update": {**told["update"], "content": {**content, "text": "its own"}}}
        transcript.record_said(view.client, own)
        await here.reads(client)
        assert said(client) == ["another's"]


async def test_how_its_own_turn_ended_is_told_by_the_answer_alone(tmp_path: Path) -> None:
    async with slow(tmp_path) as here:
        client = await here.behind()
        asked = client.prompt(here.id, "mine")
        await until(lambda: here.gates)
        (prompt,) = (m for m in here.process.received if m.get("method") == "session/prompt")
        content = {"type": "text", "text": "words"}
        update = {"sessionUpdate": "agent_message_chunk", "content": content}
        here.process.says(
            {"method": "session/update", "params": {"sessionId": "agent-1", "update": update}},
            {"id": prompt["id"], "error": {"code": -32603, "message": "no"}},
        )
        await here.reads(client)
        await client.refusal(asked)
        assert said(client) == ["words"]
        assert len(said(here.it.editor)) == 3  # the user's, the agent's, and how it ended


async def test_one_without_cursors_is_written_to_as_ever(tmp_path: Path) -> None:
    async with slow(tmp_path) as here:
        await here.prompt()
        client = await here.it.attached(here.id)
        await here.stops(client)
        await here.speaks("a")
        assert client.texts(here.id)[-1] == "a"
        client.way.take_all()


@pytest.mark.parametrize("how", ["session/load", "session/resume"])
async def test_one_that_lags_may_ask_for_the_session_again(tmp_path: Path, how: str) -> None:
    async with slow(tmp_path) as here:
        await here.prompt()
        client = await here.behind()
        await here.speaks("missed")
        asked = client.send(how, {**SETUP, "sessionId": here.id})
        await client.handled()
        await here.speaks("more")
        client.way.take_all()
        await client.result(asked)
        await here.speaks("live")
        again = "hello" if how == "session/load" else ""
        await until(lambda: said(client)[-1:] == ["live"])  # it may lag once more
        assert "".join(said(client)) == f"hello{again}missedmorelive"


async def test_who_leaves_while_it_lags_has_its_answers(tmp_path: Path) -> None:
    async with slow(tmp_path) as here:
        client = await here.behind()
        asked = client.prompt(here.id, "mine")
        await until(lambda: here.gates)
        await here.speaks("words")
        await client.ask("_acp_bridge/close", {"sessionId": here.id})
        assert (await client.result(asked))["stopReason"] == "cancelled"
        client.way.take_all()


@pytest.mark.parametrize("can", [{}, {"subagents": {}}])
async def test_what_subagents_do_comes_in_its_order(tmp_path: Path, can: Json) -> None:
    async with at_work(tmp_path, client_limit=FLOOD * LIMIT, unread=3600) as here:
        able = {"_meta": {"acp_bridge": {"cursors": True}}, **can}
        one, two = await here.it.joined_with(able), await here.it.joined_with(able)
        for client in (one, two):
            await client.ask("session/load", {**SETUP, "sessionId": here.id})
        two.way.stuck = LIMIT
        await here.process.link.room()
        here.begins()
        for number in range(3):
            here.says(f"line {number}\n")
            here.process.update("agent-1", f"own {number}")
        here.tells(state={"state": "idle", "stopReason": "end_turn"})
        await here.process.link.room()
        assert len(updates(two)) < len(updates(one))
        two.way.take_all()
        await until(lambda: len(updates(two)) >= len(updates(one)))
        live, later = (list(filter(recorded, updates(client))) for client in (one, two))
        assert [each["update"] for each in later] == [each["update"] for each in live]


EVENTS = ("says", "says", "says", "card", "mode", "turn", "comes", "cut", "stops", "reads")


async def play(events: list[tuple[str, int, str]], home: Path) -> None:
    async with slow(home) as here:
        await here.take(("comes", 0, ""))
        await here.take(("turn", 0, "first"))
        for what, number, text in events:
            for follower in here.followers[number % 2 :: 2]:
                if what == "stops":
                    follower.client.way.stuck = LIMIT
                elif what == "reads":
                    follower.client.way.take_all()
            await here.take((what, number, text))
            await here.read_on()
        for follower in here.followers:
            follower.client.way.take_all()
            await follower.client.result(follower.asked)
            await follower.client.handled()
        await until(lambda: not any(view.lag for view in here.views))
        whole = flat(await loaded(here.it, here.id))
        for follower in here.followers:
            assert flat(list(filter(recorded, follower.seen))) == whole


@pytest.mark.hazard("N5.1", "V4.3")
@settings(max_examples=15)
@given(st.lists(st.tuples(st.sampled_from(EVENTS), st.integers(0, 9), TEXTS), max_size=25))
@example([("stops", 0, ""), ("says", 1, "ab"), ("turn", 0, ""), ("turn", 0, "c"), ("reads", 0, "")])
def test_whoever_is_slow_or_cut_off_has_in_the_end_what_a_load_shows(
    events: list[tuple[str, int, str]],
) -> None:
    with TemporaryDirectory(dir=MEMORY) as home:
        anyio.run(partial(play, events, Path(home)))
