"""What an agent asks while a client with a name is away, and whom the question waits for."""

from pathlib import Path
from typing import Any

import pytest

from tests.core.bridge.test_names import ENDS, attached, leaves, named
from tests.core.bridge.test_questions import CANCELLED, FORMS, PERMISSION, TOOL, Turn, chosen, turn
from tests.core.sessions.agent import Gate, Json, until
from tests.core.sessions.world import SETUP


def question(asked: Json) -> Any:
    return asked["params"]["_meta"]["acp_bridge"]["question"]


async def next_turn(here: Turn) -> Gate:
    """Let the turn that runs end; returns the gate at which the next one stops."""
    gate = here.it.agent.stops_at("session/prompt")
    here.gate.open()
    await until(lambda: gate.reached)
    return gate


@pytest.mark.hazard("N2.9", "N2.10", "V3.1")
@ENDS
async def test_a_question_waits_for_who_was_asked_and_is_asked_again_under_its_id(
    tmp_path: Path, ends: str
) -> None:
    async with turn(tmp_path) as here:
        old = await attached(here.it, here.id)
        await here.it.editor.ask("session/close", {"sessionId": here.id})
        here.asks()
        (first,) = await old.got(PERMISSION)
        await leaves(old, ends)
        new = await here.it.joined_with(named())
        await old.parted.wait()
        old.answers_with(first, chosen("no"))
        await here.it.settled()
        assert here.answers() == new.asked(PERMISSION) == old.asked("$/cancel_request") == []
        await new.ask("session/resume", {"sessionId": here.id, "cwd": "/w", "mcpServers": []})
        (second,) = await new.got(PERMISSION)
        assert question(second) == question(first)
        new.answers_with(second, chosen("yes"))
        assert await here.answered() == chosen("yes")


@pytest.mark.hazard("N2.10", "V3")
@pytest.mark.parametrize("method", [PERMISSION, "elicitation/create"])
async def test_what_is_asked_in_the_turn_of_one_that_is_away_waits_for_it(
    tmp_path: Path, method: str
) -> None:
    async with turn(tmp_path, FORMS) as here:
        can = {**FORMS, **named(ownTurnsOnly=True)}
        old = await here.it.joined_with(can)
        await old.ask("_acp_bridge/attach", {"sessionId": here.id})
        await here.it.editor.ask("session/close", {"sessionId": here.id})
        old.prompt(here.id, "work")
        its_turn = await next_turn(here)
        await leaves(old, "noticed")
        more: Json = {} if method == PERMISSION else {"mode": "form", "message": "Which?"}
        here.asks(method, **more)
        await here.it.settled()
        assert here.answers() == []
        new = await here.it.joined_with(can)
        await new.ask("_acp_bridge/attach", {"sessionId": here.id})
        (asked,) = await new.got(method)
        answer = chosen("yes") if method == PERMISSION else {"action": "accept"}
        new.answers_with(asked, answer)
        assert await here.answered() == answer
        its_turn.open()


@pytest.mark.hazard("N2", "V3", "Q9")
@pytest.mark.parametrize("how", ["closes", "observes", "is stopped"])
async def test_a_question_does_not_wait_for_who_has_come_back_and_is_not_to_be_asked(
    tmp_path: Path, how: str
) -> None:
    async with turn(tmp_path, drain_timeout=60) as here:
        old = await attached(here.it, here.id)
        watcher = await here.it.attached(here.id, observer=True)
        await here.it.editor.ask("session/close", {"sessionId": here.id})
        here.asks()
        await old.got(PERMISSION)
        await leaves(old, "noticed")
        if how == "closes":
            new = await here.it.joined_with(named())
            await new.ask("session/close", {"sessionId": here.id})
        elif how == "observes":
            await attached(here.it, here.id, observer=True)
        else:
            await watcher.ask("_acp_bridge/cancel", {"sessionId": here.id})
        expected = {"outcome": {"outcome": "cancelled"}} if how == "is stopped" else chosen("no")
        assert await here.answered() == expected
        here.gate.open()


@pytest.mark.hazard("N2.11", "V3", "Q9")
@pytest.mark.parametrize("returns", [False, True])
async def test_what_is_asked_in_the_turn_of_one_that_closed_the_session_and_went_does_not_wait(
    tmp_path: Path, returns: bool
) -> None:
    async with turn(tmp_path) as here:
        old = await attached(here.it, here.id)
        old.prompt(here.id, "work")
        await old.handled()
        await old.ask("session/close", {"sessionId": here.id})
        its_turn = await next_turn(here)
        await leaves(old, "noticed")
        if returns:
            await leaves(await attached(here.it, here.id), "noticed")
        here.asks()
        (one,) = await here.it.editor.got(PERMISSION)
        here.it.editor.answers_with(one, CANCELLED)
        await here.it.settled()
        assert here.answers() == ([] if returns else [CANCELLED])
        its_turn.open()


@pytest.mark.hazard("N2.11", "V3", "Q9")
async def test_a_question_does_not_wait_for_one_whose_close_is_carried_out_when_it_is_gone(
    tmp_path: Path,
) -> None:
    async with turn(tmp_path) as here:
        old = await attached(here.it, here.id)
        here.asks()
        (one,) = await here.it.editor.got(PERMISSION)
        named_session = {"sessionId": here.id}
        async with here.it.bridge._sessions._busy.hold(here.id):  # the load waits, and so the close
            old.send("session/load", {**SETUP, **named_session})
            old.send("session/close", named_session)
            await old.handled()
            await leaves(old, "noticed")
        await here.it.settled()
        here.it.editor.answers_with(one, CANCELLED)
        assert await here.answered() == chosen("no")
        here.gate.open()


@pytest.mark.hazard("N2", "V3")
@pytest.mark.parametrize("asked_first", [True, False])
async def test_the_answer_of_who_has_come_back_is_that_of_the_only_client(
    tmp_path: Path, asked_first: bool
) -> None:
    async with turn(tmp_path) as here:
        old = await attached(here.it, here.id)
        await here.it.editor.ask("session/close", {"sessionId": here.id})
        old.prompt(here.id, "work")
        its_turn = await next_turn(here)
        if asked_first:
            here.asks()
            await old.got(PERMISSION)
        new = await attached(here.it, here.id)
        if not asked_first:
            here.asks()
        (asked,) = await new.got(PERMISSION)
        cancelled = {"outcome": {"outcome": "cancelled"}}
        new.answers_with(asked, cancelled)
        assert await here.answered() == cancelled
        its_turn.open()


@pytest.mark.hazard("N2.10", "V3")
async def test_another_may_answer_what_waits_for_one_that_is_away(tmp_path: Path) -> None:
    async with turn(tmp_path) as here:
        old = await attached(here.it, here.id)
        here.asks()
        (one,) = await here.it.editor.got(PERMISSION)
        await old.got(PERMISSION)
        await leaves(old, "noticed")
        here.it.editor.answers_with_error(one, -32601)
        await here.it.settled()
        assert here.answers() == []
        third = await here.it.attached(here.id)
        (asked,) = await third.got(PERMISSION)
        third.answers_with(asked, chosen("yes"))
        assert await here.answered() == chosen("yes")
        back = await attached(here.it, here.id)
        await back.handled()
        assert back.asked(PERMISSION) == []


@pytest.mark.hazard("N2", "V9")
async def test_clients_with_names_are_told_one_id_of_each_question_and_others_none(
    tmp_path: Path,
) -> None:
    async with turn(tmp_path) as here:
        whole = await attached(here.it, here.id, wholeCalls=True)
        second = await attached(here.it, here.id, client="b" * 16)
        here.asks(_meta={"acp_bridge": {"question": "the agent's"}}, toolCall=TOOL, options=[])
        (one,) = await here.it.editor.got(PERMISSION)
        assert "_meta" not in one["params"]
        (first,), (same,) = await whole.got(PERMISSION), await second.got(PERMISSION)
        assert question(first) == question(same) != "the agent's"
        here.process.shows(
            here.process.agent_session_id,
            {"sessionUpdate": "tool_call_update", "toolCallId": "t", "rawInput": {"command": "x"}},
        )
        _, anew = await whole.got(PERMISSION, 2)
        assert question(anew) != question(first)
        third = await attached(here.it, here.id, client="c" * 16)
        (asked,) = await third.got(PERMISSION)
        assert question(asked) == question(anew)
        here.gate.open()


@pytest.mark.hazard("N2", "V3", "Q9")
async def test_what_is_asked_in_the_turn_of_one_that_has_come_back_to_observe_does_not_wait(
    tmp_path: Path,
) -> None:
    async with turn(tmp_path) as here:
        old = await attached(here.it, here.id)
        old.prompt(here.id, "work")
        await old.handled()
        its_turn = await next_turn(here)
        await leaves(old, "noticed")
        await attached(here.it, here.id, observer=True)
        await here.it.editor.ask("session/close", {"sessionId": here.id})
        here.asks()
        assert (await here.answered())["code"] == -32601
        its_turn.open()


@pytest.mark.hazard("N2", "V3", "Q9")
async def test_a_question_does_not_wait_for_who_could_not_open_the_session_from_its_cursor(
    tmp_path: Path,
) -> None:
    async with turn(tmp_path) as here:
        here.asks()
        (one,) = await here.it.editor.got(PERMISSION)
        late = await here.it.joined_with(named(cursors=True))
        given: Json = {"sessionId": await here.it.new(), "history": "pending"}
        another = await late.ask("_acp_bridge/attach", given)
        own = {"after": another["_meta"]["acp_bridge"]["cursor"]}
        given = {"sessionId": here.id, "_meta": {"acp_bridge": own}}
        assert "cursor" in str(await late.refused("_acp_bridge/attach", given))
        cancelled = {"outcome": {"outcome": "cancelled"}}
        here.it.editor.answers_with(one, cancelled)
        await here.it.settled()
        assert here.answers() == [cancelled]
        here.gate.open()
