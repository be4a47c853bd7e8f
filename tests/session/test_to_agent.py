"""Requests for the agent: sent now or when a process is ready, in order, each answered once."""

from typing import Any

import pytest

from acp_bridge import errors
from acp_bridge.journal import SessionJournal
from acp_bridge.machine.states import State
from acp_bridge.protocol import SET_CONFIG_OPTION, SET_MODE, text_chunk
from acp_bridge.session.requests.to_agent import ToAgent
from acp_bridge.session.requests.user_settings import UserSettings
from acp_bridge.session.transcript.transcript_out import TranscriptOut
from acp_bridge.updates.updates import Updates
from tests.session.memory import ClientEnd, MemoryLink
from tests.session.played_core import PlayedCore
from tests.session.waiting import beside, quiet, until

Json = dict[str, Any]
ON_THE_WAY = (State.COLD, State.STARTING, State.RELOADING, State.KILLING)
OPTIONS = [{"id": "a", "type": "boolean"}, {"id": "b", "type": "select"}]


class Stage:
    """A session that two clients have, and a process that the test plays."""

    def __init__(self, journal: SessionJournal, state: State = State.IDLE) -> None:
        self.one, self.two = ClientEnd(), ClientEnd()
        self.core = PlayedCore()
        self.transcript = TranscriptOut("s", journal, Updates(set()))
        for end in (self.one, self.two):
            self.transcript.attach(end.client)
        self.settings = UserSettings(journal)
        self.woken = 0
        self.to_agent = ToAgent(
            self.core, self.transcript, self.settings, Updates(set()), self.wake
        )
        self.link = MemoryLink()
        self.enter(state)

    def enter(self, state: State) -> None:
        self.core.machine_state = state
        has_it = state in (State.IDLE, State.WORKING, State.RUNNING, State.DRAINING)
        self.core.link_now = self.link if has_it else None
        self.to_agent.follow(self.core.state, self.core.state)

    def wake(self) -> None:
        self.woken += 1

    def asks(self, request_id: Any, method: str = "_x/y", end: ClientEnd | None = None) -> None:
        """A client asks for something; its parameters name the request."""
        params = {"sessionId": "s", "modeId": str(request_id), "configId": "a"}
        self.to_agent.pass_on((end or self.one).asks(method, params, request_id))

    def asked(self) -> list[str]:
        """Return what the agent was asked since the last call: names of requests."""
        return [message["params"]["modeId"] for message in self.link.sent.take()]

    def answers(self, request_id: int, result: Any = None) -> None:
        self.link.says({"id": request_id, "result": {} if result is None else result})

    def got(self, end: ClientEnd | None = None) -> list[tuple[Any, Any]]:
        """Return what a client was answered: ids, and results or codes of errors."""
        return [
            (message["id"], message["error"]["code"] if "error" in message else message["result"])
            for message in (end or self.one).sent.take()
        ]


# --- now ------------------------------------------------------------------------------------------


@pytest.mark.hazard("T3", "P13")
@pytest.mark.parametrize("state", [State.IDLE, State.WORKING, State.RUNNING, State.DRAINING])
async def test_a_request_goes_out_at_once_and_its_answer_comes_back_as_it_is(
    journal: SessionJournal, state: State
) -> None:
    stage = Stage(journal, state)
    params = {"sessionId": "s", "n": [1, None], "_meta": {"x": 1}}
    stage.to_agent.pass_on(stage.one.asks("_x/y", params, "mine"))
    (asked,) = stage.link.sent.take()
    assert asked["params"] == {**params, "sessionId": "0"}
    stage.answers(asked["id"], {"kept": [1.0, None], "_meta": 1})
    assert stage.got() == [("mine", {"kept": [1.0, None], "_meta": 1})]


@pytest.mark.parametrize("params", [None, [1], "text"])
@pytest.mark.hazard("T3")
async def test_odd_parameters_and_results_pass_as_they_are(
    journal: SessionJournal, params: Any
) -> None:
    stage = Stage(journal)
    stage.to_agent.pass_on(stage.one.asks("_x/y", params, 1))
    (asked,) = stage.link.sent.take()
    assert asked["params"] == params
    stage.link.says({"id": asked["id"], "result": params})
    assert stage.got() == [(1, params)]


@pytest.mark.hazard("P13", "Q9")
async def test_requests_of_two_clients_with_one_id_are_two_at_the_agent_and_answered_apart(
    journal: SessionJournal,
) -> None:
    stage = Stage(journal)
    stage.asks(7)
    stage.asks(7, end=stage.two)
    first, second = (message["id"] for message in stage.link.sent.take())
    stage.answers(second, {"for": "two"})
    stage.link.says({"id": first, "error": {"code": -7, "message": "no", "data": None}})
    assert stage.got(stage.two) == [(7, {"for": "two"})]
    error = {"code": -7, "message": "no", "data": {"details": "no"}}
    assert stage.one.sent.take() == [{"jsonrpc": "2.0", "id": 7, "error": error}]


@pytest.mark.hazard("Q9")
async def test_an_answer_that_comes_twice_is_passed_on_once(journal: SessionJournal) -> None:
    stage = Stage(journal)
    stage.asks(1)
    for _ in range(2):
        stage.answers(1)
    assert stage.got() == [(1, {})]


@pytest.mark.hazard("R1", "T2")
async def test_an_answer_comes_behind_what_the_client_is_shown_before_it(
    journal: SessionJournal,
) -> None:
    stage = Stage(journal)
    stage.asks(1)
    stage.transcript.show({"update": text_chunk("agent_message_chunk", "said", "m")})
    view = stage.transcript.views[0]
    view.begin_replay()
    stage.answers(1)
    assert stage.one.sent.take() == []
    view.end_replay()
    shown, answered = stage.one.sent.take()
    assert "method" in shown
    assert answered["id"] == 1


@pytest.mark.hazard("T3", "R9")
async def test_boolean_options_are_left_out_for_the_client_that_asked_and_kept_in_the_session(
    journal: SessionJournal,
) -> None:
    stage = Stage(journal)
    stage.asks(1, SET_CONFIG_OPTION)
    stage.answers(1, {"configOptions": OPTIONS, "_meta": 1})
    assert stage.got() == [(1, {"configOptions": OPTIONS[1:], "_meta": 1})]
    assert stage.settings.shown == {"configOptions": OPTIONS}


@pytest.mark.hazard("R9")
async def test_only_what_the_agent_confirmed_is_the_users_choice(journal: SessionJournal) -> None:
    stage = Stage(journal)
    stage.asks(1, SET_MODE)
    stage.asks(2, SET_CONFIG_OPTION)
    assert stage.settings.chosen == []
    stage.link.says({"id": 1, "error": {"code": -32602, "message": "no"}})
    stage.answers(2)
    assert [method for method, _ in stage.settings.chosen] == [SET_CONFIG_OPTION]


@pytest.mark.hazard("P3", "Q9")
async def test_a_process_that_ends_fails_what_it_was_asked_once(journal: SessionJournal) -> None:
    stage = Stage(journal)
    stage.asks(1)
    stage.asks(2)
    stage.answers(1)
    stage.link.peer.close(errors.agent_trouble("gone"))
    stage.answers(2)
    assert stage.got() == [(1, {}), (2, -32603)]
    assert not stage.to_agent.cancel(stage.one.client, 2)
    # One that is asked when it has just ended fails at once.
    stage.asks(3)
    assert stage.got() == [(3, -32603)]
    assert not stage.to_agent.cancel(stage.one.client, 3)


# --- deferred -------------------------------------------------------------------------------------


@pytest.mark.hazard("R9")
@pytest.mark.parametrize("state", ON_THE_WAY)
async def test_without_a_process_requests_wait_and_one_is_started_for_them(
    journal: SessionJournal, state: State
) -> None:
    stage = Stage(journal, state)
    stage.asks(1, SET_MODE)
    stage.asks(2)
    assert stage.woken > 0
    assert (stage.asked(), stage.got()) == ([], [])
    assert [asked.method for asked in stage.to_agent.deferred] == [SET_MODE, "_x/y"]
    woken = stage.woken
    stage.enter(State.IDLE)
    assert stage.woken == woken
    assert stage.asked() == ["1", "2"]
    stage.answers(2)
    stage.answers(1)
    assert stage.got() == [(2, {}), (1, {})]


@pytest.mark.hazard("R9")
async def test_what_waits_is_sent_one_by_one_to_the_process_that_is_given_the_session(
    journal: SessionJournal,
) -> None:
    stage = Stage(journal, State.RELOADING)
    stage.asks(1, SET_MODE)
    stage.asks(2, SET_CONFIG_OPTION)
    async with beside(stage.to_agent.send_deferred, stage.link) as sending:
        assert stage.asked() == ["1"]
        stage.asks(3)  # comes while they are sent
        stage.answers(1)
        await quiet()
        assert (stage.asked(), stage.got()) == (["2"], [(1, {})])
        stage.link.says({"id": 2, "error": {"code": -1, "message": "no"}})
        await quiet()
        assert stage.asked() == ["3"]
        assert not sending.ended
        stage.answers(3)
    assert stage.got() == [(2, -1), (3, {})]
    assert [method for method, _ in stage.settings.chosen] == [SET_MODE]


@pytest.mark.hazard("R9", "P3")
async def test_what_a_process_was_not_asked_before_it_ended_waits_for_the_next_one(
    journal: SessionJournal,
) -> None:
    stage = Stage(journal, State.RELOADING)
    stage.asks(1, SET_MODE)
    stage.asks(2, SET_CONFIG_OPTION)
    async with beside(stage.to_agent.send_deferred, stage.link):
        # As a link does it: its owner is told first, then its requests fail.
        stage.link.gone = True
        stage.enter(State.KILLING)
        stage.link.peer.close(errors.agent_trouble("gone"))
    assert stage.got() == [(1, -32603)]
    stage.link = MemoryLink("next")
    stage.enter(State.IDLE)
    assert stage.asked() == ["2"]
    stage.answers(1)
    assert stage.got() == [(2, {})]


@pytest.mark.hazard("Q8", "Q9")
async def test_who_sends_what_waits_and_is_cancelled_loses_none_of_it(
    journal: SessionJournal,
) -> None:
    stage = Stage(journal, State.RELOADING)
    stage.asks(1)
    stage.asks(2)
    async with beside(stage.to_agent.send_deferred, stage.link) as sending:
        sending.cancel()
    assert stage.asked() == ["1"]
    stage.answers(1)
    stage.enter(State.IDLE)
    assert stage.asked() == ["2"]
    stage.answers(2)
    assert stage.got() == [(1, {}), (2, {})]


# --- refused, gone --------------------------------------------------------------------------------


@pytest.mark.hazard("R9", "R3")
@pytest.mark.parametrize("state", [State.BLOCKED, State.UNAUTHENTICATED])
async def test_when_no_process_comes_a_request_fails_and_what_it_would_set_is_forgotten(
    journal: SessionJournal, state: State
) -> None:
    stage = Stage(journal)
    stage.asks(1, SET_MODE)
    stage.asks(2, SET_CONFIG_OPTION)
    for number in (1, 2):
        stage.answers(number)
    stage.got()
    stage.enter(state)
    stage.asks(3, SET_MODE)
    (answer,) = stage.one.sent.take()
    assert "send a prompt to try again" in answer["error"]["message"]
    assert [method for method, _ in stage.settings.chosen] == [SET_CONFIG_OPTION]
    assert stage.woken == 0


async def test_a_session_that_has_ended_is_unknown(journal: SessionJournal) -> None:
    stage = Stage(journal, State.CLOSED)
    stage.asks(1)
    assert stage.got() == [(1, -32002)]


@pytest.mark.hazard("Q9", "R3")
@pytest.mark.parametrize(("state", "code"), [(State.BLOCKED, -32603), (State.CLOSED, -32002)])
async def test_what_waits_is_answered_when_no_process_is_on_its_way_any_more(
    journal: SessionJournal, state: State, code: int
) -> None:
    stage = Stage(journal, State.STARTING)
    stage.asks(1)
    stage.asks(1, end=stage.two)
    stage.enter(State.KILLING)
    assert stage.got() == []
    stage.enter(state)
    assert (stage.got(), stage.got(stage.two)) == ([(1, code)], [(1, code)])
    stage.enter(state)
    assert stage.got() == []


@pytest.mark.hazard("Q9")
async def test_what_waits_goes_on_waiting_while_its_process_is_asked_for_again(
    journal: SessionJournal,
) -> None:
    stage = Stage(journal, State.STARTING)
    stage.asks(1)
    stage.asks(2)
    woken = stage.woken
    stage.enter(State.COLD)
    assert stage.woken > woken
    stage.enter(State.IDLE)
    assert stage.asked() == ["1", "2"]


# --- cancel ---------------------------------------------------------------------------------------


@pytest.mark.hazard("Q9", "C3")
async def test_a_cancel_takes_a_request_that_waits_back_and_no_other(
    journal: SessionJournal,
) -> None:
    stage = Stage(journal, State.STARTING)
    stage.asks(1)
    stage.asks(1, end=stage.two)
    stage.asks(2)
    assert not stage.to_agent.cancel(stage.two.client, 2)
    assert not stage.to_agent.cancel(stage.one.client, "1")
    assert stage.to_agent.cancel(stage.one.client, 1)
    assert not stage.to_agent.cancel(stage.one.client, 1)
    assert (stage.got(), stage.got(stage.two)) == ([(1, -32800)], [])
    stage.enter(State.IDLE)
    assert [message["params"]["modeId"] for message in stage.link.sent.take()] == ["1", "2"]
    stage.answers(1)
    assert (stage.got(), stage.got(stage.two)) == ([], [(1, {})])


@pytest.mark.hazard("P13", "Q9")
async def test_a_cancel_of_a_request_that_the_agent_has_is_passed_on_and_its_answer_counts(
    journal: SessionJournal,
) -> None:
    stage = Stage(journal)
    stage.asks(5)
    stage.asks(5, end=stage.two)
    stage.link.sent.take()
    assert stage.to_agent.cancel(stage.two.client, 5)
    (told,) = stage.link.sent.take()
    assert told == {
        "jsonrpc": "2.0",
        "method": "$/cancel_request",
        "params": {"requestId": 2},
    }
    assert stage.got(stage.two) == []
    stage.link.says({"id": 2, "error": {"code": -32800, "message": "cancelled"}})
    assert stage.got(stage.two) == [(5, -32800)]
    # A late one is for nobody.
    assert not stage.to_agent.cancel(stage.two.client, 5)
    assert stage.link.sent.take() == []


@pytest.mark.hazard("P13", "Q9")
async def test_a_cancel_reaches_a_request_that_waited_and_was_just_sent(
    journal: SessionJournal,
) -> None:
    stage = Stage(journal, State.RELOADING)
    stage.asks(1)
    stage.asks(2)
    async with beside(stage.to_agent.send_deferred, stage.link):
        stage.link.sent.take()
        assert stage.to_agent.cancel(stage.one.client, 1)
        (told,) = stage.link.sent.take()
        assert (told["method"], told["params"]) == ("$/cancel_request", {"requestId": 1})
        assert stage.to_agent.cancel(stage.one.client, 2)
        stage.link.says({"id": 1, "error": {"code": -32800, "message": "cancelled"}})
        await until(lambda: len(stage.one.sent.messages) == 2)
    assert stage.got() == [(2, -32800), (1, -32800)]
    assert stage.asked() == []
    assert not stage.to_agent.cancel(stage.one.client, 1)


# --- notifications --------------------------------------------------------------------------------


@pytest.mark.hazard("P13")
async def test_a_notification_names_the_agents_session_and_without_a_process_goes_to_nobody(
    journal: SessionJournal,
) -> None:
    stage = Stage(journal)
    stage.to_agent.pass_notification("_x/y", {"sessionId": "s", "n": 1})
    stage.enter(State.STARTING)
    stage.to_agent.pass_notification("_x/y", {"sessionId": "s", "n": 2})
    (told,) = stage.link.sent.take()
    assert (told["method"], told["params"]) == ("_x/y", {"sessionId": "0", "n": 1})
    assert "id" not in told
