"""`acp-bridge cost`: what the kept sessions have used, by agent, folder, session, day and model."""

import json
from pathlib import Path
from typing import Any

import pytest
from anyio import to_thread

from acp_bridge.core.journal import Journal, SessionJournal
from acp_bridge.core.protocol import BUILTIN_INFO, SESSION_PROMPT
from acp_bridge.terminal.commands.bundle import import_session
from tests.core.session.living import DONE, first, living
from tests.terminal.shared.conftest import Said
from tests.terminal.shared.test_looking_back import SESSION, cells, session_in, turn

CLAUDE = "@agentclientprotocol/claude-agent-acp"
OTHER = "b" * 32


def account(session: SessionJournal, seq: int, agent: str, model: str, *amounts: float) -> None:
    costs = [{"amount": each, "currency": "USD"} for each in amounts]
    at = f"2000-01-{seq:02}"
    session.set_usage(str(seq), {"agent": agent, "model": model, "at": at, "costs": costs})
    session._file.db.execute("DELETE FROM settings WHERE key = ?", (f"turnBegan:{seq}",))


def usage(given: int, got: int) -> dict[str, Any]:
    told = {"inputTokens": given, "outputTokens": got, "totalTokens": given + got}
    return {**DONE, "usage": told}


async def test_a_living_session_keeps_the_costs_that_its_agent_tells(
    tmp_path: Path, said: Said
) -> None:
    agent = first()
    agent.initialized["agentInfo"] = {"name": BUILTIN_INFO, "version": "1"}

    def tells(amount: object) -> None:
        cost = {"amount": amount, "currency": "USD"}
        agent.update(sessionUpdate="usage_update", used=1, size=9, cost=cost)

    async with living(tmp_path / "home", first=agent, cwd=str(tmp_path)) as here:
        opus = {"id": "m", "category": "model", "currentValue": "opus", "options": []}
        for amounts, later in (((0.25, 0.5), 0.75), ((1.0, "odd"), 1.0)):
            request = here.prompt()
            asked = await agent.asked(SESSION_PROMPT)
            for each in amounts:
                tells(each)
            agent.answer(asked, DONE)
            await here.answered(request)
            tells(later)
            agent.update(sessionUpdate="config_option_update", configOptions=[opus])
        assert rows(said, "--by", "session") == [
            {
                "by": "session",
                "name": here.session.id,
                "title": "mend",
                "turns": 2,
                "untold": 0,
                "tokens": {},
                "costs": {"USD": 1.0},
                "uncounted": [],
            }
        ]
        models = {row["name"]: row["costs"] for row in rows(said, "--by", "model")}
        assert models == {"not told": {"USD": 0.75}, "opus": {"USD": 0.25}}
        told = said("show", here.session.id, "--turns", "--json")[1].splitlines()
        assert [json.loads(line)["costs"] for line in told] == [{"USD": 0.75}, {"USD": 0.25}]


async def test_figures_that_no_turn_can_have_are_not_counted_and_hide_no_others(
    tmp_path: Path, said: Said
) -> None:
    agent = first()
    agent.initialized["agentInfo"] = {"name": CLAUDE, "version": "0.101.0"}
    async with living(tmp_path / "home", first=agent, cwd=str(tmp_path)) as here:
        for number in (10**400, 1e300, 1):
            request = here.prompt()
            asked = await agent.asked(SESSION_PROMPT)
            cost = {"amount": number, "currency": "USD"}
            agent.update(sessionUpdate="usage_update", used=number, size=number, cost=cost)
            agent.answer(asked, {**DONE, "usage": {"inputTokens": number, "totalTokens": 1}})
            await here.answered(request)
        (row,) = rows(said)
        assert (row["costs"], row["tokens"]) == ({"USD": 1}, {"inputTokens": 1, "totalTokens": 3})
        assert said("show", here.session.id, "--turns")[0] == 0


async def test_the_tokens_that_gemini_tells_in_meta_are_those_of_the_turn(
    tmp_path: Path, said: Said
) -> None:
    agent = first()
    agent.initialized["agentInfo"] = {"name": "gemini-cli", "version": "0.61.0"}
    async with living(tmp_path / "home", first=agent, cwd=str(tmp_path)) as here:
        for given, got in ((20, 5), (7, 0)):
            counted = {"input_tokens": given, "output_tokens": got}
            quota = {
                "token_count": counted,
                "model_usage": [{"model": "m", "token_count": counted}],
            }
            request = here.prompt()
            answer = {**DONE, "_meta": {"quota": quota}}
            agent.answer(await agent.asked(SESSION_PROMPT), answer)
            assert await here.answered(request) == answer
        (row,) = rows(said)
        assert (row["tokens"], row["untold"], row["uncounted"]) == (
            {"inputTokens": 27, "outputTokens": 5},
            0,
            [],
        )


async def test_what_a_turn_cost_whose_agent_died_or_was_stopped_is_kept(
    tmp_path: Path, said: Said
) -> None:
    about = {"name": CLAUDE, "version": "0.101.0"}
    agent = first()
    agent.initialized["agentInfo"] = about
    cost = {"amount": 0.5, "currency": "USD"}
    async with living(tmp_path / "home", first=agent, cwd=str(tmp_path)) as here:
        request = here.prompt()
        await agent.asked(SESSION_PROMPT)
        agent.update(sessionUpdate="usage_update", used=1, size=9, cost=cost)
        agent.dies()
        await here.answered(request)
        request = here.prompt()
        other = await here.agent(2)
        asked = await other.asked(SESSION_PROMPT)
        other.initialized["agentInfo"] = about
        other.update(sessionUpdate="usage_update", used=1, size=9, cost={**cost, "amount": 0.25})
        here.session.audience.cancel(here.client.client)
        other.answer(asked, {**usage(10, 5), "stopReason": "cancelled"})
        assert (await here.answered(request))["stopReason"] == "cancelled"
        (found,) = rows(said)
    assert found["costs"] == {"USD": 0.75}
    assert found["tokens"] == {"inputTokens": 10, "outputTokens": 5, "totalTokens": 15}


def rows(said: Said, *options: str) -> list[dict[str, Any]]:
    code, out, err = said("cost", "--json", *options)
    assert (code, err) == (0, "")
    return [json.loads(line) for line in out.splitlines()]


async def test_sums_are_by_agent_folder_session_day_or_model(
    said: Said, journal: Journal, tmp_path: Path
) -> None:
    assert said("cost") == (0, "No turns.\n", "")
    session = await session_in(journal, tmp_path)
    for seq, model, amount in ((1, "opus", 0.5), (2, "opus", 0.75), (3, "haiku", 1.0)):
        assert turn(session, ends=usage(10, 2)) == seq
        account(session, seq, CLAUDE, model, amount)
    other = await journal.create(OTHER, cwd="/elsewhere", agent="who-knows")
    await journal.touch(OTHER, title="x")
    turn(other, ends=usage(100, 1))
    assert cells(said("cost")[1]) == [
        "codex-acp 3 30 6 36 1.0000 USD",
        "who-knows 1",
        "all 4 30 6 36 1.0000 USD",
        "",
        "an unknown agent: its tokens are not summed: it is not known if they are of a turn or"
        " totals.",
    ]
    costs = {way: {row["name"]: row["costs"] for row in rows(said, "--by", way)} for way in WAYS}
    assert costs["folder"] == {str(tmp_path): {"USD": 1.0}, "/elsewhere": {}}
    assert costs["session"] == {SESSION: {"USD": 1.0}, OTHER: {}}
    assert costs["model"] == {"opus": {"USD": 0.75}, "haiku": {"USD": 0.25}, "not told": {}}
    days = list(costs["day"].values())
    assert days[:3] == [{"USD": 0.5}, {"USD": 0.25}, {"USD": 0.25}]


async def test_sessions_are_named_by_short_ids_and_titles_the_dearest_first(
    said: Said, journal: Journal, tmp_path: Path
) -> None:
    amounts = {"a1" * 16: 0.5, "b" * 32: 2.0, "c" * 32: None, "a1" * 15 + "ff": 1.0}
    for session_id, amount in amounts.items():
        session = await journal.create(session_id, cwd=str(tmp_path), agent="claude")
        await journal.touch(session_id, title=f"Title of {amount}")
        turn(session, ends=usage(10, 2))
        if amount is not None:
            account(session, 1, CLAUDE, "opus", amount)
    head, *_ = said("cost", "--by", "session")[1].splitlines()
    assert head.split() == ["SESSION", "TURNS", "INPUT", "OUTPUT", "TOKENS", "COST", "TITLE"]
    assert cells(said("cost", "--by", "session")[1])[:4] == [
        "bbbbbbbb 1 10 2 12 2.0000 USD Title of 2.0",
        f"{'a1' * 15}f 1 10 2 12 1.0000 USD Title of 1.0",
        f"{'a1' * 15}a 1 10 2 12 0.5000 USD Title of 0.5",
        "cccccccc 1 Title of None",
    ]
    assert [row["name"] for row in rows(said, "--by", "session")] == [
        "b" * 32,
        "a1" * 15 + "ff",
        "a1" * 16,
        "c" * 32,
    ]
    assert {row["title"] for row in rows(said, "--by", "session")} == {
        f"Title of {amount}" for amount in amounts.values()
    }
    assert "title" not in rows(said)[0]


WAYS = ("agent", "folder", "session", "day", "model")


async def test_only_turns_since_a_time_are_counted_and_a_total_from_before_is_known(
    said: Said, journal: Journal, tmp_path: Path
) -> None:
    session = await session_in(journal, tmp_path)
    for seq, amount in ((1, 0.5), (2, 0.75)):
        turn(session)
        account(session, seq, BUILTIN_INFO, "m", amount)
    turn(session)
    session.set_usage("3", {"agent": BUILTIN_INFO, "at": "9999", "costs": []})
    session.set_usage("2", {"agent": BUILTIN_INFO, "at": "9998", "costs": [COST]})
    (found,) = rows(said, "--since", "4w")
    assert (found["turns"], found["costs"]) == (2, {"USD": 0.25})
    code, _, err = said("cost", "--since", "soon")
    assert (code, err.splitlines()[0]) == (
        2,
        "acp-bridge cost: --since: a time such as 12h, 7d or 4w",
    )


COST = {"amount": 0.75, "currency": "USD"}


async def test_a_session_that_can_not_be_read_is_named(
    said: Said, journal: Journal, tmp_path: Path
) -> None:
    session = await session_in(journal, tmp_path)
    turn(session)
    await journal.close()
    journal.path(SESSION).unlink()
    told = said("cost")[1]
    assert f"Session {SESSION[:8]} can't be read, and is not counted." in told
    assert "0.0" not in told


async def test_an_imported_session_keeps_what_its_turns_took_and_new_ones_alone_count(
    said: Said, journal: Journal, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    session = await session_in(journal, tmp_path / "project")
    told = {"agent": CLAUDE, "model": "opus", "at": "2000-01-01"}
    for seq, amount in ((1, 0.25), (2, 0.75)):
        turn(session, ends=usage(10, 5))
        session.set_usage(str(seq), {**told, "costs": [{"amount": amount, "currency": "USD"}]})
    session.set_usage("0.0a1b2c3d", {**told, "costs": []})
    before = said("show", "abcd", "--turns")[1]
    assert said("export", "abcd", str(tmp_path / "file")) == (0, "", "")
    home = str(tmp_path / "elsewhere")
    await to_thread.run_sync(import_session, ["--home", home, str(tmp_path / "file")])
    (moved,) = capsys.readouterr().out.split()
    assert said("show", moved, "--turns", "--home", home)[1] == before
    said_of_it = "2 turns of imported sessions ran elsewhere, and count there."
    assert said("cost", "--home", home)[1] == f"No turns.\n{said_of_it}\n"
    other = Journal(Path(home))
    later = await other.open(moved)
    turn(later, ends=usage(20, 10))
    account(later, 3, CLAUDE, "opus", 1.0)
    await other.close()
    (found,) = rows(said, "--home", home)
    assert (found["turns"], found["costs"], found["tokens"]["totalTokens"]) == (
        1,
        {"USD": 0.25},
        30,
    )
