"""A client with a name that has a session of another bridge comes back to its own bridge."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.core.bridge.test_names import ENDS, NAME, leaves, named, states
from tests.core.bridge.test_names_and_questions import question
from tests.core.sessions.agent import Gate, until
from tests.core.sessions.bench import Served
from tests.core.sessions.world import SETUP
from tests.sharing.elsewhere.test_passages import Two, answers, ask_permission, chosen, two
from tests.sharing.elsewhere.test_passages import home as home

pytestmark = pytest.mark.hazard("N2", "V8")
PERMISSION = "session/request_permission"


async def resumed(it: Two, **own: Any) -> Served:
    """A client with the name, at the other bridge, that has the holder's session."""
    client = await it.other.joined_with(named(**own))
    await client.ask("session/resume", {**SETUP, "sessionId": it.session_id})
    return client


@asynccontextmanager
async def at_work(home: Path) -> AsyncIterator[tuple[Two, Served, Gate]]:
    """A turn at the holder, of a client of the other bridge."""
    async with two(home, drain_timeout=60) as it:
        gate = it.holder.agent.stops_at("session/prompt")
        client = await resumed(it)
        client.prompt(it.session_id, "work")
        await until(lambda: gate.reached)
        yield it, client, gate
        gate.open()


@ENDS
async def test_its_prompt_and_its_stop_are_its_own_at_the_holder(home: Path, ends: str) -> None:
    async with at_work(home) as (it, old, gate):
        await leaves(old, ends)
        new = await resumed(it)
        assert (await states(new))["turn"]["mine"] is True
        new.notify("session/cancel", it.params)
        await new.ask("_acp_bridge/queue/list", it.params)  # the holder has read both
        gate.open()
        await until(lambda: "turn" not in new.asked("_acp_bridge/state")[-1]["params"])
        assert (await states(new))["last"]["stopReason"] == "cancelled"


@ENDS
async def test_its_question_is_asked_again_under_the_holders_id(home: Path, ends: str) -> None:
    async with at_work(home) as (it, old, _):
        await it.holder.editor.ask("session/close", it.params)
        process = ask_permission(it)
        (first,) = await old.got(PERMISSION)
        await leaves(old, ends)
        new = await resumed(it)
        (second,) = await new.got(PERMISSION)
        assert question(second) == question(first)
        assert answers(process, 77) == []
        new.answers_with(second, chosen("yes"))
        await until(lambda: answers(process, 77))
        assert answers(process, 77) == [chosen("yes")]


async def test_the_name_itself_is_a_strangers_at_the_holder(home: Path) -> None:
    async with at_work(home) as (it, old, _):
        stranger = await it.holder.joined_with(named())
        await stranger.ask("session/resume", {**SETUP, "sessionId": it.session_id})
        assert (await states(stranger))["turn"]["mine"] is False
        names = [each.abilities.name for each in it.holder.bridge._clients if each.on_socket]
        assert sorted(each == NAME for each in names if each) == [False, True]
        assert old.asked("_acp_bridge/let_go") == []


async def test_a_delete_takes_the_place_of_no_passage(home: Path) -> None:
    async with two(home) as it:
        client = await resumed(it)
        await client.ask("session/delete", it.params)
        await until(lambda: client.asked("_acp_bridge/state")[-1]["params"]["state"] == "closed")
        said = [text for text in client.texts(it.session_id) if "not shown here" in text]
        assert said == []
