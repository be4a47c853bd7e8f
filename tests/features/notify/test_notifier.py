"""A living session whose user is told when it waits."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from acp_bridge.core.protocol import HOLD, REQUEST_PERMISSION, SESSION_PROMPT
from acp_bridge.core.settings import NOTIFY_FILE
from acp_bridge.features.notify import desktop
from acp_bridge.features.notify.config import parse
from acp_bridge.features.notify.errors import NotTold
from acp_bridge.features.notify.news import Times
from acp_bridge.features.notify.notifier import Notifier, made_for, ways_of
from tests.core.session.living import CANCELLED, LONG, Living, first, living
from tests.core.session.played_agent import PlayedAgent
from tests.core.session.waiting import quiet, until
from tests.features.usage_limits.test_usage_limit import limited, meets_limit

#: All is told of at once, but not twice in a minute.
AT_ONCE = Times(moment=0, long_turn=0, between=LONG)


class Person:
    """Reads what a notifier tells, by a way that may fail."""

    def __init__(self) -> None:
        self.read: list[str] = []
        self.before: Callable[[], object] = lambda: None

    async def way(self, text: str) -> None:
        self.before()
        self.read.append(text)


@asynccontextmanager
async def told(
    folder: Path,
    person: Person,
    agent: PlayedAgent,
    *,
    times: Times = AT_ONCE,
    words: bool = False,
) -> AsyncIterator[Living]:
    """A session in the folder `/src/api`, of which this person is told."""
    notifier = Notifier([("test", person.way)], words=words, times=times)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(notifier.run)
        async with living(folder, first=agent, cwd="/src/api", notifier=notifier) as here:
            yield here
        tasks.cancel_scope.cancel()


def asks(agent: PlayedAgent) -> None:
    options = [{"optionId": "yes", "name": "Yes", "kind": "allow_once"}]
    call = {"toolCallId": "t", "title": "rm -rf build", "kind": "execute"}
    params = {"sessionId": "0", "toolCall": call, "options": options}
    agent.asks(REQUEST_PERMISSION, params, "p")


def answers(here: Living) -> None:
    (question,) = [m for m in here.got if m.get("method") == REQUEST_PERMISSION]
    here.client.answers(question["id"], {"outcome": {"outcome": "selected", "optionId": "yes"}})


@pytest.mark.parametrize("words", [False, True])
async def test_a_permission_that_nobody_answers_is_told_of_with_its_words_if_they_are_wanted(
    tmp_path: Path, words: bool
) -> None:
    person, agent = Person(), first()
    async with told(tmp_path, person, agent, words=words) as here:
        here.prompt("a secret plan")
        await agent.asked(SESSION_PROMPT)
        assert person.read == []
        asks(agent)
        await until(lambda: person.read)
        asked = ": rm -rf build (nothing but this title is known)" if words else ""
        assert person.read == [f"api: waits for you{asked}"]


async def test_a_permission_that_is_answered_in_time_is_told_to_nobody(tmp_path: Path) -> None:
    person, agent = Person(), first()
    times = Times(moment=0.2, long_turn=LONG, between=0)
    async with told(tmp_path, person, agent, times=times) as here:
        here.prompt()
        turn = await agent.asked(SESSION_PROMPT)
        asks(agent)
        await until(lambda: any(m.get("method") == REQUEST_PERMISSION for m in here.got))
        answers(here)
        await quiet()
        agent.dies()
        await until(lambda: person.read)
        assert person.read == ["api: the agent has died"]
        assert turn


async def test_the_end_of_a_turn_is_told_of_and_not_that_of_one_that_was_stopped(
    tmp_path: Path,
) -> None:
    person, agent = Person(), first()
    async with told(tmp_path, person, agent) as here:
        asked = here.prompt()
        turn = await agent.asked(SESSION_PROMPT)
        here.session.audience.cancel(here.client.client)
        agent.answer(turn, CANCELLED)
        assert await here.answered(asked) == CANCELLED
        await quiet()
        assert person.read == []
        await here.turn(agent)
        await until(lambda: person.read)
        assert person.read == ["api: a turn has ended"]


async def test_the_death_of_an_agent_is_told_of_with_no_hook_about_it(tmp_path: Path) -> None:
    person, agent = Person(), first()
    async with told(tmp_path, person, agent) as here:
        here.prompt()
        await agent.asked(SESSION_PROMPT)
        agent.dies()
        await until(lambda: person.read)
        assert person.read == ["api: the agent has died"]


async def test_a_hold_of_the_bridge_is_told_of_and_the_user_s_own_is_not(tmp_path: Path) -> None:
    person, agent = Person(), limited()
    times = Times(moment=0, long_turn=LONG, between=LONG)
    async with told(tmp_path, person, agent, times=times) as here:
        await meets_limit(here, agent)
        await until(lambda: person.read)
        assert person.read == ["api: the queue is held"]
    person, agent = Person(), first()
    (tmp_path / "b").mkdir()
    async with told(tmp_path / "b", person, agent, times=times) as here:
        here.session.pauses.take(here.request(HOLD))
        here.prompt()
        await quiet()
        agent.dies()
        await until(lambda: person.read)
        assert person.read == ["api: the agent has died"]


async def test_the_end_of_a_session_is_told_to_nobody(tmp_path: Path) -> None:
    person, agent = Person(), first()
    async with told(tmp_path, person, agent) as here:
        here.prompt()
        await agent.asked(SESSION_PROMPT)
        await here.close()
        await quiet()
    assert person.read == []


@pytest.mark.parametrize(
    ("failure", "why"),
    [
        (NotTold("the server has answered 403"), "the server has answered 403"),
        (RuntimeError("https://ntfy.example/s3cret"), "RuntimeError"),
    ],
)
async def test_a_way_that_fails_is_logged_once_until_it_works_and_is_in_no_turn_s_way(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, failure: Exception, why: str
) -> None:
    person, agent = Person(), first()

    def fails() -> None:
        person.read.append("")
        raise failure

    async def ends(times: int) -> None:
        for _ in range(times):
            person.read.clear()
            await here.turn(agent)
            await until(lambda: person.read)
            await quiet()

    person.before = fails
    async with told(tmp_path, person, agent, times=Times(0, 0, 0)) as here:
        await ends(3)
        warned = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
        assert warned == [f"the user was not notified by test: {why}"]
        person.before = lambda: None
        await ends(1)
        person.before = fails
        await ends(2)
        warned = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
        assert len(warned) == 2


async def test_while_somebody_is_told_slowly_turns_go_on(tmp_path: Path) -> None:
    agent, begun = first(), anyio.Event()

    class Slow(Person):
        async def way(self, text: str) -> None:
            begun.set()
            await anyio.sleep_forever()

    async with told(tmp_path, Slow(), agent, times=Times(0, 0, 0)) as here:
        await here.turn(agent)
        await begun.wait()
        await here.turn(agent)
        agent.update(sessionUpdate="usage_update", used=1, size=2)
        await here.turn(agent)


def test_a_file_that_can_t_be_used_notifies_nobody_and_is_logged_without_its_words(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert made_for(tmp_path) is None
    (tmp_path / NOTIFY_FILE).write_text('notify = ["ntfy:http://ntfy.example/s3cret"]')
    assert made_for(tmp_path) is None
    assert "nobody is notified" in caplog.text
    assert "s3cret" not in caplog.text
    (tmp_path / NOTIFY_FILE).write_text('notify = ["bell"]')
    assert made_for(tmp_path) is None
    (tmp_path / NOTIFY_FILE).write_text('notify = ["ntfy:https://ntfy.example/s3cret"]')
    assert made_for(tmp_path) is not None


def test_a_desktop_without_the_program_for_it_is_no_warning_and_the_rest_works(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = parse('notify = ["desktop", "ntfy:https://ntfy.example/s3cret"]')
    caplog.set_level("INFO")
    monkeypatch.setattr(desktop, "is_there", lambda env: False)
    assert [name for name, _ in ways_of(chosen)] == ["ntfy"]
    assert "nothing is shown on the desktop: there is no " in caplog.text
    assert {record.levelname for record in caplog.records} == {"INFO"}
    monkeypatch.setattr(desktop, "is_there", lambda env: True)
    assert [name for name, _ in ways_of(chosen)] == ["ntfy", "desktop"]
