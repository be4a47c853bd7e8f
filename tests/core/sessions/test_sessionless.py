"""Requests that name no session, while others of them are under way."""

import gc
import weakref
from pathlib import Path
from typing import Any

import pytest

from acp_bridge.core.wire.jsonrpc import RpcError
from tests.core.agents.scripted_process import Listener
from tests.core.sessions.agent import Agent, Json, Process, until
from tests.core.sessions.bench import bench

LOGIN: Json = {"methodId": "token", "_meta": {"token": "t"}}
BROWSER: Json = {"methodId": "browser"}
PROVIDER: Json = {"providerId": "a", "url": "1"}

pytestmark = pytest.mark.hazard("R14")


def heard(process: Process, *methods: str) -> list[str]:
    return [m["method"] for m in process.received if m.get("method") in methods]


@pytest.mark.hazard("R14.5")
async def test_a_logout_reaches_a_process_that_is_starting_with_the_login(tmp_path: Path) -> None:
    async with bench(tmp_path, process_per_session=True) as it:
        await it.new()
        await it.editor.ask("authenticate", LOGIN)
        gate = it.agent.stops_at("authenticate")
        second = it.editor.send("session/new", {"cwd": "/w", "mcpServers": []})
        await until(lambda: gate.reached)
        await it.editor.ask("logout", {})
        gate.open()
        await it.editor.result(second)
        for process in it.agent.processes:
            assert heard(process, "authenticate", "logout") == ["authenticate", "logout"]


async def test_a_login_that_is_granted_after_a_logout_was_sent_is_not_kept(tmp_path: Path) -> None:
    async with bench(tmp_path, process_per_session=True) as it:
        await it.new()
        await it.new()
        gate = it.agent.stops_at("authenticate")
        login = it.editor.send("authenticate", LOGIN)
        await until(lambda: gate.reached)
        await it.editor.ask("logout", {})
        gate.open()
        await it.editor.result(login)
        await it.new()
        told = [heard(each, "authenticate", "logout") for each in it.agent.processes]
        assert sorted(told, key=len) == [[], ["logout"], ["authenticate", "logout"]]


async def test_a_logout_ends_the_round_of_an_interactive_login(tmp_path: Path) -> None:
    async with bench(tmp_path, process_per_session=True) as it:
        sessions = [await it.new() for _ in range(3)]
        it.agent.script["session/prompt"] = RpcError(-32000, "log in")
        for session_id in sessions:
            await it.editor.refusal(it.editor.prompt(session_id, "hello"))
        first = it.agent.stops_at("authenticate")
        login = it.editor.send("authenticate", BROWSER)
        await until(lambda: first.reached)
        it.agent.script["authenticate"] = {}
        first.open()
        second = it.agent.stops_at("authenticate")
        await it.editor.result(login)
        await until(lambda: second.reached)
        await it.editor.ask("logout", {})
        second.open()
        await it.settled()
        assert len(it.agent.params("authenticate")) == 2
        assert len(it.agent.params("logout")) == 3


async def test_of_two_settings_the_later_one_holds_whichever_is_granted_first(
    tmp_path: Path,
) -> None:
    async with bench(tmp_path, process_per_session=True) as it:
        await it.new()
        granted: list[str] = []

        async def provider(process: Process, params: Json) -> Any:
            if params["url"] == "1" and process is it.agent.processes[0]:
                await until(lambda: "2" in granted)
            granted.append(params["url"])
            return {}

        it.agent.script["providers/set"] = provider
        one = it.editor.send("providers/set", PROVIDER)
        await until(lambda: it.agent.params("providers/set"))
        await it.editor.ask("providers/set", {**PROVIDER, "url": "2"})
        await it.editor.result(one)
        await it.new()
        assert it.agent.processes[1].params("providers/set") == [{**PROVIDER, "url": "2"}]


@pytest.mark.hazard("P15")
async def test_a_process_that_was_never_started_is_kept_by_nobody(tmp_path: Path) -> None:
    async with bench(tmp_path, Agent()) as it:
        link = weakref.ref(it.context.new_link(Listener(), "never"))
        it.agent.processes.clear()
        gc.collect()
        assert link() is None


@pytest.mark.hazard("T3")
async def test_a_method_of_the_agent_s_own_about_sessions_that_are_not_open_is_passed_on(
    tmp_path: Path,
) -> None:
    async with bench(tmp_path) as it:
        for method in ("_session/rename", "_session/batch_get"):
            it.agent.script[method] = {"done": method}
        closed, live = await it.new(), await it.new()
        assert await it.editor.stop_reason(it.editor.prompt(closed, "hello")) == "end_turn"
        await it.editor.ask("session/close", {"sessionId": closed})
        for given in (closed, live, "the agent's"):
            named = {"sessionId": given, "title": "T"}
            assert await it.editor.ask("_session/rename", named) == {"done": "_session/rename"}
        await it.editor.ask("_session/batch_get", {"sessionIds": [closed, "other"]})
        assert [each["sessionId"] for each in it.agent.params("_session/rename")] == [
            *("agent-1", "agent-1-2", "the agent's"),
        ]
        assert it.agent.params("_session/batch_get") == [{"sessionIds": ["agent-1", "other"]}]
        unknown = await it.editor.refusal(it.editor.send("_acp_bridge/x", {"sessionId": closed}))
        assert unknown.code == -32601
