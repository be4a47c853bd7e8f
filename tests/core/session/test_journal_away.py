"""A prompt whose turn comes while the journal is away waits, and runs when that is back."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from acp_bridge.core.journal import JournalError, PromptState
from acp_bridge.core.journal.errors import TAKEN, SessionTaken
from acp_bridge.core.protocol import ACCEPTED, SESSION_CANCEL, SESSION_PROMPT
from acp_bridge.core.updates import notices
from tests.core.session.journals import recorded_texts
from tests.core.session.living import CANCELLED, DONE, Living, first, living
from tests.core.session.memory import ClientEnd
from tests.core.session.played_agent import PlayedAgent
from tests.core.session.waiting import quiet, until
from tests.support.late_journal import Gate, late_journals

pytestmark = pytest.mark.usefixtures("no_errors")


class Away:
    """A session with a prompt whose turn has come while its journal is away; two clients see it."""

    def __init__(self, here: Living, agent: PlayedAgent, gate: Gate, prompt: int) -> None:
        self.here, self.agent, self.gate, self.prompt = here, agent, gate, prompt
        self.other = ClientEnd()

    def back(self) -> None:
        self.gate.away = False
        self.here.journal.on_back(None)

    def seen_by_other(self) -> list[str]:
        return [
            message["params"]["update"]["content"]["text"]
            for message in self.other.sent.messages
            if message.get("method") == "session/update"
        ]


@asynccontextmanager
async def away(folder: Path, *, loses: bool = False, **more: Any) -> AsyncIterator[Away]:
    with late_journals() as gate:
        async with living(folder, first=first(), **more) as here:
            agent = await here.agent()
            gate.shut = True
            stand = Away(here, agent, gate, here.prompt())
            here.session.transcript.attach(stand.other.client)
            await gate.let_through(lambda: here.session.now.running)
            gate.away, gate.loses = True, loses
            gate.open()
            await until(lambda: here.session.now.running is None)
            await quiet()
            assert here.session.now.waiting
            assert here.session.transcript.seq == 0
            assert SESSION_PROMPT not in agent.heard
            assert here.answers() == {}
            yield stand


@pytest.mark.hazard("N4.4", "Q5.1", "V1")
@pytest.mark.parametrize("loses", [False, True])
async def test_it_is_sent_once_and_its_words_are_shown_and_recorded_once(
    tmp_path: Path, loses: bool
) -> None:
    async with away(tmp_path, loses=loses) as stand:
        here = stand.here
        assert here.states() == [PromptState.WAITING]
        stand.back()
        stand.agent.answer(await stand.agent.asked(SESSION_PROMPT), DONE)
        assert await here.answered(stand.prompt) == DONE
        assert stand.agent.heard.count(SESSION_PROMPT) == 1
        assert stand.seen_by_other() == ["mend"]
        assert here.texts() == []
        assert await recorded_texts(here.journal) == ["mend"]
        assert [each.get("method") for each in here.got].count(ACCEPTED) == 1
        await here.turn(stand.agent)


@pytest.mark.hazard("C1", "C20.1", "C20.2", "N4.5")
@pytest.mark.parametrize("loses", [False, True])
async def test_a_stop_answers_it_at_once_and_it_is_never_sent(tmp_path: Path, loses: bool) -> None:
    async with away(tmp_path, loses=loses) as stand:
        stand.here.session.audience.cancel(stand.here.client.client, None)
        assert await stand.here.answered(stand.prompt) == CANCELLED
        stand.back()
        await quiet()
        assert not {SESSION_PROMPT, SESSION_CANCEL} & {*stand.agent.heard}
        assert stand.here.states() == [PromptState.DONE]


@pytest.mark.hazard("N4.6")
async def test_it_is_answered_with_the_reason_when_the_journal_is_lost(tmp_path: Path) -> None:
    async with away(tmp_path) as stand:
        stand.here.journal.on_back(JournalError(TAKEN))
        answer = await stand.here.answered(stand.prompt)
        assert answer["message"] == f"the prompt was not sent: {TAKEN}"


@pytest.mark.hazard("N4.6")
async def test_it_is_answered_and_all_are_told_when_another_bridge_has_the_session(
    tmp_path: Path,
) -> None:
    async with away(tmp_path) as stand:
        stand.here.journal.on_back(SessionTaken())
        assert TAKEN in (await stand.here.answered(stand.prompt))["message"]
        assert stand.seen_by_other()[1].strip() == notices.lost(TAKEN)


async def test_it_carries_the_transcript_that_it_was_to_carry(tmp_path: Path) -> None:
    with late_journals() as gate:
        async with living(tmp_path, first=first()) as here:
            agent, here.session.memory.transcript = await here.agent(), "what was said"
            gate.shut = True
            request = here.prompt()
            await gate.let_through(lambda: here.session.now.running)
            gate.away = True
            gate.open()
            await until(lambda: here.session.now.running is None)
            gate.away = False
            here.journal.on_back(None)
            turn = await agent.asked(SESSION_PROMPT)
            assert [each["text"] for each in turn["params"]["prompt"]] == ["what was said", "mend"]
            agent.answer(turn, DONE)
            assert await here.answered(request) == DONE


async def test_while_it_is_away_an_agent_that_ends_is_followed_by_none(tmp_path: Path) -> None:
    async with away(tmp_path) as stand:
        stand.agent.dies()
        await until(lambda: stand.here.session.now.state.name == "COLD")
        stand.back()
        agent = await stand.here.agent(2)
        agent.answer(await agent.asked(SESSION_PROMPT), DONE)
        assert await stand.here.answered(stand.prompt) == DONE


@pytest.mark.hazard("N4", "X2")
@pytest.mark.parametrize("loses", [False, True])
async def test_a_prompt_that_was_told_not_to_be_taken_has_ended_and_may_be_sent_again(
    tmp_path: Path, loses: bool
) -> None:
    with late_journals() as gate:
        async with living(tmp_path, first=first()) as here:
            agent, key = await here.agent(), {"acp_bridge": {"promptKey": "k"}}
            gate.away, gate.loses = True, loses
            answer = await here.answered(here.prompt(_meta=key))
            assert "not taken" in answer["message"]
            gate.away = False
            here.journal.on_back(None)
            await quiet()
            assert here.states() == [PromptState.DONE] * loses
            again = here.prompt(_meta=key)
            agent.answer(await agent.asked(SESSION_PROMPT), DONE)
            assert await here.answered(again) == DONE


@asynccontextmanager
async def left_over(folder: Path, *words: str) -> AsyncIterator[tuple[Living, Gate]]:
    """A session with prompts that are left over, whose journal is away."""
    with late_journals() as gate:
        async with living(folder, first=first()) as here:
            for each in words:
                blocks = [{"type": "text", "text": each}]
                here.journal.accept(each, {"sessionId": "s", "prompt": blocks})
            await here.session.recovery.run()
            gate.away = True
            yield here, gate


@pytest.mark.hazard("N4.4", "R12")
@pytest.mark.parametrize("loses", [False, True])
async def test_what_is_left_over_and_is_to_run_while_it_is_away_runs_when_it_is_back(
    tmp_path: Path, loses: bool
) -> None:
    async with left_over(tmp_path, "one", "two") as (here, gate):
        agent, gate.loses = await here.agent(), loses
        carrier = here.prompt("/queue run")
        await until(lambda: here.session.now.waiting)
        await until(lambda: not here.journal.in_flight)
        gate.away = False
        here.journal.on_back(None)
        for each in ("one", "two"):
            turn = await agent.asked(SESSION_PROMPT)
            assert turn["params"]["prompt"][0]["text"] == each
            agent.answer(turn, DONE)
        assert await here.answered(carrier) == DONE
        assert here.states() == [PromptState.DONE] * 2
        said = await recorded_texts(here.journal)
        assert [said.count(each) for each in ("one", "two")] == [1, 1]


@pytest.mark.hazard("N4", "R12.3")
@pytest.mark.parametrize("loses", [False, True])
async def test_what_is_left_over_and_dropped_while_it_is_away_never_runs(
    tmp_path: Path, loses: bool
) -> None:
    async with left_over(tmp_path, "one") as (here, gate):
        gate.loses = loses
        assert await here.answered(here.prompt("/queue drop")) == DONE
        await until(lambda: not here.journal.in_flight)
        assert here.states() == [PromptState.DONE]
