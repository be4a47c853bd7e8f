"""Subagents with sessions of their own: shown to a client that can show them, else folded."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.core.bridge.test_questions import OPTIONS, PERMISSION, Turn, chosen, turn
from tests.core.sessions.agent import Json, until
from tests.core.sessions.bench import Served
from tests.core.sessions.editor import Editor
from tests.core.sessions.world import SETUP

SHOWS: Json = {"subagents": {}}
RUNS: Json = {"state": "running"}
DONE: Json = {"state": "idle", "stopReason": "end_turn"}


class Here(Turn):
    """A turn in which the agent has subagents."""

    async def end(self) -> None:
        """Let the agent end its turn."""
        self.gate.open()
        await until(lambda: self.it.bridge._sessions.live[self.id].now.running is None)

    def tells(self, child: str = "kid", of: str | None = None, **more: Any) -> None:
        """Announce a child on a session, or say how it changes."""
        update = {"sessionUpdate": "subagent_update", "sessionId": child, **more}
        self.process.shows(of or self.process.agent_session_id, update)

    def begins(self, child: str = "kid", title: str = "Look around", **more: Any) -> None:
        """Announce a child at work."""
        self.tells(child, title=title, state=RUNS, **more)

    def says(self, text: str, child: str = "kid", message: str = "m") -> None:
        content = {"type": "text", "text": text}
        update = {"sessionUpdate": "agent_message_chunk", "content": content, "messageId": message}
        self.process.shows(child, update)

    def calls(self, card: str = "t", child: str = "kid", **more: Any) -> None:
        update = {"sessionUpdate": "tool_call", "toolCallId": card, "title": "rm x", **more}
        self.process.shows(child, update)


@asynccontextmanager
async def at_work(home: Path, first: Json | None = None, **more: Any) -> AsyncIterator[Here]:
    async with turn(home, first, **more) as it:
        yield Here(it.it, it.id, it.process, it.gate)


def updates(client: Editor, *, said: bool = False) -> list[Json]:
    """Return the params of the updates that a client got; those of prompts and notices only if
    they are `said`."""
    got: list[Json] = [message["params"] for message in client.asked("session/update")]
    words = ("user_message_chunk",)
    return [p for p in got if said or (p["update"]["sessionUpdate"] not in words and not own(p))]


def own(params: Json) -> bool:
    return "notice" in params.get("_meta", {}).get("acp_bridge", {})


def of_kind(client: Editor, kind: str) -> list[Json]:
    return [each for each in updates(client) if each["update"]["sessionUpdate"] == kind]


def cards(client: Editor) -> dict[str, Json]:
    """Return the tool cards that a client has, each with all that was said of it."""
    found: dict[str, Json] = {}
    for params in updates(client):
        if card := params["update"].get("toolCallId"):
            found[card] = {**found.get(card, {}), **params["update"]}
    return found


def never_named(client: Editor, *children: str) -> bool:
    """Return True if no message to the client names a child, by its id at agent or bridge."""
    words = repr(client.messages)
    return not any(repr(child) in words or f"{child}'" in words for child in children)


async def loaded(here: Here, capabilities: Json) -> Served:
    """Return a client that has just loaded the session."""
    client = await here.it.joined_with(capabilities)
    await client.ask("session/load", {**SETUP, "sessionId": here.id})
    return client


# --- what the two kinds of clients are shown -----------------------------------------------------


async def test_every_agent_is_told_that_subagents_are_shown_whatever_the_client_can(
    tmp_path: Path,
) -> None:
    async with at_work(tmp_path) as here:
        (told,) = here.process.params("initialize")
        assert told["clientCapabilities"]["subagents"] == {}


@pytest.mark.hazard("X1.11", "P13.1")
async def test_a_client_that_shows_subagents_gets_them_under_ids_of_the_bridge(
    tmp_path: Path,
) -> None:
    async with at_work(tmp_path, SHOWS) as here:
        here.begins(capabilities={"cancel": {}}, cwd="/w")
        here.says("hello")
        here.calls(status="in_progress")
        here.tells("grandkid", of="kid", title="Deeper")
        here.says("deep", "grandkid")
        here.tells(state=DONE)
        await here.it.editor.handled()
        first, said, call, below, deep, done = updates(here.it.editor)
        kid, grandkid = f"{here.id}:1", f"{here.id}:2"
        assert first["sessionId"] == here.id
        assert first["update"] == {
            "sessionUpdate": "subagent_update",
            "sessionId": kid,
            "title": "Look around",
            "state": RUNS,
            "capabilities": {"cancel": {}},
            "cwd": "/w",
        }
        assert (said["sessionId"], said["update"]["content"]["text"]) == (kid, "hello")
        assert (call["sessionId"], call["update"]["title"]) == (kid, "rm x")
        assert (below["sessionId"], below["update"]["sessionId"]) == (kid, grandkid)
        assert (deep["sessionId"], deep["update"]["content"]["text"]) == (grandkid, "deep")
        assert (done["update"]["sessionId"], done["update"]["state"]) == (kid, DONE)
        assert never_named(here.it.editor, "kid", "grandkid")


@pytest.mark.hazard("X1.12", "C16")
async def test_for_a_client_that_does_not_show_them_each_subagent_is_one_card_of_the_session(
    tmp_path: Path,
) -> None:
    async with at_work(tmp_path) as here:
        here.begins()
        here.calls(status="in_progress")
        here.says("first line\n")
        here.says("and the end")
        here.tells("grandkid", of="kid", title="Deeper", state=RUNS)
        here.tells("grandkid", of="kid", state={"state": "idle", "stopReason": "refusal"})
        here.tells(state=DONE)
        await here.it.editor.handled()
        assert {each["sessionId"] for each in updates(here.it.editor)} == {here.id}
        found = cards(here.it.editor)
        assert [(card["title"], card["status"]) for card in found.values()] == [
            ("Look around", "completed"),
            ("Deeper", "failed"),
        ]
        (shown,) = found["subagent-1"]["content"]
        assert shown["content"]["text"] == "first line\nand the end"
        assert of_kind(here.it.editor, "subagent_update") == []
        assert never_named(here.it.editor, "kid", "grandkid", f"{here.id}:1", f"{here.id}:2")


async def test_the_words_on_a_card_are_the_latest_and_not_many(tmp_path: Path) -> None:
    async with at_work(tmp_path) as here:
        here.begins()
        for number in range(400):
            here.says(f"{number} word ")
        await here.it.editor.handled()
        renewed = of_kind(here.it.editor, "tool_call_update")
        assert 1 < len(renewed) < 40
        (shown,) = renewed[-1]["update"]["content"]
        assert len(shown["content"]["text"]) <= 500
        assert "39" in shown["content"]["text"]


@pytest.mark.hazard("C16")
async def test_a_subagent_that_is_given_work_again_is_one_more_card(tmp_path: Path) -> None:
    async with at_work(tmp_path) as here:
        here.begins()
        here.tells(state=DONE)
        here.tells(state=RUNS)
        here.says("again\n")
        await here.it.editor.handled()
        found = cards(here.it.editor)
        assert {name: card["status"] for name, card in found.items()} == {
            "subagent-1": "completed",
            "subagent-1.2": "in_progress",
        }
        assert cards(await loaded(here, {})).keys() == found.keys()


@pytest.mark.hazard("X1.11")
async def test_messages_between_sessions_name_them_as_clients_know_them_and_only_where_shown(
    tmp_path: Path,
) -> None:
    async with at_work(tmp_path, SHOWS) as here:
        other = await here.it.attached(here.id)
        here.begins()
        message = {
            "sessionUpdate": "session_message",
            "messageId": "x",
            "senderSessionId": here.process.agent_session_id,
            "recipientSessionId": "kid",
            "content": [{"type": "text", "text": "go"}],
        }
        here.process.shows(here.process.agent_session_id, message)
        here.process.shows("kid", {**message, "recipientSessionId": "nobody's"})
        await here.it.editor.handled()
        sent, got = of_kind(here.it.editor, "session_message")
        kid = f"{here.id}:1"
        assert (sent["sessionId"], sent["update"]["senderSessionId"]) == (here.id, here.id)
        assert sent["update"]["recipientSessionId"] == kid
        assert (got["sessionId"], "recipientSessionId" in got["update"]) == (kid, False)
        assert of_kind(other, "session_message") == []
        assert never_named(other, "kid", kid)


@pytest.mark.hazard("X1")
async def test_a_call_that_links_to_a_subagent_names_it_as_each_client_knows_it(
    tmp_path: Path,
) -> None:
    async with at_work(tmp_path, SHOWS) as here:
        other = await here.it.attached(here.id)
        here.begins()
        own = str(here.process.agent_session_id)
        link = {"type": "session", "sessionId": "kid"}
        words = {"type": "content", "content": {"type": "text", "text": "w"}}
        here.calls("launch", own, content=[words, link, {**link, "sessionId": "nobody's"}])
        update = {"sessionUpdate": "tool_call_update", "toolCallId": "launch"}
        here.process.shows(own, {**update, "content": [link], "status": "completed"})
        here.asks(toolCall={"toolCallId": "launch", "content": [words, link]}, options=OPTIONS)
        await other.got(PERMISSION)
        await here.it.editor.handled()
        seen = [each["update"]["content"] for each in updates(here.it.editor) if card_of(each)]
        known = {**link, "sessionId": f"{here.id}:1"}
        assert seen == [[words, known, said("[another session]")], [known]]
        seen = [each["update"]["content"] for each in updates(other) if card_of(each) == "launch"]
        named = said("[Look around]")
        assert seen == [[words, named, said("[another session]")], [named]]
        for client in (here.it.editor, other, await loaded(here, SHOWS), await loaded(here, {})):
            assert never_named(client, "kid", "nobody's")
            assert "':1'" not in repr(client.messages)
        assert never_named(other, f"{here.id}:1")


@pytest.mark.hazard("X1")
async def test_a_message_that_links_to_a_subagent_names_it_as_each_client_knows_it(
    tmp_path: Path,
) -> None:
    async with at_work(tmp_path, SHOWS) as here:
        other, own = await here.it.attached(here.id), str(here.process.agent_session_id)
        link = {"type": "session", "sessionId": "kid"}
        message = {"sessionUpdate": "agent_message_chunk", "messageId": "m", "content": link}
        here.process.shows(own, message)  # as it came, from an agent without subagents
        here.begins()
        here.process.shows(own, message)
        await here.it.editor.handled()
        as_it_came, named = of_kind(here.it.editor, "agent_message_chunk")
        assert as_it_came["update"] == message
        assert named["update"]["content"] == {**link, "sessionId": f"{here.id}:1"}
        named = of_kind(other, "agent_message_chunk")[1]
        assert named["update"]["content"] == {"type": "text", "text": "[Look around]"}


def card_of(params: Json) -> object:
    return params["update"].get("toolCallId")


def said(text: str) -> Json:
    """Return an item of a call's content."""
    return {"type": "content", "content": {"type": "text", "text": text}}


@pytest.mark.hazard("P13.1")
async def test_calls_of_one_id_in_two_sessions_are_two_calls(tmp_path: Path) -> None:
    async with at_work(tmp_path, SHOWS) as here:
        here.begins()
        here.calls(child=str(here.process.agent_session_id), status="in_progress")
        here.calls(status="completed")
        await here.it.editor.handled()
        mine, its = of_kind(here.it.editor, "tool_call")
        assert mine["update"]["toolCallId"] != its["update"]["toolCallId"]
        assert (mine["update"]["status"], its["update"]["status"]) == ("in_progress", "completed")


async def test_what_was_not_announced_is_shown_to_nobody(tmp_path: Path) -> None:
    async with at_work(tmp_path, SHOWS) as here:
        here.says("who?", "stranger")
        here.tells(str(here.process.agent_session_id), title="Itself")
        await here.it.editor.handled()
        assert updates(here.it.editor) == []


# --- what it asks --------------------------------------------------------------------------------


@pytest.mark.hazard("X1.13", "V9", "V3")
async def test_a_permission_of_a_subagent_is_asked_with_its_id_or_with_its_title(
    tmp_path: Path,
) -> None:
    async with at_work(tmp_path, SHOWS) as here:
        other = await here.it.attached(here.id)
        here.begins()
        here.calls(rawInput={"command": "rm x"}, status="pending")
        here.asks(
            sessionId="kid",
            toolCall={"toolCallId": "t"},
            options=[{"optionId": "yes", "name": "Yes", "kind": "allow_once"}],
        )
        (one,), (two,) = await here.it.editor.got(PERMISSION), await other.got(PERMISSION)
        assert one["params"]["sessionId"] == f"{here.id}:1"
        assert two["params"]["sessionId"] == here.id
        call = two["params"]["toolCall"]
        assert (call["title"], call["rawInput"]) == ("[Look around] rm x", {"command": "rm x"})
        assert never_named(other, "kid", f"{here.id}:1")
        other.answers_with(two, chosen("yes"))
        assert await here.answered() == chosen("yes")
        here.process.shows(
            "kid",
            {"sessionUpdate": "tool_call_update", "toolCallId": "t", "status": "completed"},
        )
        await here.it.editor.handled()
        assert cards(other)[call["toolCallId"]]["status"] == "completed"


@pytest.mark.hazard("V9.8")
async def test_a_call_of_a_subagent_that_changes_while_it_is_asked_about_is_asked_about_anew(
    tmp_path: Path,
) -> None:
    async with at_work(tmp_path) as here:
        there = await here.it.attached(here.id, wholeCalls=True)
        here.begins()
        here.calls(rawInput={"command": "ls"}, status="pending")
        here.asks(sessionId="kid", toolCall={"toolCallId": "t"}, options=OPTIONS)
        (first,) = await there.got(PERMISSION)
        update = {"sessionUpdate": "tool_call_update", "toolCallId": "t"}
        here.process.shows("kid", {**update, "rawInput": {"command": "rm x"}})
        (called_back,) = await there.got("$/cancel_request")
        assert called_back["params"] == {"requestId": first["id"]}
        await there.handled()
        asked = [each["params"]["toolCall"]["rawInput"] for each in there.asked(PERMISSION)]
        assert asked == [{"command": "ls"}, {"command": "rm x"}]


@pytest.mark.hazard("X1.13")
async def test_a_form_of_a_subagent_is_asked_in_its_name(tmp_path: Path) -> None:
    forms: Json = {"elicitation": {"form": {}}}
    async with at_work(tmp_path, {**SHOWS, **forms}) as here:
        other = await here.it.joined_with(forms)
        await other.ask("_acp_bridge/attach", {"sessionId": here.id})
        here.begins()
        here.asks("elicitation/create", sessionId="kid", mode="form", message="Which?")
        asked = (await here.it.editor.got("elicitation/create"))[0]["params"]
        folded = (await other.got("elicitation/create"))[0]["params"]
        assert (asked["sessionId"], asked["message"]) == (f"{here.id}:1", "Which?")
        assert (folded["sessionId"], folded["message"]) == (here.id, "[Look around] Which?")
