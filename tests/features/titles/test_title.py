"""The title under which a session is listed."""

import logging
import os
from pathlib import Path
from typing import Any

import pytest

from acp_bridge.core.journal import Journal
from acp_bridge.core.protocol import SESSION_PROMPT
from acp_bridge.core.wire.jsonrpc import RpcError
from acp_bridge.features.titles.title import Title
from tests.core.session.journals import failing
from tests.core.session.living import Living, first, living
from tests.core.session.memory import Json
from tests.core.session.played_agent import PlayedAgent
from tests.core.session.waiting import until

pytestmark = pytest.mark.usefixtures("no_errors")


def prompt(*texts: str) -> Json:
    return {"prompt": [{"type": "text", "text": text} for text in texts]}


def info(**said: Any) -> Json:
    return {"sessionUpdate": "session_info_update", **said}


async def happen(here: Living, *said: Json) -> None:
    """Let these prompts be sent and these updates be said, in order."""
    for each in said:
        if "prompt" in each:
            request = here.request(SESSION_PROMPT, **each)
            here.session.on_prompt(request, request.params)
        else:
            (await here.agent()).update(**each)


async def next_bridge(here: Living, folder: Path) -> tuple[Living, PlayedAgent]:
    """Close the session and open it again, as another bridge does; returns its process, too."""
    here.session.close()
    await here.session.closed.wait()
    journal = await here.context.journal.open("s")
    lease = os.open(folder / "next", os.O_CREAT | os.O_RDWR)
    again = Living(here.context, journal, lease, None, [])
    again.session.wake()
    agent = await again.agent(2)
    await until(lambda: again.session.link is agent)
    return again, agent


async def titled(folder: Path, *said: Json) -> str | None:
    """Let these happen in a session; returns what is listed in the end."""
    async with living(folder, first=first()) as here:
        await happen(here, *said)
        here.session.close()
        await here.session.closed.wait()
        (row,), _ = await here.context.journal.list()
        return row.title


async def test_the_first_prompt_with_words_titles_the_session(tmp_path: Path) -> None:
    image: Json = {"prompt": [{"type": "image", "data": "x"}]}
    said = (image, prompt(""), prompt("mend\n the", "  bug"), prompt("and another"))
    assert await titled(tmp_path, *said) == "mend the bug"


async def test_of_titles_that_come_faster_than_they_are_kept_the_newest_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, touch = list[object](), Journal.touch

    async def noting(journal: Journal, session_id: str, **changes: Any) -> None:
        kept.append(changes["title"])
        await touch(journal, session_id, **changes)

    monkeypatch.setattr(Journal, "touch", noting)
    said = [info(title=f"title {number}") for number in range(100)]
    assert await titled(tmp_path, *said) == "title 99"
    assert kept[-1] == "title 99"
    assert len(kept) < 20


async def test_a_title_that_is_made_of_a_prompt_is_short(tmp_path: Path) -> None:
    assert await titled(tmp_path, prompt("x" * 81)) == "x" * 79 + "…"


async def test_a_session_that_has_a_title_keeps_it(tmp_path: Path) -> None:
    async with living(tmp_path, first=first()) as here:
        await here.turn(await here.agent(), "first")
        again, agent = await next_bridge(here, tmp_path)
        await again.turn(agent, "second")
        await again.close()
        (row,), _ = await here.context.journal.list()
        assert row.title == "first"


@pytest.mark.parametrize("before", [True, False])
async def test_a_title_of_the_agent_wins_over_a_prompt_whichever_comes_first(
    tmp_path: Path, before: bool
) -> None:
    said = (info(title="Bug hunt"), prompt("mend it"))
    assert await titled(tmp_path, *said[:: 1 if before else -1]) == "Bug hunt"


@pytest.mark.parametrize("title", [None, 5, ["odd"]])
async def test_an_agent_takes_a_title_away_and_no_later_prompt_makes_one(
    tmp_path: Path, title: object
) -> None:
    said = (prompt("mend it"), info(title=title), prompt("again"))
    assert await titled(tmp_path, *said) is None


async def test_an_update_that_gives_no_title_changes_none(tmp_path: Path) -> None:
    assert await titled(tmp_path, info(updatedAt="x"), prompt("mend it")) == "mend it"


async def test_a_title_with_half_of_a_surrogate_pair_is_kept_without_it(tmp_path: Path) -> None:
    for name in ("a", "p"):
        (tmp_path / name).mkdir()
    assert await titled(tmp_path / "a", info(title="a \ud800 b"), prompt("x")) == "a ? b"
    assert await titled(tmp_path / "p", prompt("\udfff x")) == "? x"


@pytest.mark.hazard("P6")
async def test_a_title_that_can_not_be_written_is_logged_and_hurts_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "acp_bridge")
    async with living(tmp_path, first=first()) as here:
        with failing(here.journal, "UPDATE ON session"):
            here.feature(Title).note_prompt(prompt("mend it"))
            await until(lambda: here.journal.info.title == "mend it")  # it is kept
            assert here.journal.behind
        here.session.close()
        await here.session.closed.wait()
        (row,), _ = await here.context.journal.list()
        assert row.title == "mend it"
    logged = [record.getMessage().split()[0] for record in caplog.records]
    assert [each for each in logged if each.startswith("journal.")] == [
        "journal.failed",
        "journal.caught_up",
    ]


@pytest.mark.hazard("K2", "Q13")
async def test_after_a_prompt_that_was_refused_the_first_one_that_is_taken_lists_the_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = Journal.create

    async def not_prompted(journal: Journal, session_id: str, **more: Any) -> Any:
        return await create(journal, session_id, **more, prompted=False)

    monkeypatch.setattr(Journal, "create", not_prompted)
    async with living(tmp_path, first=first()) as here:
        listing = here.context.journal
        await listing.list()  # the first one also looks into the files
        with failing(here.journal, "INSERT ON prompts"):
            refused = here.prompt("refused")
            assert "not taken" in (await here.answered(refused))["message"]
        await here.turn(await here.agent(), "taken")
        assert [row.session_id for row in (await listing.list())[0]] == ["s"]


# --- the user's own -----------------------------------------------------------------------------


def says(here: Living, title: object) -> Json:
    """Let the client give the session a title; returns the answer."""
    before = len(here.got)
    here.takes("_acp_bridge/title", title=title)
    *shown, answer = here.got[before:]
    assert [m["params"]["update"] for m in shown] == [info(title=answer["result"]["title"])]
    return dict(answer["result"])


async def test_a_title_of_the_users_is_shown_kept_and_stays_whatever_the_agent_says(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, first=first()) as here:
        await happen(here, info(title="The agent's"))
        assert says(here, " The\n roof ") == {"title": "The roof"}
        before = len(here.updates())
        others = (info(title="Another", updatedAt="x"), info(title=None), info(updatedAt="y"))
        await happen(here, *others)
        own = info(title="The roof")
        assert here.updates()[before:] == [{**own, "updatedAt": "x"}, own, info(updatedAt="y")]
        await happen(here, prompt("mend it"))
        again, agent = await next_bridge(here, tmp_path)
        agent.update(**info(title="Again"))
        assert again.updates() == [own]
        assert says(again, "The wall") == {"title": "The wall"}
        await again.close()
        (row,), _ = await here.context.journal.list()
        assert row.title == "The wall"


@pytest.mark.parametrize("odd", [None, "", " \n", 5, ["a"]])
async def test_what_is_no_title_is_refused_and_changes_nothing(tmp_path: Path, odd: object) -> None:
    async with living(tmp_path, first=first()) as here:
        with pytest.raises(RpcError) as caught:
            says(here, odd)
        assert caught.value.code == -32602
        await happen(here, info(title="The agent's"))
        assert here.updates() == [info(title="The agent's")]
        await until(lambda: here.journal.info.title == "The agent's")


async def test_a_long_title_is_cut(tmp_path: Path) -> None:
    async with living(tmp_path) as here:
        assert len(says(here, "x" * 500)["title"]) == 200
