"""The title under which a session is listed."""

import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.abc import TaskGroup

from acp_bridge.journal import Journal, SessionJournal
from acp_bridge.session.transcript.title import Title
from acp_bridge.session.transcript.transcript_out import TranscriptOut
from acp_bridge.updates.updates import Updates
from acp_bridge.wire.jsonrpc import RpcError
from tests.session.journals import failing
from tests.session.memory import ClientEnd, Json
from tests.session.played_core import PlayedCore


@pytest.fixture
async def listing(tmp_path: Path) -> AsyncIterator[Journal]:
    journal = Journal(tmp_path)
    yield journal
    await journal.close()


@pytest.fixture
async def journal(listing: Journal) -> SessionJournal:
    return await listing.create("s", cwd="/w", agent="a")


def prompt(*texts: str) -> Json:
    return {"prompt": [{"type": "text", "text": text} for text in texts]}


def info(**said: Any) -> Json:
    return {"sessionUpdate": "session_info_update", **said}


async def titled(listing: Journal, journal: SessionJournal, *said: Json) -> str | None:
    """Tell a title of prompts and updates, in order; return what is listed in the end."""
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            title = Title(
                PlayedCore(tasks), listing, journal, TranscriptOut("s", journal, Updates(set()))
            )
            for each in said:
                if "prompt" in each:
                    title.note_prompt(each)
                else:
                    title.note_update(each)
        (row,), _ = await listing.list()
    assert row.title == journal.info.title
    return row.title


async def test_the_first_prompt_with_words_titles_the_session(
    listing: Journal, journal: SessionJournal
) -> None:
    image: Json = {"prompt": [{"type": "image", "data": "x"}]}
    said = (image, prompt(""), prompt("mend\n the", "  bug"), prompt("and another"))
    assert await titled(listing, journal, *said) == "mend the bug"


async def test_a_title_that_is_made_of_a_prompt_is_short(
    listing: Journal, journal: SessionJournal
) -> None:
    assert await titled(listing, journal, prompt("x" * 81)) == "x" * 79 + "…"


async def test_a_session_that_has_a_title_keeps_it(
    listing: Journal, journal: SessionJournal
) -> None:
    assert await titled(listing, journal, prompt("first")) == "first"
    again = await listing.open("s")  # as the next bridge does
    assert await titled(listing, again, prompt("second")) == "first"


@pytest.mark.parametrize("before", [True, False])
async def test_a_title_of_the_agent_wins_over_a_prompt_whichever_comes_first(
    listing: Journal, journal: SessionJournal, before: bool
) -> None:
    said = (info(title="Bug hunt"), prompt("mend it"))
    assert await titled(listing, journal, *said[:: 1 if before else -1]) == "Bug hunt"


@pytest.mark.parametrize("title", [None, 5, ["odd"]])
async def test_an_agent_takes_a_title_away_and_no_later_prompt_makes_one(
    listing: Journal, journal: SessionJournal, title: object
) -> None:
    said = (prompt("mend it"), info(title=title), prompt("again"))
    assert await titled(listing, journal, *said) is None


async def test_an_update_that_gives_no_title_changes_none(
    listing: Journal, journal: SessionJournal
) -> None:
    assert await titled(listing, journal, info(updatedAt="x"), prompt("mend it")) == "mend it"


@pytest.mark.hazard("P6")
async def test_a_title_that_can_not_be_written_is_logged_and_hurts_nobody(
    listing: Journal, journal: SessionJournal, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "acp_bridge")
    with failing(journal, "UPDATE ON session"):
        assert await titled(listing, journal, prompt("mend it")) == "mend it"  # it is kept
        assert journal.behind
    await journal.close()
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            Title(
                PlayedCore(tasks), listing, journal, TranscriptOut("s", journal, Updates(set()))
            ).note_update(info(title="too late"))
    failed = [record.getMessage().split()[0] for record in caplog.records]
    assert failed == ["journal.failed", "journal.caught_up", "journal.failed"]


@pytest.mark.hazard("K2", "Q13")
async def test_after_a_prompt_that_was_refused_the_first_one_that_is_taken_lists_the_session(
    listing: Journal,
) -> None:
    journal = await listing.create("new", cwd="/w", agent="a", prompted=False)
    await listing.list()  # the first one also looks into the files
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            title = Title(
                PlayedCore(tasks), listing, journal, TranscriptOut("new", journal, Updates(set()))
            )
            title.note_prompt(prompt("refused"))
        async with anyio.create_task_group() as tasks:
            title._core = PlayedCore(tasks)
            journal.accept("taken", prompt("taken"))
            title.note_prompt(prompt("taken"))
        rows, _ = await listing.list()
    assert [row.session_id for row in rows] == ["new"]


# --- the user's own -----------------------------------------------------------------------------


class Owner:
    """A session with a client, of which the user gives the title."""

    def __init__(self, tasks: TaskGroup, listing: Journal, journal: SessionJournal) -> None:
        self.client = ClientEnd()
        transcript = TranscriptOut("s", journal, Updates(set()))
        transcript.attach(self.client.client)
        self.title = Title(PlayedCore(tasks), listing, journal, transcript)

    def says(self, title: object) -> Json:
        request = self.client.asks("_acp_bridge/title", {"sessionId": "s", "title": title}, 1)
        self.title.take(request)
        *shown, answer = self.client.sent.take()
        assert [m["params"]["update"] for m in shown] == [info(title=answer["result"]["title"])]
        return dict(answer["result"])


async def test_a_title_of_the_users_is_shown_kept_and_stays_whatever_the_agent_says(
    listing: Journal, journal: SessionJournal
) -> None:
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            owner = Owner(tasks, listing, journal)
            owner.title.note_update(info(title="The agent's"))
            assert owner.says(" The\n roof ") == {"title": "The roof"}
            owner.title.note_prompt(prompt("mend it"))
            said = owner.title.note_update(info(title="Another", updatedAt="x"))
            assert said == info(title="The roof", updatedAt="x")
            assert owner.title.note_update(info(title=None)) == info(title="The roof")
            assert owner.title.note_update(info(updatedAt="y")) == info(updatedAt="y")
        assert journal.get("state:session_info_update") == {"update": info(title="The roof")}
        again = await listing.open("s")  # as the next bridge does
        async with anyio.create_task_group() as tasks:
            owner = Owner(tasks, listing, again)
            assert owner.title.note_update(info(title="Again")) == info(title="The roof")
            assert owner.says("The wall") == {"title": "The wall"}
        (row,), _ = await listing.list()
        assert row.title == "The wall"


@pytest.mark.parametrize("odd", [None, "", " \n", 5, ["a"]])
async def test_what_is_no_title_is_refused_and_changes_nothing(
    listing: Journal, journal: SessionJournal, odd: object
) -> None:
    async with anyio.create_task_group() as tasks:
        owner = Owner(tasks, listing, journal)
        with pytest.raises(RpcError) as caught:
            owner.says(odd)
        assert caught.value.code == -32602
        assert owner.title.note_update(info(title="The agent's")) == info(title="The agent's")
    assert journal.info.title == "The agent's"


async def test_a_long_title_is_cut(listing: Journal, journal: SessionJournal) -> None:
    async with anyio.create_task_group() as tasks:
        owner = Owner(tasks, listing, journal)
        assert len(owner.says("x" * 500)["title"]) == 200
