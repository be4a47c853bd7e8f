"""How fast an agent is read, and what is kept of its words, while a client does not read."""

from pathlib import Path

import pytest

from acp_bridge.core.clients.abilities import ClientAbilities
from acp_bridge.core.machine import events as ev
from acp_bridge.core.protocol import SESSION_PROMPT
from tests.core.session.journals import recorded_texts
from tests.core.session.living import CANCELLED, LONG, Living, first, living
from tests.core.session.memory import ClientEnd, Json
from tests.core.session.played_agent import PlayedAgent
from tests.core.session.waiting import beside, quiet

pytestmark = pytest.mark.usefixtures("no_errors")

LIMIT = 100
LONG_TEXT = "x" * LIMIT
USAGE: Json = {"sessionUpdate": "usage_update", "used": 1, "size": 2}


async def drains(here: Living) -> tuple[PlayedAgent, Json]:
    """Cancel a turn that does not end yet; returns the agent, and what it was asked."""
    here.prompt()
    agent = await here.agent()
    turn = await agent.asked(SESSION_PROMPT)
    here.session.feed(ev.Cancel())
    here.session.transcript.end_quiet(here.client.client)
    return agent, turn


async def test_an_agent_is_read_at_once_while_every_client_reads(tmp_path: Path) -> None:
    async with living(tmp_path, first=first(), client_limit=LIMIT) as here:
        here.session.transcript.attach(ClientEnd().client)
        here.client.sent.stuck = LIMIT - 1
        await here.session.from_agent.room(await here.agent())


@pytest.mark.hazard("R6")
async def test_an_agent_is_read_on_when_the_slowest_of_the_clients_reads_again(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, first=first(), client_limit=LIMIT) as here:
        other = ClientEnd()
        here.session.transcript.attach(other.client)
        here.client.sent.stuck = other.sent.stuck = LIMIT
        async with beside(here.session.from_agent.room, await here.agent()) as room:
            here.client.sent.take_all()
            await quiet()
            assert not room.ended
            other.sent.take_all()


@pytest.mark.hazard("R6")
async def test_an_agent_is_read_on_as_soon_as_its_only_client_reads(tmp_path: Path) -> None:
    async with living(tmp_path, first=first(), client_limit=LIMIT, unread=LONG) as here:
        here.client.sent.stuck = LIMIT
        async with beside(here.session.from_agent.room, await here.agent()) as room:
            assert not room.ended
            here.client.sent.take_all()


@pytest.mark.hazard("R6")
async def test_an_agent_waits_too_for_a_client_that_is_behind_with_a_replay(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, first=first(), client_limit=LIMIT, unread=LONG) as here:
        agent, (view,) = await here.agent(), here.session.transcript.views
        for count in (1, 2):
            view.begin_replay()
            agent.says_text(LONG_TEXT)
            async with beside(here.session.from_agent.room, agent) as room:
                assert not room.ended
                view.end_replay()
            assert here.texts() == [LONG_TEXT] * count


@pytest.mark.hazard("R6", "C23")
async def test_an_agent_waits_too_for_a_client_from_which_much_is_kept_until_it_speaks(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, first=first(), client_limit=LIMIT, unread=LONG) as here:
        for count in (1, 2):
            agent, request_id = await here.agent(), here.prompt()
            turn = await agent.asked(SESSION_PROMPT)
            here.session.feed(ev.Cancel())
            agent.answer(turn, CANCELLED)
            assert await here.answered(request_id) == CANCELLED
            agent.update(**USAGE, of=f"{count}{LONG_TEXT}")
            async with beside(here.session.from_agent.room, agent) as room:
                assert not room.ended
                here.session.transcript.end_quiet(here.client.client)
            assert len(here.updates()) == count


@pytest.mark.hazard("C21", "R6")
async def test_an_agent_does_not_wait_for_a_load_that_may_wait_for_the_agent(
    tmp_path: Path,
) -> None:
    """A load that was read waits for a fork, say, which needs the agent's answer."""
    async with living(tmp_path, first=first(), client_limit=LIMIT) as here:
        agent, (view,) = await here.agent(), here.session.transcript.views
        ahead = view.begin_replay(ahead={})
        agent.says_text(LONG_TEXT)
        assert here.texts() == []
        await here.session.from_agent.room(agent)
        assert here.texts() == [LONG_TEXT]
        assert not view.begins(ahead)


@pytest.mark.hazard("C7.3", "C4")
@pytest.mark.parametrize("behind", [True, False])
async def test_a_cancel_lets_an_agent_be_read_on_whose_client_does_not_read(
    tmp_path: Path, behind: bool
) -> None:
    async with living(tmp_path, first=first(), client_limit=LIMIT) as here:
        agent, (view,) = await here.agent(), here.session.transcript.views
        here.prompt()
        turn = await agent.asked(SESSION_PROMPT)
        if behind:
            view.begin_replay()
            agent.says_text(LONG_TEXT)
        else:
            here.client.sent.stuck = LIMIT
        async with beside(here.session.from_agent.room, agent) as room:
            here.prompt("next")  # changes nothing about it
            await quiet()
            assert not room.ended
            here.session.feed(ev.Cancel())
        await here.session.from_agent.room(agent)
        # The next turn waits for the client as before.
        agent.answer(turn, CANCELLED)
        await agent.asked(SESSION_PROMPT)
        async with beside(here.session.from_agent.room, agent) as room:
            assert not room.ended
            agent.dies()
        here.client.sent.take_all()
        view.end()


@pytest.mark.hazard("C7", "P12")
async def test_a_process_that_is_started_in_a_drain_is_read_and_lets_no_other_be_read_on(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, first=first(), client_limit=LIMIT) as here:
        agent = await here.agent()
        here.client.sent.stuck = LIMIT
        async with beside(here.session.from_agent.room, agent) as current:
            spare = PlayedAgent()
            spare.epoch = agent.epoch + 1
            await here.session.from_agent.room(spare)
            assert not current.ended
            here.client.sent.take_all()


@pytest.mark.hazard("Q8")
async def test_a_reader_that_is_cancelled_while_it_waits_leaves_the_next_one_free_to_wait(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, first=first(), client_limit=LIMIT) as here:
        agent = await here.agent()
        here.client.sent.stuck = LIMIT
        async with beside(here.session.from_agent.room, agent) as room:
            room.cancel()
        async with beside(here.session.from_agent.room, agent) as room:
            assert not room.ended
            here.client.sent.take_all()


# --- in a drain -----------------------------------------------------------------------------------


@pytest.mark.hazard("P15.3", "C7")
async def test_in_a_drain_nothing_more_is_kept_for_a_client_that_does_not_read(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, first=first(), client_limit=LIMIT) as here:
        agent, turn = await drains(here)
        agent.says_text("shown")
        here.client.sent.stuck = LIMIT
        for _ in range(100):
            agent.says_text(LONG_TEXT)
        here.client.sent.take_all()
        agent.says_text("again")
        assert here.texts() == ["shown", "again"]
        assert await recorded_texts(here.journal) == ["mend", "shownagain"]
        agent.answer(turn, CANCELLED)


@pytest.mark.hazard("P15", "C16")
async def test_of_subagents_only_what_becomes_of_them_is_kept_then(tmp_path: Path) -> None:
    async with living(tmp_path, first=first(), client_limit=LIMIT) as here:
        here.client.client.abilities = ClientAbilities({"subagents": {}})
        agent, turn = await drains(here)
        kid: Json = {"sessionUpdate": "subagent_update", "sessionId": "kid"}
        agent.update(**kid, title="Look around")
        here.client.sent.stuck = LIMIT
        agent.agent_session_id = "kid"
        agent.says_text(LONG_TEXT)
        agent.agent_session_id = "0"
        agent.update(**kid, state={"state": "idle"})
        here.client.sent.take_all()
        announced, ended = here.updates()
        assert (announced["title"], ended["state"]) == ("Look around", {"state": "idle"})
        agent.answer(turn, CANCELLED)


@pytest.mark.hazard("R13.1", "P15")
async def test_what_the_agent_announces_in_a_drain_that_nobody_reads_is_in_force_and_shown_later(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, first=first(), client_limit=LIMIT) as here:
        agent, turn = await drains(here)
        here.session.user_settings.note_result({"modes": {"currentModeId": "edit"}})
        here.client.sent.stuck = LIMIT
        modes = [{"sessionUpdate": "current_mode_update", "currentModeId": m} for m in "ab"]
        for mode in modes:
            agent.update(**mode)
        assert here.session.user_settings.shown == {"modes": {"currentModeId": "b"}}
        here.client.sent.take_all()
        here.prompt("next")
        await quiet()
        assert here.updates() == []
        agent.answer(turn, CANCELLED)
        here.session.transcript.end_quiet(here.client.client)
        assert here.updates() == modes[1:]
