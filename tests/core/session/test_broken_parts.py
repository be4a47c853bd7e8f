"""Whatever breaks inside, a request of the client gets its one answer (invariant Q9)."""

import logging
import os
from pathlib import Path

import pytest

from acp_bridge.core.journal import Journal, PromptState, SessionJournal
from acp_bridge.core.protocol import SESSION_PROMPT, SET_MODE
from acp_bridge.core.session.prompts import answers
from acp_bridge.core.session.requests.user_settings import UserSettings
from acp_bridge.core.session.transcript.transcript_out import TranscriptOut
from acp_bridge.core.updates.updates import Updates
from tests.core.session.living import DONE, first, living, resumes
from tests.core.session.played_agent import PlayedAgent
from tests.core.session.waiting import until

pytestmark = pytest.mark.usefixtures("no_errors")


def fails(*args: object) -> None:
    raise RuntimeError("/secret")


@pytest.mark.hazard("Q9.1", "Q1.1")
@pytest.mark.parametrize(
    ("part", "method"),
    [
        (SessionJournal, "accept"),
        (SessionJournal, "sync"),
        (Updates, "new_turn"),
        (TranscriptOut, "begin_turn"),
        (SessionJournal, "start_turn"),
        (PlayedAgent, "request_for"),
    ],
)
async def test_a_prompt_that_could_not_be_taken_or_sent_is_answered_and_the_next_one_runs(
    tmp_path: Path,
    part: object,
    method: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with living(tmp_path, first=first()) as here:
        agent = await here.agent()
        with monkeypatch.context() as patch:
            patch.setattr(part, method, fails)
            error = await here.answered(here.prompt("one"))
        assert error["code"] == -32603
        assert "/secret" not in str(error)
        assert [r for r in caplog.records if r.levelno >= logging.ERROR]
        caplog.clear()
        assert agent.params(SESSION_PROMPT) == []
        await here.turn(agent, "two")
        assert PromptState.SENT not in here.states()


@pytest.mark.hazard("Q9.1")
@pytest.mark.parametrize(
    ("part", "method"),
    [
        (answers, "for_journal"),
        (answers, "in_short"),
        (TranscriptOut, "end_turn"),
        (SessionJournal, "end_prompt"),
        (SessionJournal, "record"),
    ],
)
async def test_a_prompt_is_answered_though_its_end_can_not_be_noted(
    tmp_path: Path,
    part: object,
    method: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with living(tmp_path, first=first()) as here:
        agent, prompt = await here.agent(), here.prompt("one")
        asked = await agent.asked(SESSION_PROMPT)
        with monkeypatch.context() as patch:
            patch.setattr(part, method, fails)
            agent.says_text("of one")
            agent.answer(asked, DONE)
            assert await here.answered(prompt) == DONE
        caplog.clear()
        await here.turn(agent, "two")


@pytest.mark.hazard("Q9.3")
@pytest.mark.parametrize("waits_for_a_process", [True, False])
@pytest.mark.parametrize(
    ("part", "method"),
    [
        (PlayedAgent, "request_for"),
        (UserSettings, "note_choice"),
    ],
)
async def test_a_request_for_the_agent_is_answered_though_something_breaks_on_the_way(
    tmp_path: Path,
    part: object,
    method: str,
    waits_for_a_process: bool,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with living(tmp_path, resumes, first=None if waits_for_a_process else first()) as here:
        before = getattr(part, method)

        def broken(self: object, *args: object) -> object:
            if method == "request_for" and args[1] != SET_MODE:
                return before(self, *args)
            raise RuntimeError("/secret")

        with monkeypatch.context() as patch:
            patch.setattr(part, method, broken)
            request = here.asks(SET_MODE, modeId="plan")
            if method != "request_for":
                agent = await here.agent()
                agent.answer(await agent.asked(SET_MODE), {})
            told = await here.answered(request)
            assert told == {} or told["code"] == -32603
        caplog.clear()


@pytest.mark.hazard("Q9", "K3")
async def test_a_session_whose_journal_can_not_be_closed_is_closed_and_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(journal: Journal, session_id: str) -> None:
        raise RuntimeError("/secret")

    async with living(tmp_path, first=first()) as here:
        lock = here.lease
        with monkeypatch.context() as patch:
            patch.setattr(Journal, "end", broken)
            await here.close()
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(lock)
        caplog.clear()


@pytest.mark.hazard("P6.1")
async def test_work_that_fails_twice_ends_no_other_session(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def breaks() -> None:
        raise RuntimeError("/secret")

    async with living(tmp_path, first=first()) as here:
        agent = await here.agent()
        here.session.spawn(breaks, instead="no event")  # type: ignore[arg-type]
        await until(lambda: len([r for r in caplog.records if r.levelno >= logging.ERROR]) == 2)
        caplog.clear()
        await here.turn(agent)
