"""Tool cards that the agent has left open: what replays show of them, and when they end."""

from pathlib import Path
from typing import Any

import pytest

from acp_bridge.core.protocol import ASSUMED, own_meta
from acp_bridge.core.wire.jsonrpc import RpcError
from tests.core.bridge.resuming import cursor_in, updates
from tests.core.bridge.test_questions import (
    CANCELLED,
    OPTIONS,
    PERMISSION,
    TOOL,
    Turn,
    chosen,
    turn,
)
from tests.core.sessions.agent import Json, Process, until
from tests.core.sessions.bench import Served, bench
from tests.core.sessions.test_deleted_meanwhile import forking
from tests.core.sessions.world import SETUP


def shows(here: Turn, card: str = "t", **more: Any) -> None:
    """Let the agent show a tool call."""
    update = {"sessionUpdate": "tool_call", "toolCallId": card, "title": "Edit x", **more}
    here.process.shows(here.process.agent_session_id, update)


async def ends(here: Turn) -> None:
    """Let the agent end its turn."""
    here.gate.open()
    await until(lambda: here.it.bridge._sessions.live[here.id].now.state.name == "IDLE")


def cards(client: Served) -> dict[str, str]:
    """Return the status of each card that a client has, as the last update said it."""
    found: dict[str, str] = {}
    for message in client.asked("session/update"):
        update = message["params"]["update"]
        if card := update.get("toolCallId"):
            found[card] = update.get("status", found.get(card))
    return found


def assumed(client: Served) -> list[str]:
    """Return the cards of which the bridge has said that it assumes their end."""
    said = [message["params"] for message in client.asked("session/update")]
    return [each["update"]["toolCallId"] for each in said if own_meta(each).get(ASSUMED)]


async def replay(here: Turn) -> Served:
    """Return a client that has just loaded the session."""
    client = await here.it.joined()
    await client.ask("session/load", {**SETUP, "sessionId": here.id})
    return client


@pytest.mark.hazard("C16.13")
@pytest.mark.parametrize("answer", [chosen("no"), CANCELLED])
async def test_in_a_replay_a_call_that_was_denied_has_failed(tmp_path: Path, answer: Json) -> None:
    async with turn(tmp_path) as here:
        shows(here, status="pending")
        here.asks()
        (asked,) = await here.it.editor.got(PERMISSION)
        here.it.editor.answers_with(asked, answer)
        await here.answered()
        await ends(here)
        assert cards(here.it.editor) == {"t": "pending"}
        assert cards(client := await replay(here)) == {"t": "failed"}
        assert assumed(client) == ["t"]
    async with bench(tmp_path) as after:  # the next bridge knows it, too
        await after.editor.ask("session/load", {**SETUP, "sessionId": here.id})
        assert cards(after.editor) == {"t": "failed"}


@pytest.mark.hazard("C16.4", "C16.5")
async def test_in_a_replay_no_card_of_an_ended_turn_is_open_but_where_the_agent_may_work_on(
    tmp_path: Path,
) -> None:
    async with turn(tmp_path) as here:
        shows(here, "waits", status="pending")
        shows(here, "works", status="in_progress")
        await here.it.editor.handled()
        assert cards(await replay(here)) == {"waits": "pending", "works": "in_progress"}
        await ends(here)
        assert cards(await replay(here)) == {"waits": "completed", "works": "in_progress"}
    async with bench(tmp_path) as after:
        await after.editor.ask("session/load", {**SETUP, "sessionId": here.id})
        assert cards(after.editor) == {"waits": "completed", "works": "completed"}


@pytest.mark.hazard("C16.7")
async def test_in_a_replay_the_cards_of_a_turn_that_ended_with_an_error_have_failed(
    tmp_path: Path,
) -> None:
    async def fails(process: Process, params: Json) -> RpcError:
        for card, status in (("waits", "pending"), ("works", "in_progress"), ("done", "completed")):
            shows(here, card, status=status)
        return RpcError(-32603, "no model")

    async with turn(tmp_path) as here:
        shows(here, "goes on", status="in_progress")  # of a turn that ends well
        await ends(here)
        here.it.agent.script["session/prompt"] = fails
        await here.it.editor.refusal(here.it.editor.prompt(here.id, "more"))
        left = {"waits": "failed", "works": "failed", "done": "completed"}
        assert cards(await replay(here)) == {"goes on": "in_progress", **left}
    async with bench(tmp_path) as after:
        await after.editor.ask("session/load", {**SETUP, "sessionId": here.id})
        assert cards(after.editor) == {"goes on": "completed", **left}


@pytest.mark.hazard("C16.13")
@pytest.mark.parametrize("allowed", [True, False])
async def test_a_call_that_only_a_question_told_of_is_in_a_replay_if_it_was_denied(
    tmp_path: Path, allowed: bool
) -> None:
    async with turn(tmp_path) as here:
        here.asks(toolCall={**TOOL, "toolCallId": "request"}, options=OPTIONS)
        (asked,) = await here.it.editor.got(PERMISSION)
        here.it.editor.answers_with(asked, chosen("yes" if allowed else "no"))
        await here.answered()
        await ends(here)
        assert cards(await replay(here)) == ({} if allowed else {"request": "failed"})
    async with bench(tmp_path) as after:
        await after.editor.ask("session/load", {**SETUP, "sessionId": here.id})
        assert cards(after.editor) == ({} if allowed else {"request": "failed"})


@pytest.mark.hazard("C16")
async def test_the_ends_of_cards_come_before_the_answer_of_the_load_that_shows_them(
    tmp_path: Path,
) -> None:
    async with turn(tmp_path) as here:
        shows(here, status="pending")
        await ends(here)
        client = await here.it.joined()
        load = client.send("session/load", {**SETUP, "sessionId": here.id})
        await client.result(load)
        lines = client.messages
        answer = next(at for at, line in enumerate(lines) if line.get("id") == load)
        meta = [own_meta(line.get("params", {})) for line in lines]
        (end,) = (at for at, own in enumerate(meta) if own.get(ASSUMED))
        assert end < answer
        await until(lambda: assumed(here.it.editor) == ["t"])  # the others are shown it, too


@pytest.mark.hazard("C16.4", "C22.1")
async def test_a_process_that_dies_at_rest_ends_the_cards_that_it_has_left_open(
    tmp_path: Path,
) -> None:
    async with turn(tmp_path) as here:
        shows(here, status="in_progress")
        await ends(here)
        here.process.dies()
        await until(lambda: cards(here.it.editor) == {"t": "failed"})
        assert cards(await replay(here)) == {"t": "failed"}


@pytest.mark.hazard("C16")
async def test_a_card_that_its_agent_ends_during_a_load_has_one_end(tmp_path: Path) -> None:
    async with turn(tmp_path, client_limit=1) as here:
        shows(here, status="pending")
        here.process.update(str(here.process.agent_session_id), "words")
        await ends(here)
        slow = await here.it.joined()
        slow.way.stuck = 1
        load = slow.send("session/load", {**SETUP, "sessionId": here.id})
        await until(lambda: slow.asked("session/update"))
        update = {"sessionUpdate": "tool_call_update", "toolCallId": "t", "status": "completed"}
        here.process.shows(here.process.agent_session_id, update)
        await until(lambda: cards(here.it.editor) == {"t": "completed"})
        slow.way.take_all()
        await slow.result(load)
        assert assumed(here.it.editor) == assumed(slow) == []


@pytest.mark.hazard("C16.13")
async def test_a_call_that_only_a_question_told_of_is_in_no_fork_either(tmp_path: Path) -> None:
    async with turn(tmp_path, agent=forking()) as here:
        here.asks(toolCall={**TOOL, "toolCallId": "request"}, options=OPTIONS)
        (asked,) = await here.it.editor.got(PERMISSION)
        here.it.editor.answers_with(asked, chosen("yes"))
        await here.answered()
        await ends(here)
        forked = await here.it.editor.ask("session/fork", {**SETUP, "sessionId": here.id})
        client = await here.it.joined()
        await client.ask("session/load", {**SETUP, "sessionId": forked["sessionId"]})
        assert cards(client) == {}


@pytest.mark.hazard("C16", "N5")
async def test_the_end_of_a_card_that_a_replay_has_shown_is_not_shown_behind_its_cursor(
    tmp_path: Path,
) -> None:
    async with turn(tmp_path) as here:
        shows(here, status="pending")
        await ends(here)
        client = await here.it.joined(cursors=True)
        answer = await client.ask("session/load", {**SETUP, "sessionId": here.id})
        assert assumed(client) == ["t"]
        assert cursor_in(updates(client)[-1]) == cursor_in(answer)
        back = await resumed(here, cursor_in(answer))
        assert assumed(back) == []


@pytest.mark.hazard("C16", "N5")
async def test_the_end_of_a_card_is_shown_behind_what_was_said_during_the_replay_if_it_stands_there(
    tmp_path: Path,
) -> None:
    async with turn(tmp_path, client_limit=8000) as here:
        shows(here, status="pending")
        here.process.update(str(here.process.agent_session_id), "words")
        await ends(here)
        slow = await here.it.joined(cursors=True)
        slow.way.stuck = 5000
        load = slow.send("session/load", {**SETUP, "sessionId": here.id})
        await until(lambda: slow.asked("session/update"))
        here.process.update(str(here.process.agent_session_id), "more")
        await until(lambda: "more" in here.it.editor.texts(here.id))
        slow.way.take_all()
        answer = await slow.result(load)
        await until(lambda: assumed(slow))
        shown = [each for each in updates(slow) if cursor_in(each)]
        assert own_meta(shown[-1])[ASSUMED]
        assert shown[-2]["update"]["content"]["text"] == "more"
        for place, after in ((answer, ["t"]), (shown[-2], ["t"]), (shown[-1], [])):
            assert assumed(await resumed(here, cursor_in(place))) == after


async def resumed(here: Turn, cursor: object) -> Served:
    """Return a client that has come back at a cursor."""
    client = await here.it.joined(cursors=True)
    given = {**SETUP, "sessionId": here.id, "_meta": {"acp_bridge": {"after": cursor}}}
    await client.ask("session/resume", given)
    return client
