"""Requests for the agent: sent now or when a process is ready, in order, each answered once."""

from pathlib import Path
from typing import Any

import anyio
import pytest

from acp_bridge.core.agents.link import Link
from acp_bridge.core.machine import events as ev
from acp_bridge.core.protocol import (
    CANCEL_REQUEST,
    MODE_UPDATE,
    OPTIONS_UPDATE,
    SESSION_PROMPT,
    SESSION_RESUME,
    SET_CONFIG_OPTION,
    SET_MODE,
    user_chunk,
)
from acp_bridge.core.wire.jsonrpc import RpcError
from tests.core.session.living import (
    CANCELLED,
    DONE,
    Living,
    does_not_exist,
    does_nothing,
    first,
    living,
    resumes,
)
from tests.core.session.memory import ClientEnd, Json
from tests.core.session.played_agent import BUSY, PlayedAgent
from tests.core.session.waiting import quiet, until

pytestmark = pytest.mark.usefixtures("no_errors")

OPTIONS = [{"id": "a", "type": "boolean"}, {"id": "b", "type": "select"}]


def names(agent: PlayedAgent, method: str = "_x/y") -> list[Any]:
    """Return which requests the agent was asked, by the number in their parameters."""
    return [params.get("n") for params in agent.params(method)]


async def loading(here: Living) -> tuple[PlayedAgent, Json]:
    """Return the first process that is started, and the request by which it gets the session."""
    agent = await here.agent()
    return agent, await agent.asked(SESSION_RESUME)


# --- now ------------------------------------------------------------------------------------------


@pytest.mark.hazard("T3", "P13")
@pytest.mark.parametrize("when", ["at rest", "in a turn", "after a cancel"])
@pytest.mark.parametrize("result", [{"kept": [1.0, None], "_meta": 1}, None, [1], "text"])
async def test_a_request_goes_out_at_once_and_its_answer_comes_back_as_it_is(
    tmp_path: Path, when: str, result: Any
) -> None:
    async with living(tmp_path, first=first()) as here:
        agent = await here.agent()
        if when != "at rest":
            here.prompt()
            turn = await agent.asked(SESSION_PROMPT)
        if when == "after a cancel":
            here.session.feed(ev.Cancel())
        asked = here.asks("_x/y", n=[1, None], _meta={"x": 1})
        assert agent.params("_x/y") == [{"sessionId": "0", "n": [1, None], "_meta": {"x": 1}}]
        agent.answer(await agent.asked("_x/y"), result)
        assert await here.answered(asked) == result
        if when != "at rest":
            agent.answer(turn, DONE)


@pytest.mark.hazard("P13.1", "Q9.1")
async def test_requests_of_two_clients_with_one_id_are_two_at_the_agent_and_answered_apart(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, first=first()) as here:
        agent, other = await here.agent(), ClientEnd()
        here.session.transcript.attach(other.client)
        mine = here.asks("_x/y", n=1)
        here.session.to_agent.pass_on(other.asks("_x/y", {"sessionId": "s", "n": 2}, mine))
        one, two = await agent.asked("_x/y"), await agent.asked("_x/y")
        assert here.session.cancel_request(other.client, mine)
        assert agent.params(CANCEL_REQUEST) == [{"requestId": two["id"]}]
        agent.answer(two, {"for": "two"})
        agent.answer(one, BUSY)
        assert [message["result"] for message in other.sent.take()] == [{"for": "two"}]
        assert await here.answered(mine) == BUSY.to_wire()


@pytest.mark.hazard("R1", "T2")
async def test_an_answer_comes_once_and_behind_what_the_client_is_shown_before_it(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, first=first()) as here:
        agent, (view,) = await here.agent(), here.session.transcript.views
        here.asks("_x/y")
        asked = await agent.asked("_x/y")
        agent.says_text("said")
        view.begin_replay()
        before = len(here.got)
        for _ in range(2):
            agent.answer(asked, {})
        assert here.answers() == {}
        view.end_replay()
        assert [message.get("method") for message in here.got[before:]] == [None]
        assert here.texts() == ["said"]


@pytest.mark.hazard("T3", "R9")
async def test_boolean_options_are_left_out_for_the_client_that_asked_and_kept_in_the_session(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, first=first()) as here:
        agent, request_id = await here.agent(), here.asks(SET_CONFIG_OPTION, configId="a")
        result = {"configOptions": OPTIONS, "_meta": 1}
        agent.answer(await agent.asked(SET_CONFIG_OPTION), result)
        assert await here.answered(request_id) == {**result, "configOptions": OPTIONS[1:]}
        assert here.session.user_settings.shown == {"configOptions": OPTIONS}


@pytest.mark.hazard("R9.1", "P3", "Q9.2")
async def test_what_a_process_had_fails_with_it_and_only_what_it_confirmed_is_set_again(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, first=first()) as here:
        agent = await here.agent()
        ids = [
            here.asks(SET_MODE, modeId="edit"),
            here.asks(SET_CONFIG_OPTION, configId="b", value="y"),
            here.asks("_x/y"),
        ]
        agent.answer(await agent.asked(SET_MODE), BUSY)
        agent.answer(await agent.asked(SET_CONFIG_OPTION), {})
        asked = await agent.asked("_x/y")
        agent.dies()
        agent.answer(asked, {})  # too late
        assert [here.answers()[each].get("code") for each in ids] == [-32603, None, -32603]
        assert not here.session.cancel_request(here.client.client, ids[-1])
        here.session.wake()
        following = await here.agent(2)
        await until(lambda: SET_CONFIG_OPTION in following.heard)
        following.answer(await following.asked(SET_CONFIG_OPTION), {})
        await here.turn(following)
        assert SET_MODE not in following.heard
        assert len(here.answers()) == 4


@pytest.mark.parametrize("way", ["request", "notification"])
async def test_the_words_with_which_a_client_begins_work_by_another_method_are_not_shown_again(
    tmp_path: Path, way: str
) -> None:
    words: Json = {"type": "text", "text": "mend"}
    async with living(tmp_path, first=first()) as here:
        agent = await here.agent()
        if way == "request":
            here.asks("_x/y", prompt=[words])
        else:
            here.session.pass_notification("_x/told", {"sessionId": "s", "prompt": [words]})
        agent.update(**user_chunk(words))
        agent.says_text("done")
        assert here.texts() == ["done"]


async def test_words_of_another_type_in_such_a_request_hide_nothing_that_the_agent_says(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, first=first()) as here:
        agent = await here.agent()
        here.asks("_x/y", prompt=1)
        agent.update(**user_chunk({"type": "text", "text": "mend"}))
        assert here.texts() == ["mend"]


@pytest.mark.parametrize("params", [["s", 1], {"n": 1}])
async def test_parameters_that_name_no_session_reach_the_agent_as_they_are(
    tmp_path: Path, params: Any
) -> None:
    async with living(tmp_path, first=first()) as here:
        agent = await here.agent()
        here.session.to_agent.pass_on(here.client.asks("_x/y", params))
        assert agent.sent.messages[-1]["params"] == params


@pytest.mark.hazard("P13.2")
async def test_what_the_agent_asks_for_a_request_names_it_as_the_client_does(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, first=first()) as here:
        agent, request_id = await here.agent(), here.asks("_x/y")
        asked = await agent.asked("_x/y")
        assert asked["id"] != request_id
        agent.asks("_x/z", {"sessionId": "0", "requestId": asked["id"]})
        assert here.got[-1]["params"] == {"sessionId": "s", "requestId": request_id}


@pytest.mark.hazard("Q9.3", "P6")
async def test_a_request_that_breaks_on_its_way_is_answered_without_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def breaks(*args: object) -> int:
        raise OSError("/secret")

    async with living(tmp_path, first=first()) as here:
        with monkeypatch.context() as patch:
            patch.setattr(Link, "request_for", breaks)
            error = await here.answered(here.asks("_x/y"))
        assert error["message"].startswith("_x/y could not be passed on (the log has more ")
        assert "secret" not in str(error)
        assert "/secret" in caplog.text
        caplog.clear()
        await here.turn(await here.agent())


@pytest.mark.hazard("C23.1")
async def test_a_setting_that_a_client_asks_for_ends_its_quiet_behind_a_cancel(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, first=first()) as here:
        agent, request_id = await here.agent(), here.prompt()
        turn = await agent.asked(SESSION_PROMPT)
        here.session.feed(ev.Cancel())
        agent.answer(turn, CANCELLED)
        assert await here.answered(request_id) == CANCELLED
        agent.update(sessionUpdate=MODE_UPDATE, currentModeId="edit")
        assert here.updates() == []
        here.asks(SET_MODE, modeId="plan")
        assert [update["currentModeId"] for update in here.updates()] == ["edit"]


@pytest.mark.hazard("V1")
async def test_a_setting_is_told_by_its_answer_even_during_a_replay_and_others_by_an_update(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, first=first()) as here:
        agent, other, (view,) = await here.agent(), ClientEnd(), here.session.transcript.views
        here.session.transcript.attach(other.client)
        here.session.user_settings.note_result({"modes": {"currentModeId": "plan"}})
        request_id = here.asks(SET_MODE, modeId="edit")
        view.begin_replay()
        agent.answer(await agent.asked(SET_MODE), {})
        assert here.answers() == {request_id: {}}
        view.end_replay()
        assert here.updates() == []
        (told,) = other.sent.take()
        assert told["params"]["update"]["currentModeId"] == "edit"


# --- deferred -------------------------------------------------------------------------------------


@pytest.mark.hazard("R9")
async def test_what_waits_is_sent_one_by_one_to_the_process_that_is_given_the_session(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, does_nothing) as here:
        one, two = here.asks(SET_MODE, modeId="edit"), here.asks("_x/y", n=2)
        agent, resumed = await loading(here)
        agent.answer(resumed, {})
        setting = await agent.asked(SET_MODE)
        three, prompt = here.asks("_x/y", n=3), here.prompt()
        agent.answer(setting, {})
        assert await here.answered(one) == {}
        asked = await agent.asked("_x/y")
        await quiet()
        assert names(agent) == [2]
        agent.answer(asked, BUSY)
        assert await here.answered(two) == BUSY.to_wire()
        asked = await agent.asked("_x/y")
        await quiet()
        assert SESSION_PROMPT not in agent.heard
        agent.answer(asked, {})
        agent.answer(await agent.asked(SESSION_PROMPT), DONE)
        assert (await here.answered(three), await here.answered(prompt)) == ({}, DONE)
        assert names(agent) == [2, 3]


@pytest.mark.hazard("R9", "P3", "Q8", "Q9")
async def test_what_a_process_was_not_asked_before_it_ended_waits_for_the_next_one(
    tmp_path: Path,
) -> None:
    async with living(tmp_path) as here:
        one, two = here.asks("_x/y", n=1), here.asks("_x/y", n=2)
        agent = await here.agent()
        await agent.asked("_x/y")
        agent.dies()
        assert (await here.answered(one))["code"] == -32603
        following = await here.agent(2)
        following.answer(await following.asked("_x/y"), {})
        assert await here.answered(two) == {}
        assert (names(agent), names(following)) == ([1], [2])


@pytest.mark.hazard("R9", "R3")
async def test_when_no_process_comes_a_request_fails_and_what_it_would_set_is_forgotten(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, does_not_exist, resumes, first=first()) as here:
        agent = await here.agent()
        agent.reply(SET_MODE, {})
        agent.reply(SET_CONFIG_OPTION, {})
        here.asks(SET_MODE, modeId="edit")
        here.asks(SET_CONFIG_OPTION, configId="b", value="y")
        agent.dies()
        assert "not found" in (await here.answered(here.prompt()))["message"]
        refused = await here.answered(here.asks(SET_MODE, modeId="plan"))
        assert refused["message"] == "the agent is not running; send a prompt to try again"
        assert len(here.context.agents) == 2
        here.prompt()
        following = await here.agent(3)
        await following.asked(SET_CONFIG_OPTION)
        assert SET_MODE not in following.heard


async def test_no_prompt_waits_for_the_answer_to_a_request_beside_the_session(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, does_nothing) as here:
        asks = here.session.to_agent.ask_beside
        params = {"sessionId": "s"}
        here.context.tasks.start_soon(asks, here.request("_x/beside"), "_x/beside", params)
        agent, resumed = await loading(here)
        prompt = here.prompt()
        agent.answer(resumed, {})
        beside = await agent.asked("_x/beside")
        agent.answer(await agent.asked(SESSION_PROMPT), DONE)
        assert await here.answered(prompt) == DONE
        agent.answer(beside, {})


# --- cancel ---------------------------------------------------------------------------------------


@pytest.mark.hazard("Q9", "C3")
async def test_a_cancel_takes_a_request_that_waits_back_and_no_other(tmp_path: Path) -> None:
    async with living(tmp_path, does_nothing) as here:
        other, mine = ClientEnd(), here.asks("_x/y", n=1)
        here.session.transcript.attach(other.client)
        here.session.to_agent.pass_on(other.asks("_x/y", {"sessionId": "s", "n": 2}, mine))
        kept = here.asks("_x/y", n=3)
        client = here.client.client
        for who, odd in ((other.client, kept), (client, str(mine))):
            assert not here.session.cancel_request(who, odd)
        assert here.session.cancel_request(client, mine)
        assert here.answers()[mine]["code"] == -32800
        assert not here.session.cancel_request(client, mine)
        assert other.sent.take() == []
        agent, resumed = await loading(here)
        agent.reply("_x/y", {"for": "two"}, {})
        agent.answer(resumed, {})
        assert await here.answered(kept) == {}
        assert [message["result"] for message in other.sent.take()] == [{"for": "two"}]
        assert names(agent) == [2, 3]


@pytest.mark.hazard("P13", "Q9")
async def test_a_cancel_reaches_a_request_that_waited_and_was_just_sent(tmp_path: Path) -> None:
    async with living(tmp_path) as here:
        one, two = here.asks("_x/y", n=1), here.asks("_x/y", n=2)
        agent, client = await here.agent(), here.client.client
        asked = await agent.asked("_x/y")
        for request_id in (one, two):
            assert here.session.cancel_request(client, request_id)
        assert agent.params(CANCEL_REQUEST) == [{"requestId": asked["id"]}]
        assert (await here.answered(two))["code"] == -32800
        agent.answer(asked, BUSY)
        assert await here.answered(one) == BUSY.to_wire()
        await here.turn(agent)
        assert names(agent) == [1]


async def test_a_notification_without_a_process_goes_to_nobody(tmp_path: Path) -> None:
    async with living(tmp_path, does_nothing) as here:
        here.session.wake()
        agent, resumed = await loading(here)
        here.session.pass_notification("_x/told", {"sessionId": "s"})
        agent.answer(resumed, {})
        await here.turn(agent)
        assert agent.params("_x/told") == []


# --- an agent that says nothing -------------------------------------------------------------------


@pytest.mark.hazard("C21.8", "Q9")
async def test_an_agent_that_ignores_the_cancel_of_a_request_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("acp_bridge.core.runtime.waits.AGENT_PATIENCE", 0.0)
    async with living(tmp_path, first=first()) as here:
        agent, request_id = await here.agent(), here.asks("_x/y")
        await agent.asked("_x/y")
        assert here.session.cancel_request(here.client.client, request_id)
        assert (await here.answered(request_id))["code"] == -32800
        assert len(agent.params(CANCEL_REQUEST)) == 1
        await here.turn(agent)


@pytest.mark.hazard("Q9", "R9")
async def test_a_setting_that_is_confirmed_after_it_was_given_up_is_in_force_and_shown_to_all(
    tmp_path: Path,
) -> None:
    modes = {"currentModeId": "plan", "availableModes": [{"id": "plan"}, {"id": "edit"}]}
    result = {"configOptions": OPTIONS}
    async with living(tmp_path, first=first()) as here:
        agent = await here.agent()
        here.session.user_settings.note_result({"modes": modes})
        here.session.to_agent._patience = 0.0
        for answer, told in ((BUSY, []), (result, [OPTIONS_UPDATE, MODE_UPDATE])):
            request_id = here.asks(SET_MODE, modeId="edit")
            asked = await agent.asked(SET_MODE)
            error = await here.answered(request_id)
            assert (error["code"], SET_MODE in error["message"]) == (-32603, True)
            assert agent.params(CANCEL_REQUEST)[-1] == {"requestId": asked["id"]}
            agent.answer(asked, answer)
            assert [update["sessionUpdate"] for update in here.updates()] == told
        shown = here.session.user_settings.shown
        assert (shown["modes"]["currentModeId"], shown["configOptions"]) == ("edit", OPTIONS)


# --- an answer that the bridge takes --------------------------------------------------------------


async def test_a_request_whose_answer_the_bridge_takes_is_cancelled_as_any_other(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, first=first()) as here:
        agent, results = await here.agent(), list[Any]()
        request = here.request("_x/y", n=1)

        async def ask() -> None:
            results.append(await here.session.to_agent.ask(request))

        here.context.tasks.start_soon(ask)
        asked = await agent.asked("_x/y")
        assert asked["params"] == {"sessionId": "0", "n": 1}
        assert here.session.cancel_request(here.client.client, request.call.id)
        assert agent.params(CANCEL_REQUEST) == [{"requestId": asked["id"]}]
        agent.answer(asked, {"answer": 1})
        await until(lambda: results)
        assert results == [{"answer": 1}]


@pytest.mark.hazard("Q9")
async def test_with_its_caller_such_a_request_is_given_up_at_the_agent(tmp_path: Path) -> None:
    async with living(tmp_path, first=first()) as here:
        agent = await here.agent()
        agent.reply("_x/y", BUSY)
        with pytest.raises(RpcError, match="busy"):
            await here.session.to_agent.ask(here.request("_x/y"))
        with anyio.CancelScope() as scope:
            agent.on_sent = scope.cancel
            await here.session.to_agent.ask(here.request("_x/y"))
        asked = await agent.asked("_x/y")
        assert agent.params(CANCEL_REQUEST) == [{"requestId": asked["id"]}]
        assert not here.session.to_agent.busy


async def test_a_request_is_refused_while_another_machine_has_the_session(tmp_path: Path) -> None:
    async with living(tmp_path, first=first()) as here:
        await here.agent()
        here.session.feed(ev.Taken())
        refused = await here.answered(here.asks(SET_MODE, modeId="plan"))
        assert refused["message"] == (
            "another machine has this session, so no agent runs for it here"
        )
