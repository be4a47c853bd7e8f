"""Clients that come back at a cursor have the whole session, each letter of it once."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.bridge.resuming import Follower, cursor_in, flat, loaded, recorded, updates
from tests.core.sessions.agent import Agent, Gate, Json, Process, until
from tests.core.sessions.bench import Bench, Served, bench
from tests.core.sessions.world import SETUP
from tests.support.in_memory import MEMORY

KINDS = ("agent_message_chunk", "agent_thought_chunk")


@dataclass(slots=True)
class Play:
    """A session in which turns run, and those who follow it."""

    it: Bench
    id: str
    process: Process
    gates: list["Held"]
    followers: list[Follower] = field(default_factory=list)
    asked: list[int] = field(default_factory=list)

    def shows(self, **update: object) -> None:
        self.process.shows("agent-1", update)

    def says(self, *texts: str, kind: str = KINDS[0], **more: object) -> None:
        """Let the agent say texts, all in one read."""
        chunks = [{"sessionUpdate": kind, "content": {"type": "text", "text": t}} for t in texts]
        self.process.says(
            *(
                {
                    "method": "session/update",
                    "params": {"sessionId": "agent-1", "update": {**chunk, **more}},
                }
                for chunk in chunks
            )
        )

    async def prompt(self, text: str = "hello") -> None:
        """Send a prompt; its turn has begun."""
        self.asked.append(self.it.editor.prompt(self.id, text))
        await until(lambda: len(self.gates) == len(self.asked) and self.gates[-1].reached)

    async def end(self) -> None:
        """Let the turn that runs end."""
        self.gates[-1].open()
        await self.it.editor.result(self.asked[-1])

    async def back(self, cursor: object, how: str = "session/resume", **own: object) -> Served:
        """Return a client that has come back at a cursor."""
        client = await self.it.joined(cursors=True, **own)
        await client.ask(how, self.after(cursor))
        return client

    def after(self, cursor: object) -> Json:
        return {**SETUP, "sessionId": self.id, "_meta": {"acp_bridge": {"after": cursor}}}

    async def take(self, event: tuple[str, int, str]) -> None:
        what, number, text = event
        match what:
            case "says":
                kind = KINDS[number % 5 == 0]
                more = {"messageId": f"m{number}"} if number % 3 == 0 else {}
                self.says(*text, kind=kind, **more)
            case "card":
                self.shows(sessionUpdate="tool_call", toolCallId=text, title=text)
            case "mode":
                self.shows(sessionUpdate="current_mode_update", currentModeId=text)
            case "turn":
                if len(self.gates) and not self.gates[-1].opened:
                    await self.end()
                else:
                    await self.prompt(text or "x")
            case "comes":
                self.followers.append(await Follower.come(self.it, self.id))
            case "cut":
                for follower in self.followers[number % 2 :: 2]:
                    await follower.cut_off(number)
        for _ in range(number):
            await anyio.lowlevel.checkpoint()


def said(client: Served) -> list[str]:
    """Return the texts of the transcript that a client got."""
    return [each["update"]["content"]["text"] for each in updates(client) if recorded(each)]


class Held(Gate):
    """A gate that knows whether it was opened."""

    def __init__(self) -> None:
        super().__init__()
        self.opened = False

    def open(self) -> None:
        self.opened = True
        super().open()


@asynccontextmanager
async def playing(home: Path, **more: Any) -> AsyncIterator[Play]:
    """A session whose turns run until they are to end."""
    gates: list[Held] = []

    async def prompted(process: Process, params: Json) -> Json:
        gates.append(Held())
        await gates[-1].passed()
        return {"stopReason": "end_turn"}

    agent = Agent()
    agent.script["session/prompt"] = prompted
    async with bench(home, agent, **more) as it:
        session_id = await it.new()
        (process,) = agent.processes
        yield Play(it, session_id, process, gates)
        for gate in gates:
            gate.open()


EVENTS = ("says", "says", "says", "card", "mode", "turn", "comes", "cut", "cut")
TEXTS = st.text("abcé\U0001f600", max_size=6)


async def play(events: list[tuple[str, int, str]], home: Path) -> None:
    async with playing(home) as here:
        await here.take(("comes", 0, ""))
        await here.take(("turn", 0, "first"))
        for event in events:
            await here.take(event)
        for follower in here.followers:
            await follower.client.result(follower.asked)
            await follower.client.handled()
        session = here.it.bridge._sessions.live[here.id]
        await until(lambda: not any(view.lag for view in session.transcript.views))
        whole = flat(await loaded(here.it, here.id))
        for follower in here.followers:
            assert flat(list(filter(recorded, follower.seen))) == whole


@pytest.mark.hazard("N5.1", "R1")
@settings(max_examples=15)
@given(st.lists(st.tuples(st.sampled_from(EVENTS), st.integers(0, 9), TEXTS), max_size=25))
def test_who_is_cut_off_and_comes_back_at_its_cursor_has_what_a_load_shows(
    events: list[tuple[str, int, str]],
) -> None:
    with TemporaryDirectory(dir=MEMORY) as home:
        anyio.run(partial(play, events, Path(home)))


@pytest.mark.hazard("N5.2")
async def test_who_has_half_a_message_gets_the_other_half_also_once_it_is_joined(
    tmp_path: Path,
) -> None:
    async with playing(tmp_path) as here:
        client = await here.it.attached(here.id, cursors=True)
        await here.prompt()
        here.says("half ", "a ")
        half = cursor_in(updates(client)[-2])
        here.says("message")
        before = await here.back(half)
        assert said(before) == ["a message"]
        await here.end()
        after = await here.back(half)
        assert said(after) == ["a message"]


@pytest.mark.hazard("N5.1")
async def test_only_who_asks_for_cursors_gets_any(tmp_path: Path) -> None:
    async with playing(tmp_path) as here:
        with_them = await here.it.attached(here.id, cursors=True)
        without = await here.it.attached(here.id)
        await here.prompt()
        here.says("a")
        assert all(map(cursor_in, filter(recorded, updates(with_them))))
        assert not any(map(cursor_in, updates(without)))
        given = {**SETUP, "sessionId": here.id}
        assert cursor_in(await with_them.ask("session/load", given))
        assert not cursor_in(await without.ask("session/load", given))


@pytest.mark.hazard("N5")
@pytest.mark.parametrize("how", ["session/load", "session/resume", "_acp_bridge/attach"])
async def test_the_answer_has_the_cursor_at_which_what_follows_goes_on(
    tmp_path: Path, how: str
) -> None:
    async with playing(tmp_path) as here:
        await here.prompt()
        here.says("before")
        client = await here.it.joined(cursors=True)
        cursor = cursor_in(await client.ask(how, {**SETUP, "sessionId": here.id}))
        here.says("behind")
        assert said(await here.back(cursor)) == ["behind"]
        assert said(await here.back(cursor, "_acp_bridge/attach")) == ["behind"]


async def test_a_new_session_has_a_cursor_from_its_beginning(tmp_path: Path) -> None:
    async with playing(tmp_path) as here:
        own = {"clientCapabilities": {"_meta": {"acp_bridge": {"cursors": True}}}}
        async with bench(tmp_path / "two", initialized=False) as it:
            answer = await it.editor.ask("initialize", {"protocolVersion": 1, **own})
            assert answer["agentCapabilities"]["_meta"]["acp_bridge"]["cursors"] is True
            answer = await it.editor.ask("session/new", SETUP)
            session_id, cursor = answer["sessionId"], cursor_in(answer)
            await it.editor.result(it.editor.prompt(session_id, "hello"))
            client = await it.joined(cursors=True)
            after = {**here.after(cursor), "sessionId": session_id}
            await client.ask("session/resume", after)
            assert client.texts(session_id) == ["hello", "echo hello"]
            last = cursor_in(updates(it.editor)[-1])
            await client.ask(
                "session/resume", {**after, **here.after(last), "sessionId": session_id}
            )
            assert len(client.texts(session_id)) == 2


@pytest.mark.hazard("N5.4")
@pytest.mark.parametrize("how", ["session/resume", "_acp_bridge/attach"])
@pytest.mark.parametrize("cursor", ["", 3, "x" * 32, "not one"])
async def test_what_is_no_cursor_of_the_session_is_refused_with_the_reason(
    tmp_path: Path, how: str, cursor: object
) -> None:
    async with playing(tmp_path) as here:
        client = await here.it.joined(cursors=True)
        asked = client.send(how, here.after(cursor))
        error = await client.refusal(asked)
        (answer,) = client.answers(asked)
        assert error.code == -32602
        assert answer["error"]["data"]["reason"] == "cursor"
        here.says("not for it")
        assert client.texts(here.id) == []
        assert len(here.it.bridge._sessions.live[here.id].transcript.views) == 1


@pytest.mark.hazard("N5.4")
async def test_a_cursor_of_another_session_is_refused(tmp_path: Path) -> None:
    async with playing(tmp_path) as here:
        client = await here.it.joined(cursors=True)
        await here.prompt()
        cursor = cursor_in(await client.ask("session/load", {**SETUP, "sessionId": here.id}))
        other = await here.it.new()
        error = await client.refused("session/resume", {**here.after(cursor), "sessionId": other})
        assert error.code == -32602


async def test_the_states_follow_a_resume_at_a_cursor_as_they_are_now(tmp_path: Path) -> None:
    async with playing(tmp_path) as here:
        client = await here.it.attached(here.id, cursors=True)
        await here.prompt()
        here.says("a")
        cursor = cursor_in(updates(client)[-1])
        for title in ("one", "two"):
            here.shows(sessionUpdate="usage_update", used=len(title), size=9)
        here.says("b")
        back = await here.back(cursor)
        kinds = [each["update"]["sessionUpdate"] for each in updates(back)]
        assert kinds[0] == "agent_message_chunk"
        assert kinds.count("usage_update") == 1
        assert not any(map(cursor_in, updates(back)[1:]))


async def test_the_users_words_have_the_id_of_their_prompt_for_who_takes_cursors(
    tmp_path: Path,
) -> None:
    async with playing(tmp_path) as here:
        client = await here.it.attached(here.id, cursors=True)
        cursor = cursor_in(await client.ask("session/load", {**SETUP, "sessionId": here.id}))
        await here.prompt()
        back = await here.back(cursor)
        live, again = (
            each["_meta"]["acp_bridge"]["promptId"]
            for each in (updates(client)[-1], *filter(recorded, updates(back)))
        )
        assert live == again


@pytest.mark.hazard("N5")
async def test_a_session_that_was_closed_and_opened_again_goes_on_at_a_cursor_of_before(
    tmp_path: Path,
) -> None:
    async with playing(tmp_path) as here:
        client = await here.it.attached(here.id, cursors=True)
        await here.prompt()
        here.says("a", "b")
        cursor = cursor_in(updates(client)[-2])
        await here.end()
        await client.ask("_acp_bridge/close", {"sessionId": here.id})
        back = await here.back(cursor)
        assert back.texts(here.id) == ["b"]


@pytest.mark.hazard("N5")
async def test_a_cursor_may_stand_between_the_parts_of_a_prompt(tmp_path: Path) -> None:
    parts: list[Json] = [
        {"type": "text", "text": "one"},
        {"type": "text", "text": "two" * 1000},
        {"type": "image", "data": "QUJD", "mimeType": "image/png"},
        {"type": "text", "text": "four"},
    ]
    async with playing(tmp_path) as here:
        client = await here.it.attached(here.id, cursors=True)
        here.it.editor.send("session/prompt", {"sessionId": here.id, "prompt": parts})
        await until(lambda: here.gates)
        here.says("five")
        live = list(filter(recorded, updates(client)))
        assert [each["update"]["content"] for each in live[:4]] == parts
        for at in range(5):
            back = await here.back(cursor_in(live[at]))
            shown = [each["update"]["content"] for each in filter(recorded, updates(back))]
            assert shown == [each["update"]["content"] for each in live[at + 1 :]]


@pytest.mark.hazard("N5")
async def test_a_fork_has_a_cursor_of_its_own(tmp_path: Path) -> None:
    agent = Agent(able={"fork": {}, "resume": {}, "list": {}, "close": {}, "delete": {}})
    agent.script["session/fork"] = {"sessionId": "forked"}
    async with bench(tmp_path, agent, initialized=False) as it:
        own = {"clientCapabilities": {"_meta": {"acp_bridge": {"cursors": True}}}}
        await it.editor.ask("initialize", {"protocolVersion": 1, **own})
        session_id = await it.new()
        await it.editor.result(it.editor.prompt(session_id, "hello"))
        last = cursor_in(updates(it.editor)[-1])
        answer = await it.editor.ask("session/fork", {**SETUP, "sessionId": session_id})
        fork = answer["sessionId"]
        assert cursor_in(answer)
        assert cursor_in(answer) != last
        await it.editor.result(it.editor.prompt(fork, "on"))
        client = await it.joined(cursors=True)
        given = {**SETUP, "sessionId": fork, "_meta": {"acp_bridge": {"after": cursor_in(answer)}}}
        await client.ask("session/resume", given)
        assert said(client) == ["on", "echo on"]
        wrong = {**given, "_meta": {"acp_bridge": {"after": last}}}
        assert (await client.refused("session/resume", wrong)).code == -32602


@pytest.mark.hazard("N5")
async def test_a_session_that_only_the_agent_knows_is_not_answered_for_a_cursor_of_before(
    tmp_path: Path,
) -> None:
    async with playing(tmp_path) as here:
        here.it.agent.rows = [{"sessionId": "theirs", "cwd": "/w"}]
        here.it.agent.history = ["one", "two"]
        client = await here.it.attached(here.id, cursors=True)
        await here.prompt()
        given = {**here.after(cursor_in(updates(client)[-1])), "sessionId": "theirs"}
        assert (await client.refused("session/resume", given)).code == -32602
        answer = await client.ask("session/load", {**SETUP, "sessionId": "theirs"})
        assert client.texts("theirs") == ["one", "two"]
        again = await here.it.joined(cursors=True)
        given = {**here.after(cursor_in(updates(client)[-2])), "sessionId": "theirs"}
        await again.ask("session/resume", given)
        assert said(again) == ["two"]
        given = {**here.after(cursor_in(answer)), "sessionId": "theirs"}
        await again.ask("session/resume", given)
        assert said(again) == ["two"]
