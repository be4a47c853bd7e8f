"""Any features together: a turn, a Stop, a death and a load, and sessions that other sets open."""

import os
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path

import anyio
import pytest

from acp_bridge.core.machine import events as ev
from acp_bridge.core.protocol import SESSION_CANCEL, SESSION_PROMPT, USAGE_UPDATE
from acp_bridge.core.session.feature import MakeFeatures, Plugin
from acp_bridge.features.hooks.in_session import HooksOfSession
from acp_bridge.serving import PLUGINS
from tests.core.session.journals import recorded_texts
from tests.core.session.living import CANCELLED, DONE, Living, first, living, resumes
from tests.core.session.played_agent import PlayedAgent

#: all that can be plugged into a session, by name.
ALL: dict[str, MakeFeatures] = {
    **{each.make.__module__.rpartition(".")[2]: each.make for each in PLUGINS if not each.find},
    "hooks": HooksOfSession(None).make,
}
#: what the transcript has of `plays`.
SAID = ["one", "done", "two", "three", "four", "five"]
PAIRS = [*combinations(ALL, 2), tuple(ALL), ()]


async def plays(here: Living, agent: PlayedAgent) -> PlayedAgent:
    """Play a turn, a Stop and a death; returns the process that came after that."""
    asked = here.prompt("one")
    turn = await agent.asked(SESSION_PROMPT)
    agent.update(sessionUpdate=USAGE_UPDATE, used=1, size=2)
    agent.says_text("done")
    agent.answer(turn, DONE)
    assert await here.answered(asked) == DONE
    stopped, waits = here.prompt("two"), here.prompt("three")
    turn = await agent.asked(SESSION_PROMPT)
    here.session.audience.cancel(here.client.client)
    assert SESSION_CANCEL in agent.heard
    agent.answer(turn, CANCELLED)
    assert await here.answered(stopped) == CANCELLED
    agent.answer(await agent.asked(SESSION_PROMPT), DONE)
    assert await here.answered(waits) == DONE
    dies = here.prompt("four")
    await agent.asked(SESSION_PROMPT)
    agent.dies()
    assert (await here.answered(dies))["code"] == -32603
    here.session.wake()
    agent = await here.agent(2)
    await here.turn(agent, "five")
    return agent


async def opened_again(here: Living, folder: Path, features: Sequence[MakeFeatures]) -> None:
    """Close the session, open it with other features, and play a turn."""
    await here.close()
    here.context.plugins = [Plugin(make) for make in features]
    journal = await here.context.journal.open("s")
    lease = os.open(folder / "next", os.O_CREAT | os.O_RDWR)
    again = Living(here.context, journal, lease, None, [])
    before = len(here.context.agents)
    again.session.feed(ev.Warm())
    agent = await again.agent(before + 1)
    await again.turn(agent, "again")
    said = [text for text in await recorded_texts(journal) if "[acp-bridge]" not in text]
    assert said == [*SAID, "again"]
    await again.close()


@pytest.mark.parametrize("names", PAIRS, ids="-".join)
async def test_a_turn_a_stop_a_death_and_a_load_are_the_same_whatever_is_plugged_in(
    tmp_path: Path, no_errors: None, names: tuple[str, ...]
) -> None:
    features = [ALL[name] for name in names] or [lambda *_: []]
    async with living(tmp_path, resumes, first=(agent := first()), features=features) as here:
        await plays(here, agent)
        with anyio.fail_after(5):
            await opened_again(here, tmp_path, features)


@pytest.mark.parametrize("name", ALL)
async def test_a_session_with_a_feature_is_opened_by_a_bridge_without_any_and_back(
    tmp_path: Path, no_errors: None, name: str
) -> None:
    features: list[MakeFeatures] = [ALL[name]]
    for made, opens in ((features, []), ([lambda *_: []], features)):
        (folder := tmp_path / str(bool(opens))).mkdir()
        async with living(folder, resumes, first=(agent := first()), features=made) as here:
            await plays(here, agent)
            await opened_again(here, folder, opens)
