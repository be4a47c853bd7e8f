"""Whatever comes while a session falls asleep, sleeps or wakes: as if its process had stayed."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from acp_bridge.core.history import History
from acp_bridge.core.machine import events as ev
from acp_bridge.core.machine.states import State
from acp_bridge.core.protocol import SESSION_FORK, SESSION_PROMPT, SESSION_RESUME, SET_MODE
from acp_bridge.core.session.process import sleep
from tests.core.session.living import CANCELLED, DONE, Living, first, living, resumes
from tests.core.session.played_agent import PlayedAgent
from tests.core.session.waiting import quiet, until

pytestmark = [pytest.mark.usefixtures("no_errors"), pytest.mark.hazard("R16")]

#: seconds of rest, as short as a test likes.
SOON = 0.01
ABLE = {"sessionCapabilities": {"fork": {}}, "_meta": {"acp_bridge": {"ask": True}}}


@pytest.fixture(autouse=True)
def no_descendants(monkeypatch: pytest.MonkeyPatch) -> None:
    for look in ("descendants", "first_descendants"):
        monkeypatch.setattr(sleep, look, lambda main: frozenset())


class Moment:
    """A session whose process ends, has ended or comes back, because it was at rest."""

    def __init__(self, here: Living, name: str) -> None:
        self.here, self.name = here, name
        self._dying = here.context.agents[0]
        #: set when the next process may start.
        self.start = anyio.Event()

    def prepare(self, agent: PlayedAgent) -> None:
        agent.gate = self.start
        if self.name != "loading":
            resumes(agent)

    async def reached(self) -> None:
        state = {"falling": State.KILLING, "asleep": State.COLD}.get(self.name, State.STARTING)
        self._dying.immortal = self.name == "falling"
        await until(lambda: self.here.session.now.asleep)
        await until(lambda: self.here.session.now.state in (state, State.COLD))
        if self.name in ("starting", "loading"):
            self.here.session.wake()
            await quiet()
        if self.name == "loading":
            self.start.set()
            woken = await self.here.agent(2)
            await until(lambda: SESSION_RESUME in woken.heard)

    async def over(self) -> None:
        """Let everything come that was held up."""
        if self.name == "falling":
            self._dying.dies()
        self.start.set()
        if self.name == "loading":
            woken = self.here.context.agents[1]
            woken.answer(await woken.asked(SESSION_RESUME), {})

    async def woken(self) -> PlayedAgent:
        """Return the one process that has come."""
        woken = await self.here.agent(2)
        await until(lambda: self.here.session.link is woken)
        return woken


MOMENTS = ("falling", "asleep", "starting", "loading")
at_each_moment = pytest.mark.parametrize("name", MOMENTS)


@asynccontextmanager
async def moment(folder: Path, name: str) -> AsyncIterator[Moment]:
    prepared: list[Moment] = []

    def prepare(agent: PlayedAgent) -> None:
        prepared[0].prepare(agent)

    agent = first("fork")
    async with living(
        folder, prepare, resumes, first=agent, sleep_after=SOON, capabilities=ABLE
    ) as here:
        await here.context.reloads.note(agent)
        await here.turn(agent)
        it = Moment(here, name)
        prepared.append(it)
        await it.reached()
        shown = len(here.got)
        yield it
        texts = [m for m in here.got[shown:] if "[acp-bridge]" in str(m)]
        assert texts == []
        assert len(here.context.agents) <= 2


@at_each_moment
async def test_a_prompt_is_run_once_by_the_process_that_comes(tmp_path: Path, name: str) -> None:
    async with moment(tmp_path, name) as it:
        prompt = it.here.prompt("more")
        await quiet()
        await it.over()
        woken = await it.woken()
        woken.answer(await woken.asked(SESSION_PROMPT), DONE)
        assert await it.here.answered(prompt) == DONE
        assert len(woken.params(SESSION_PROMPT)) == 1


async def test_an_agent_that_ends_by_itself_while_it_is_put_to_sleep_is_no_death_to_tell(
    tmp_path: Path,
) -> None:
    async with moment(tmp_path, "falling") as it:
        it.here.context.agents[0].exits()
        prompt = it.here.prompt("more")
        await quiet()
        assert it.here.session.now.asleep
        await it.over()
        woken = await it.woken()
        woken.answer(await woken.asked(SESSION_PROMPT), DONE)
        assert await it.here.answered(prompt) == DONE


@at_each_moment
async def test_a_prompt_that_is_cancelled_at_once_is_answered_so_and_the_next_one_runs(
    tmp_path: Path, name: str
) -> None:
    async with moment(tmp_path, name) as it:
        prompt = it.here.prompt("never")
        it.here.session.feed(ev.Cancel())
        assert await it.here.answered(prompt) == CANCELLED
        following = it.here.prompt("next")
        await quiet()
        await it.over()
        woken = await it.woken()
        woken.answer(await woken.asked(SESSION_PROMPT), DONE)
        assert await it.here.answered(following) == DONE
        assert [p["prompt"][0]["text"] for p in woken.params(SESSION_PROMPT)] == ["next"]


@pytest.mark.hazard("R16.5")
@at_each_moment
@pytest.mark.parametrize("method", [SET_MODE, "_x/any", SESSION_FORK])
async def test_a_request_is_answered_by_the_process_that_comes(
    tmp_path: Path, name: str, method: str
) -> None:
    async with moment(tmp_path, name) as it:
        asked = it.here.asks(method, modeId="edit")
        await quiet()
        await it.over()
        woken = await it.here.agent(2)
        woken.answer(await woken.asked(method), {"by": "the new one"})
        assert await it.here.answered(asked) == {"by": "the new one"}


@at_each_moment
async def test_a_request_that_is_taken_back_is_answered_so(tmp_path: Path, name: str) -> None:
    async with moment(tmp_path, name) as it:
        asked = it.here.asks("_x/any")
        await quiet()
        assert it.here.session.cancel_request(it.here.client.client, asked)
        assert (await it.here.answered(asked))["code"] == -32800
        await it.over()
        woken = await it.woken()
        assert "_x/any" not in woken.heard


@pytest.mark.hazard("R16.5")
@at_each_moment
@pytest.mark.parametrize("woken_by", ["itself", "a prompt", "a request"])
async def test_a_notification_reaches_the_process_that_comes(
    tmp_path: Path, name: str, woken_by: str
) -> None:
    async with moment(tmp_path, name) as it:
        if woken_by == "a prompt":
            it.here.prompt("more")
        elif woken_by == "a request":
            it.here.asks("_x/any")
        await quiet()
        it.here.session.pass_notification("_x/told", {"sessionId": "s", "n": 1})
        await quiet()
        await it.over()
        woken = await it.here.agent(2)
        await until(lambda: "_x/told" in woken.heard)
        assert woken.params("_x/told") == [{"sessionId": "0", "n": 1}]


async def test_a_notification_that_comes_when_the_process_has_nearly_all_reaches_it_too(
    tmp_path: Path,
) -> None:
    async with moment(tmp_path, "asleep") as it:
        asked = it.here.asks(SET_MODE, modeId="edit")
        await it.over()
        woken = await it.here.agent(2)
        setting = await woken.asked(SET_MODE)
        it.here.session.pass_notification("_x/told", {"sessionId": "s", "n": 1})
        woken.answer(setting, {})
        assert await it.here.answered(asked) == {}
        await until(lambda: "_x/told" in woken.heard)


@at_each_moment
@pytest.mark.parametrize("history", list(History))
async def test_a_load_shows_what_was_shown_and_brings_the_process_back(
    tmp_path: Path, name: str, history: History
) -> None:
    async with moment(tmp_path, name) as it:
        request = it.here.request("session/load")
        await it.here.session.replay.load(request, history)
        it.here.session.wake()
        await quiet()
        await it.over()
        await it.woken()


@at_each_moment
async def test_a_session_is_closed_whatever_its_processes_are_about(
    tmp_path: Path, name: str
) -> None:
    async with moment(tmp_path, name) as it:
        waits = it.here.prompt("never")
        it.here.session.close()
        assert await it.here.answered(waits) == CANCELLED
        it.here.context.agents[0].dies()
        it.start.set()
        await it.here.session.closed.wait()
        assert not it.here.session.now.asleep


@at_each_moment
async def test_under_a_hold_it_sleeps_on_until_go_and_a_prompt_that_waited_runs(
    tmp_path: Path, name: str
) -> None:
    async with moment(tmp_path, name) as it:
        it.here.session.feed(ev.HoldQueue())
        prompt = it.here.prompt("more")
        await quiet()
        it.here.session.feed(ev.Go())
        await it.over()
        woken = await it.woken()
        woken.answer(await woken.asked(SESSION_PROMPT), DONE)
        assert await it.here.answered(prompt) == DONE
        it.here.got[:] = [m for m in it.here.got if "[acp-bridge]" not in str(m)]
