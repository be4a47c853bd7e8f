"""How a turn ended stands in the transcript, and is shown to all but the client that asked."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from acp_bridge.core.agents.process import Exit
from acp_bridge.core.machine import events as ev
from acp_bridge.core.protocol import SESSION_PROMPT
from acp_bridge.core.wire.jsonrpc import RpcError
from tests.core.session.journals import recorded_texts
from tests.core.session.living import CANCELLED, DONE, Living, first, living
from tests.core.session.memory import ClientEnd
from tests.core.session.played_agent import PlayedAgent
from tests.core.session.waiting import until

pytestmark = pytest.mark.usefixtures("no_errors")
End = Callable[[Living, PlayedAgent, Any], None]


def is_stopped(here: Living, agent: PlayedAgent, turn: Any) -> None:
    here.session.feed(ev.Cancel())
    agent.answer(turn, CANCELLED)


def dies(here: Living, agent: PlayedAgent, turn: Any) -> None:
    agent.exits(Exit(3, None))
    agent.dies()


def answers(answer: Any) -> End:
    return lambda here, agent, turn: agent.answer(turn, answer)


def seen(end: ClientEnd) -> list[str]:
    """The texts that another client was shown."""
    updates = [m["params"]["update"] for m in end.sent.messages if "params" in m]
    return [each["content"]["text"].strip() for each in updates if "content" in each]


OVERLOADED = RpcError.received(-32603, "the provider\nrefuses", {"details": "overloaded"})
DIED = (
    "Error: the agent ended during the turn (exit code 3); the session goes on, the prompt is not"
    " sent again."
)


@pytest.mark.parametrize(
    ("end", "said"),
    [
        (is_stopped, "Stopped."),
        (dies, DIED),
        (answers(OVERLOADED), "Error: the provider refuses: overloaded."),
        (answers({"stopReason": "max_tokens"}), "Ended: the model's limit of tokens."),
    ],
)
async def test_an_end_that_is_not_a_good_one_is_kept_and_shown_before_what_follows(
    tmp_path: Path, end: End, said: str
) -> None:
    agent, other = first(), ClientEnd()
    async with living(tmp_path, first=agent) as here:
        here.session.transcript.attach(other.client)
        asked, behind = here.prompt("one"), here.prompt("two")
        turn = await agent.asked(SESSION_PROMPT)
        agent.says_text("half")
        end(here, agent, turn)
        await here.answered(asked)
        following = await here.agent(2) if end is dies else agent
        following.answer(await following.asked(SESSION_PROMPT), DONE)
        assert await here.answered(behind) == DONE
        kept = ["one", "half", f"[acp-bridge] {said}", "two"]
        assert [text.strip() for text in await recorded_texts(here.journal)] == kept
        assert seen(other) == kept
        assert here.texts() == ["half"]  # the answer says it


async def test_while_the_agent_works_on_a_call_that_a_turn_has_left_open_the_session_has_work(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, first=first()) as here:
        agent, looks = await here.agent(), list[bool]()
        here.context.note_work = lambda: looks.append(here.session.busy)
        asked = here.prompt("one")
        turn = await agent.asked(SESSION_PROMPT)
        call = {"toolCallId": "c", "title": "Serve", "status": "in_progress"}
        agent.update(sessionUpdate="tool_call", **call)
        agent.update(sessionUpdate="tool_call", toolCallId="d", title="Later", status="pending")
        agent.answer(turn, DONE)
        assert await here.answered(asked) == DONE
        assert here.session.busy
        agent.update(sessionUpdate="tool_call_update", toolCallId="c", status="completed")
        await until(lambda: not here.session.busy)
        assert looks[-1] is False  # a bridge that is kept for it is told
