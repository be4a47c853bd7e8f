"""What tells of a write leaves when it is made, in a journal that makes its writes later."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from acp_bridge.core.journal import GONE, PromptState
from acp_bridge.core.machine import events as ev
from acp_bridge.core.machine.states import State
from acp_bridge.core.protocol import SESSION_CANCEL, SESSION_PROMPT
from acp_bridge.core.updates import notices
from tests.core.session.journals import failing, recorded_texts
from tests.core.session.living import CANCELLED, DONE, Living, first, living
from tests.core.session.memory import ClientEnd
from tests.core.session.played_agent import PlayedAgent
from tests.core.session.waiting import quiet, until
from tests.support.late_journal import Gate, late_journals

pytestmark = pytest.mark.usefixtures("no_errors")


@asynccontextmanager
async def late(folder: Path, **more: Any) -> AsyncIterator[tuple[Living, PlayedAgent, Gate]]:
    """A session with an agent that is ready; the gate of its journal is open."""
    with late_journals() as gate:
        async with living(folder, first=first(), **more) as here:
            yield here, await here.agent(), gate
            gate.open()


@pytest.mark.hazard("T2")
async def test_updates_and_the_answer_leave_when_their_rows_are_made_and_in_their_order(
    tmp_path: Path,
) -> None:
    async with late(tmp_path) as (here, agent, gate):
        request = here.prompt()
        turn = await agent.asked(SESSION_PROMPT)
        before = len(here.got)
        gate.shut = True
        agent.says_text("one")
        agent.says_text("two")
        agent.answer(turn, DONE)
        await quiet()
        assert here.got[before:] == []
        await gate.let_through(here.texts)
        assert here.texts() == ["one"]
        gate.open()
        assert await here.answered(request) == DONE
        assert here.texts() == ["one", "two"]
        assert "method" not in here.got[-1]
        assert await recorded_texts(here.journal) == ["mend", "onetwo"]


@pytest.mark.hazard("T2.5")
async def test_what_tells_of_no_write_of_the_session_leaves_at_once(tmp_path: Path) -> None:
    async with late(tmp_path) as (here, agent, gate):
        here.prompt()
        await agent.asked(SESSION_PROMPT)
        gate.shut = True
        agent.says_text("one")
        await quiet()
        before = len(here.got)
        peer, session = here.client.client.peer, here.session.id
        peer.notify("_of/another", {"sessionId": "another"})
        peer.notify("_of/none")
        peer.notify("_of/it", {"sessionId": session})
        peer.notify("_of/its_child", {"sessionId": f"{session}:1"})
        asked = peer.request("_asks", {"sessionId": session}, lambda answer: None)
        peer.cancel(asked)
        at_once = [message["method"] for message in here.got[before:]]
        assert at_once == ["_of/another", "_of/none"]
        gate.open()
        await until(lambda: here.texts() == ["one"])
        later = [message["method"] for message in here.got[before + 2 :]]
        assert later == ["session/update", "_of/it", "_of/its_child", "_asks", "$/cancel_request"]


@pytest.mark.hazard("T2", "V1")
async def test_every_client_waits_for_it_also_one_that_has_come_meanwhile(tmp_path: Path) -> None:
    async with late(tmp_path) as (here, agent, gate):
        here.prompt()
        await agent.asked(SESSION_PROMPT)
        gate.shut = True
        agent.says_text("one")
        other = ClientEnd()
        here.session.transcript.attach(other.client)
        here.session.transcript.show_to(other.client, notices.notice("hello"))
        await quiet()
        assert other.sent.messages == []
        gate.open()
        await until(lambda: here.texts() == ["one"])
        (shown,) = other.sent.messages
        assert shown["params"]["update"]["content"]["text"].strip() == "hello"


@pytest.mark.hazard("Q5", "K1.1", "K1.4")
async def test_a_prompt_is_accepted_and_sent_when_the_journal_has_it(tmp_path: Path) -> None:
    async with late(tmp_path) as (here, agent, gate):
        gate.shut = True
        request = here.prompt()
        await quiet()
        assert here.got == []
        await gate.let_through(lambda: here.session.now.running)
        await quiet()
        assert SESSION_PROMPT not in agent.heard
        assert here.states() == [PromptState.WAITING]
        gate.open()
        agent.answer(await agent.asked(SESSION_PROMPT), DONE)
        assert await here.answered(request) == DONE


@pytest.mark.hazard("C1", "Q5")
async def test_a_stop_before_the_prompt_has_left_ends_it_and_the_agent_hears_of_neither(
    tmp_path: Path,
) -> None:
    async with late(tmp_path) as (here, agent, gate):
        gate.shut = True
        request, following = here.prompt("one"), here.prompt("two")
        await gate.let_through(lambda: here.session.now.running)
        here.session.audience.cancel(here.client.client, None)
        gate.open()
        assert await here.answered(request) == CANCELLED
        turn = await agent.asked(SESSION_PROMPT)
        assert turn["params"]["prompt"][0]["text"] == "two"
        assert SESSION_CANCEL not in agent.heard
        agent.answer(turn, DONE)
        assert await here.answered(following) == DONE


@pytest.mark.hazard("C1")
async def test_a_stop_behind_a_prompt_whose_note_was_late_reaches_the_agent(tmp_path: Path) -> None:
    async with late(tmp_path) as (here, agent, gate):
        gate.shut = True
        request = here.prompt()
        await gate.let_through(lambda: here.session.now.running)
        gate.open()
        turn = await agent.asked(SESSION_PROMPT)
        here.session.audience.cancel(here.client.client, None)
        await until(lambda: SESSION_CANCEL in agent.heard)
        agent.answer(turn, CANCELLED)
        assert await here.answered(request) == CANCELLED


@pytest.mark.hazard("Q5")
@pytest.mark.parametrize("stays", [False, True])  # the agent ends at once, or takes its time
async def test_a_prompt_whose_bridge_ends_before_it_has_left_is_never_sent(
    stays: bool, tmp_path: Path
) -> None:
    async with late(tmp_path) as (here, agent, gate):
        gate.shut, agent.stays = True, stays
        here.prompt()
        await gate.let_through(lambda: here.session.now.running)
        here.session.feed(ev.Shutdown())
        gate.open()
        await quiet()
        agent.dies()
        await here.session.closed.wait()
        assert SESSION_PROMPT not in agent.heard


@pytest.mark.hazard("Q5", "R15.3")
async def test_a_prompt_whose_process_dies_before_it_has_left_takes_no_transcript_with_it(
    tmp_path: Path,
) -> None:
    async with late(tmp_path) as (here, agent, gate):
        memory = here.session._turn._memory
        memory.transcript, agent.immortal, gate.shut = "what was said", True, True
        request = here.prompt()
        await gate.let_through(lambda: here.session.now.running)
        agent.exits()
        await until(lambda: here.session.now.state is State.KILLING)
        gate.open()
        await quiet()
        assert memory.transcript == "what was said"
        agent.dies()
        assert "ended during the turn" in (await here.answered(request))["message"]


@pytest.mark.hazard("Q9", "Q13")
async def test_a_prompt_that_is_refused_late_is_answered_and_never_sent(tmp_path: Path) -> None:
    async with late(tmp_path) as (here, agent, _):
        with failing(here.journal, "INSERT ON prompts"):
            answer = await here.answered(here.prompt())
        assert "journal" in answer["message"]
        assert SESSION_PROMPT not in agent.heard
        await here.turn(agent)


@pytest.mark.hazard("Q5", "Q9")
async def test_a_prompt_whose_start_is_not_noted_late_is_answered_and_never_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: object, seq: int, went: object) -> None:
        raise OSError(30, "read-only")

    async with late(tmp_path) as (here, agent, _):
        with monkeypatch.context() as patch, failing(here.journal, "UPDATE ON prompts"):
            patch.setattr("acp_bridge.core.journal.left_queue.add", refuse)
            answer = await here.answered(here.prompt())
        assert "journal" in answer["message"]
        assert not here.session.transcript.places._lost  # it was not put off
        assert SESSION_PROMPT not in agent.heard
        await here.turn(agent)


@pytest.mark.hazard("Q5", "Q9")
async def test_a_prompt_whose_file_is_gone_before_its_start_is_noted_is_answered_with_that(
    tmp_path: Path,
) -> None:
    async with late(tmp_path) as (here, agent, gate):
        other = ClientEnd()
        here.session.transcript.attach(other.client)
        gate.shut = True
        request = here.prompt()
        await gate.let_through(lambda: here.session.now.running)
        (file,) = (tmp_path / "sessions").glob("*.db")
        file.unlink()
        gate.open()
        answer = await here.answered(request)
        assert answer["message"] == f"the prompt was not sent: {GONE}"
        assert SESSION_PROMPT not in agent.heard
        shown = [str(each) for each in other.sent.messages]
        assert any(answer["message"] in each for each in shown)  # as the end of its turn


@pytest.mark.hazard("Q9", "Q1.1")
async def test_a_prompt_that_can_not_be_sent_once_its_start_is_noted_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*args: object) -> None:
        raise RuntimeError("/secret")

    async with late(tmp_path) as (here, agent, _):
        with monkeypatch.context() as patch:
            patch.setattr(PlayedAgent, "request_for", fails)
            answer = await here.answered(here.prompt())
        assert answer["code"] == -32603
        caplog.clear()
        await here.turn(agent)
