"""Subagents in replays, at a Stop, and when their agent or their bridge has ended."""

from pathlib import Path
from typing import Any

import pytest

from acp_bridge.core.clients.abilities import ClientAbilities
from tests.core.bridge.test_subagents import (
    DONE,
    RUNS,
    SHOWS,
    Here,
    at_work,
    cards,
    loaded,
    never_named,
    of_kind,
    updates,
)
from tests.core.sessions.agent import Json, Process, until
from tests.core.sessions.bench import bench
from tests.core.sessions.world import SETUP
from tests.sharing.elsewhere.test_passages import home as home
from tests.sharing.elsewhere.test_passages import two

STOPPED: Json = {"state": "idle", "stopReason": "cancelled"}
CANCEL: Json = {"cancel": {}}


def state(here: Here) -> Any:
    return here.it.bridge._sessions.live[here.id].now.state.name


async def stops(here: Here) -> None:
    """Let the client stop the turn, and the agent end it."""
    here.it.editor.notify("session/cancel", {"sessionId": here.id})
    await until(lambda: here.process.params("session/cancel"))


def notices(here: Here) -> str:
    return repr([m for m in here.it.editor.texts(here.id) if "[acp-bridge]" in m])


# --- replays ---------------------------------------------------------------------------------


@pytest.mark.hazard("R1", "X1")
async def test_a_load_shows_each_kind_of_client_what_it_was_shown_of_subagents(
    tmp_path: Path,
) -> None:
    async with at_work(tmp_path, SHOWS) as here:
        other = await here.it.attached(here.id)
        here.begins(capabilities=CANCEL)
        here.says("one\n")
        here.calls(status="completed")
        here.tells(state=DONE)
        await here.end()
        shown, folded = updates(here.it.editor), cards(other)
        again = [each for each in updates(await loaded(here, SHOWS)) if not echo(each)]
        assert again == [each for each in shown if not echo(each)]
        later = await loaded(here, {})
        assert cards(later) == folded
        assert never_named(later, "kid", f"{here.id}:1")


def echo(params: Json) -> bool:
    """Return True for the agent's own answer, which a replay has in another form."""
    return "echo" in repr(params)


@pytest.mark.hazard("R1")
async def test_a_replay_joins_the_chunks_of_a_subagent_with_no_others(tmp_path: Path) -> None:
    async with at_work(tmp_path, SHOWS) as here:
        root = str(here.process.agent_session_id)
        here.begins("kid")
        here.begins("other")
        for child in ("kid", "kid", root, root, "other", "kid"):
            here.says(child[0], child, message="same")
        here.tells("kid", state=DONE)
        here.tells("other", state=DONE)
        await here.end()
        await here.it.bridge._sessions.live[here.id].journal.compact(1)
        client = await loaded(here, SHOWS)
        said = [
            (each["sessionId"].removeprefix(here.id), each["update"]["content"]["text"])
            for each in of_kind(client, "agent_message_chunk")
            if not echo(each)
        ]
        assert said == [(":1", "kk"), ("", "aa"), (":2", "o"), (":1", "k")]


async def test_a_client_that_resumes_is_told_of_the_subagents_that_there_are(
    tmp_path: Path,
) -> None:
    async with at_work(tmp_path) as here:
        here.begins()
        aware, other = await here.it.joined_with(SHOWS), await here.it.joined()
        for client in (aware, other):
            await client.ask("session/resume", {**SETUP, "sessionId": here.id})
        (told,) = of_kind(aware, "subagent_update")
        assert told["update"]["sessionId"] == f"{here.id}:1"
        assert cards(other)["subagent-1"]["status"] == "in_progress"


@pytest.mark.hazard("C16")
async def test_the_next_bridge_ends_what_subagents_were_at_and_keeps_their_ids(
    tmp_path: Path,
) -> None:
    async with at_work(tmp_path) as here:
        here.begins()
        here.calls(status="in_progress")
        await here.it.editor.handled()
    async with bench(tmp_path, initialized=False) as after:
        await after.editor.ask("initialize", {"protocolVersion": 1, "clientCapabilities": SHOWS})
        await after.editor.ask("session/load", {**SETUP, "sessionId": here.id})
        first, *_, last = of_kind(after.editor, "subagent_update")
        assert first["update"]["sessionId"] == last["update"]["sessionId"] == f"{here.id}:1"
        assert last["update"]["state"] == STOPPED
        (card,) = cards(after.editor).values()
        assert card["status"] == "failed"


# --- what clients may do with them ---------------------------------------------------------------


@pytest.mark.parametrize(
    "method",
    ["session/prompt", "session/close", "session/delete", "session/load", "session/set_mode"],
)
async def test_a_subagent_takes_no_requests(tmp_path: Path, method: str) -> None:
    async with at_work(tmp_path, SHOWS) as here:
        here.begins(capabilities=CANCEL)
        await here.it.editor.handled()
        sent = len(here.process.received)
        params = {**SETUP, "sessionId": f"{here.id}:1", "prompt": [{"type": "text", "text": "x"}]}
        refused = await here.it.editor.refused(method, params)
        assert "subagent" in refused.message
        assert len(here.process.received) == sent


@pytest.mark.parametrize(("capabilities", "reaches"), [(CANCEL, True), ({}, False), (None, False)])
async def test_a_client_cancels_a_subagent_whose_agent_lets_it(
    tmp_path: Path, capabilities: Json | None, reaches: bool
) -> None:
    async with at_work(tmp_path, SHOWS) as here:
        here.begins(capabilities=capabilities)
        await here.it.editor.handled()
        here.it.editor.notify("session/cancel", {"sessionId": f"{here.id}:1"})
        await here.it.editor.handled()
        assert here.process.params("session/cancel") == ([{"sessionId": "kid"}] if reaches else [])
        assert state(here) == "RUNNING"


# --- a Stop --------------------------------------------------------------------------------------


@pytest.mark.hazard("C16", "C6.1")
async def test_a_stop_cancels_subagents_and_what_they_say_afterwards_reaches_nobody(
    tmp_path: Path,
) -> None:
    async with at_work(tmp_path, SHOWS, drain_timeout=5) as here:
        other = await here.it.attached(here.id)
        here.begins(capabilities=CANCEL)
        here.calls(status="in_progress")
        await stops(here)
        root = here.process.agent_session_id
        assert here.process.params("session/cancel") == [{"sessionId": root}, {"sessionId": "kid"}]
        await here.end()
        assert of_kind(here.it.editor, "subagent_update")[-1]["update"]["state"] == STOPPED
        (call,) = cards(here.it.editor).values()
        assert call["status"] == cards(other)["subagent-1"]["status"] == "failed"
        before = len(updates(other))
        here.says("late\n")
        here.process.shows(
            "kid", {"sessionUpdate": "tool_call_update", "toolCallId": "t", "status": "failed"}
        )
        here.tells(state=STOPPED)
        await here.it.editor.handled()
        assert len(updates(other)) == before
        assert state(here) == "IDLE"
        assert here.it.agent.processes == [here.process]


@pytest.mark.hazard("C6.2")
async def test_a_subagent_that_begins_work_after_a_stop_leaks(tmp_path: Path) -> None:
    async with at_work(tmp_path, drain_timeout=5) as here:
        here.begins(capabilities=CANCEL)
        await stops(here)
        await here.end()
        here.calls("more", status="in_progress")
        await until(lambda: not here.process.lives)


@pytest.mark.hazard("C25")
async def test_a_subagent_that_can_not_be_cancelled_works_on_visibly_after_a_stop(
    tmp_path: Path,
) -> None:
    async with at_work(tmp_path, SHOWS, drain_timeout=5) as here:
        other = await here.it.attached(here.id)
        here.begins(title="Long `look`")
        await stops(here)
        await here.end()
        here.calls(status="in_progress")
        here.says("still here\n")
        await here.it.editor.handled()
        assert "Long 'look'" in "".join(other.texts(here.id))
        assert cards(other)["subagent-1"]["status"] == "in_progress"
        assert here.it.agent.processes == [here.process]
        here.tells(state=DONE)
        await here.it.editor.handled()
        assert cards(other)["subagent-1"]["status"] == "completed"


# --- work, and the end of a process --------------------------------------------------------------


async def test_a_session_works_while_a_subagent_does(tmp_path: Path) -> None:
    async with at_work(tmp_path, SHOWS, work_silence=0.01) as here:
        here.begins()
        await here.end()
        assert state(here) == "WORKING"
        here.tells(state=DONE)
        await until(lambda: state(here) == "IDLE")
        here.tells(state=RUNS)
        await here.it.editor.handled()
        assert state(here) == "WORKING"


@pytest.mark.hazard("C16", "P13")
async def test_the_end_of_a_process_ends_its_subagents_and_the_next_has_others(
    tmp_path: Path,
) -> None:
    async def again(process: Process, params: Json) -> Json:
        here.process = process
        here.begins("kid2")
        here.says("new\n", "kid2")
        here.tells("kid2", state=DONE)
        return {"stopReason": "end_turn"}

    async with at_work(tmp_path, SHOWS) as here:
        here.begins()
        here.process.dies()
        await until(lambda: len(of_kind(here.it.editor, "subagent_update")) == 2)
        assert of_kind(here.it.editor, "subagent_update")[-1]["update"]["state"] == STOPPED
        here.it.agent.script["session/prompt"] = again
        assert await here.it.editor.stop_reason(here.it.editor.prompt(here.id, "x")) == "end_turn"
        named = [each["update"]["sessionId"] for each in of_kind(here.it.editor, "subagent_update")]
        assert named == [f"{here.id}:1"] * 2 + [f"{here.id}:2"] * 2


@pytest.mark.hazard("R11.1")
async def test_what_a_process_replays_of_subagents_is_not_shown_again(tmp_path: Path) -> None:
    async def loads(process: Process, params: Json) -> Json:
        for update in (
            {"sessionUpdate": "subagent_update", "sessionId": "kid", "state": RUNS},
            {"sessionUpdate": "subagent_update", "sessionId": "older", "title": "Before"},
        ):
            process.shows(params["sessionId"], update)
        content = {"type": "text", "text": "replayed\n"}
        process.shows("kid", {"sessionUpdate": "agent_message_chunk", "content": content})
        return {}

    async def prompted(process: Process, params: Json) -> Json:
        here.process = process
        here.says("goes on\n")
        here.says("so does this\n", "older")
        return {"stopReason": "end_turn"}

    async with at_work(tmp_path, SHOWS) as here:
        here.it.agent.script["session/load"] = loads
        here.it.agent.script["initialize"]["agentCapabilities"]["sessionCapabilities"] = {}
        here.begins()
        here.tells(state=DONE)
        here.gate.open()
        await until(lambda: state(here) == "IDLE")
        here.process.dies()
        before = len(updates(here.it.editor))
        here.it.agent.script["session/prompt"] = prompted
        assert await here.it.editor.stop_reason(here.it.editor.prompt(here.id, "x")) == "end_turn"
        first, older, second = updates(here.it.editor)[before:]
        assert (first["sessionId"], first["update"]["content"]["text"]) == (
            f"{here.id}:1",
            "goes on\n",
        )
        assert (older["sessionId"], older["update"]["title"]) == (here.id, "Before")
        assert second["sessionId"] == older["update"]["sessionId"] == f"{here.id}:2"


# --- through another bridge ----------------------------------------------------------------------


@pytest.mark.hazard("V8", "X1")
@pytest.mark.parametrize("shows", [True, False])
async def test_subagents_come_through_another_bridge_as_its_client_can_take_them(
    home: Path, shows: bool
) -> None:
    async with two(home) as it:
        client = it.other.editor
        if shows:
            it.other.bridge._clients[0].abilities = ClientAbilities(SHOWS)
        await it.load()
        (process,) = it.holder.agent.processes
        here = Here(it.holder, it.session_id, process, it.holder.agent.stops_at("session/list"))
        here.begins(capabilities=CANCEL)
        here.says("hello\n")
        kid = f"{it.session_id}:1"
        await until(lambda: "hello" in repr(client.messages))
        if shows:
            assert of_kind(client, "subagent_update")[0]["update"]["sessionId"] == kid
            client.notify("session/cancel", {"sessionId": kid})
            await until(lambda: process.params("session/cancel") == [{"sessionId": "kid"}])
            refused = await client.refused("session/prompt", {"sessionId": kid, "prompt": []})
            assert "subagent" in refused.message
        else:
            assert cards(client)["subagent-1"]["title"] == "Look around"
            assert never_named(client, "kid", kid)
