"""What is shown while a prompt that waits is cancelled, and what a client is shown after a load."""

from pathlib import Path

import pytest

from acp_bridge.core.history import History
from acp_bridge.core.machine import events as ev
from acp_bridge.core.protocol import SESSION_LOAD, SESSION_PROMPT
from acp_bridge.core.settings import OnCancel
from acp_bridge.core.updates import notices
from tests.core.session.living import CANCELLED, DONE, does_not_exist, first, living
from tests.core.session.memory import ClientEnd
from tests.core.session.waiting import until

pytestmark = pytest.mark.usefixtures("no_errors")


@pytest.mark.hazard("C23", "T2")
async def test_a_prompt_that_is_taken_back_hides_nothing_of_the_turn_that_runs(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, first=first()) as here:
        agent = await here.agent()
        one, two = here.prompt("one"), here.prompt("two")
        turn = await agent.asked(SESSION_PROMPT)
        assert here.session.cancel_request(here.client.client, two)
        assert await here.answered(two) == CANCELLED
        agent.says_text("still going")
        assert here.texts() == ["still going"]
        agent.answer(turn, DONE)
        assert await here.answered(one) == DONE


@pytest.mark.hazard("C23", "C16")
async def test_what_is_cleared_with_the_running_prompt_hides_nothing_of_its_drain(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, first=first(), on_cancel=OnCancel.CLEAR) as here:
        agent = await here.agent()
        one, two = here.prompt("one"), here.prompt("two")
        turn = await agent.asked(SESSION_PROMPT)
        agent.update(sessionUpdate="tool_call", toolCallId="t", status="pending", title="x")
        here.session.feed(ev.Cancel())
        assert await here.answered(two) == CANCELLED
        agent.says_text("the end")
        agent.answer(turn, CANCELLED)
        assert await here.answered(one) == CANCELLED
        kinds = [update["sessionUpdate"] for update in here.updates()]
        assert kinds == ["tool_call", "agent_message_chunk", "tool_call_update"]


@pytest.mark.hazard("C23.1")
async def test_what_the_bridge_says_after_a_load_waits_for_a_word_of_the_client(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, does_not_exist, first=first()) as here:
        other = ClientEnd()
        request = other.asks(SESSION_LOAD, {"sessionId": "s"})
        await here.session.replay.load(request, History.FULL)
        other.sent.take()
        (await here.agent()).dies()
        here.session.wake()
        await until(here.texts)
        assert here.texts() == [notices.NOT_READY]
        assert other.sent.take() == []
        here.session.transcript.end_quiet(other.client)
        assert notices.NOT_READY in str(other.sent.take())


@pytest.mark.hazard("R1.1", "C23.1")
async def test_what_the_bridge_said_in_the_quiet_and_did_not_record_is_not_lost_by_a_load(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, does_not_exist, first=first()) as here:
        agent, stopped = await here.agent(), here.prompt()
        turn = await agent.asked(SESSION_PROMPT)
        here.session.feed(ev.Cancel())
        agent.answer(turn, CANCELLED)
        assert await here.answered(stopped) == CANCELLED
        agent.dies()
        here.session.wake()
        await until(lambda: here.session.now.blocked)
        assert here.texts() == []
        await here.session.replay.load(here.request(SESSION_LOAD), History.FULL)
        assert here.texts().count(notices.NOT_READY) == 1
