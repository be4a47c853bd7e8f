"""An agent that works on after the end of a turn: it is seen, and a Stop reaches it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from acp_bridge.core.settings import ReloadAfterCancel
from tests.core.bridge.at_work import AtWork, at_work
from tests.core.bridge.test_questions import PERMISSION, chosen
from tests.core.sessions.agent import Process, until
from tests.core.sessions.bench import Served

pytestmark = pytest.mark.hazard("C25")

KILLED = "After your Stop the agent was killed, and is started again."


def works(here: AtWork) -> Callable[[], bool]:
    return lambda: here.session.now.works


async def begins(here: AtWork) -> None:
    """Let the agent say something outside of a prompt."""
    here.says("working")
    await here.it.settled()
    assert works(here)()


def with_words(here: AtWork, text: str, client: Served | None = None) -> bool:
    """A client was shown a message with these words."""
    return any(text in each for each in (client or here.it.editor).texts(here.id))


# --- what work is -------------------------------------------------------------------------------


@pytest.mark.hazard("C25.2")
@pytest.mark.parametrize("what", ["message", "thought", "call", "permission"])
async def test_words_new_calls_and_questions_outside_a_prompt_are_work(
    tmp_path: Path, what: str
) -> None:
    async with at_work(tmp_path) as here:
        watcher = await here.it.attached(here.id, state=True)
        if what == "message":
            here.says("working")
        elif what == "thought":
            here.tells("agent_thought_chunk", content={"type": "text", "text": "hm"})
        elif what == "call":
            here.shows("t", "completed")
        else:
            here.asks()
            await here.it.editor.got(PERMISSION)
        await here.it.settled()
        assert works(here)()
        assert not here.session.now.at_rest
        word = "permission" if what == "permission" else "working"
        assert (await here.row())["state"] == word
        assert watcher.asked("_acp_bridge/state")[-1]["params"]["state"] == word


@pytest.mark.hazard("C25.5")
async def test_states_cards_of_a_turn_that_is_over_and_requests_that_ask_nobody_are_none(
    tmp_path: Path,
) -> None:
    async with at_work(tmp_path) as here:

        async def leaves_a_card(process: Process, params: Any) -> Any:
            here.shows("left", "in_progress")
            return {"stopReason": "end_turn"}

        here.it.agent.script["session/prompt"] = leaves_a_card
        prompt = here.it.editor.prompt(here.id, "runs")
        assert await here.it.editor.stop_reason(prompt) == "end_turn"
        here.tells("usage_update", used=1, size=2)
        here.tells("session_info_update", title="A title")
        here.tells("available_commands_update", availableCommands=[])
        here.tells("current_mode_update", currentModeId="ask")
        here.shows("left", "in_progress", opens=False)
        about = {"sessionId": here.process.agent_session_id}
        here.process.says({"id": "own", "method": "_x/y", "params": about})
        await here.it.editor.got("_x/y")
        await here.it.settled()
        assert here.session.now.state.name == "IDLE"
        await here.stops()
        assert here.cancels == 0


@pytest.mark.hazard("C25.3")
async def test_it_is_over_when_the_agent_is_silent_and_nothing_of_it_is_open(
    tmp_path: Path,
) -> None:
    async with at_work(tmp_path, work_silence=0.01) as here:
        other = AtWork(here.it, await here.it.new())
        for what in ("card", "question"):
            if what == "card":
                here.shows("t", "in_progress")
            else:
                here.asks()
            await here.it.settled()
            for _ in range(2):  # another session's words are over, and these go on
                other.says("a word")
                await until(works(other))
                await until(lambda: not other.session.now.works)
            assert works(here)()
            if what == "card":
                here.shows("t", "completed")
            else:
                (question,) = await here.it.editor.got(PERMISSION)
                here.it.editor.answers_with(question, chosen("yes"))
            await until(lambda: not here.session.now.works)


@pytest.mark.hazard("C25.6")
async def test_a_prompt_does_not_wait_for_it_and_after_the_turn_it_goes_on(tmp_path: Path) -> None:
    async with at_work(tmp_path) as here:
        here.shows("t", "in_progress")
        await until(works(here))
        prompt = here.it.editor.prompt(here.id, "hello")
        assert await here.it.editor.stop_reason(prompt) == "end_turn"
        await until(works(here))
        assert with_words(here, "echo hello")


@pytest.mark.hazard("C25.7")
async def test_a_kept_bridge_works_while_its_agent_does_also_when_a_client_has_closed_the_session(
    tmp_path: Path,
) -> None:
    async with at_work(tmp_path, keep=0.2) as here:
        attaching = here.it.bridge._sessions.attaching
        assert not attaching.busy
        await begins(here)
        assert attaching.busy
        await here.it.editor.ask("session/close", {"sessionId": here.id})
        assert works(here)()


@pytest.mark.parametrize("stop", [False, True])
async def test_queue_wait_waits_for_it(tmp_path: Path, stop: bool) -> None:
    async with at_work(tmp_path, work_silence=0.1) as here:
        here.shows("t", "in_progress")
        await until(works(here))
        waits = here.it.editor.prompt(here.id, "/queue wait")
        await here.it.settled()
        assert here.it.editor.answers(waits) == []
        if stop:
            here.it.editor.cancel_request(waits)
        else:
            here.shows("t", "completed")
        reason = "cancelled" if stop else "end_turn"
        assert await here.it.editor.stop_reason(waits) == reason
        assert here.cancels == stop


# --- its Stop -----------------------------------------------------------------------------------


@pytest.mark.hazard("C6.2", "C15", "C16", "C25.10")
async def test_a_stop_reaches_it_and_what_comes_after_that_is_a_leak(tmp_path: Path) -> None:
    async with at_work(tmp_path, work_silence=0.05) as here:
        here.shows("t", "in_progress")
        here.asks()
        await here.it.editor.got(PERMISSION)
        await here.stops()
        await until(lambda: here.cancels == 1)
        assert await here.answered() == [{"outcome": {"outcome": "cancelled"}}]
        updates = [each["params"]["update"] for each in here.it.editor.asked("session/update")]
        failed = [each["toolCallId"] for each in updates if each.get("status") == "failed"]
        assert sorted(failed) == ["edit", "t"]
        await until(lambda: here.session.now.state.name == "IDLE")
        here.says("late")
        await here.it.settled()
        assert not with_words(here, "late")
        assert len(here.it.agent.processes) == 1  # what heeds a Stop is not killed
        here.shows("more", "in_progress")
        await until(lambda: len(here.it.agent.processes) == 2)


@pytest.mark.hazard("C25.8")
@pytest.mark.parametrize("who", ["observer", "stranger", "one that has closed it"])
async def test_only_who_has_the_session_and_does_not_observe_can_stop_it(
    tmp_path: Path, who: str
) -> None:
    async with at_work(tmp_path) as here:
        await begins(here)
        if who == "observer":
            client = await here.it.attached(here.id, observer=True)
        elif who == "stranger":
            client = await here.it.joined()
        else:
            client = here.it.editor
            await here.it.attached(here.id)
            await client.ask("session/close", {"sessionId": here.id})
        await here.stops(client)
        await client.handled()
        assert here.cancels == 0
        assert here.session.now.state.name == "WORKING"


@pytest.mark.hazard("V4", "C25.9")
async def test_a_stop_right_before_a_prompt_of_the_same_client_stops_nothing(
    tmp_path: Path,
) -> None:
    async with at_work(tmp_path, stop_delay=0.2) as here:
        other = AtWork(here.it, await here.it.new())
        await begins(here)
        await begins(other)
        await here.stops()
        prompt = here.it.editor.prompt(here.id, "hello")
        assert await here.it.editor.stop_reason(prompt) == "end_turn"
        here.says("more work")
        await until(works(here))
        await other.stops()  # whose time is over later
        await until(lambda: here.cancels)
        assert here.it.agent.params("session/cancel") == [{"sessionId": "agent-1-2"}]
        await here.stops()
        await until(lambda: here.cancels == 2)


@pytest.mark.hazard("V4")
async def test_a_prompt_of_another_client_takes_no_stop_back(tmp_path: Path) -> None:
    async with at_work(tmp_path, stop_delay=0.5) as here:
        other = await here.it.attached(here.id)
        here.shows("t", "in_progress")
        await until(works(here))
        await here.stops()
        prompt = other.prompt(here.id, "hello")
        assert await other.stop_reason(prompt) == "end_turn"
        await until(lambda: here.cancels == 1)


@pytest.mark.parametrize("by", ["method", "word"])
async def test_a_stop_on_purpose_does_not_wait(tmp_path: Path, by: str) -> None:
    async with at_work(tmp_path, stop_delay=60) as here:
        await begins(here)
        if by == "method":
            stranger = await here.it.joined(observer=True)
            answer = await stranger.ask("_acp_bridge/cancel", {"sessionId": here.id})
            assert answer == {"cancelled": True}
        else:
            stop = here.it.editor.prompt(here.id, "/queue stop")
            assert await here.it.editor.stop_reason(stop) == "end_turn"
            assert with_words(here, "Stopping what the agent does")
        assert here.cancels == 1
        assert (await here.row())["state"] == "cancelling"


@pytest.mark.hazard("V2")
async def test_such_a_stop_leaves_alone_what_waits_in_a_hold(tmp_path: Path) -> None:
    async with at_work(tmp_path) as here:
        await begins(here)
        await here.it.editor.ask("_acp_bridge/hold", {"sessionId": here.id})
        waits = here.it.editor.prompt(here.id, "next")
        await here.it.settled()
        assert (await here.row())["state"] == "working"
        answer = await here.it.editor.ask("_acp_bridge/cancel", {"sessionId": here.id})
        assert answer == {"cancelled": True}
        assert (here.cancels, here.it.editor.answers(waits)) == (1, [])


@pytest.mark.hazard("C25.10")
async def test_a_prompt_waits_for_the_end_of_a_stop(tmp_path: Path) -> None:
    async with at_work(tmp_path, work_silence=0.1) as here:
        await begins(here)
        await here.stops()
        prompt = here.it.editor.prompt(here.id, "hello")
        assert await here.it.editor.stop_reason(prompt) == "end_turn"
        sent = [each for each in here.process.methods() if each.startswith("session/")]
        assert sent == ["session/new", "session/cancel", "session/prompt"]


@pytest.mark.hazard("C8.1", "C25.12")
@pytest.mark.parametrize("reads", [True, False])
async def test_an_agent_that_works_on_is_killed_whether_or_not_the_client_reads_and_comes_back(
    tmp_path: Path, reads: bool
) -> None:
    async with at_work(tmp_path, drain_timeout=0.2, client_limit=10) as here:
        (deaf,) = here.it.agent.processes

        async def works_on() -> None:
            while deaf.lives:
                here.says("word")
                await anyio.sleep(0.01)

        await begins(here)
        here.it.context.tasks.start_soon(works_on)
        await here.stops()
        here.it.editor.way.stuck = 0 if reads else 10
        await until(lambda: len(here.it.agent.living) == 1 and not deaf.lives)
        assert with_words(here, KILLED)
        prompt = here.it.editor.prompt(here.id, "hello")
        assert await here.it.editor.stop_reason(prompt) == "end_turn"


async def test_an_agent_that_heeds_a_stop_is_replaced_only_where_that_is_set(
    tmp_path: Path,
) -> None:
    always = ReloadAfterCancel.ALWAYS
    async with at_work(tmp_path, work_silence=0.05, reload_after_cancel=always) as here:
        await begins(here)
        await here.stops()
        await until(lambda: len(here.it.agent.processes) == 2)
