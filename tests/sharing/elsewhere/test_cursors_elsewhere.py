"""Cursors where there is more than one bridge, agent's subagents, or a journal that is behind."""

from pathlib import Path

import pytest

from tests.core.bridge.resuming import cursor_in, flat, loaded, recorded, updates
from tests.core.bridge.test_cursors import playing, said
from tests.core.bridge.test_subagents import at_work
from tests.core.sessions.agent import Json, until
from tests.core.sessions.bench import Served
from tests.core.sessions.world import SETUP
from tests.features.steering.test_words_that_join import running, words
from tests.sharing.elsewhere.test_passages import home as home
from tests.sharing.elsewhere.test_passages import listening

CURSORS: Json = {"_meta": {"acp_bridge": {"cursors": True}}}


def after(session_id: str, cursor: object) -> Json:
    return {**SETUP, "sessionId": session_id, "_meta": {"acp_bridge": {"after": cursor}}}


# --- through another bridge ------------------------------------------------------------------


@pytest.mark.hazard("N5", "V8.1")
async def test_a_client_comes_back_at_its_cursor_through_another_bridge(home: Path) -> None:
    async with listening(home) as (holder, _, _), listening(home) as (other, _, _):
        session_id = await holder.new()
        await holder.editor.result(holder.editor.prompt(session_id, "before"))
        client = await other.joined(cursors=True)
        await client.ask("session/load", {**SETUP, "sessionId": session_id})
        cursor = cursor_in(updates(client)[0])
        back = await other.joined(cursors=True)
        answer = await back.ask("session/resume", after(session_id, cursor))
        assert said(back) == ["echo before"]
        assert cursor_in(answer) == cursor_in(list(filter(recorded, updates(client)))[-1])
        asked = back.send("session/resume", after(session_id, "x" * 32))
        await back.refusal(asked)
        assert back.answers(asked)[0]["error"]["data"]["reason"] == "cursor"


@pytest.mark.hazard("N5", "V8")
async def test_a_bridge_that_knows_no_cursors_is_asked_for_none(home: Path) -> None:
    async with listening(home) as (holder, _, _), listening(home) as (other, _, _):
        session_id = await holder.new()
        await holder.editor.result(holder.editor.prompt(session_id, "before"))
        client = await other.joined(cursors=True)
        await client.ask("session/load", {**SETUP, "sessionId": session_id})
        cursor = cursor_in(updates(client)[0])
        await until(lambda: other.passages.held)
        (passage,) = other.passages.held.values()
        del passage._holder["cursors"]
        error = await client.refused("session/resume", after(session_id, cursor))
        assert error.code == -32602
        assert "knows no cursors" in error.message
        await client.ask("session/load", {**SETUP, "sessionId": session_id})
        assert said(client) == ["before", "echo before"] * 2


@pytest.mark.hazard("N5", "V8")
async def test_who_had_the_session_from_a_bridge_that_ended_is_shown_what_it_missed_and_no_more(
    home: Path,
) -> None:
    async with listening(home) as (other, _, _):
        client = await other.joined(cursors=True)
        async with listening(home) as (holder, _, _):
            session_id = await holder.new()
            first = holder.editor.prompt(session_id, "before")
            await holder.editor.result(first)
            cursor = cursor_in(await client.ask("session/load", {**SETUP, "sessionId": session_id}))
            await client.ask("session/resume", after(session_id, cursor))
            await holder.editor.result(holder.editor.prompt(session_id, "more"))
            await until(lambda: said(client)[-1:] == ["echo more"])
            holder.editor.leaves()
            await holder.ended.wait()
        await client.result(client.prompt(session_id, "behind"))
        assert said(client) == ["before", "echo before", "more", "echo more", "echo behind"]
        assert all(map(cursor_in, filter(recorded, updates(client))))


@pytest.mark.hazard("N5", "V8")
@pytest.mark.parametrize("refused", [False, True])
async def test_what_a_bridge_has_recorded_and_not_passed_on_any_more_is_shown_after_its_end(
    home: Path, refused: bool
) -> None:
    async with listening(home) as (other, _, _):
        client = await other.joined(cursors=True)
        async with listening(home) as (holder, _, _):
            session_id = await holder.new()
            await holder.editor.result(holder.editor.prompt(session_id, "before"))
            await client.ask("session/load", {**SETUP, "sessionId": session_id})
            await until(lambda: other.passages.held)
            (passage,) = other.passages.held.values()
            passage.cursor = "x" * 32 if refused else cursor_in(updates(client)[0])
            holder.editor.leaves()
            await holder.ended.wait()
        await client.result(client.prompt(session_id, "behind"))
        missed = [] if refused else ["echo before"]
        assert said(client) == ["before", "echo before", *missed, "echo behind"]


# --- subagents -------------------------------------------------------------------------------


async def follows(here: object, **can: object) -> Served:
    """Return a client with cursors that has the session of a turn."""
    client: Served = await here.it.joined_with({**CURSORS, **can})  # type: ignore[attr-defined]
    await client.ask("session/load", {**SETUP, "sessionId": here.id})  # type: ignore[attr-defined]
    return client


@pytest.mark.hazard("N5.2")
@pytest.mark.parametrize("can", [{}, {"subagents": {}}])
async def test_a_cursor_counts_what_subagents_do_for_every_client_whatever_it_is_shown(
    tmp_path: Path, can: Json
) -> None:
    async with at_work(tmp_path) as here:
        client = await follows(here, **can)
        here.begins()
        for text in ("one\n", "two\n"):
            here.says(text)
        seen = updates(client)
        here.says("three\n")
        here.process.update("agent-1", "the session's own")
        missed = updates(client)[len(seen) :]
        abilities: tuple[Json, ...] = ({}, {"subagents": {}})
        for other in abilities:
            back = await here.it.joined_with({**CURSORS, **other})
            await back.ask("session/resume", after(here.id, cursor_in(seen[-1])))
            shown = [each for each in updates(back) if cursor_in(each)]
            assert cursor_in(shown[-1]) == cursor_in(missed[-1])
            assert "one" not in str(shown) or not other
            if other == can:
                assert [each["update"] for each in shown] == [each["update"] for each in missed]
        announced = [
            each for each in updates(back) if each["update"]["sessionUpdate"] == "subagent_update"
        ]
        assert [each["update"]["title"] for each in announced] == ["Look around"]


# --- a journal that is behind ----------------------------------------------------------------


@pytest.mark.hazard("N5", "Q13")
async def test_what_is_shown_while_the_journal_is_behind_has_no_cursor_and_later_it_goes_on(
    tmp_path: Path,
) -> None:
    async with playing(tmp_path) as here:
        client = await here.it.attached(here.id, cursors=True)
        await here.prompt()
        here.says("a")
        (file,) = (tmp_path / "sessions").glob("*.db")
        file.rename(file.with_suffix(".away"))
        here.says("b")
        assert [bool(cursor_in(each)) for each in updates(client)[-3:]] == [True, False, False]
        file.with_suffix(".away").rename(file)
        here.says("c")
        await client.handled()
        while not cursor_in(updates(client)[-1]):
            here.says("d")
            await client.handled()
        last = cursor_in(updates(client)[-1])
        here.says("e")
        back = await here.back(last)
        assert said(back) == ["e"]
        assert "".join(said(back)) == flat(await loaded(here.it, here.id))[-1][-1]


# --- a transcript that changes ---------------------------------------------------------------


@pytest.mark.hazard("N5.5")
async def test_after_an_edit_of_words_in_the_transcript_cursors_of_before_are_refused(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as here:
        client = await here.it.attached(here.id, cursors=True)
        here.outcomes = [{"outcome": "promptRequired"}]
        here.steers("first words")
        await until(lambda: "first words" in said(client))
        old = cursor_in(updates(client)[-1])
        (row,) = (await client.ask("_acp_bridge/queue/list", {"sessionId": here.id}))["prompts"]
        edit = {"sessionId": here.id, "promptId": row["promptId"], "prompt": words("others")}
        await here.it.editor.ask("_acp_bridge/queue/edit", edit)
        while not cursor_in(updates(client)[-1]) or cursor_in(updates(client)[-1]) == old:
            here.says("a")
            await client.handled()
        new = cursor_in(updates(client)[-1])
        here.says("c")
        back = await here.it.joined(cursors=True)
        assert (await back.refused("session/resume", after(here.id, old))).code == -32602
        await back.ask("session/resume", after(here.id, new))
        assert said(back) == ["c"]
        await here.ends()
