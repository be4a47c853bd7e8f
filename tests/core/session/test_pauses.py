"""Pause, hold and go in a session: the user's word, the agent's part, what clients are told."""

from pathlib import Path
from typing import Any

import anyio
import pytest

from acp_bridge.core.history import History
from acp_bridge.core.machine import events as ev
from acp_bridge.core.protocol import ACCEPTED, GO, HOLD, PAUSE, SESSION_CANCEL, SESSION_PROMPT
from acp_bridge.core.updates import notices
from acp_bridge.core.wire.jsonrpc import RpcError
from tests.core.session.living import CANCELLED, DONE, Living, first, living
from tests.core.session.memory import Json
from tests.core.session.played_agent import PlayedAgent, refusal
from tests.core.session.waiting import until

ABLE: Json = {"_meta": {"acp_bridge": {"pause": True}}}
PAUSED, HELD = notices.STANDSTILL["paused"], notices.STANDSTILL["held"]
PAUSING = notices.STANDSTILL["pausing"]


def says(here: Living, method: str) -> int:
    """Send one of the methods; returns the request's id."""
    request = here.request(method)
    here.session.pauses.take(request)
    return int(str(request.call.id))


def told(here: Living) -> list[str]:
    """Return the states that the client was told, in order, signs of life included."""
    own = [m["params"].get("_meta", {}).get("acp_bridge", {}) for m in here.got if "method" in m]
    return [each["pause"]["state"] for each in own if "pause" in each]


async def paused_turn(here: Living, agent: PlayedAgent) -> tuple[int, Json]:
    """Let a prompt run and its turn wait; returns the client's request and the agent's."""
    asked = here.prompt()
    turn = await agent.asked(SESSION_PROMPT)
    says(here, PAUSE)
    agent.answer(await agent.asked(PAUSE), {"paused": True})
    await until(lambda: told(here)[-1:] == ["paused"])
    return asked, turn


async def test_a_pause_is_answered_at_once_and_told_again_when_the_agent_waits(
    tmp_path: Path, no_errors: None
) -> None:
    agent = first()
    async with living(tmp_path, first=agent, capabilities=ABLE) as here:
        asked = here.prompt()
        turn = await agent.asked(SESSION_PROMPT)
        assert await here.answered(says(here, PAUSE)) == {"state": "pausing"}
        pause = await agent.asked(PAUSE)
        assert pause["params"] == {"sessionId": "0"}
        agent.answer(pause, {"paused": True})
        await until(lambda: PAUSED in here.texts())
        assert await here.answered(says(here, PAUSE)) == {"state": "paused"}
        assert await here.answered(says(here, GO)) == {"state": "open"}
        agent.answer(await agent.asked(GO), {})
        agent.answer(turn, DONE)
        assert await here.answered(asked) == DONE
        assert told(here) == ["pausing", "paused", "open"]
        assert here.texts() == [PAUSING, PAUSED, notices.GOES_ON]


@pytest.mark.hazard("C3", "C5", "C11.1", "C23")
async def test_a_stop_ends_a_paused_turn_at_once(tmp_path: Path, no_errors: None) -> None:
    agent = first()
    async with living(tmp_path, first=agent, capabilities=ABLE) as here:
        asked, turn = await paused_turn(here, agent)
        here.session.feed(ev.Cancel())
        assert agent.heard[-1] == SESSION_CANCEL
        agent.answer(turn, CANCELLED)
        assert await here.answered(asked) == CANCELLED
        shown = len(here.got)
        assert here.session.pauses.state is None
        await anyio.wait_all_tasks_blocked()
        assert here.got[shown:] == []


@pytest.mark.parametrize(
    "answer", [{"paused": False}, {}, None, "yes", {"paused": 1}, refusal(-32603, "not now")]
)
async def test_an_agent_that_does_not_pause_lets_the_turn_go_on_and_that_is_said(
    tmp_path: Path, answer: Any, no_errors: None
) -> None:
    agent = first()
    async with living(tmp_path, first=agent, capabilities=ABLE) as here:
        asked, waits = here.prompt(), here.prompt("next")
        turn = await agent.asked(SESSION_PROMPT)
        says(here, PAUSE)
        agent.answer(await agent.asked(PAUSE), answer)
        await until(lambda: told(here) == ["pausing", "held"])
        said = here.texts()[-1]
        assert said == (notices.not_paused("not now") if isinstance(answer, RpcError) else HELD)
        agent.answer(turn, DONE)
        assert await here.answered(asked) == DONE
        says(here, GO)
        agent.answer(await agent.asked(SESSION_PROMPT), DONE)
        assert await here.answered(waits) == DONE


async def test_an_agent_that_cannot_pause_is_asked_nothing_and_a_hold_is_offered(
    tmp_path: Path, no_errors: None
) -> None:
    agent = first()
    async with living(tmp_path, first=agent) as here:
        asked = here.prompt()
        turn = await agent.asked(SESSION_PROMPT)
        with pytest.raises(RpcError, match="hold") as caught:
            says(here, PAUSE)
        assert caught.value.code == -32601
        command = here.prompt("/queue pause")
        assert await here.answered(command) == DONE
        assert here.texts() == [notices.CANNOT_PAUSE]
        assert PAUSE not in agent.heard
        agent.answer(turn, DONE)
        assert await here.answered(asked) == DONE
        assert told(here) == []


async def test_the_commands_say_what_the_methods_do(tmp_path: Path, no_errors: None) -> None:
    agent = first()
    async with living(tmp_path, first=agent, capabilities=ABLE) as here:
        for words, said in [
            ("/queue go", notices.NOTHING_PAUSED),
            ("/queue pause", notices.NOTHING_TO_PAUSE),
            ("/queue hold", HELD),
            ("/queue hold", HELD),
            ("/queue", f"{HELD}\n\nNothing is waiting."),
            ("/queue go", notices.GOES_ON),
        ]:
            assert await here.answered(here.prompt(words)) == DONE
            assert here.texts()[-1] == said
        asked = here.prompt()
        turn = await agent.asked(SESSION_PROMPT)
        assert await here.answered(here.prompt("/queue pause")) == DONE
        agent.answer(await agent.asked(PAUSE), {"paused": True})
        assert await here.answered(here.prompt("/queue pause")) == DONE
        assert here.texts()[-3:] == [PAUSING, PAUSED, PAUSED]
        assert await here.answered(here.prompt("/queue go")) == DONE
        assert agent.heard[-1] == GO
        agent.answer(turn, DONE)
        assert await here.answered(asked) == DONE


async def test_a_prompt_that_is_sent_on_hold_is_told_that_it_waits_and_for_what(
    tmp_path: Path, no_errors: None
) -> None:
    agent = first()
    async with living(tmp_path, first=agent) as here:
        assert await here.answered(says(here, HOLD)) == {"state": "held"}
        asked = here.prompt()
        assert here.texts() == [HELD, notices.WAITS_FOR_GO]
        await until(lambda: len(here.states()) == 1)
        assert SESSION_PROMPT not in agent.heard
        says(here, GO)
        agent.answer(await agent.asked(SESSION_PROMPT), DONE)
        assert await here.answered(asked) == DONE


async def test_a_sign_of_life_comes_again_and_again_and_is_no_message(
    tmp_path: Path, no_errors: None
) -> None:
    agent = first()
    async with living(tmp_path, first=agent, capabilities=ABLE, sign_interval=0) as here:
        asked, turn = await paused_turn(here, agent)
        await until(lambda: told(here).count("paused") > 3)
        sign = here.got[-1]["params"]
        assert sign["update"] == {"sessionUpdate": "session_info_update"}
        assert sign["_meta"] == {"acp_bridge": {"pause": {"state": "paused", "seconds": 0}}}
        says(here, GO)
        agent.answer(turn, DONE)
        assert await here.answered(asked) == DONE
        assert here.texts() == [PAUSING, PAUSED, notices.GOES_ON]
        assert here.journal.get("state:session_info_update") is None


@pytest.mark.hazard("C23.1")
async def test_no_sign_of_life_comes_in_the_quiet_after_cancelled(
    tmp_path: Path, no_errors: None
) -> None:
    agent = first()
    async with living(tmp_path, first=agent, sign_interval=0) as here:
        says(here, HOLD)
        stopped, waits = here.prompt(), here.prompt("next")
        await until(lambda: sum(m.get("method") == ACCEPTED for m in here.got) == 2)
        here.session.feed(ev.Cancel())
        assert await here.answered(stopped) == CANCELLED
        shown = len(here.got)
        for _ in range(20):
            await anyio.lowlevel.checkpoint()
        assert here.got[shown:] == []
        says(here, GO)
        agent.answer(await agent.asked(SESSION_PROMPT), DONE)
        assert await here.answered(waits) == DONE
        assert told(here)[:1] == ["held"]


@pytest.mark.hazard("R1")
@pytest.mark.parametrize("history", [History.FULL, History.PENDING])
async def test_who_loads_a_paused_session_is_told_so_before_the_answer(
    tmp_path: Path, history: History, no_errors: None
) -> None:
    agent = first()
    async with living(tmp_path, first=agent, capabilities=ABLE) as here:
        asked, turn = await paused_turn(here, agent)
        before = len(here.got)
        request = here.request("session/load")
        await here.session.replay.load(request, history)
        result = await here.answered(int(str(request.call.id)))
        assert result["_meta"]["acp_bridge"]["pause"] == {"state": "paused", "seconds": 0}
        last, answer = here.got[before:][-2:]
        assert last["params"]["update"]["content"]["text"].strip() == PAUSED
        assert answer["result"] == result
        says(here, GO)
        agent.answer(turn, DONE)
        assert await here.answered(asked) == DONE
        await here.session.replay.load(request := here.request("session/load"), history)
        result = await here.answered(int(str(request.call.id)))
        assert "pause" not in result["_meta"]["acp_bridge"]


async def test_an_agent_that_dies_while_its_turn_is_paused_fails_it_and_the_rest_waits_for_go(
    tmp_path: Path, no_errors: None
) -> None:
    agent = first()
    async with living(tmp_path, first=agent, capabilities=ABLE) as here:
        asked, _ = await paused_turn(here, agent)
        waits = here.prompt("next")
        agent.dies()
        assert (await here.answered(asked))["code"] == -32603
        other = await here.agent(2)
        await until(lambda: here.session.now.permits.requests.name == "NOW")
        assert SESSION_PROMPT not in other.heard
        assert await here.answered(says(here, GO)) == {"state": "open"}
        assert GO not in other.heard
        other.answer(await other.asked(SESSION_PROMPT), DONE)
        assert await here.answered(waits) == DONE


async def test_a_late_answer_of_a_dead_agent_or_to_an_old_pause_changes_nothing(
    tmp_path: Path, no_errors: None
) -> None:
    agent = first()
    async with living(tmp_path, first=agent, capabilities=ABLE) as here:
        asked = here.prompt()
        turn = await agent.asked(SESSION_PROMPT)
        says(here, PAUSE)
        old = await agent.asked(PAUSE)
        says(here, GO)
        says(here, PAUSE)
        agent.answer(old, {"paused": False})
        assert told(here)[-1] == "pausing"
        agent.answer(await agent.asked(PAUSE), {"paused": True})
        assert told(here)[-1] == "paused"
        agent.answer(turn, DONE)
        assert await here.answered(asked) == DONE
        assert told(here)[-1] == "open"


@pytest.mark.hazard("Q6", "R12")
async def test_the_end_of_the_bridge_interrupts_a_paused_turn_and_says_no_more_of_the_pause(
    tmp_path: Path, no_errors: None
) -> None:
    agent = first()
    async with living(tmp_path, first=agent, capabilities=ABLE) as here:
        await paused_turn(here, agent)
        here.prompt("next")
        await until(lambda: len(here.states()) == 2)
        shown = told(here)
        here.session.feed(ev.Shutdown())
        assert [state.name for state in here.states()] == ["DONE", "LEFT_OVER"]
        assert told(here) == shown


@pytest.mark.hazard("Q9")
async def test_a_close_while_paused_answers_all_cancelled(tmp_path: Path, no_errors: None) -> None:
    agent = first()
    async with living(tmp_path, first=agent, capabilities=ABLE) as here:
        asked, turn = await paused_turn(here, agent)
        waits = here.prompt("next")
        here.session.close()
        agent.answer(turn, CANCELLED)
        assert await here.answered(asked) == await here.answered(waits) == CANCELLED
        assert await here.answered(says(here, GO)) == {"state": "open"}


async def test_held_prompts_that_are_run_on_hold_wait_for_go_and_that_is_said(
    tmp_path: Path, no_errors: None
) -> None:
    agent = first()
    async with living(tmp_path, first=agent) as here:
        blocks = [{"type": "text", "text": "old"}]
        seq = here.journal.accept("old", {"prompt": blocks})
        here.journal.leave_over(seq)
        await here.session.recovery.run()
        says(here, HOLD)
        carrier = here.prompt("/queue run")
        assert here.texts()[-1] == notices.RUN_LATER
        says(here, GO)
        agent.answer(await agent.asked(SESSION_PROMPT), DONE)
        assert await here.answered(carrier) == DONE


@pytest.mark.hazard("R12.3")
async def test_a_stop_of_the_running_turn_leaves_alone_what_a_run_has_released_on_hold(
    tmp_path: Path, no_errors: None
) -> None:
    agent = first()
    async with living(tmp_path, first=agent) as here:
        here.journal.accept("old", {"prompt": [{"type": "text", "text": "old"}]})
        await here.session.recovery.run()
        says(here, HOLD)
        carrier = here.prompt("/queue run")
        assert here.session.audience.cancel_turn({"sessionId": "s"}) == {"cancelled": False}
        assert await here.answered(here.prompt("/queue stop")) == DONE
        assert here.texts()[-1] == notices.NOTHING_RUNS
        says(here, GO)
        agent.answer(await agent.asked(SESSION_PROMPT), DONE)
        assert await here.answered(carrier) == DONE


INTERRUPTS = {"_meta": {"acp_bridge": {"delivery": "interrupt"}}}


@pytest.mark.parametrize("stands", ["paused", "held"])
async def test_a_prompt_is_told_that_it_waits_in_a_pause_or_hold_unless_it_ends_the_pause(
    tmp_path: Path, stands: str, no_errors: None
) -> None:
    agent = first()
    async with living(tmp_path, first=agent, capabilities=ABLE) as here:
        asked, turn = await paused_turn(here, agent)
        if stands == "held":
            says(here, GO)
            says(here, HOLD)
            agent.answer(turn, DONE)
            assert await here.answered(asked) == DONE
        here.prompt("next")
        assert here.texts().count(notices.WAITS_FOR_GO) == 1
        here.prompt("now", **INTERRUPTS)
        assert here.texts().count(notices.WAITS_FOR_GO) == (2 if stands == "held" else 1)


async def test_why_an_agent_did_not_pause_is_said_of_that_pause_and_of_no_later_one_or_hold(
    tmp_path: Path, no_errors: None
) -> None:
    agent = first()
    async with living(tmp_path, first=agent, capabilities=ABLE) as here:
        here.prompt()
        turn = await agent.asked(SESSION_PROMPT)
        for word, answer, said in (
            (PAUSE, refusal(-32603, "not now"), notices.not_paused("not now")),
            (HOLD, None, HELD),
            (PAUSE, {"paused": False}, HELD),
        ):
            says(here, word)
            if word == PAUSE:
                agent.answer(await agent.asked(PAUSE), answer)
            await until(lambda: told(here)[-1:] == ["held"])
            assert here.texts()[-1] == said
            says(here, GO)
        agent.answer(turn, DONE)
