"""A session ends in order, whatever its agent is about; and an effect that fails ends nothing."""

import logging
import os
from pathlib import Path
from typing import Any

import anyio
import pytest

from acp_bridge.core.agents.process import Exit
from acp_bridge.core.agents.requests import AtClients
from acp_bridge.core.history import History
from acp_bridge.core.journal import Journal, PromptState
from acp_bridge.core.machine import events as ev
from acp_bridge.core.protocol import (
    SESSION_CANCEL,
    SESSION_CLOSE,
    SESSION_LOAD,
    SESSION_PROMPT,
    SESSION_RESUME,
    SET_MODE,
)
from acp_bridge.core.session.effects import Deadlines
from acp_bridge.core.session.prompts.prompts import Prompts
from acp_bridge.core.updates.updates import Updates
from tests.core.session.journals import recorded_texts
from tests.core.session.living import (
    CANCELLED,
    DONE,
    Living,
    Prepare,
    does_not_exist,
    does_nothing,
    first,
    living,
    never_starts,
    resumes,
    wants_a_login,
)
from tests.core.session.memory import ClientEnd, Json
from tests.core.session.played_agent import BUSY, PlayedAgent
from tests.core.session.waiting import quiet, until

pytestmark = pytest.mark.usefixtures("no_errors")

DETAILS = {"details": "unknown session"}
UNKNOWN_SESSION = {"code": -32002, "message": "unknown session", "data": DETAILS}


async def closed(here: Living) -> None:
    """Wait for the end; nothing of the session is left by then."""
    await here.session.closed.wait()
    assert here.journal.closed
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(here.lease)
    assert all(agent.dead.is_set() for agent in here.context.agents if agent.started)


# --- close ----------------------------------------------------------------------------------------


@pytest.mark.hazard("P1", "K3")
async def test_a_session_that_is_closed_lets_its_agent_end_and_lets_go_of_its_lock_last(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, first=first("close")) as here:
        agent = await here.agent()
        here.session.close()
        asked = await agent.asked(SESSION_CLOSE)
        assert here.session.closing
        os.fstat(here.lease)
        agent.answer(asked, {})
        await closed(here)
        assert agent.params(SESSION_CLOSE) == [{"sessionId": "0"}]


@pytest.mark.hazard("R2")
async def test_after_the_close_there_is_no_such_session(tmp_path: Path) -> None:
    async with living(tmp_path, first=first()) as here:
        here.session.close()
        await closed(here)
        assert await here.answered(here.prompt()) == UNKNOWN_SESSION
        assert await here.answered(here.asks(SET_MODE, modeId="edit")) == UNKNOWN_SESSION
        here.session.wake()
        here.session.feed(ev.Cancel())
        await quiet()
        assert len(here.context.agents) == 1
        assert here.session.link is None


@pytest.mark.hazard("Q9", "C10")
async def test_a_close_answers_what_waits_at_once_and_the_running_prompt_when_its_turn_has_ended(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, first=first("close")) as here:
        agent, running = await here.agent(), here.prompt("one")
        turn = await agent.asked(SESSION_PROMPT)
        waiting = here.prompt("two")
        here.session.close()
        assert here.answers() == {waiting: CANCELLED}
        assert agent.heard[-1] == SESSION_CANCEL
        agent.answer(turn, DONE)
        assert await here.answered(running) == CANCELLED
        agent.answer(await agent.asked(SESSION_CLOSE), {})
        await closed(here)
        assert agent.heard.count(SESSION_PROMPT) == 1


@pytest.mark.hazard("V5.2")
async def test_a_client_that_comes_again_keeps_the_session_and_brings_no_other_one_back(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, first=first()) as here:
        agent, mine = await here.agent(), here.client.client
        other = ClientEnd({"_meta": {"acp_bridge": {"client": "x" * 16}}})
        here.session.transcript.attach(other.client)
        blocks = [{"type": "text", "text": "mend"}]
        request = other.asks(SESSION_PROMPT, {"sessionId": "s", "prompt": blocks})
        here.session.on_prompt(request, request.params)
        turn = await agent.asked(SESSION_PROMPT)
        here.session.audience.leave(other.client, closes=True)
        other.client.gone = True
        assert not here.session.audience.has_others(mine)
        await here.session.replay.load(here.request(SESSION_LOAD), History.FULL)
        assert not here.session.audience.has_others(mine)
        agent.answer(turn, DONE)
        await until(lambda: not here.session.busy)
        here.session.audience.leave(mine)
        assert not here.session.closing


@pytest.mark.hazard("Q14.1", "X2.7")
async def test_what_a_close_keeps_is_answered_so_also_if_another_close_keeps_nothing(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, first=first()) as here:
        key: Json = {"_meta": {"acp_bridge": {"promptKey": "k"}}}
        here.journal.accept("old", {"prompt": [{"type": "text", "text": "old"}], **key})
        await here.session.recovery.run()
        waits = here.prompt("old", **key)
        here.session.close(keeps_prompts=True)
        here.session.close()
        assert (await here.answered(waits))["code"] == -32603
        assert here.states() == [PromptState.LEFT_OVER]


@pytest.mark.hazard("C8.1", "C21")
async def test_a_close_kills_an_agent_that_ignores_the_cancel_and_starts_no_other(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, first=first(), drain_timeout=0.0) as here:
        agent, running = await here.agent(), here.prompt()
        await agent.asked(SESSION_PROMPT)
        here.session.close()
        assert await here.answered(running) == CANCELLED
        await closed(here)
        assert len(here.context.agents) == 1


@pytest.mark.hazard("P2")
async def test_a_close_is_not_held_up_by_an_agent_that_does_not_answer_it(tmp_path: Path) -> None:
    async with living(tmp_path, first=first("close"), close_grace=0.0) as here:
        here.session.close()
        await closed(here)


@pytest.mark.hazard("C21")
async def test_a_close_is_not_held_up_by_a_tree_that_will_not_die(tmp_path: Path) -> None:
    async with living(tmp_path, first=first(), kill_timeout=0.0) as here:
        agent = await here.agent()
        agent.stays = agent.immortal = True
        here.session.close()
        await here.session.closed.wait()
        assert here.journal.closed


@pytest.mark.hazard("Q9")
@pytest.mark.parametrize("prepare", [never_starts, does_nothing])
async def test_a_close_while_an_agent_is_made_ready_kills_it_and_answers_all(
    tmp_path: Path, prepare: Prepare
) -> None:
    async with living(tmp_path, prepare) as here:
        setting, prompt = here.asks(SET_MODE, modeId="edit"), here.prompt()
        agent = await here.agent()
        await agent.asked("initialize" if prepare is never_starts else SESSION_RESUME)
        here.session.close()
        assert await here.answered(prompt) == CANCELLED
        assert await here.answered(setting) == UNKNOWN_SESSION
        await closed(here)
        assert len(here.context.agents) == 1


async def test_a_close_while_a_process_is_spawned_waits_for_it(tmp_path: Path) -> None:
    gate = anyio.Event()

    def waits(agent: PlayedAgent) -> None:
        agent.gate = gate

    async with living(tmp_path, waits) as here:
        here.session.wake()
        agent = await here.agent()
        here.session.close()
        await quiet()
        assert not here.session.closed.is_set()
        gate.set()
        await closed(here)
        assert not agent.started


@pytest.mark.parametrize("prepare", [None, does_not_exist, wants_a_login])
async def test_a_session_without_a_process_or_with_one_that_is_not_ready_closes_too(
    tmp_path: Path, prepare: Prepare | None
) -> None:
    async with living(tmp_path, *([prepare] if prepare else [])) as here:
        if prepare:
            assert "code" in await here.answered(here.prompt())
        here.session.close()
        here.session.close()
        await closed(here)


# --- the bridge ends ------------------------------------------------------------------------------


@pytest.mark.hazard("Q6.1", "R12.1", "P2.2")
async def test_when_the_bridge_ends_a_running_prompt_is_interrupted_and_those_that_wait_are_held(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, first=first()) as here:
        agent = await here.agent()
        here.prompt("one")
        await agent.asked(SESSION_PROMPT)
        agent.says_text("half")
        here.prompt("two")
        await until(lambda: here.states() == [PromptState.SENT, PromptState.WAITING])
        await quiet()
        here.session.feed(ev.Shutdown())
        assert here.states() == [PromptState.DONE, PromptState.LEFT_OVER]
        assert here.outcomes() == [({"interrupted": True}, None), (None, None)]
        turns = here.journal._file.db.execute("SELECT DISTINCT turn FROM updates").fetchall()
        assert turns == [(1,)]
        texts = await recorded_texts(here.journal)  # the journal may be closed meanwhile
        assert texts[:2] == ["one", "half"]
        assert "Interrupted" in texts[2]
        await closed(here)
        assert here.answers() == {}


@pytest.mark.hazard("C5")
async def test_when_the_bridge_ends_a_prompt_that_was_cancelled_is_cancelled(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, first=first()) as here:
        agent, running = await here.agent(), here.prompt()
        turn = await agent.asked(SESSION_PROMPT)
        here.session.feed(ev.Cancel())
        here.session.feed(ev.Shutdown())
        assert here.answers() == {running: CANCELLED}
        agent.answer(turn, DONE)
        await closed(here)


async def test_when_the_bridge_ends_as_a_process_has_just_been_given_the_session_nothing_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached, goes_on, told = anyio.Event(), anyio.Event(), anyio.Event()
    note_agent = Journal.note_agent

    async def noted(self: Journal, *args: Any) -> None:
        reached.set()
        await goes_on.wait()
        try:
            await note_agent(self, *args)
        finally:
            told.set()

    async with living(tmp_path, resumes, first=first()) as here:
        monkeypatch.setattr(Journal, "note_agent", noted)
        (await here.agent()).dies()
        here.session.wake()
        agent = await here.agent(2)
        with anyio.fail_after(5):
            await reached.wait()
            here.session.feed(ev.Shutdown())
            agent.dies()
            await closed(here)
            goes_on.set()
            await told.wait()
        await quiet()


# --- what fails takes nothing with it -------------------------------------------------------------


def fails(*args: object) -> None:
    raise RuntimeError("/secret")


@pytest.mark.hazard("P6", "Q9.3")
@pytest.mark.parametrize(
    ("part", "method"),
    [
        (Prompts, "note"),
        (Updates, "close_cards"),
        (AtClients, "end_questions"),
        (Deadlines, "arm"),
        (Deadlines, "disarm"),
    ],
)
async def test_an_effect_that_fails_takes_no_answer_with_it(
    tmp_path: Path,
    part: object,
    method: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with living(tmp_path, first=first()) as here:
        agent, cancelled = await here.agent(), here.prompt("one")
        turn = await agent.asked(SESSION_PROMPT)
        following = here.prompt("two")
        with monkeypatch.context() as patch:
            patch.setattr(part, method, fails)
            here.session.feed(ev.Cancel())
            agent.answer(turn, CANCELLED)
            assert await here.answered(cancelled) == CANCELLED
            agent.answer(await agent.asked(SESSION_PROMPT), DONE)
            assert await here.answered(following) == DONE
        failed = {r.getMessage().split(" ", 2)[2] for r in caplog.records if r.levelno > 30}
        assert failed
        assert all(each.endswith(" failed") for each in failed)
        caplog.clear()


@pytest.mark.hazard("P6", "Q9")
@pytest.mark.parametrize(("part", "method"), [(AtClients, "release"), (Updates, "close_cards")])
async def test_the_death_of_an_agent_is_told_though_tidying_up_after_it_fails(
    tmp_path: Path,
    part: object,
    method: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with living(tmp_path, first=first()) as here:
        agent, running = await here.agent(), here.prompt("one")
        await agent.asked(SESSION_PROMPT)
        with monkeypatch.context() as patch:
            patch.setattr(part, method, fails)
            agent.dies(Exit(1, None))
        assert "(exit code 1)" in here.answers()[running]["message"]
        assert len([r for r in caplog.records if r.levelno >= logging.ERROR]) == 1
        caplog.clear()
        following = here.prompt("two")
        agent = await here.agent(2)
        agent.answer(await agent.asked(SESSION_PROMPT), DONE)
        assert await here.answered(following) == DONE


@pytest.mark.hazard("P6.1")
async def test_work_that_fails_is_logged_and_ends_neither_the_session_nor_another(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def breaks(why: str) -> None:
        raise RuntimeError(why)

    async with living(tmp_path, first=first()) as here:
        here.session.spawn(breaks, "/secret")
        await until(lambda: caplog.records)
        (record,) = [r for r in caplog.records if r.levelno >= logging.ERROR]
        assert record.getMessage().endswith("breaks failed")
        caplog.clear()
        agent, request_id = await here.agent(), here.prompt()
        agent.answer(await agent.asked(SESSION_PROMPT), DONE)
        assert await here.answered(request_id) == DONE


async def test_an_answer_that_comes_while_its_prompt_is_still_being_sent_is_its_answer(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, first=first()) as here:
        agent = await here.agent()
        agent.reply(SESSION_PROMPT, DONE, BUSY, DONE)
        ids = [here.prompt(text) for text in ("one", "two", "three")]
        for request_id in ids:
            await here.answered(request_id)
        assert list(here.answers().values()) == [DONE, BUSY.to_wire(), DONE]
        assert list(here.answers()) == ids
