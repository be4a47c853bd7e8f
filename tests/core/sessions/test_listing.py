"""`session/list`: the journal's pages, then what only the agent knows, and never a long wait."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from acp_bridge.core.agents.connection import AgentCommand
from acp_bridge.core.agents.identity import AgentIdentity
from acp_bridge.core.agents.link import Link
from acp_bridge.core.journal import Journal, JournalError
from acp_bridge.core.runtime import waits
from acp_bridge.core.sessions import agent_listing
from acp_bridge.core.sessions.listing import Listing
from acp_bridge.core.updates import notices
from acp_bridge.core.wire.jsonrpc import RpcError
from tests.core.agents.scripted_process import Listener
from tests.core.sessions.agent import Agent, Json, Process


class Lister:
    """A Listing of the agent "agent", and the processes that it may ask."""

    def __init__(self, home: Path, agent: Agent, tasks: anyio.abc.TaskGroup) -> None:
        self.journal = Journal(home)
        self.agent, self._tasks = agent, tasks
        #: sessions whose process was ended because they were at rest.
        self.sleeping: set[str] = set()
        self.listing = Listing(self, self.journal, lambda: AgentIdentity("agent"))

    def links(self) -> list[Link]:
        return [] if self.sleeping else [process.link for process in self.agent.processes]

    def asleep(self) -> frozenset[str]:
        return frozenset(self.sleeping)

    async def ready(self) -> Link:
        link = self.agent.new_link(AgentCommand(("agent",), {}), Listener(), "agent")
        await link.start(self._tasks)
        return link

    async def keep(self, session_id: str, *, cwd: str = "/w", agent: str = "agent") -> None:
        """Keep a session, newer than all before."""
        kept = await self.journal.create(
            session_id, cwd=cwd, agent=agent, agent_session_id=f"agent's {session_id}"
        )
        await kept.close()

    async def ids(self, **given: Any) -> list[str]:
        return [row["sessionId"] for row in (await self.listing.page(given))["sessions"]]


@asynccontextmanager
async def lister(home: Path, agent: Agent | None = None) -> AsyncIterator[Lister]:
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            it = Lister(home, agent or Agent(), tasks)
            yield it
            await it.journal.close()
            tasks.cancel_scope.cancel()


def row(session_id: str, **more: Any) -> Json:
    return {"sessionId": session_id, "cwd": "/w", **more}


async def test_the_sessions_of_this_agent_are_listed_the_newest_first(tmp_path: Path) -> None:
    async with lister(tmp_path) as it:
        assert await it.listing.page({}) == {"sessions": []}
        await it.keep("one")
        await it.keep("elsewhere", cwd="/v")
        await it.keep("two")
        await it.keep("another's", agent="other")
        assert await it.ids() == ["two", "elsewhere", "one"]
        assert await it.ids(cwd="/v") == ["elsewhere"]
        assert await it.ids(cwd="/nowhere") == []


async def test_a_row_has_a_title_if_the_session_has_one(tmp_path: Path) -> None:
    async with lister(tmp_path) as it:
        for session_id, title in (("one", None), ("two", "Named")):
            await it.journal.create(session_id, cwd="/w", agent="agent")
            if title:
                await it.journal.touch(session_id, title=title)
        two, one = (await it.listing.page({}))["sessions"]
        assert (two["sessionId"], two["cwd"], two["title"]) == ("two", "/w", "Named")
        assert two["updatedAt"].endswith("Z")
        assert one.keys() == two.keys() - {"title"}


@pytest.mark.hazard("Q10")
async def test_the_agents_own_sessions_come_behind_the_last_page_of_the_journal(
    tmp_path: Path,
) -> None:
    async with lister(tmp_path) as it:
        for number in range(51):
            await it.keep(f"s{number}")
        await it.ready()
        it.agent.rows = [row("a1"), row("agent's s7"), row("a2", title="T", x=[1])]
        first = await it.listing.page({})
        assert [r["sessionId"] for r in first["sessions"]] == [f"s{n}" for n in range(50, 0, -1)]
        assert it.agent.params("session/list") == []
        last = await it.listing.page({"cursor": first["nextCursor"]})
        # What the agent says of one is passed on as it is; one that has an id of ours is known.
        own = [row("a1"), row("a2", title="T", x=[1])]
        assert last["sessions"][0]["sessionId"] == "s0"
        assert last["sessions"][1:] == own
        assert "nextCursor" not in last


async def test_the_agents_pages_are_asked_for_with_its_own_cursor(tmp_path: Path) -> None:
    async with lister(tmp_path) as it:
        await it.keep("ours")
        await it.ready()

        async def page(process: Process, asked: Json) -> Json:
            if "cursor" not in asked:
                return {"sessions": [row("a1")], "nextCursor": "j:1"}
            return {"sessions": [row("a2")], "nextCursor": None}

        it.agent.script["session/list"] = page
        first = await it.listing.page({"cwd": "/w"})
        assert [r["sessionId"] for r in first["sessions"]] == ["ours", "a1"]
        second = await it.listing.page({"cwd": "/w", "cursor": first["nextCursor"]})
        assert second == {"sessions": [row("a2")]}
        assert it.agent.params("session/list") == [
            {"cwd": "/w"},
            {"cwd": "/w", "cursor": "j:1"},
        ]


@pytest.mark.parametrize("cursor", ["j:", "j:nonsense", "j:bm8=", "j:é", "x:1", 7])
async def test_a_cursor_that_the_bridge_did_not_give_is_refused(
    tmp_path: Path, cursor: object
) -> None:
    async with lister(tmp_path) as it:
        with pytest.raises(RpcError, match="cursor: not a cursor of ours") as caught:
            await it.listing.page({"cursor": cursor})
        assert caught.value.code == -32602


async def test_an_agents_rows_are_filtered_by_the_bridge_too_and_odd_ones_are_left_out(
    tmp_path: Path,
) -> None:
    async with lister(tmp_path) as it:
        await it.ready()
        it.agent.rows = [row("a"), row("b", cwd="/v"), {"sessionId": 1}, {}, "c", None]  # type: ignore[list-item]
        assert await it.ids(cwd="/w") == ["a"]
        assert await it.ids() == ["a", "b"]


@pytest.mark.parametrize(
    "answer", [None, [], {}, {"sessions": None}, {"sessions": {}}, RpcError(-32603, "no")]
)
async def test_an_agent_that_lists_nothing_of_use_spoils_no_listing(
    tmp_path: Path, answer: object
) -> None:
    async with lister(tmp_path) as it:
        await it.keep("ours")
        await it.ready()
        it.agent.script["session/list"] = answer
        page = await it.listing.page({"cwd": "/w"})
        assert [row["sessionId"] for row in page["sessions"]] == ["ours"]
        told = page["_meta"]["acp_bridge"]["agentList"]
        assert ("would not list its own sessions: no" in told) == isinstance(answer, RpcError)
        assert len(it.agent.params("session/list")) == 1
        assert await it.ids() == ["ours"]


@pytest.mark.hazard("Q10")
async def test_a_deaf_agent_is_not_waited_for_and_told_that_nobody_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waits, "AGENT_PATIENCE", 0.01)
    async with lister(tmp_path) as it:
        await it.keep("ours")
        await it.ready()
        it.agent.stops_at("session/list")
        assert await it.ids() == ["ours"]
        assert await it.listing.agent_may_have("a", "/w")  # nobody knows: it is asked for that
        assert len(it.agent.params("$/cancel_request")) == 3


@pytest.mark.hazard("Q10.2")
async def test_a_listing_starts_no_agent_and_asks_none_that_can_not_list(tmp_path: Path) -> None:
    async with lister(tmp_path, Agent(able={"list": None})) as it:
        await it.keep("ours")
        assert await it.ids() == ["ours"]
        assert it.agent.processes == []
        await it.ready()
        assert await it.ids() == ["ours"]
        assert await it.listing.page({"cursor": "a:1"}) == {"sessions": []}
        assert await it.listing.agent_may_have("a", "/w")
        assert it.agent.params("session/list") == []


async def test_of_several_processes_one_that_is_able_is_asked(tmp_path: Path) -> None:
    async with lister(tmp_path) as it:
        for _ in range(2):
            await it.ready()
        it.agent.processes[0].initialized = {}
        it.agent.rows = [row("a")]
        assert await it.ids() == ["a"]
        assert it.listing.able("sessionCapabilities", "delete") is it.agent.processes[1].link
        assert it.listing.able("sessionCapabilities", "fly") is None


async def test_a_journal_that_can_not_be_read_fails_the_listing_visibly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*args: object, **given: object) -> None:
        raise JournalError("broken")

    async with lister(tmp_path) as it:
        await it.ready()
        for method in ("known_agent_ids", "list"):
            monkeypatch.setattr(Journal, method, broken)
            with pytest.raises(JournalError):
                await it.listing.page({})


# --- what is missing -------------------------------------------------------------------------


def missing(page: Json) -> str:
    """Return what the answer says to be missing of the agent's list; empty if nothing is."""
    return str(page.get("_meta", {}).get("acp_bridge", {}).get("agentList", ""))


@pytest.mark.hazard("P15", "Q10")
async def test_an_agent_that_does_not_answer_in_time_is_said_to_have_been_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    monkeypatch.setattr(waits, "AGENT_PATIENCE", 0.01)
    async with lister(tmp_path) as it:
        await it.ready()
        it.agent.stops_at("session/list")
        assert "in time" in missing(await it.listing.page({}))
        assert "agent.list_incomplete" in caplog.text
        assert len(it.agent.params("session/list")) == 1


@pytest.mark.hazard("P15.5")
async def test_of_a_list_that_is_too_long_the_rest_is_left_out_and_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_listing, "_PAGE_BYTES", 1000)
    async with lister(tmp_path) as it:
        await it.ready()
        it.agent.rows = [row(f"a{n}", title="t" * 300) for n in range(10)]
        page = await it.listing.page({"cwd": "/w"})
        assert [each["sessionId"] for each in page["sessions"]] == ["a0", "a1"]
        assert "8 sessions are left out" in missing(page)
        it.agent.rows = it.agent.rows[:2]
        assert missing(await it.listing.page({"cwd": "/w"})) == ""


@pytest.mark.hazard("P15")
async def test_rows_that_can_not_be_read_are_counted_and_one_that_is_listed_twice_is_one(
    tmp_path: Path,
) -> None:
    async with lister(tmp_path) as it:
        await it.ready()
        it.agent.rows = [row("a"), row("a", title="again"), {"sessionId": True}, None]  # type: ignore[list-item]
        page = await it.listing.page({})
        assert page["sessions"] == [row("a")]
        assert "2 entries of the agent's list can't be read" in missing(page)


@pytest.mark.parametrize("cursor", [5, True, ["1"], "same"])
async def test_a_list_that_goes_on_nowhere_ends_and_that_is_said(
    tmp_path: Path, cursor: object
) -> None:
    async with lister(tmp_path) as it:
        await it.ready()
        it.agent.script["session/list"] = {"sessions": [row("a")], "nextCursor": cursor}
        page = await it.listing.page({"cursor": "a:same"})
        assert page["sessions"] == [row("a")]
        assert "nextCursor" not in page
        assert "how its list goes on" in missing(page)


# --- agents that list one folder at a time ---------------------------------------------------


@pytest.mark.parametrize("without", [{"sessions": []}, RpcError(-32602, "cwd is missing")])
async def test_an_agent_that_lists_with_a_folder_only_is_asked_in_those_that_are_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, without: object
) -> None:
    monkeypatch.chdir(tmp_path)
    async with lister(tmp_path) as it:
        for folder in ("/v", "/w"):
            await it.keep(f"ours in {folder}", cwd=folder)
        await it.keep("another's", cwd="/x", agent="other")
        await it.ready()

        async def by_folder(process: Process, asked: Json) -> Any:
            if "cwd" not in asked:
                return without
            name = asked["cwd"]
            rows = [row(f"agent's ours in {name}", cwd=name), row(f"of {name}", cwd=name)]
            more = {"nextCursor": "2"} if name == "/v" else {}
            return {"sessions": rows, **more}

        it.agent.script["session/list"] = by_folder
        page = await it.listing.page({})
        own = [each["sessionId"] for each in page["sessions"]][2:]
        folders = [str(tmp_path), "/w", "/v"]
        assert own == [f"agent's ours in {tmp_path}", *(f"of {each}" for each in folders)]
        assert [asked.get("cwd") for asked in it.agent.params("session/list")] == [None, *folders]
        assert "one folder at a time" in missing(page)
        assert "of /v the agent has more" in missing(page)
        assert "cwd is missing" not in missing(page)
        assert "nextCursor" not in page
        assert await it.listing.agent_lists("of /v")
        assert not await it.listing.agent_lists("of /x")


@pytest.mark.hazard("K6.5", "Q10")
async def test_an_agent_that_will_not_say_what_it_has_may_have_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waits, "AGENT_PATIENCE", 0.01)
    async with lister(tmp_path) as it:
        it.agent.script["session/list"] = RpcError(-32603, "no")
        assert await it.listing.agent_lists("a")
        it.agent.stops_at("session/list")
        assert await it.listing.agent_lists("a")
        it.agent.script["session/list"] = {"sessions": []}
        assert not await it.listing.agent_lists("a")


@pytest.mark.parametrize("code", [-32601, -32000])
async def test_an_agent_that_would_refuse_each_folder_is_asked_once(
    tmp_path: Path, code: int
) -> None:
    async with lister(tmp_path) as it:
        await it.keep("ours")
        await it.ready()
        it.agent.script["session/list"] = RpcError(code, "not so")
        assert "not so" in missing(await it.listing.page({}))
        assert len(it.agent.params("session/list")) == 1


async def test_an_agent_without_any_session_is_said_nothing_of(tmp_path: Path) -> None:
    async with lister(tmp_path) as it:
        await it.ready()
        assert await it.listing.page({}) == {"sessions": []}


# --- is this session the agent's? ------------------------------------------------------------


async def test_a_session_of_the_agents_is_searched_for_on_all_its_pages(tmp_path: Path) -> None:
    async with lister(tmp_path) as it:

        async def page(process: Process, asked: Json) -> Json:
            at = int(asked.get("cursor", 0))
            return {"sessions": [row(f"a{at}")], "nextCursor": str(at + 1) if at < 4 else None}

        it.agent.script["session/list"] = page
        assert await it.listing.agent_may_have("a4", "/w")  # no process was there: one is started
        assert len(it.agent.processes) == 1
        assert not await it.listing.agent_may_have("a5", "/w")
        assert len(it.agent.processes) == 1


@pytest.mark.hazard("Q10")
async def test_a_search_ends_though_the_agents_pages_do_not(tmp_path: Path) -> None:
    async with lister(tmp_path) as it:

        async def page(process: Process, asked: Json) -> Json:
            return {"sessions": [], "nextCursor": f"{asked.get('cursor')}."}

        it.agent.script["session/list"] = page
        assert not await it.listing.agent_may_have("a", "/w")
        assert len(it.agent.params("session/list")) == 40


@pytest.mark.hazard("R2")
async def test_an_agent_that_can_load_and_not_list_is_asked_for_the_session_itself(
    tmp_path: Path,
) -> None:
    async with lister(tmp_path, Agent(able={"list": None})) as it:
        assert await it.listing.agent_may_have("a", "/w")


@pytest.mark.parametrize("lists_only", ["with a folder", "without"])
async def test_an_agent_that_lists_in_one_way_only_is_asked_in_both(
    tmp_path: Path, lists_only: str
) -> None:
    async with lister(tmp_path) as it:

        async def page(process: Process, asked: Json) -> Any:
            if ("cwd" in asked) != (lists_only == "with a folder"):
                return RpcError(-32602, "not so")
            return {"sessions": [row("a")]}

        it.agent.script["session/list"] = page
        assert await it.listing.agent_may_have("a", "/w")
        assert not await it.listing.agent_may_have("b", "/w")


@pytest.mark.hazard("R16")
async def test_a_session_that_sleeps_is_marked_and_what_only_the_agent_has_is_said_to_be_missing(
    tmp_path: Path,
) -> None:
    async with lister(tmp_path) as it:
        await it.keep("awake")
        await it.keep("asleep")
        it.sleeping.add("asleep")
        page = await it.listing.page({})
        marks = {each["sessionId"]: each.get("_meta") for each in page["sessions"]}
        assert marks == {"awake": None, "asleep": {"acp_bridge": {"asleep": True}}}
        assert page["_meta"]["acp_bridge"]["agentList"] == notices.LIST_ASLEEP


@pytest.mark.hazard("T3")
async def test_a_row_of_ours_has_what_only_the_agent_tells_of_its_session(tmp_path: Path) -> None:
    async with lister(tmp_path) as it:
        await it.keep("one")
        it.agent.rows = [
            row("agent's one", cwd="/v", _meta={"jetbrains": {"air": 1}, "acp_bridge": 1}, new=[2]),
            row("two", _meta={"x": 1}),
        ]
        await it.ready()
        one, two = (await it.listing.page({}))["sessions"]
        assert (one["sessionId"], one["cwd"], one["new"]) == ("one", "/w", [2])
        assert one["_meta"] == {"jetbrains": {"air": 1}}
        assert two == it.agent.rows[1]
