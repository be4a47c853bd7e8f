"""The folders that bound a remote client: what it may open, and what it is shown."""

import os
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest

from acp_bridge.core.clients import socket_share
from acp_bridge.core.runtime import waits
from acp_bridge.core.sessions import bounds
from acp_bridge.core.updates.wording import code
from tests.core.bridge.remote import RemoteBench, remote_bench
from tests.core.sessions.agent import Agent, Json, until

pytestmark = pytest.mark.hazard("N6")

#: makes what is named, and returns a path that leads out of the root.
Way = Callable[[Path], str]


def linked(root: Path) -> str:
    (root / "link").symlink_to(root.parent)
    return str(root / "link")


def below_a_link(root: Path) -> str:
    linked(root)
    return str(root / "link" / "secret")


def over_two_links(root: Path) -> str:
    (root / "a").symlink_to("b")
    (root / "b").symlink_to("/")
    return str(root / "a" / "etc")


OPENING = ("session/new", "session/load", "session/fork")
WAYS: dict[str, Way] = {
    "beside": lambda root: str(root.parent),
    "its name and more": lambda root: f"{root}2",
    "everything": lambda root: "/",
    "..": lambda root: f"{root}/..",
    ".. that comes back": lambda root: f"{root}/../{root.name}",
    "a link": linked,
    "below a link": below_a_link,
    "two links": over_two_links,
    "no name that a system has": lambda root: f"{root}/\0",
    "half a character": lambda root: f"{root}/\ud800",
}


@pytest.mark.hazard("N6.6")
@pytest.mark.parametrize("way", WAYS)
async def test_no_way_leads_out_of_the_root_and_no_path_is_named(tmp_path: Path, way: str) -> None:
    async with remote_bench(tmp_path) as it:
        client = await it.remote()
        session_id = await it.new(client)
        before = it.agent.params("session/new")
        path = WAYS[way](it.root)
        places: dict[str, Json] = {
            "cwd": {"cwd": path},
            "additionalDirectories.1": {"additionalDirectories": [str(it.root), path]},
        }
        for method, (place, given) in product(OPENING, places.items()):
            asked = {**it.setup(), "sessionId": session_id, **given}
            error = await client.refused(method, asked)
            assert (error.code, error.message.partition(":")[0]) == (-32602, place), method
            assert str(tmp_path) not in error.message
        assert it.agent.params("session/new") == before


@pytest.mark.hazard("N6.6")
async def test_the_root_itself_and_what_lies_below_it_are_open_also_over_a_link(
    tmp_path: Path,
) -> None:
    async with remote_bench(tmp_path) as it:
        client = await it.remote(roots=[str(tmp_path / "alias")])
        (tmp_path / "alias").symlink_to(it.root)
        (it.root / "sub").mkdir()
        for folder in (str(it.root), f"{it.root}/", f"{tmp_path}/alias/sub", f"{it.root}/new"):
            await client.ask("session/new", {"cwd": folder, "mcpServers": []})


@pytest.mark.parametrize("roots", [(), ("/nowhere",)])
async def test_without_a_root_that_there_is_nothing_is_open(
    tmp_path: Path, roots: tuple[str, ...]
) -> None:
    async with remote_bench(tmp_path) as it:
        client = await it.remote(roots=roots)
        assert (await client.refused("session/new", it.setup())).code == -32602


async def outside(it: RemoteBench) -> str:
    """A session whose folder lies outside of the root, and which one with other bounds has."""
    other = await it.remote(name="other", roots=["/"])
    answer = await other.ask("session/new", {"cwd": str(it.root.parent), "mcpServers": []})
    session_id = str(answer["sessionId"])
    assert await other.stop_reason(other.prompt(session_id, "secret")) == "end_turn"
    return session_id


ABOUT = [
    *("session/load", "session/resume", "session/fork", "session/close", "session/delete"),
    *("_acp_bridge/attach", "_acp_bridge/close", "_acp_bridge/cancel", "_acp_bridge/ask"),
    *("session/prompt", "session/set_mode", "_acp_bridge/title", "_acp_bridge/hold"),
    *("_acp_bridge/queue/list", "_acp_bridge/cancel_item", "_session/steering"),
]


@pytest.mark.hazard("N6.6")
@pytest.mark.parametrize("live", [True, False])
async def test_a_session_outside_is_neither_opened_nor_touched_in_any_way(
    tmp_path: Path, live: bool
) -> None:
    async with remote_bench(tmp_path) as it:
        session_id = await outside(it)
        client, other = await it.remote(), await it.remote(roots=["/"])
        given = {"cwd": str(it.root.parent), "mcpServers": [], "sessionId": session_id}
        for method in ABOUT:
            if not live:
                await other.ask("_acp_bridge/close", {"sessionId": session_id})
            error = await client.refused(method, {**it.setup(), "sessionId": session_id})
            assert (error.code, error.message.partition(":")[0]) == (-32602, "sessionId"), method
            for news in ("session/cancel", "_x/news"):
                client.notify(news, {"sessionId": session_id})
            await client.handled()
            assert it.agent.params("_x/news") == []
            assert client.texts(session_id) == []
            shown = len(other.texts(session_id))
            await other.ask("session/load", given)
            assert other.texts(session_id)[shown:] == ["secret", "echo secret"], method


async def test_neither_lists_nor_what_is_live_show_a_session_outside(tmp_path: Path) -> None:
    agent = Agent()
    async with remote_bench(tmp_path, agent) as it:
        session_id = await outside(it)
        agent.rows = [
            {"sessionId": "x", "cwd": "/"},
            {"sessionId": "y", "cwd": str(it.root)},
            {"sessionId": "z"},
        ]
        client = await it.remote()
        inside = await it.new(client)
        assert await client.stop_reason(client.prompt(inside, "hello")) == "end_turn"
        listed = await client.ask("session/list", {})
        assert [row["sessionId"] for row in listed["sessions"]] == [inside, "y"]
        live = await client.ask("_acp_bridge/live", {})
        assert [row["sessionId"] for row in live["sessions"]] == [inside]
        error = await client.refused("session/list", {"cwd": str(it.root.parent)})
        assert (error.code, "cwd" in error.message) == (-32602, True)
        other = await it.remote(roots=["/"])
        live = await other.ask("_acp_bridge/live", {})
        assert {row["sessionId"] for row in live["sessions"]} == {session_id, inside}


async def test_what_the_agent_has_outside_is_not_deleted_for_who_names_it(tmp_path: Path) -> None:
    async with remote_bench(tmp_path) as it:
        client = await it.remote()
        error = await client.refused("session/delete", {"sessionId": "agents-own"})
        assert error.code == -32002
        assert it.agent.params("session/delete") == []


async def test_a_disk_that_does_not_answer_costs_who_names_it_an_error_and_nobody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waits, "FOLDERS", 0)
    async with remote_bench(tmp_path) as it:
        client = await it.remote()
        error = await client.refused("session/new", it.setup())
        assert (error.code, "in time" in error.message) == (-32603, True)


# --- what a load gives that may not set anything ------------------------------------------------


@pytest.mark.hazard("N6.4", "N6.5")
@pytest.mark.parametrize("may", ["look", "approve"])
async def test_a_load_by_who_may_set_nothing_starts_nothing_and_changes_nothing(
    tmp_path: Path, may: str
) -> None:
    async with remote_bench(tmp_path) as it:
        owner = await it.remote()
        session_id = await it.new(owner)
        assert await owner.stop_reason(owner.prompt(session_id, "hello")) == "end_turn"
        await owner.ask("_acp_bridge/close", {"sessionId": session_id})
        starts = len(it.agent.processes)
        server: Json = {"type": "http", "name": "evil", "url": "http://x"}
        given: Json = {"cwd": str(it.root / "sub"), "mcpServers": [server]}
        given["sessionId"] = session_id
        given["_meta"] = {"claudeCode": {"options": {"executable": "evil"}}}
        client = await it.remote(may)
        await client.ask("session/load", given)
        assert client.texts(session_id) == ["hello", "echo hello"]
        assert len(it.agent.processes) == starts
        assert it.bridge._sessions.live[session_id].workspace.mcp_servers == ()
        await client.ask("session/load", {**given, "additionalDirectories": [str(it.root)]})
        await owner.ask("_acp_bridge/attach", {"sessionId": session_id})
        assert await owner.stop_reason(owner.prompt(session_id, "again")) == "end_turn"
        (opened,) = it.agent.params("session/resume")
        assert (opened["cwd"], opened["mcpServers"]) == (str(it.root), [])
        assert "_meta" not in opened
        assert "additionalDirectories" not in opened


@pytest.mark.hazard("N6.4")
@pytest.mark.parametrize("may", ["look", "approve"])
async def test_one_that_has_a_session_alone_and_may_set_nothing_leaves_it_its_servers(
    tmp_path: Path, may: str
) -> None:
    async with remote_bench(tmp_path) as it:
        owner = await it.remote()
        roots = [str(it.root)]
        given = {**it.setup(), "mcpServers": [HTTP], "additionalDirectories": roots}
        session_id = (await owner.ask("session/new", given))["sessionId"]
        owner.leaves()
        await owner.parted.wait()
        (process,) = it.agent.living
        await it.holding(may, session_id)
        workspace = it.bridge._sessions.live[session_id].workspace
        assert (workspace.mcp_servers, workspace.roots) == ((HTTP,), tuple(roots))
        assert it.agent.living == [process]


@pytest.mark.hazard("N6.5")
@pytest.mark.parametrize("may", ["look", "approve"])
async def test_who_may_set_nothing_has_the_agent_load_no_session_of_its_own(
    tmp_path: Path, may: str
) -> None:
    agent = Agent()
    async with remote_bench(tmp_path, agent) as it:
        agent.rows = [{"sessionId": "x", "cwd": str(it.root)}]
        client = await it.remote(may)
        error = await client.refused("session/load", {**it.setup(), "sessionId": "x"})
        assert error.code == -32002
        assert agent.params("session/load") == []


# --- MCP servers -------------------------------------------------------------------------------

STDIO: list[Json] = [
    {"name": "plain", "command": "evil", "args": [], "env": []},
    {"name": "typed", "type": "stdio", "command": "evil", "args": [], "env": []},
    {"name": "odd", "type": "other", "command": "evil"},
    {"name": "half", "type": 7},
]
HTTP: Json = {"name": "web", "type": "http", "url": "http://x", "headers": []}


@pytest.mark.hazard("N6.7")
@pytest.mark.parametrize("how", ["new", "load"])
async def test_mcp_servers_that_would_be_started_are_left_out_and_the_session_says_so(
    tmp_path: Path, how: str
) -> None:
    async with remote_bench(tmp_path) as it:
        client = await it.remote()
        given: Json = {**it.setup(), "mcpServers": [*STDIO, HTTP]}
        if how == "load":
            first = await it.remote()
            given["sessionId"] = await it.new(first)
            assert await first.stop_reason(first.prompt(given["sessionId"], "x")) == "end_turn"
            first.leaves()
            await first.parted.wait()
        answer = await client.ask(f"session/{how}", given)
        session_id = given.get("sessionId") or answer["sessionId"]
        assert await client.stop_reason(client.prompt(session_id, "hello")) == "end_turn"
        ways = ("session/new", "session/load", "session/resume")
        opened = [params for way in ways for params in it.agent.params(way)]
        assert opened[-1]["mcpServers"] == [HTTP]
        (said,) = [each for each in client.texts(session_id) if "left out" in each]
        assert all(f"`{code(each['name'])}`" in said for each in STDIO)
        assert "web" not in said


@pytest.mark.hazard("N6.7")
async def test_mcp_servers_that_would_be_started_are_if_the_user_says_so(tmp_path: Path) -> None:
    async with remote_bench(tmp_path, client_mcp=True) as it:
        client = await it.remote()
        await client.ask("session/new", {**it.setup(), "mcpServers": STDIO})
        assert it.agent.params("session/new")[-1]["mcpServers"] == STDIO


async def test_an_editor_here_has_no_bounds(tmp_path: Path) -> None:
    async with remote_bench(tmp_path) as it:
        session_id = await outside(it)
        await until(lambda: it.bridge._introduction.made.is_set())
        here = await it.joined()
        answer = await here.ask("_acp_bridge/live", {})
        assert [row["sessionId"] for row in answer["sessions"]] == [session_id]
        await here.ask("_acp_bridge/attach", {"sessionId": session_id})


def test_links_that_go_round_lead_nowhere(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "root" / "a")
    paths = {str(tmp_path / "root" / "a"), "relative", str(tmp_path / "b")}
    found = bounds._within([str(tmp_path / "root")], paths)
    assert not any(os.path.exists(path) for path in found)


# --- how much one login may have ----------------------------------------------------------------


async def test_a_login_has_so_many_sessions_open_over_all_connections_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "MOST_OPEN", 2)
    async with remote_bench(tmp_path) as it:
        one, two, other = await it.remote(), await it.remote(), await it.remote(name="phone")
        first, second = await it.new(one), await it.new(two)
        error = await two.refused("session/new", it.setup())
        assert (error.code, "2 sessions open" in error.message) == (-32600, True)
        third = await it.new(other)
        error = await one.refused("_acp_bridge/attach", {"sessionId": third})
        assert "2 sessions open" in error.message
        await one.ask("_acp_bridge/attach", {"sessionId": second})
        await one.ask("session/load", {**it.setup(), "sessionId": first})
        two.leaves()
        await two.parted.wait()
        one.leaves()
        await one.parted.wait()
        await it.new(await it.remote())


async def test_a_login_has_so_many_requests_at_work_and_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket_share, "MOST_AT_WORK", 2)
    async with remote_bench(tmp_path) as it:
        session_id = await it.new()
        slow = it.agent.stops_at("session/new")
        one, two = await it.remote(), await it.holding("all", session_id)
        asked = [one.send("session/new", it.setup()), two.send("session/new", it.setup())]
        await until(lambda: slow.reached)
        for client in (one, two):
            error = await client.refused("session/list", {})
            assert (error.code, "2 requests" in error.message) == (-32600, True)
        assert await two.stop_reason(two.prompt(session_id, "hello")) == "end_turn"
        other = await it.remote(name="phone")
        assert (await other.ask("session/list", {}))["sessions"]
        slow.open()
        assert await one.result(asked[0])
        assert await two.result(asked[1])
        assert (await one.ask("session/list", {}))["sessions"]
