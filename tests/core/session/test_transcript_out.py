"""The way out of a session: what is shown is recorded, or it is said that it is not."""

from pathlib import Path

import pytest

from acp_bridge.core.history import History
from acp_bridge.core.protocol import SESSION_LOAD, SESSION_PROMPT
from acp_bridge.core.updates import notices
from tests.core.session.journals import failing, recorded, recorded_texts
from tests.core.session.living import DONE, first, living
from tests.core.session.memory import ClientEnd, Json
from tests.core.session.waiting import until
from tests.core.sessions.bench import bench
from tests.core.sessions.world import SETUP

pytestmark = pytest.mark.usefixtures("no_errors")
USAGE: Json = {"sessionUpdate": "usage_update", "used": 1, "size": 2}
UNRECORDED = notices.UNRECORDED.strip()


@pytest.mark.hazard("K1", "Q8")
async def test_a_journal_that_fails_is_said_once_and_again_after_it_had_caught_up(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, first=first()) as here:
        agent = await here.agent()
        with failing(here.journal, "INSERT ON updates"):
            agent.says_text("one")
            agent.says_text("two")
        agent.says_text("three")
        with failing(here.journal, "INSERT ON updates"):
            agent.says_text("four")
        assert here.texts() == ["one", UNRECORDED, "two", "three", "four", UNRECORDED]
        here.journal.catch_up()
        assert await recorded_texts(here.journal) == ["onetwothreefour"]


@pytest.mark.hazard("K1", "Q8")
async def test_every_client_is_told_that_the_journal_cannot_be_written_also_behind_a_load(
    tmp_path: Path,
) -> None:
    async with bench(tmp_path, client_limit=1) as it:
        session_id = await it.new()
        await it.editor.stop_reason(it.editor.prompt(session_id, "one"))
        other = await it.joined()
        other.way.stuck = 1
        load = other.send("session/load", {**SETUP, "sessionId": session_id})
        await until(lambda: other.texts(session_id))
        with failing(it.bridge._sessions.live[session_id].journal, "INSERT ON updates"):
            it.agent.living[0].update("agent-1", "said")
        other.way.take_all()
        await other.result(load)
        for client in (it.editor, other):
            said, warning = client.texts(session_id)[-2:]
            assert (said, warning.strip()) == ("said", UNRECORDED)


async def test_a_state_that_cannot_be_kept_is_shown_all_the_same_and_kept_when_it_can(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, first=first()) as here:
        with failing(here.journal, "INSERT ON settings"):
            (await here.agent()).update(**USAGE)
            assert here.journal.behind
        assert here.updates() == [USAGE]
        here.journal.catch_up()
        other = ClientEnd()
        request = other.asks(SESSION_LOAD, {"sessionId": "s"})
        await here.session.replay.load(request, History.FULL)
        assert other.sent.messages[0]["params"]["update"] == USAGE


@pytest.mark.hazard("Q13.11")
async def test_before_an_answer_it_is_said_that_the_journal_lacks_something(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, first=first()) as here:
        agent, request_id = await here.agent(), here.prompt()
        turn = await agent.asked(SESSION_PROMPT)
        with failing(here.journal, "UPDATE ON prompts"):
            agent.answer(turn, DONE)
            assert await here.answered(request_id) == DONE
        said, answer = here.got[-2:]
        assert said["params"]["update"]["content"]["text"].strip() == UNRECORDED
        assert answer["id"] == request_id
        assert here.texts() == [UNRECORDED]


async def test_the_bridges_own_words_are_marked_apart_from_each_other_and_kept(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, first=first()) as here:
        for words in ("/queue title a", "/queue title b"):
            assert await here.answered(here.prompt(words)) == DONE
        said = [m["params"] for m in here.got if "content" in m.get("params", {}).get("update", {})]
        assert [each["_meta"] for each in said] == [{"acp_bridge": {"notice": True}}] * 2
        assert len({each["update"]["messageId"] for each in said}) == 2
        kept = await recorded(here.journal)
        assert [{**each, "sessionId": "s"} for each in kept[1::2]] == said
