"""The newest snapshot of an account's limits: who is told it, and what answers `quota/read`."""

from pathlib import Path
from typing import Any

import pytest

from acp_bridge.core.protocol import QUOTA_READ, QUOTA_UPDATE, SESSION_PROMPT
from acp_bridge.core.session.session import Session
from acp_bridge.core.session.transcript.client_view import Quiet
from tests.core.session.journals import recorded
from tests.core.session.living import DONE, Living, first, living
from tests.core.session.memory import ClientEnd, Json
from tests.core.session.played_agent import PlayedAgent
from tests.core.session.waiting import until
from tests.core.sessions.agent import Agent
from tests.core.sessions.bench import bench

pytestmark = pytest.mark.usefixtures("no_errors")

TAKES: Json = {"session": {"quota": {}}}


def snapshot(minute: int, **more: Any) -> Json:
    meter = {"id": "week", "usedPercent": minute}
    pools = [{"id": "plan", "meters": [meter]}]
    return {"updatedAt": f"2026-10-06T13:{minute}:00Z", "pools": pools, **more}


def reports(agent: PlayedAgent, told: Json) -> None:
    agent.update(sessionUpdate=QUOTA_UPDATE, **told)


async def read(here: Living) -> Any:
    """Ask for the limits of the session; returns the answer."""
    request = here.request(QUOTA_READ)
    answer = here.session.features.answers[QUOTA_READ]
    request.client.run(here.context.tasks, request, answer, request.params)
    return await here.answered(here._last_id)


def kinds(client: ClientEnd) -> list[str]:
    said = [m["params"]["update"] for m in client.sent.messages if "params" in m]
    return [each["sessionUpdate"] for each in said]


async def test_a_snapshot_is_shown_to_clients_that_take_it_and_never_recorded(
    tmp_path: Path,
) -> None:
    agent = first()
    async with living(tmp_path, first=agent) as here:
        takes = ClientEnd(TAKES)
        here.session.transcript.attach(takes.client)
        reports(agent, snapshot(20))
        assert (kinds(takes), here.updates()) == ([QUOTA_UPDATE], [])
        assert here.journal.get(f"state:{QUOTA_UPDATE}") is None
        assert await recorded(here.journal) == []


async def test_a_snapshot_waits_for_the_end_of_the_quiet_after_a_load(tmp_path: Path) -> None:
    agent = first()
    async with living(tmp_path, first=agent) as here:
        takes = ClientEnd(TAKES)
        view = here.session.transcript.attach(takes.client)
        view.hush(Quiet.ASIDES)
        reports(agent, snapshot(20))
        assert kinds(takes) == []
        view.end_quiet()
        assert kinds(takes) == [QUOTA_UPDATE]


async def test_what_a_subagent_reports_is_neither_shown_nor_recorded(tmp_path: Path) -> None:
    agent = first()
    async with living(tmp_path, first=agent) as here:
        takes = ClientEnd({**TAKES, "subagents": {}})
        here.session.transcript.attach(takes.client)
        agent.update(sessionUpdate="subagent_update", sessionId="kid", title="Kid")
        update = {"sessionUpdate": QUOTA_UPDATE, **snapshot(20)}
        params = {"sessionId": "kid", "update": update}
        agent.says({"method": "session/update", "params": params})
        assert kinds(takes) == ["subagent_update"]
        assert [each["update"]["sessionUpdate"] for each in await recorded(here.journal)] == [
            "subagent_update"
        ]


async def test_a_report_of_limits_is_no_work_and_no_progress_of_the_agent(tmp_path: Path) -> None:
    agent = first()
    async with living(tmp_path, first=agent) as here:
        reports(agent, snapshot(20))
        assert not here.session.busy
        assert not here.session.from_agent._progress


async def test_while_a_process_lives_the_agent_answers(tmp_path: Path) -> None:
    agent = first()
    async with living(tmp_path, first=agent) as here:
        reports(agent, snapshot(20))
        agent.reply(QUOTA_READ, snapshot(10))
        assert await read(here) == snapshot(10)
        assert agent.params(QUOTA_READ) == [{"sessionId": "0"}]


@pytest.mark.parametrize("order", [(10, 30), (30, 10)])
async def test_without_a_process_the_newest_snapshot_is_the_answer(
    tmp_path: Path, order: tuple[int, int]
) -> None:
    agent = first("close")
    async with living(tmp_path, first=agent) as here:
        for minute in order:
            reports(agent, snapshot(minute))
        agent.dies()
        await until(lambda: here.session.link is None)
        assert await read(here) == snapshot(30)
        assert len(here.context.agents) == 1


async def test_an_answer_of_the_agent_counts_as_a_snapshot_too(tmp_path: Path) -> None:
    agent = first("close")
    async with living(tmp_path, first=agent) as here:
        agent.reply(QUOTA_READ, snapshot(40))
        await read(here)
        agent.dies()
        await until(lambda: here.session.link is None)
        assert await read(here) == snapshot(40)


async def test_the_first_snapshot_of_a_new_process_counts_whatever_its_clock_says(
    tmp_path: Path,
) -> None:
    agent = first("close")
    async with living(tmp_path, first=agent) as here:
        reports(agent, snapshot(40))
        agent.dies()
        await until(lambda: here.session.link is None)
        asked = here.prompt()
        other = await here.agent(2)
        prompt = await other.asked(SESSION_PROMPT)
        reports(other, snapshot(10))
        other.answer(prompt, DONE)
        await here.answered(asked)
        other.dies()
        await until(lambda: here.session.link is None)
        assert await read(here) == snapshot(10)


@pytest.mark.parametrize("odd", [{}, {"pools": None}, {"pools": "x", "updatedAt": 5}])
async def test_an_update_without_pools_is_no_snapshot(tmp_path: Path, odd: Json) -> None:
    agent = first("close")
    async with living(tmp_path, first=agent) as here:
        reports(agent, snapshot(20))
        reports(agent, odd)
        agent.dies()
        await until(lambda: here.session.link is None)
        assert await read(here) == snapshot(20)


async def test_a_request_without_a_session_gets_the_newest_of_all_sessions_without_a_process(
    tmp_path: Path,
) -> None:
    agent = Agent()
    async with bench(tmp_path, agent) as it:
        sessions = [await it.new(), await it.new()]
        for session_id, minute in zip(sessions, (30, 20), strict=True):
            session: Session = it.bridge._sessions.live[session_id]
            link = session.link
            assert link
            update = {"sessionUpdate": QUOTA_UPDATE, **snapshot(minute)}
            session.from_agent.on_update(link, {"sessionId": "x", "update": update})
        agent.script[QUOTA_READ] = snapshot(50)
        assert await it.editor.ask(QUOTA_READ, {}) == snapshot(50)
        for process in agent.living:
            process.dies()
        assert await it.editor.ask(QUOTA_READ, {}) == snapshot(30)
        assert agent.living == []
