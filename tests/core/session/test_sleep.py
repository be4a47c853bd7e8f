"""A session at rest: when its agent may end, and how it comes back, unseen by the client."""

from pathlib import Path

import anyio
import pytest

from acp_bridge.core.journal import PromptState
from acp_bridge.core.machine.states import State
from acp_bridge.core.protocol import SESSION_PROMPT, SESSION_RESUME, SET_MODE
from acp_bridge.core.session.opening import Workspace
from acp_bridge.core.session.process import sleep
from tests.core.session.living import DONE, Living, does_not_exist, first, living, resumes
from tests.core.session.memory import Json
from tests.core.session.played_agent import UNKNOWN, PlayedAgent
from tests.core.session.waiting import quiet, until

pytestmark = [pytest.mark.usefixtures("no_errors"), pytest.mark.hazard("R16")]

#: seconds of rest, as short as a test likes.
SOON = 0.01
MODES = {"currentModeId": "ask", "availableModes": [{"id": "ask"}, {"id": "edit"}]}


@pytest.fixture(autouse=True)
def tree(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """Return the processes that every agent has beside its main one."""
    found: set[int] = set()
    for look in ("descendants", "first_descendants"):
        monkeypatch.setattr(sleep, look, lambda main: frozenset(found))
    return found


def asleep(here: Living) -> bool:
    return here.session.now.asleep and here.session.now.state is State.COLD


async def falls_asleep(here: Living) -> None:
    await until(lambda: asleep(here))


async def stays_awake(here: Living) -> None:
    """Let as much time pass as several rests take: nothing is to happen, so nothing tells."""
    with anyio.move_on_after(5 * SOON):
        await falls_asleep(here)
    assert not here.session.now.asleep
    assert here.context.agents[-1].gone is False


async def trusted(here: Living, agent: PlayedAgent) -> None:
    """Let a reload of this agent have been seen, and one turn of the session have ended well."""
    await here.context.reloads.note(agent)
    await here.turn(agent)


@pytest.mark.hazard("R16.5")
async def test_a_session_at_rest_loses_its_process_and_the_next_prompt_brings_it_back(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, first=first(), sleep_after=SOON) as here:
        agent = await here.agent()
        await trusted(here, agent)
        await falls_asleep(here)
        assert agent.dead.is_set()
        shown = len(here.got)
        prompt = here.prompt("more")
        woken = await here.agent(2)
        woken.answer(await woken.asked(SESSION_PROMPT), DONE)
        assert await here.answered(prompt) == DONE
        assert woken.heard[1:] == [SESSION_RESUME, SESSION_PROMPT]
        said = [m.get("method", "answer") for m in here.got[shown:]]
        assert said == ["_acp_bridge/accepted", "answer"]
        assert here.states() == [PromptState.DONE] * 2


async def test_without_the_setting_a_process_stays(tmp_path: Path) -> None:
    async with living(tmp_path, first=first()) as here:
        await trusted(here, await here.agent())
        await stays_awake(here)


@pytest.mark.hazard("R16.5")
async def test_a_setting_or_another_request_wakes_it_and_is_answered_by_the_new_process(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, first=first(), sleep_after=SOON) as here:
        await trusted(here, await here.agent())
        here.session.user_settings.note_result({"modes": MODES})
        await falls_asleep(here)
        shown = len(here.got)
        setting = here.asks(SET_MODE, modeId="edit")
        woken = await here.agent(2)
        woken.answer(await woken.asked(SET_MODE), {})
        assert await here.answered(setting) == {}
        await falls_asleep(here)
        assert len(here.got) == shown + 1
        other = here.asks("_x/any")
        again = await here.agent(3)
        assert (await again.asked(SET_MODE))["params"]["modeId"] == "edit"
        again.reply("_x/any", {"any": 1})
        again.answer({"id": again.sent.messages[-1]["id"]}, {})
        assert await here.answered(other) == {"any": 1}


async def test_a_notification_of_a_client_reaches_the_process_that_comes_back(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, first=first(), sleep_after=SOON) as here:
        await trusted(here, await here.agent())
        await falls_asleep(here)
        here.session.pass_notification("_x/told", {"sessionId": "s", "n": 1})
        woken = await here.agent(2)
        await until(lambda: "_x/told" in woken.heard)
        assert woken.params("_x/told") == [{"sessionId": "0", "n": 1}]


@pytest.mark.hazard("C24.2")
async def test_work_that_a_notification_to_a_sleeping_agent_asks_for_is_shown(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, first=first(), sleep_after=SOON) as here:
        await trusted(here, await here.agent())
        await falls_asleep(here)
        here.session.pass_notification("_x/told", {"sessionId": "s"})
        woken = await here.agent(2)
        await until(lambda: here.session.now.state is State.IDLE)
        woken.says_text("at work")
        assert here.texts()[-1:] == ["at work"]


async def test_a_notification_whose_process_does_not_come_is_not_told_to_a_later_one(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, does_not_exist, resumes, first=first(), sleep_after=SOON) as here:
        await trusted(here, await here.agent())
        await falls_asleep(here)
        here.session.pass_notification("_x/told", {"sessionId": "s"})
        await until(lambda: here.session.now.state is State.BLOCKED)
        prompt = here.prompt("more")
        woken = await here.agent(3)
        woken.answer(await woken.asked(SESSION_PROMPT), DONE)
        assert await here.answered(prompt) == DONE
        assert "_x/told" not in woken.heard


def repeats_itself(agent: PlayedAgent) -> None:
    """Let an agent say at its reload what it says at each."""
    resumes(agent)
    agent.on_sent = lambda: says_states(agent) if SESSION_RESUME in agent.heard else None


def says_states(agent: PlayedAgent) -> None:
    agent.on_sent = lambda: None
    agent.update(sessionUpdate="current_mode_update", currentModeId="ask")
    agent.update(sessionUpdate="available_commands_update", availableCommands=[])
    agent.update(sessionUpdate="usage_update", used=5, size=10)
    agent.update(sessionUpdate="session_info_update", title="a title")


@pytest.mark.hazard("R16.3")
async def test_what_the_agent_repeats_when_it_comes_back_is_not_shown_again(
    tmp_path: Path,
) -> None:
    async with living(
        tmp_path, repeats_itself, first=first("list"), sleep_after=SOON, title="t"
    ) as here:
        agent = await here.agent()
        here.session.user_settings.note_result({"modes": MODES})
        await trusted(here, agent)
        says_states(agent)
        agent.update(sessionUpdate="current_mode_update", currentModeId="edit")
        await quiet()
        await falls_asleep(here)
        before = here.updates()
        here.session.wake()
        woken = await here.agent(2)
        asked = await woken.asked(SET_MODE)
        assert asked["params"]["modeId"] == "edit"
        woken.answer(asked, {})
        await until(lambda: here.session.now.at_rest)
        assert here.updates() == before
        woken.update(sessionUpdate="usage_update", used=6, size=10)
        await until(lambda: len(here.updates()) > len(before))
        assert here.updates()[-1]["used"] == 6


# --- when it stays --------------------------------------------------------------------------------


@pytest.mark.hazard("R16.1", "R16.2")
async def test_it_stays_where_no_reload_was_seen_and_where_the_agent_remembers_nothing(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, first=first(), sleep_after=SOON) as here:
        agent = await here.agent()
        await here.context.reloads.note(agent)
        here.session.wake()  # it is looked at, though no turn has run
        await stays_awake(here)
        await here.context.reloads.forget(agent)
        await here.turn(agent)
        await stays_awake(here)
        await here.context.reloads.note(agent)
        await falls_asleep(here)


@pytest.mark.hazard("R16.1")
async def test_it_stays_while_a_card_a_question_a_terminal_or_a_request_is_open(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, first=first(), sleep_after=SOON) as here:
        agent = await here.agent()
        await trusted(here, agent)
        agent.update(sessionUpdate="tool_call", toolCallId="t", title="t", status="pending")
        await stays_awake(here)
        agent.update(sessionUpdate="tool_call_update", toolCallId="t", status="completed")
        agent.says({"id": 7, "method": "terminal/create", "params": {"sessionId": "0"}})
        await stays_awake(here)
        asked = next(m for m in here.got if m.get("method") == "terminal/create")
        here.client.answers(asked["id"], {"terminalId": "x"})
        await stays_awake(here)
        agent.says(
            {
                "id": 8,
                "method": "terminal/release",
                "params": {"sessionId": "0", "terminalId": "x"},
            }
        )
        asked = next(m for m in here.got if m.get("method") == "terminal/release")
        here.client.answers(asked["id"], {})
        here.asks("_x/slow")
        await stays_awake(here)
        agent.answer(await agent.asked("_x/slow"), {})
        await falls_asleep(here)


async def test_it_stays_with_mcp_servers(tmp_path: Path) -> None:
    async with living(tmp_path, first=first(), sleep_after=SOON) as here:
        await trusted(here, await here.agent())
        here.session.move(Workspace("/w", mcp_servers=({"name": "m"},)))
        await stays_awake(here)
        here.session.move(Workspace("/w"))
        await falls_asleep(here)


async def test_it_stays_with_a_process_that_was_not_there_when_the_session_was_given_to_it(
    tmp_path: Path, tree: set[int]
) -> None:
    tree.add(11)
    async with living(tmp_path, first=first(), sleep_after=SOON) as here:
        await until(lambda: here.session._sleep._seen is not None)
        await until(lambda: 11 in (here.session._sleep._seen or ((), set[int]()))[1])
        tree.add(12)
        await trusted(here, await here.agent())
        await stays_awake(here)
        tree -= {11, 12}
        tree.add(13)
        await stays_awake(here)
        tree.remove(13)
        await falls_asleep(here)


@pytest.mark.hazard("R16.1")
async def test_it_stays_while_a_turn_runs_or_a_prompt_waits_under_a_hold(tmp_path: Path) -> None:
    async with living(tmp_path, first=first(), sleep_after=SOON) as here:
        agent = await here.agent()
        await trusted(here, agent)
        running = here.prompt("long")
        asked = await agent.asked(SESSION_PROMPT)
        await stays_awake(here)
        here.session.pauses.command("hold")
        waits = here.prompt("waits")
        agent.answer(asked, DONE)
        assert await here.answered(running) == DONE
        await stays_awake(here)
        here.session.pauses.go()
        agent.answer(await agent.asked(SESSION_PROMPT), DONE)
        assert await here.answered(waits) == DONE
        await falls_asleep(here)


# --- reloads --------------------------------------------------------------------------------------


def versioned(version: str | None) -> PlayedAgent:
    agent = first()
    info: Json = {"name": "x", "version": version} if version else {"name": "x"}
    agent.connection.initialized = {**agent.initialized, "agentInfo": info}
    return agent


async def test_a_reload_counts_for_its_version_alone_and_until_one_is_refused(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, first=first()) as here:
        reloads = here.context.reloads
        old, new, nameless = versioned("1"), versioned("2"), versioned(None)
        await reloads.note(old)
        await reloads.note(nameless)
        assert [await reloads.seen(each) for each in (old, new, nameless)] == [True, False, True]
        other = type(reloads)(here.context.journal.index, here.context.settings)
        assert [await other.seen(each) for each in (old, nameless)] == [True, False]
        await other.forget(old)
        assert not await reloads.seen(old)


async def test_a_reload_is_noted_when_a_process_takes_up_a_session_with_turns(
    tmp_path: Path,
) -> None:
    def refuses(agent: PlayedAgent) -> None:
        agent.reply(SESSION_RESUME, UNKNOWN)

    async with living(tmp_path, resumes, refuses, first=first()) as here:
        agent = await here.agent()
        await here.turn(agent)
        assert not await here.context.reloads.seen(agent)
        agent.dies()
        here.session.wake()
        woken = await here.agent(2)
        await until(lambda: here.session.now.at_rest)
        with anyio.fail_after(5):
            while not await here.context.reloads.seen(woken):
                await quiet()
        woken.dies()
        here.session.wake()
        await here.agent(3)
        with anyio.fail_after(5):
            while await here.context.reloads.seen(woken):
                await quiet()


async def test_a_process_that_takes_up_a_session_without_turns_shows_nothing_of_reloads(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, first=first()) as here:
        (await here.agent()).dies()
        here.session.wake()
        woken = await here.agent(2)
        await until(lambda: here.session.now.at_rest)
        await quiet()
        assert SESSION_RESUME in woken.heard
        assert not await here.context.reloads.seen(woken)
