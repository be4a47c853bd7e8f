"""`/queue` with the words of all features."""

from pathlib import Path

import pytest

from acp_bridge.core.protocol import (
    COMMANDS_UPDATE,
    SESSION_PROMPT,
)
from acp_bridge.core.updates.notices import (
    NOTHING_LEFT,
)
from tests.core.session.living import DONE, first, living
from tests.core.session.test_queue_command import (
    left,
    left_over,
    lists,
    text,
    types,
    types_and_waits,
)
from tests.core.session.waiting import quiet, until

pytestmark = pytest.mark.usefixtures("no_errors")


@pytest.mark.hazard("R12.3")
async def test_drop_forgets_all_or_the_one_of_that_number_for_good(tmp_path: Path) -> None:
    async with left(tmp_path, "a", "b", "c") as here:
        assert await types_and_waits(here, "/queue drop 2") == ["Dropped prompt 2.", DONE]
        assert left_over(here) == ["a", "c"]
        assert types(here, "/queue drop") == ["Dropped 2.", DONE]
        assert types(here, "/queue drop") == [NOTHING_LEFT, DONE]
        assert here.outcomes() == [({"dropped": True}, None)] * 3
        assert await here.journal.recover() == []


@pytest.mark.parametrize("pause", [True, False])
@pytest.mark.parametrize("ask", [True, False])
async def test_the_command_that_clients_list_is_the_one_that_the_usage_names(
    tmp_path: Path, pause: bool, ask: bool
) -> None:
    own = {"_meta": {"acp_bridge": {"pause": pause, "ask": ask}}}
    async with living(tmp_path, first=(agent := first()), capabilities=own) as here:
        agent.update(sessionUpdate=COMMANDS_UPDATE, availableCommands=[])
        await quiet()
        (command,) = here.updates()[-1]["availableCommands"]
        hints = [f"/{command['name']} {each}" for each in command["input"]["hint"].split(" | ")]
        optional = {"/queue pause": pause, "/queue ask QUESTION": ask}
        assert {hint: hint in hints for hint in optional} == optional
        assert [hint for hint in hints if hint not in optional] == [
            "/queue hold",
            "/queue go",
            "/queue wait",
            "/queue stop",
            "/queue run",
            "/queue drop",
            "/queue memory new",
            "/queue memory restore",
            "/queue steer NUMBER",
            "/queue drop NUMBER",
            "/queue edit NUMBER WORDS",
            "/queue move NUMBER before NUMBER",
            "/queue move NUMBER after NUMBER",
            "/queue move NUMBER first",
            "/queue move NUMBER last",
            "/queue title WORDS",
        ]
        usage = ", ".join(f"`{each}`" for each in ("/queue", *hints))
        assert types(here, "/queue help") == [f"Usage: {usage}.", DONE]


async def test_the_agents_own_command_goes_to_the_agent_and_ours_takes_its_words_whole(
    tmp_path: Path,
) -> None:
    async with left(tmp_path, "old") as here:
        agent = await here.agent()
        lists(agent, "queue")
        await until(lambda: here.updates() != [])
        asked = here.prompt("/queue something")
        turn = await agent.asked(SESSION_PROMPT)
        assert turn["params"]["prompt"] == text("/queue something")
        *_, done = await types_and_waits(here, "  /bridge  queue edit 1 new  words\nof two lines")
        assert (done, left_over(here)) == (DONE, ["new  words\nof two lines"])
        agent.answer(turn, DONE)
        assert await here.answered(asked) == DONE
