"""A process is brought up to where the one before it was, or the reason why not is an event."""

import logging
from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest

from acp_bridge.agents.link import Link
from acp_bridge.journal import JournalError, SessionJournal
from acp_bridge.machine import events as ev
from acp_bridge.machine.states import Phase, State
from acp_bridge.protocol import (
    SESSION_LOAD,
    SESSION_NEW,
    SESSION_RESUME,
    SET_CONFIG_OPTION,
    SET_MODE,
    user_chunk,
)
from acp_bridge.session.process.memory import Memory
from acp_bridge.session.process.restart import Restart
from acp_bridge.session.process.sleep import Sleep
from acp_bridge.session.requests.to_agent import ToAgent
from acp_bridge.session.requests.user_settings import UserSettings
from acp_bridge.session.transcript.transcript_out import TranscriptOut
from acp_bridge.updates import notices
from acp_bridge.updates.late_replay import LateReplay
from acp_bridge.updates.updates import Updates
from tests.session.journals import failing
from tests.session.memory import ClientEnd, Json
from tests.session.played_agent import AUTH_REQUIRED, BUSY, UNKNOWN, PlayedAgent, refusal
from tests.session.played_core import PlayedCore, Reloads
from tests.session.waiting import quiet, until

MODES: Json = {"currentModeId": "plan", "availableModes": [{"id": "plan"}, {"id": "edit"}]}
LOADED = ev.Loaded(2)


class Stage(PlayedCore):
    """A session in memory whose process is to be started again; also the core of its parts."""

    def __init__(self, journal: SessionJournal) -> None:
        super().__init__()
        self.machine_state = State.RELOADING
        self.journal = journal
        self.client = ClientEnd({"session": {"configOptions": {"boolean": True}}})
        self.transcript = TranscriptOut("s", journal, Updates(set()))
        self.transcript.attach(self.client.client)
        self.updates = Updates(set())
        self.user_settings = UserSettings(journal)
        self.to_agent = ToAgent(
            self, self.transcript, self.user_settings, Updates(set()), lambda: None
        )
        self.restart = Restart(
            self,
            journal,
            self.transcript,
            self.updates,
            self.user_settings,
            self.to_agent,
            (memory := Memory(journal)),
            Sleep(
                self,
                0,
                Reloads(),
                self.updates,
                memory,
                lambda: False,
                lambda: False,
                self.to_agent.notify,
            ),
            self.rename_at_agent,
            Reloads(),
        )
        self.renamed: list[str | None] = []
        self.rename_fails: Exception | None = None
        self.rename_waits: anyio.Event | None = None
        self.events: list[ev.Event] = []

    async def rename_at_agent(self, link: Link) -> None:
        await (self.rename_waits.wait() if self.rename_waits else anyio.lowlevel.checkpoint())
        if self.rename_fails:
            raise self.rename_fails
        self.renamed.append(link.agent_session_id)

    def agent(self, *capabilities: str) -> PlayedAgent:
        """Return a process of epoch 2 that has the session in every way that it can."""
        agent = PlayedAgent(*capabilities)
        agent.epoch = 2
        for way in (SESSION_RESUME, SESSION_LOAD):
            agent.reply(way, {"modes": MODES})
        return agent

    async def run(self, agent: PlayedAgent) -> None:
        self.events.append(await self.restart.run(agent))

    def asks(self, method: str, request_id: int = 1, **params: Any) -> None:
        """Let the client ask something of the agent that is not ready."""
        params = {"sessionId": "s", **params}
        self.to_agent.pass_on(self.client.asks(method, params, request_id))

    def shown(self) -> list[Json]:
        """Return the updates that the client was shown since the last call."""
        sent = self.client.sent.take()
        return [message["params"]["update"] for message in sent if "method" in message]

    def finish_turn(self) -> None:
        """Note in the journal that the agent has ended a turn."""
        seq = self.journal.accept("p", {})
        self.journal.end_prompt(seq, {}, {"stopReason": "end_turn"})


@pytest.fixture
async def stage(journal: SessionJournal) -> AsyncIterator[Stage]:
    with anyio.fail_after(5):
        yield Stage(journal)


# --- the session is the process's again -----------------------------------------------------------


@pytest.mark.hazard("R9", "C9")
async def test_the_session_comes_first_then_its_settings_then_what_waited(stage: Stage) -> None:
    agent = stage.agent("resume")
    stage.user_settings.note_choice(SET_MODE, {"modeId": "edit"}, {})
    stage.asks("_x/y", 1, n=1)
    stage.asks("_x/z", 2)
    agent.reply(SET_MODE, {})
    agent.reply("_x/y", {"answer": 1})
    agent.reply("_x/z", BUSY)
    await stage.run(agent)
    assert stage.events == [LOADED]
    assert agent.heard == [SESSION_RESUME, SET_MODE, "_x/y", "_x/z"]
    assert agent.params(SET_MODE) == [{"sessionId": "0", "modeId": "edit"}]
    assert agent.params("_x/y") == [{"sessionId": "0", "n": 1}]
    assert stage.renamed == ["0"]
    answers = [m for m in stage.client.sent.take() if "method" not in m]
    assert [m.get("result", m.get("error")) for m in answers] == [{"answer": 1}, BUSY.to_wire()]


@pytest.mark.hazard("R9")
async def test_a_setting_that_comes_with_the_last_answer_is_in_force_before_the_session_is_ready(
    stage: Stage,
) -> None:
    agent = stage.agent("resume")
    stage.asks(SET_MODE, 1, modeId="edit")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(stage.run, agent)
        asked = await agent.asked(SET_MODE)
        agent.answer(asked, {})
        stage.asks(SET_MODE, 2, modeId="plan")
        asked = await agent.asked(SET_MODE)
        assert stage.events == []
        agent.answer(asked, {})
    assert stage.events == [LOADED]
    assert [each["modeId"] for each in agent.params(SET_MODE)] == ["edit", "plan"]


@pytest.mark.hazard("R9")
async def test_a_setting_that_waits_takes_the_place_of_the_one_that_was_chosen_before(
    stage: Stage,
) -> None:
    agent = stage.agent("resume")
    stage.user_settings.note_choice(SET_MODE, {"modeId": "plan"}, {})
    stage.asks(SET_MODE, modeId="edit")
    agent.reply(SET_MODE, {})
    await stage.run(agent)
    assert [each["modeId"] for each in agent.params(SET_MODE)] == ["edit"]


@pytest.mark.hazard("R9")
async def test_a_setting_that_the_agent_refuses_keeps_the_session_from_being_ready(
    stage: Stage,
) -> None:
    agent = stage.agent("resume")
    stage.user_settings.note_choice(SET_MODE, {"modeId": "edit"}, {})
    stage.asks("_x/y")
    agent.reply(SET_MODE, BUSY)
    await stage.run(agent)
    why = "the agent would not set 'edit' again: busy"
    assert stage.events == [ev.LoadRefused(2, False, why)]
    assert "_x/y" not in agent.heard  # the next process gets it
    assert [asked.method for asked in stage.to_agent.deferred] == ["_x/y"]


@pytest.mark.hazard("R8", "R9")
async def test_what_takes_the_place_of_a_setting_that_was_given_up_is_said_once(
    stage: Stage,
) -> None:
    def told(value: str) -> Json:
        return {"configOptions": [{"id": "model", "type": "select", "currentValue": value}]}

    stage.user_settings.note_result({"modes": MODES, **told("gone")})
    for option, value in (("model", "gone"), ("effort", "high")):
        params = {"configId": option, "value": value}
        stage.user_settings.note_choice(SET_CONFIG_OPTION, params, {})
    agent = stage.agent("resume")
    agent.reply(SET_CONFIG_OPTION, BUSY)
    await stage.run(agent)
    why = "the agent would not set 'model' to 'gone' again: busy"
    assert stage.events == [ev.LoadRefused(2, False, why)]
    for option in ("model", "effort"):  # as when no process takes it
        params = {"configId": option, "value": "other"}
        stage.user_settings.forget(SET_CONFIG_OPTION, params)
    stage.asks(SET_CONFIG_OPTION, configId="effort", value="low")
    agent = PlayedAgent("resume")
    agent.epoch = 2
    agent.reply(SESSION_RESUME, {"modes": MODES, **told("usual")})
    agent.reply(SET_CONFIG_OPTION, {})
    await stage.run(agent)
    said = [u["content"]["text"] for u in stage.shown() if "content" in u]
    assert said == [f"\n\n{notices.given_up('model', 'gone', 'usual')}\n\n"]
    assert "'usual'" in said[0]
    agent = stage.agent("resume")
    agent.reply(SET_CONFIG_OPTION, {})
    await stage.run(agent)
    assert not [u for u in stage.shown() if "content" in u]


async def test_only_what_differs_from_what_the_clients_know_of_the_settings_is_shown(
    stage: Stage,
) -> None:
    options = [{"id": "effort", "type": "select", "currentValue": "low"}]
    stage.user_settings.note_result({"modes": MODES, "configOptions": options})
    agent = stage.agent("resume")
    changed = [{**options[0], "currentValue": "high"}]
    stage.asks(SET_CONFIG_OPTION, configId="effort", value="high")
    agent.reply(SET_CONFIG_OPTION, {"configOptions": changed})
    await stage.run(agent)
    assert stage.shown() == [{"sessionUpdate": "config_option_update", "configOptions": changed}]


async def test_a_mode_in_which_the_next_process_is_by_itself_is_shown(stage: Stage) -> None:
    stage.user_settings.note_result({"modes": {**MODES, "currentModeId": "edit"}})
    await stage.run(stage.agent("resume"))
    assert stage.shown() == [{"sessionUpdate": "current_mode_update", "currentModeId": "plan"}]


async def test_nothing_is_shown_of_a_restart_that_changes_nothing(stage: Stage) -> None:
    stage.user_settings.note_result({"modes": MODES})
    await stage.run(stage.agent("resume"))
    assert stage.events == [LOADED]
    assert stage.shown() == []


@pytest.mark.hazard("P13")
async def test_the_ids_of_the_process_before_mean_nothing_to_the_next(stage: Stage) -> None:
    call: Json = {"sessionUpdate": "tool_call", "toolCallId": "1", "title": "a"}
    stage.updates.new_turn(1)
    assert stage.updates.card(call, creates=True)["toolCallId"] == "1"
    await stage.run(stage.agent("resume"))
    assert stage.updates.card({"toolCallId": "1"})["toolCallId"] == "1~2"


# --- a replay that may come late ------------------------------------------------------------------


def said(text: str) -> Json:
    return user_chunk({"type": "text", "text": text})


def late(*texts: str) -> LateReplay:
    replay = LateReplay()
    for text in texts:
        replay.note({"update": said(text)})
    return replay


@pytest.mark.hazard("R11")
async def test_after_a_load_what_is_recorded_may_be_repeated_late(stage: Stage) -> None:
    stage.transcript.show({"update": said("first")})
    stage.transcript.flush()
    await stage.run(stage.agent("load"))
    assert stage.updates.incoming(said("first"), Phase.LIVE) is None
    assert stage.updates.incoming(said("other"), Phase.LIVE) == said("other")


@pytest.mark.hazard("R11", "R6")
async def test_what_a_clients_load_has_just_read_is_not_read_again(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(SessionJournal, "replay")
    stage.updates.just_read = late("first")
    await stage.run(stage.agent("load"))
    assert stage.events == [LOADED]
    assert stage.updates.incoming(said("first"), Phase.LIVE) is None


@pytest.mark.hazard("R11")
async def test_after_a_resume_nothing_is_taken_for_a_replay(stage: Stage) -> None:
    stage.updates.just_read = late("first")
    await stage.run(stage.agent("resume"))
    assert stage.updates.incoming(said("first"), Phase.LIVE) == said("first")


# --- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("refused", "permanent"), [(BUSY, False), (UNKNOWN, True)])
@pytest.mark.hazard("R3")
async def test_a_session_of_which_a_turn_has_ended_is_refused_when_the_agent_does_not_load_it(
    stage: Stage, refused: Any, permanent: bool
) -> None:
    stage.finish_turn()
    agent = PlayedAgent("load")
    agent.epoch = 2
    agent.reply(SESSION_LOAD, refused)
    await stage.run(agent)
    why = f"the agent would not load the session: {refused.message}"
    assert stage.events == [ev.LoadRefused(2, permanent, f"{why}. {notices.MEMORY_WAYS}")]
    assert (stage.renamed, stage.shown()) == ([], [])


@pytest.mark.hazard("R10")
async def test_a_session_of_which_no_turn_has_ended_goes_on_under_its_id_and_the_user_is_told(
    stage: Stage,
) -> None:
    agent = PlayedAgent("load")
    agent.epoch = 2
    agent.reply(SESSION_LOAD, UNKNOWN)
    agent.reply(SESSION_NEW, {"sessionId": "young"})
    await stage.run(agent)
    assert stage.events == [LOADED]
    assert stage.renamed == ["young"]
    assert [update["content"]["text"].lstrip() for update in stage.shown()] == [
        f"{notices.FORGOT_YOUNG}\n\n"
    ]


@pytest.mark.hazard("R3")
async def test_a_session_that_was_the_agents_before_it_was_ours_had_turns_of_its_own(
    stage: Stage,
) -> None:
    stage.journal.change_info(agent_session_id="s")
    agent = PlayedAgent("load")
    agent.epoch = 2
    agent.reply(SESSION_LOAD, UNKNOWN)
    await stage.run(agent)
    assert agent.heard == [SESSION_LOAD]
    (refused,) = stage.events
    assert isinstance(refused, ev.LoadRefused)


async def test_an_agent_that_wants_a_login_is_an_event_with_its_own_words(stage: Stage) -> None:
    agent = PlayedAgent("resume")
    agent.epoch = 2
    agent.reply(SESSION_RESUME, AUTH_REQUIRED)
    await stage.run(agent)
    assert stage.events == [ev.NeedsAuth(2, AUTH_REQUIRED)]
    assert stage.renamed == []


# --- the journal fails ----------------------------------------------------------------------------


@pytest.mark.parametrize("at", ["turns_finished", "replay", "rename"])
@pytest.mark.hazard("P6")
async def test_a_journal_that_fails_is_a_refusal_without_its_text(
    stage: Stage, at: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*args: object) -> Any:
        raise JournalError("/secret/path")

    if at == "rename":
        stage.rename_fails = JournalError("/secret/path")
    else:
        monkeypatch.setattr(SessionJournal, at, fails)
    await stage.run(stage.agent("load"))
    (refused,) = stage.events
    assert isinstance(refused, ev.LoadRefused)
    assert not refused.permanent
    assert "could not be opened (the log has more under id " in str(refused.detail)
    assert "secret" not in str(refused.detail)
    assert [record.levelno for record in caplog.records] == [logging.ERROR]


@pytest.mark.hazard("K1")
async def test_settings_that_can_not_be_written_are_in_force_all_the_same(stage: Stage) -> None:
    stage.asks(SET_MODE, modeId="edit")
    agent = stage.agent("resume")
    agent.reply(SET_MODE, {})
    with failing(stage.journal, "INSERT ON settings"):
        await stage.run(agent)
    assert stage.events == [LOADED]
    assert stage.user_settings.shown["modes"]["currentModeId"] == "edit"


# --- a process that dies, and a restart that is cancelled -----------------------------------------


@pytest.mark.parametrize("at", [SESSION_RESUME, SET_MODE])
async def test_a_process_that_dies_in_the_middle_has_refused_the_session(
    stage: Stage, at: str
) -> None:
    stage.finish_turn()
    stage.user_settings.note_choice(SET_MODE, {"modeId": "edit"}, {})
    agent = PlayedAgent("resume")
    agent.epoch = 2
    if at != SESSION_RESUME:
        agent.reply(SESSION_RESUME, {})
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(stage.run, agent)
        await agent.asked(at)
        agent.dies()
    (refused,) = stage.events
    assert isinstance(refused, ev.LoadRefused)
    assert "the agent's process has ended (signal SIGKILL)" in str(refused.detail)


@pytest.mark.hazard("R11")
@pytest.mark.parametrize("at", ["replay", "rename"])
async def test_a_process_that_dies_unasked_in_the_middle_changes_nothing_for_the_next(
    stage: Stage, at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    going_on = anyio.Event()

    async def slow_replay(journal: SessionJournal) -> AsyncIterator[list[Json]]:
        await going_on.wait()
        yield [{"update": said("first")}]

    stage.user_settings.note_result({"modes": {**MODES, "currentModeId": "edit"}})
    dies, following = stage.agent("load"), PlayedAgent("resume")
    following.reply(SESSION_RESUME, {})
    following.epoch = 3
    if at == "replay":
        monkeypatch.setattr(SessionJournal, "replay", slow_replay)
    else:
        stage.rename_waits = going_on
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(stage.run, dies)
        await until(lambda: SESSION_LOAD in dies.heard)
        await quiet()
        dies.dies()
        stage.rename_waits = None
        await stage.run(following)
        going_on.set()
    loaded, refused = stage.events
    assert loaded == ev.Loaded(3)
    assert refused == ev.LoadRefused(2, False, "the agent's process has ended")
    assert stage.user_settings.shown["modes"]["currentModeId"] == "edit"
    assert stage.updates.incoming(said("first"), Phase.LIVE) == said("first")
    assert stage.shown() == []


@pytest.mark.hazard("Q9")
async def test_what_waited_and_was_not_sent_when_the_process_died_waits_for_the_next(
    stage: Stage,
) -> None:
    stage.asks("_x/first", 1)
    stage.asks("_x/second", 2)
    agent = stage.agent("resume")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(stage.run, agent)
        await agent.asked("_x/first")
        agent.dies()
    (answer,) = stage.client.sent.take()
    assert (answer["id"], answer["error"]["code"]) == (1, -32603)
    assert [asked.method for asked in stage.to_agent.deferred] == ["_x/second"]
    following = stage.agent("resume")
    following.reply("_x/second", {"n": 2})
    await stage.run(following)
    (answer,) = stage.client.sent.take()
    assert (answer["id"], answer["result"]) == (2, {"n": 2})


async def test_a_request_that_waited_and_that_the_agent_has_now_can_be_cancelled(
    stage: Stage,
) -> None:
    stage.asks("_x/slow", 5)
    agent = stage.agent("resume")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(stage.run, agent)
        asked = await agent.asked("_x/slow")
        assert stage.to_agent.cancel(stage.client.client, 5)
        assert agent.params("$/cancel_request") == [{"requestId": asked["id"]}]
        agent.answer(asked, refusal(-32800, "cancelled"))
    assert stage.events == [LOADED]
    (answer,) = stage.client.sent.take()
    assert (answer["id"], answer["error"]["code"]) == (5, -32800)


@pytest.mark.parametrize("at", [SESSION_RESUME, SET_MODE])
async def test_a_restart_that_is_cancelled_says_nothing_and_calls_its_request_back(
    stage: Stage, at: str
) -> None:
    stage.user_settings.note_choice(SET_MODE, {"modeId": "edit"}, {})
    agent = PlayedAgent("resume")
    for method in (SESSION_RESUME, SET_MODE):
        if method == at:
            break
        agent.reply(method, {})
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(stage.run, agent)
        asked = await agent.asked(at)
        tasks.cancel_scope.cancel()
    assert stage.events == []
    assert agent.params("$/cancel_request") == [{"requestId": asked["id"]}]
