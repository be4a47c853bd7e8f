"""The page's list of sessions: all of them, in order, searched, and opened by their links."""

import re
from dataclasses import astuple
from pathlib import Path

import anyio
import pytest

from acp_bridge.core.journal.index import COLUMNS
from acp_bridge.core.records import replace
from acp_bridge.remote.page import listing
from acp_bridge.remote.page.list_rows import Change, Wish, change, chosen
from tests.core.bridge.remote import RemoteBench, remote_bench
from tests.core.sessions.agent import Agent, until
from tests.core.sessions.world import BOUND
from tests.remote.serve.page_bench import KnownLogins, Page, page

UNKNOWN = "there is no such session"


async def aged(it: RemoteBench, days: int, title: str | None = None, folder: str = "") -> str:
    """A stored session with a prompt that is so many days old."""
    owner = await it.remote()
    answer = await owner.ask("session/new", it.setup(folder))
    session_id = str(answer["sessionId"])
    assert await owner.stop_reason(owner.prompt(session_id, title or "hello")) == "end_turn"
    await owner.ask("session/close", {"sessionId": session_id})
    owner.leaves()
    await owner.parted.wait()
    await dated(it, session_id, days)
    return session_id


async def dated(it: RemoteBench, session_id: str, days: int) -> None:
    info, _ = await it.context.journal.known(session_id)
    assert info
    await it.context.journal.index.put(replace(info, updated_at=day(days)))


def day(days: int) -> str:
    return f"20{26 - days // 360:02d}-{12 - days % 360 // 30:02d}-{30 - days % 30:02d}T00:00:00Z"


async def filled(it: RemoteBench, model: str, count: int) -> None:
    """Add rows of so many sessions to the index, each a day older than the one before."""
    info, _ = await it.context.journal.known(model)
    assert info
    marks = ", ".join("?" * len(astuple(info)))
    rows = [
        astuple(
            replace(info, session_id=f"old-{each}", title=f"Älter {each}", updated_at=day(each + 1))
        )
        for each in range(count)
    ]
    sql = f"INSERT INTO sessions({COLUMNS}) VALUES ({marks})"
    await it.context.journal.index._run(lambda db: db.executemany(sql, rows).close())


def shown(phone: Page) -> list[str]:
    return re.findall(r'href="#s=([^"]*)"', phone.places.get("sessions", ""))


async def test_all_sessions_are_listed_as_the_page_asks_for_more(tmp_path: Path) -> None:
    async with remote_bench(tmp_path) as it:
        await filled(it, await aged(it, 0), 120)
        async with page(it, KnownLogins(it)) as phone:
            await phone.has("Show more", "more")
            assert len(shown(phone)) == 50
            phone.sends(do="more", find="", rows=100)
            await until(lambda: len(set(shown(phone))) == 100)
            phone.sends(do="more", find="", rows=150)
            await until(lambda: len(set(shown(phone))) == 121)
            assert shown(phone)[1:] == [f"old-{number}" for number in range(120)]
            await until(lambda: phone.places["more"] == "")


@pytest.mark.parametrize(
    ("find", "found"),
    [
        *(("ALTER 119", "old-119"), ("  älter   119 ", "old-119"), ("parser", "parser")),
        *(("deep", "deep"), ("parser deep", None), ("<script>", None)),
    ],
)
async def test_a_search_finds_titles_and_folders_beyond_the_first_page(
    tmp_path: Path, find: str, found: str | None
) -> None:
    async with remote_bench(tmp_path) as it:
        (it.root / "deep").mkdir()
        ids = {
            "parser": await aged(it, 700, "mend the parser"),
            "deep": await aged(it, 800, "hello", "deep"),
        }
        await filled(it, ids["parser"], 120)
        async with page(it, KnownLogins(it)) as phone:
            await phone.has("Show more", "more")
            phone.sends(do="find", find=find, rows=50)
            if found:
                await until(lambda: shown(phone) == [ids.get(found, found)])
            else:
                await phone.has("No name, folder or agent has", "sessions")
                assert "<script" not in phone.places["sessions"]
            phone.sends(do="find", find="", rows=50)
            await until(lambda: len(shown(phone)) == 50)


async def test_the_agent_s_name_finds_its_sessions(tmp_path: Path) -> None:
    async with remote_bench(tmp_path) as it:
        session_id = await aged(it, 3)
        info, _ = await it.context.journal.known(session_id)
        assert info
        assert info.agent
        async with page(it, KnownLogins(it), find=info.agent.upper()) as phone:
            await until(lambda: shown(phone) == [session_id])


async def test_a_page_that_comes_with_a_search_and_a_count_is_shown_that(tmp_path: Path) -> None:
    async with remote_bench(tmp_path) as it:
        await filled(it, await aged(it, 0), 120)
        async with page(it, KnownLogins(it), find="älter", rows=100) as phone:
            await until(lambda: len(shown(phone)) == 100)
            phone.sends(do="visible", visible=False)
            phone.told.clear()
            phone.sends(do="visible", visible=True, find="älter 119", rows=50)
            await until(lambda: shown(phone) == ["old-119"])


async def test_live_sessions_come_first_and_the_newest_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "_LOOKS", 0)
    async with remote_bench(tmp_path) as it:
        owner = await it.remote()
        live = [await it.new(owner) for _ in range(4)]

        async def uses(session_id: str) -> None:
            """Prompt, and wait until the session is the newest, and has its title: that is noted in
            a task of its own, and makes a session the newest, too."""
            assert await owner.stop_reason(owner.prompt(session_id, "hello")) == "end_turn"
            with anyio.fail_after(BOUND):
                while True:
                    newest = (await owner.ask("session/list", {}))["sessions"][0]
                    if newest["sessionId"] == session_id and newest.get("title"):
                        return

        for session_id in (live[2], live[0], live[3], live[1]):
            await uses(session_id)
        order = [live[1], live[3], live[0], live[2]]
        async with page(it, KnownLogins(it)) as phone:
            await until(lambda: shown(phone) == order)
            await uses(live[2])
            await until(lambda: phone.order[:2] == [f"l-{live[2]}", f"l-{live[1]}"])


@pytest.mark.hazard("N6")
@pytest.mark.parametrize("may", ["look", "approve", "all"])
async def test_every_login_searches_scrolls_and_opens_what_is_beyond_the_first_page(
    tmp_path: Path, may: str
) -> None:
    async with remote_bench(tmp_path) as it:
        session_id = await aged(it, 800, "the oldest")
        await filled(it, session_id, 120)
        await it.new()
        if may != "all":  # a load by such a login starts no agent
            keeper = await it.remote()
            await keeper.ask("session/load", {**it.setup(), "sessionId": session_id})
        async with page(it, KnownLogins(it, may)) as phone:
            await phone.has("Show more", "more")
            phone.sends(do="more", find="", rows=100)
            await until(lambda: len(set(shown(phone))) == 100)
            phone.sends(do="find", find="oldest", rows=50)
            await until(lambda: shown(phone) == [session_id])
        async with page(it, KnownLogins(it, may), session=session_id) as phone:
            assert await phone.told_of("opened") == session_id
            await phone.has("echo the oldest")


@pytest.mark.hazard("N6")
@pytest.mark.parametrize("may", ["look", "approve", "all"])
async def test_an_unknown_session_and_one_out_of_bounds_are_told_the_same(
    tmp_path: Path, may: str
) -> None:
    async with remote_bench(tmp_path) as it:
        (tmp_path / "secret").mkdir()
        owner = await it.remote(roots=(str(tmp_path),))
        answer = await owner.ask("session/new", {"cwd": str(tmp_path / "secret"), "mcpServers": []})
        outside = answer["sessionId"]
        assert await owner.stop_reason(owner.prompt(outside, "hello")) == "end_turn"
        told = []
        for session_id in (outside, "nobody-s"):
            async with page(it, KnownLogins(it, may), session=session_id) as phone:
                await phone.has("be opened: ", "state")
                phone.sends(do="prompt", session=session_id, text="x", key="k")
                assert await phone.told_of("refused") == "k"
                told.append([each for each in phone.told if not {"name", "view"} & {*each}])
        assert told[0] == told[1]
        assert UNKNOWN in str(told[0])
        assert "folder" not in str(told)


async def test_a_list_that_cannot_be_had_says_why_and_not_that_a_session_is_unknown(
    tmp_path: Path,
) -> None:
    async with remote_bench(tmp_path) as it:
        session_id = await aged(it, 1)
        await it.context.journal.index.close()
        for each in (tmp_path / "home").glob("index.db*"):
            each.unlink()
        (tmp_path / "home" / "index.db").mkdir()
        async with page(it, KnownLogins(it), session=session_id) as phone:
            await phone.has("be opened: ", "state")
            assert UNKNOWN not in phone.places["state"]


async def test_a_refresh_sends_only_what_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "_LOOKS", 0)
    agent = Agent()
    async with remote_bench(tmp_path, agent) as it:
        owner = await it.remote()
        live = await it.new(owner)
        assert await owner.stop_reason(owner.prompt(live, "hello")) == "end_turn"
        await filled(it, live, 60)
        async with page(it, KnownLogins(it)) as phone:
            await phone.has("Show more", "more")
            phone.told.clear()
            gate = agent.stops_at("session/prompt")
            owner.prompt(live, "again")
            await until(lambda: phone.told)
            assert {each.get("id") for each in phone.told} == {f"l-{live}"}
            await it.context.journal.index.remove("old-3", known=False)
            await until(lambda: {"gone": "l-old-3"} in phone.told)
            assert len(str(phone.told)) < 4_000
            gate.open()
            await anyio.lowlevel.checkpoint()


# -- which rows, in which order, and what is sent ------------------------------------------------


def test_a_live_session_that_asks_comes_before_all() -> None:
    live = {
        "a": {"sessionId": "a", "updatedAt": "2026-03"},
        "b": {"sessionId": "b", "updatedAt": "2026-01", "asks": "Edit"},
        "c": {"sessionId": "c"},
        "d": {"sessionId": "d", "updatedAt": "2026-02", "asks": "Run"},
    }
    kept = {each: {"sessionId": each, "updatedAt": "2026-04"} for each in ("e", "c")}
    assert [row["sessionId"] for row in chosen(kept, live, (), "")] == ["d", "b", "c", "a", "e"]


@pytest.mark.parametrize("odd", [None, 5, ["x"], {}, True])
def test_an_odd_search_is_none(odd: object) -> None:
    assert Wish.read({"find": odd, "rows": odd if odd != 5 else "5"}) == Wish()


def test_rows_are_added_removed_changed_and_put_in_order_one_by_one() -> None:
    before = Change((), {"a": "A", "b": "B", "c": "C"}, "")
    now = Change((), {"d": "D", "c": "C", "a": "A2"}, "more")
    assert change(before, now) == [
        {"gone": "b"},
        {"add": "sessions", "id": "d", "html": "D"},
        {"add": "sessions", "id": "a", "html": "A2"},
        {"order": "sessions", "ids": ["d", "c", "a"]},
        {"put": "more", "html": "more"},
    ]
    assert change(now, now) == []
    assert change(now, Change(("x",), {"d": "D"}, "more")) == [{"put": "sessions", "html": "D"}]
