"""Guards that wait at the parent and are killed when somebody needs one."""

from pathlib import Path

import pytest

from tests.core.agents.parent_support import family, forked, parent_code, waiting_guard

pytestmark = pytest.mark.process

#: the first guard that is asked for is stopped, or dead, and dead in any case once it was asked.
KILLS = """
def kills(it, *given):
    parent.Parent._start = start
    waits = it._waiting[0]
    {before}
    pid = start(it, *given)
    os.kill(pid, 9)
    return pid
start, parent.Parent._start = parent.Parent._start, kills
"""
STOPPED = "os.kill(waits, 19)"
DEAD = "os.kill(waits, 9); os.waitid(os.P_PID, waits, os.WEXITED | os.WNOWAIT)"


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.mark.hazard("F2")
@pytest.mark.parametrize("before", [STOPPED, DEAD])
async def test_a_waiting_guard_that_is_killed_as_it_is_asked_costs_nothing(
    before: str, tmp_path: Path
) -> None:
    async with family(tmp_path, parent_code(KILLS.format(before=before))) as world:
        await waiting_guard(await world.until_ready())
        await forked(world)
