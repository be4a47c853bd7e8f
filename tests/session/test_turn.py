"""A turn begins at the agent, and is cancelled there."""

import logging
from collections.abc import AsyncIterator

import anyio
import pytest
from anyio.abc import TaskGroup

from acp_bridge.journal import PromptState, SessionJournal
from acp_bridge.machine import events as ev
from acp_bridge.machine.states import Phase
from acp_bridge.protocol import (
    REQUEST_PERMISSION,
    SESSION_CANCEL,
    SESSION_PROMPT,
    WRITE_TEXT_FILE,
    user_chunk,
)
from acp_bridge.session.clients.to_client import ToClient
from acp_bridge.session.process.memory import Memory
from acp_bridge.session.prompts.hooks import SessionHooks
from acp_bridge.session.prompts.prompts import Prompts
from acp_bridge.session.prompts.turn import Turn
from acp_bridge.session.transcript.transcript_out import TranscriptOut
from acp_bridge.updates.late_replay import LateReplay
from acp_bridge.updates.updates import Updates
from acp_bridge.wire.jsonrpc import Err, Ok
from tests.session.journals import failing, recorded, states
from tests.session.memory import NO_RULES, ClientEnd, Json
from tests.session.played_agent import BUSY, PlayedAgent
from tests.session.played_core import PlayedCore

BLOCKS: list[Json] = [{"type": "text", "text": "mend"}, {"type": "image", "data": "x"}]
PARAMS: Json = {
    "sessionId": "s",
    "prompt": BLOCKS,
    "_meta": {"acp_bridge": {"delivery": "queue"}, "theirs": 1},
}


async def nothing() -> None:
    """Do nothing."""


class Stage:
    """Turns of a session between a client and an agent in memory."""

    def __init__(self, journal: SessionJournal, tasks: TaskGroup) -> None:
        self.journal = journal
        self.core = PlayedCore(tasks)
        self.client = ClientEnd({"fs": {"writeTextFile": True}})
        self.agent = PlayedAgent()
        self.agent.agent_session_id, self.agent.epoch = "0", 3
        self.transcript = TranscriptOut("s", journal, Updates(set()))
        self.updates = Updates(set())
        self.prompts = Prompts(journal, self.transcript, self.core, nothing)
        self.to_client = ToClient("s", self.transcript.asked, self.updates)
        self.turn = Turn(
            self.core,
            journal,
            self.transcript,
            self.updates,
            self.prompts,
            Memory(journal),
            SessionHooks(self.core, self.prompts, self.transcript, None, journal, NO_RULES),
        )
        self.transcript.attach(self.client.client)

    def prompt(self, params: Json = PARAMS) -> int:
        """Return the key of a prompt that was asked for and accepted."""
        request = self.client.asks(SESSION_PROMPT, params, 7)
        key = self.prompts.add(params, request)
        self.prompts.commit(key)
        return key

    def held(self, params: Json = PARAMS) -> int:
        """Return the key of a prompt that waited since another bridge ended, and may run now."""
        seq = self.journal.accept("p", params)
        self.journal.leave_over(seq)
        self.prompts.add_left_over(params, seq)
        (key,) = self.prompts.left_over
        self.prompts.release(key)
        return key

    def sent(self) -> Json:
        """Return the prompt that the agent has."""
        (message,) = [m for m in self.agent.sent.messages if m["method"] == SESSION_PROMPT]
        return message


@pytest.fixture
async def stage(journal: SessionJournal) -> AsyncIterator[Stage]:
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            yield Stage(journal, tasks)


async def recorded_updates(stage: Stage) -> list[Json]:
    return [params["update"] for params in await recorded(stage.journal)]


@pytest.mark.hazard("T3", "P13")
async def test_the_agent_gets_the_prompt_as_it_came_under_its_own_id_of_the_session(
    stage: Stage,
) -> None:
    stage.turn.begin(stage.agent, stage.prompt())
    assert stage.sent()["params"] == {
        "sessionId": "0",
        "prompt": BLOCKS,
        "_meta": {"theirs": 1},
    }


@pytest.mark.hazard("T2", "Q6")
async def test_the_turn_and_the_users_words_are_in_the_journal_when_the_agent_gets_the_prompt(
    stage: Stage,
) -> None:
    key = stage.prompt()
    known: list[list[PromptState]] = []
    stage.agent.on_sent = lambda: known.append(states(stage.journal))
    stage.turn.begin(stage.agent, key)
    assert known == [[PromptState.SENT]]
    assert await recorded_updates(stage) == [user_chunk(block) for block in BLOCKS]
    # The client shows its user's words by itself.
    assert stage.client.sent.take() == []


@pytest.mark.hazard("R12", "R1")
async def test_a_prompt_that_was_held_is_shown_to_the_clients_and_recorded_once(
    stage: Stage,
) -> None:
    stage.turn.begin(stage.agent, stage.held())
    shown = [message["params"] for message in stage.client.sent.take()]
    words = [user_chunk(block) for block in BLOCKS]
    assert shown == [{"sessionId": "s", "update": word} for word in words]
    assert await recorded_updates(stage) == words
    assert stage.sent()["params"]["prompt"] == BLOCKS


async def test_what_is_shown_from_then_on_is_recorded_in_the_turn(stage: Stage) -> None:
    before, key = {"sessionUpdate": "plan", "n": 0}, stage.prompt()
    stage.transcript.show({"update": before})
    stage.transcript.flush()
    stage.turn.begin(stage.agent, key)
    stage.transcript.show({"update": {"sessionUpdate": "plan", "n": 1}})
    stage.transcript.flush()
    seq = stage.prompts.get(key).seq
    of_turn = [p["update"] async for page in stage.journal.replay(turn=seq) for p in page]
    assert of_turn[len(BLOCKS) :] == [{"sessionUpdate": "plan", "n": 1}]
    assert before not in of_turn


@pytest.mark.hazard("Q3")
async def test_the_agents_answer_is_of_the_prompt_and_the_process_that_had_the_turn(
    stage: Stage,
) -> None:
    stage.prompt()
    key = stage.held()
    stage.turn.begin(stage.agent, key)
    asked = await stage.agent.asked(SESSION_PROMPT)
    assert stage.core.fed == []
    stage.agent.answer(asked, {"stopReason": "refusal"})
    assert stage.core.fed == [ev.AgentAnswered(3, key, Ok({"stopReason": "refusal"}))]


async def test_an_error_is_an_answer_too_and_a_second_answer_is_none(stage: Stage) -> None:
    key = stage.prompt()
    stage.turn.begin(stage.agent, key)
    asked = await stage.agent.asked(SESSION_PROMPT)
    stage.agent.answer(asked, BUSY)
    stage.agent.answer(asked, {"stopReason": "end_turn"})
    assert stage.core.fed == [ev.AgentAnswered(3, key, Err(BUSY))]


@pytest.mark.hazard("P3")
async def test_the_end_of_the_process_is_no_answer_of_the_agent(stage: Stage) -> None:
    stage.turn.begin(stage.agent, stage.prompt())
    asked = await stage.agent.asked(SESSION_PROMPT)
    stage.agent.dies()
    stage.agent.answer(asked, {"stopReason": "end_turn"})
    stage.turn.begin(stage.agent, stage.held())  # there is nobody to get it
    assert stage.core.fed == []


async def test_the_agents_requests_can_name_the_prompt_that_they_are_for(stage: Stage) -> None:
    key = stage.prompt()
    stage.turn.begin(stage.agent, key)
    asked = await stage.agent.asked(SESSION_PROMPT)
    assert dict(stage.agent.on_behalf) == {asked["id"]: stage.prompts.get(key).request}


@pytest.mark.hazard("Q8")
async def test_a_journal_that_can_not_note_the_turn_keeps_no_prompt_from_the_agent(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "acp_bridge")
    key = stage.prompt()
    with failing(stage.journal, "UPDATE ON prompts"):
        stage.turn.begin(stage.agent, key)
    stage.agent.answer(await stage.agent.asked(SESSION_PROMPT), {})
    assert stage.core.fed == [ev.AgentAnswered(3, key, Ok({}))]
    assert states(stage.journal) == [PromptState.WAITING]
    assert "journal.failed" in caplog.text


@pytest.mark.hazard("Q5", "Q13", "Q8")
async def test_a_prompt_that_would_be_offered_again_after_a_kill_is_not_sent(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: object, seq: int, went: object) -> None:
        raise OSError(30, "read-only")

    monkeypatch.setattr("acp_bridge.journal.left_queue.add", refuse)
    key = stage.prompt()
    with failing(stage.journal, "UPDATE ON prompts"):
        stage.turn.begin(stage.agent, key)
    assert stage.core.fed == [ev.NotBegun(key)]
    assert stage.agent.params(SESSION_PROMPT) == []
    assert states(stage.journal) == [PromptState.WAITING]


@pytest.mark.hazard("R11")
async def test_the_prompt_itself_may_stand_at_the_end_of_a_late_replay(stage: Stage) -> None:
    late = LateReplay()
    late.note({"update": user_chunk({"type": "text", "text": "before"})})
    stage.updates.expect_late_replay(late)
    stage.turn.begin(stage.agent, stage.prompt())
    for text in ("before", "mend"):
        replayed = user_chunk({"type": "text", "text": text})
        assert stage.updates.incoming(replayed, Phase.LIVE) is None
    said = user_chunk({"type": "text", "text": "mend"})
    assert stage.updates.incoming(said, Phase.LIVE) == said


# --- cancel ---------------------------------------------------------------------------------------


@pytest.mark.hazard("C15")
async def test_a_cancel_reaches_the_agent_and_ends_what_it_asks_of_the_user(
    stage: Stage,
) -> None:
    key = stage.prompt()
    stage.turn.begin(stage.agent, key)
    for number, method in enumerate((REQUEST_PERMISSION, WRITE_TEXT_FILE)):
        call = stage.agent.asks(method, {"sessionId": "0"}, number)
        stage.to_client.forward(stage.agent, call, stopped=False)
    permission, write = stage.client.sent.take()
    before = len(stage.agent.sent.messages)
    stage.turn.cancel(stage.agent, key)
    told, answered = stage.agent.sent.messages[before:]
    assert (told["method"], told["params"]) == (SESSION_CANCEL, {"sessionId": "0"})
    assert "id" not in told
    assert (answered["id"], answered["result"]) == (0, {"outcome": {"outcome": "cancelled"}})
    (called_back,) = stage.client.sent.take()
    assert called_back["params"] == {"requestId": permission["id"]}
    stage.client.answers(write["id"], {})  # what is no question still waits
    assert stage.agent.sent.messages[-1] == {"jsonrpc": "2.0", "id": 1, "result": {}}
    assert stage.core.fed == []
