"""When it is looked how a session's folder stands, and what is kept of that."""

from pathlib import Path
from typing import Any

import anyio
import pytest

from acp_bridge.core.journal import Journal
from acp_bridge.core.machine import events as ev
from acp_bridge.core.protocol import SESSION_PROMPT
from acp_bridge.core.settings import ReloadAfterCancel
from acp_bridge.features.repository import repository
from acp_bridge.features.repository.notices import Standing
from tests.core.session.living import CANCELLED, Living, first, living
from tests.core.session.waiting import quiet, until

pytestmark = pytest.mark.usefixtures("no_errors")

ONE, TWO = Standing("1" * 40, "main", changed=False), Standing("2" * 40, "main", changed=True)


class Looks:
    """Answers each look with the next of its standings, and the last one for ever."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *standings: Standing | None) -> None:
        self._standings = [*standings]
        self.made = 0
        #: a look waits for ever.
        self.hangs = False
        monkeypatch.setattr(repository, "look", self.look)

    async def look(self, folder: str, within: float, deadline: object) -> Standing | None:
        self.made += 1
        if self.hangs:
            self.hangs = False
            await anyio.sleep_forever()
        return self._standings.pop(0) if len(self._standings) > 1 else self._standings[0]


def of_a_database(here: Living, machine: str = "a") -> None:
    here.journal._file.machine = machine


def kept(here: Living) -> Any:
    return Standing.of(here.journal.get("repository") or {})


async def test_it_is_kept_when_a_turn_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = Looks(monkeypatch, ONE, TWO)
    async with living(tmp_path, first=first()) as here:
        of_a_database(here)
        agent = await here.agent()
        await here.turn(agent)
        await until(lambda: kept(here) == ONE)
        await here.turn(agent)
        await until(lambda: kept(here) == TWO)
    assert looks.made == 2  # it is not looked again when the session ends


async def test_it_is_kept_when_a_turn_has_ended_whose_process_takes_long_to_die_after_a_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Looks(monkeypatch, ONE, TWO)
    reload = ReloadAfterCancel.ALWAYS
    async with living(tmp_path, first=first(), reload_after_cancel=reload) as here:
        of_a_database(here)
        agent = await here.agent()
        await here.turn(agent)
        await until(lambda: kept(here) == ONE)
        agent.immortal = True
        stopped, turn = here.prompt("two"), await agent.asked(SESSION_PROMPT)
        here.session.feed(ev.Cancel())
        agent.answer(turn, CANCELLED)
        await quiet()
        assert stopped not in here.answers()
        agent.dies()
        await here.answered(stopped)
        await until(lambda: kept(here) == TWO)


async def test_what_was_kept_is_forgotten_when_it_can_not_be_told_at_the_end_of_the_next_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Looks(monkeypatch, ONE, None)
    async with living(tmp_path, first=first()) as here:
        of_a_database(here)
        agent = await here.agent()
        await here.turn(agent)
        await until(lambda: kept(here) == ONE)
        await here.turn(agent)
        await until(lambda: kept(here) is None)


async def test_a_session_that_ends_right_after_its_turn_keeps_it_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = Looks(monkeypatch, ONE)
    async with anyio.create_task_group() as tasks:
        looks.hangs = True
        async with living(tmp_path, first=first()) as here:
            of_a_database(here)
            await here.turn(await here.agent())
            await until(lambda: looks.made == 1)
            await here.close()
            here.context.tasks.cancel_scope.cancel()
        tasks.cancel_scope.cancel()
    home = Journal(tmp_path)
    session = await home.open("s")
    assert Standing.of(session.get("repository")) == ONE
    await home.close()


async def test_nothing_is_looked_at_for_a_file_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = Looks(monkeypatch, ONE)
    async with living(tmp_path, first=first()) as here:
        await here.turn(await here.agent())
        await here.session.features.open()
    assert looks.made == 0


async def test_each_machine_but_that_of_the_last_turn_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Looks(monkeypatch, ONE, TWO)
    async with living(tmp_path, first=first()) as here:
        features = here.session.features
        of_a_database(here)
        await here.turn(await here.agent())
        await until(lambda: kept(here) == ONE)
        for machine, told in (("b", True), ("b", False), ("c", True), ("b", False), ("a", False)):
            of_a_database(here, machine)
            assert bool(await features.open()) is told


@pytest.mark.parametrize("odd", [[], {"machine": 1}, {"commit": "x", "branch": "y", "told": 1}])
async def test_what_is_kept_in_an_odd_form_raises_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, odd: Any
) -> None:
    Looks(monkeypatch, ONE)
    async with living(tmp_path, first=first()) as here:
        of_a_database(here)
        here.journal.set("repository", odd)
        await here.session.features.open()
