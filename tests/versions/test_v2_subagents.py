"""Subagents of an agent of version 1, shown to a client of version 2 on a living bridge."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.core.bridge.test_questions import OPTIONS, chosen
from tests.core.bridge.test_subagents import DONE, RUNS, Here, cards, never_named
from tests.core.sessions.agent import Json, until
from tests.core.sessions.world import SETUP
from tests.versions.v2_editor import CWD, V2Bench, V2Editor, v2_bench

ENDED = ["running", "idle/end_turn"]


@asynccontextmanager
async def at_work(home: Path) -> AsyncIterator[tuple[V2Bench, Here]]:
    """A turn of a client of version 2, in which the agent has subagents."""
    async with v2_bench(home) as it:
        session = await it.new()
        gate = it.agent.stops_at("session/prompt")
        await it.editor.result(it.editor.prompt(session, "go"))
        await until(lambda: gate.reached)
        (process,) = it.agent.processes
        yield it, Here(it.it, session, process, gate)


def kinds(editor: V2Editor, session: str) -> list[str]:
    return [each["sessionUpdate"] for each in editor.updates(session)]


async def work_of_two(here: Here) -> None:
    """Let a subagent and one of its own work and end."""
    here.begins(capabilities={"cancel": {}}, cwd="/w")
    here.says("hello")
    here.calls(status="in_progress")
    here.tells("grandkid", of="kid", title="Deeper", state=RUNS)
    here.says("deep", "grandkid")
    here.tells("grandkid", of="kid", state={"state": "idle", "stopReason": "refusal"})
    here.calls(status="completed")
    here.tells(state=DONE)
    await here.it.editor.handled()


@pytest.mark.hazard("X1", "X3")
async def test_each_subagent_is_announced_and_says_in_its_own_session_where_it_stands(
    tmp_path: Path,
) -> None:
    async with at_work(tmp_path) as (it, here):
        kid, grandkid = f"{here.id}:1", f"{here.id}:2"
        await work_of_two(here)
        announced, *rest = it.editor.updates(here.id, "subagent_update")
        assert rest == []
        assert announced == {
            "sessionUpdate": "subagent_update",
            "sessionId": kid,
            "title": "Look around",
            "capabilities": {"cancel": {}},
            "cwd": "/w",
        }
        assert it.editor.states(kid) == ENDED
        assert it.editor.states(grandkid) == ["running", "idle/refusal"]
        (said,) = it.editor.updates(kid, "agent_message_chunk")
        assert said["content"]["text"] == "hello"
        assert [each["status"] for each in it.editor.updates(kid, "tool_call_update")] == [
            "in_progress",
            "completed",
        ]
        (below,) = it.editor.updates(kid, "subagent_update")
        assert (below["sessionId"], below["title"]) == (grandkid, "Deeper")
        assert it.editor.states(here.id) == ["running"]
        assert never_named(it.editor, "kid", "grandkid")
        await here.end()


@pytest.mark.hazard("X3.9")
async def test_a_subagent_s_work_ends_once_however_often_that_is_told(tmp_path: Path) -> None:
    async with at_work(tmp_path) as (it, here):
        for state in (DONE, RUNS, RUNS, DONE, DONE, RUNS, DONE, DONE):
            here.tells(state=state)
        here.tells(title="Another title")
        here.tells(state=None)
        here.tells(state={"state": "_odd"})
        await it.editor.handled()
        assert it.editor.states(f"{here.id}:1") == ["idle", *ENDED, *ENDED, "_odd"]
        await here.end()


@pytest.mark.hazard("X3.9", "R1")
async def test_a_replay_has_each_subagent_with_its_end_and_where_it_stands(tmp_path: Path) -> None:
    async with at_work(tmp_path) as (it, here):
        kid, grandkid = f"{here.id}:1", f"{here.id}:2"
        await work_of_two(here)
        here.tells("third", title="Works on", state=RUNS)
        other = await it.joined()
        for client in (other, other, it.editor):
            before = len(client.messages)
            await client.resumed(here.id)
            client.judge()
            said = [each["params"] for each in client.messages[before:] if "params" in each]
            kinds_of_end = ("replay_complete", "state_update")
            ends = [
                (each["sessionId"], each["update"])
                for each in said
                if "update" in each and each["update"]["sessionUpdate"] in kinds_of_end
            ]
            complete = {"sessionUpdate": "replay_complete"}
            idle = {"sessionUpdate": "state_update", "state": "idle"}
            runs = {"sessionUpdate": "state_update", "state": "running"}
            assert ends == [
                *((kid, complete), (kid, idle)),
                *((grandkid, complete), (grandkid, idle)),
                *((f"{here.id}:3", complete), (f"{here.id}:3", runs)),
                *((here.id, complete), (here.id, runs)),
            ]
            calls = [each["update"] for each in said if "toolCallId" in each.get("update", {})]
            assert [each["status"] for each in calls] == ["in_progress", "completed"]
            assert None not in calls[0].values()
            names = [each["update"].get("sessionId") for each in said if "update" in each]
            assert [each for each in names if each] == [kid, grandkid, f"{here.id}:3"]
        assert "agent_message_chunk" in kinds(other, kid)
        await here.end()


async def test_who_resumes_without_a_replay_is_told_which_subagents_there_are(
    tmp_path: Path,
) -> None:
    async with at_work(tmp_path) as (it, here):
        kid = f"{here.id}:1"
        here.begins()
        here.says("hello")
        await it.editor.handled()
        other = await it.joined()
        await other.ask("session/resume", {"sessionId": here.id, **CWD})
        (announced,) = other.updates(here.id, "subagent_update")
        assert announced["sessionId"] == kid
        assert kinds(other, kid) == ["state_update"]
        here.tells(state=DONE)
        await it.editor.handled()
        await other.handled()
        assert other.states(kid) == ENDED
        await here.end()


async def test_what_a_subagent_asks_is_asked_under_its_id(tmp_path: Path) -> None:
    async with at_work(tmp_path) as (it, here):
        old = await it.it.joined_with({})
        await old.ask("_acp_bridge/attach", {"sessionId": here.id})
        here.begins()
        here.calls(rawInput={"command": "rm x"}, status="pending")
        here.asks(sessionId="kid", toolCall={"toolCallId": "t"}, options=OPTIONS)
        (asked,) = await it.editor.got("session/request_permission")
        (folded,) = await old.got("session/request_permission")
        assert (asked["params"]["sessionId"], folded["params"]["sessionId"]) == (
            f"{here.id}:1",
            here.id,
        )
        assert never_named(old, "kid", f"{here.id}:1")
        it.editor.answers_with(asked, chosen("yes"))
        assert await here.answered() == chosen("yes")
        await here.end()


async def test_a_client_of_each_version_has_the_session_and_each_its_own_form(
    tmp_path: Path,
) -> None:
    async with at_work(tmp_path) as (it, here):
        old = await it.it.joined_with({})
        able = await it.it.joined_with({"subagents": {}})
        for client in (old, able):
            await client.ask("session/load", {**SETUP, "sessionId": here.id})
        await work_of_two(here)
        for client in (old, able):
            await client.handled()
        assert {each["title"] for each in cards(old).values()} == {"Look around", "Deeper"}
        told = [m["params"]["update"] for m in able.asked("session/update")]
        assert [u["state"]["state"] for u in told if "state" in u] == [
            *("running", "running", "idle", "idle")
        ]
        assert never_named(old, f"{here.id}:1", f"{here.id}:2", "kid")
        await here.end()


@pytest.mark.parametrize("able", [{"cancel": {}}, {}])
async def test_a_subagent_takes_a_stop_where_its_agent_lets_it_and_nothing_else(
    tmp_path: Path, able: Json
) -> None:
    async with at_work(tmp_path) as (it, here):
        kid = f"{here.id}:1"
        here.begins(capabilities=able)
        await it.editor.handled()
        words = [{"type": "text", "text": "x"}]
        refused: list[tuple[str, Json]] = [
            ("session/prompt", {"prompt": words}),
            ("session/close", {}),
            ("session/delete", {}),
            ("session/resume", {**CWD, "replayFrom": {"type": "start"}}),
            ("session/set_config_option", {"configId": "mode", "type": "id", "value": "a"}),
        ]
        for method, params in refused:
            error = await it.editor.refused(method, {"sessionId": kid, **params})
            assert error.code == -32600, method
        it.editor.says({"method": "session/cancel", "params": {"sessionId": kid}})
        await it.editor.handled()
        expected = [{"sessionId": "kid"}] if able else []
        assert here.process.params("session/cancel") == expected
        await here.end()


async def test_who_closes_the_session_and_has_it_again_has_its_subagents_again(
    tmp_path: Path,
) -> None:
    async with at_work(tmp_path) as (it, here):
        here.begins()
        here.tells(state=DONE)
        await here.end()
        await it.editor.idle(here.id)
        await it.editor.ask("session/close", {"sessionId": here.id})
        before = len(it.editor.messages)
        await it.editor.resumed(here.id)
        it.editor.judge()
        again = [each["params"] for each in it.editor.messages[before:] if "params" in each]
        found = [each["update"] for each in again if each["sessionId"] == f"{here.id}:1"]
        assert found == [
            {"sessionUpdate": "replay_complete"},
            {"sessionUpdate": "state_update", "state": "idle"},
        ]


async def test_what_sessions_say_to_each_other_is_shown(tmp_path: Path) -> None:
    async with at_work(tmp_path) as (it, here):
        here.begins()
        message: dict[str, Any] = {
            "sessionUpdate": "session_message",
            "messageId": "x",
            "senderSessionId": here.process.agent_session_id,
            "recipientSessionId": "kid",
            "content": [{"type": "text", "text": "go"}],
        }
        here.process.shows(here.process.agent_session_id, message)
        await it.editor.handled()
        (told,) = it.editor.updates(here.id, "session_message")
        assert (told["senderSessionId"], told["recipientSessionId"]) == (here.id, f"{here.id}:1")
        await here.end()
