"""What waits is seen and changed by keys: two people at terminals, one session, a real bridge."""

from pathlib import Path

import pytest

from tests.support.fixture_agents import FixtureLog, fixture_command
from tests.support.gates import Gates
from tests.support.person import Person, person

pytestmark = pytest.mark.process

CHAT = ["chat", "--", *fixture_command()]
UP, DOWN = "\x1b[A", "\x1b[B"


@pytest.fixture
def env(agent_env: dict[str, str], tmp_path: Path) -> dict[str, str]:
    root = str(Path(__file__).parents[2])
    return {**agent_env, "ACP_BRIDGE_HOME": str(tmp_path / "home"), "PYTHONPATH": root}


async def queues(there: Person, gates: Gates, *texts: str) -> None:
    """Let a turn run and prompts wait behind it, which get the numbers from 2 on."""
    await there.sees("/help lists keys")
    there.type("gate open\r")
    await gates.reached("open")
    for number, text in enumerate(texts, 2):
        there.type(f"{text}\r")
        await there.sees(f"  {number} waits: {text}\n")


def prompted(log: FixtureLog) -> list[str]:
    """The words of the prompts that the agent got."""
    got = log.received("session/prompt")
    return ["".join(block["text"] for block in each["params"]["prompt"]) for each in got]


@pytest.mark.hazard("Q16.2", "R12")
async def test_what_is_left_over_is_edited_moved_and_dropped_and_then_run(
    tmp_path: Path, env: dict[str, str], gates: Gates, agent_log: FixtureLog
) -> None:
    async with person(CHAT, tmp_path, env) as there:
        await queues(there, gates, "say one", "say two", "say three")
        there.type("\x04")
        assert await there.process.wait() == 0
    async with person(["chat", "--resume", *CHAT[1:]], tmp_path, env) as there:
        await there.sees("  2 left over: say one\n  3 left over: say two\n  4 left over")
        there.type(f"\t{DOWN}K")
        await there.sees("* 3 left over: say two\n  2 left over: say one\n")
        there.type(f"{DOWN}d")
        await there.sees("  3 left over: say two\n* 4 left over: say three\n")
        there.type("e")
        await there.sees("» say three")
        there.type(" more\r")
        await there.sees("4 left over: say three more\n")
        there.type("\tr")
        await there.sees("\nthree more")
        there.type("\x04")
        assert await there.process.wait() == 0
    assert prompted(agent_log) == ["gate open", "say two", "say three more"]
