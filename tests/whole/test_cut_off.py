"""An agent that has closed a pipe and lives on leaves no prompt waiting."""

import pytest

from acp_bridge.core.runtime import waits
from tests.support.processes import marked
from tests.whole import bridge_support
from tests.whole.bridge_support import World, refused
from tests.whole.tiny_agent import tiny_agent

pytestmark = [pytest.mark.process, pytest.mark.hazard("P3")]

#: The first process does something to its pipes in a turn; those after it answer.
ONCE = """
def session_prompt(id, params):
    try:
        os.mkdir(TROUBLED)
    except FileExistsError:
        return {"stopReason": "end_turn"}
    trouble()
"""
CLOSES_STDOUT = "def trouble():\n    os.close(1)\n    time.sleep(1000)\n"
CLOSES_BOTH = "def trouble():\n    os.close(0)\n    os.close(1)\n    time.sleep(1000)\n"
CLOSES_STDIN = """
def trouble():
    os.close(0)
    update("s", **text("closed"))
    time.sleep(1000)
"""
CLOSES_AND_EXITS = "def trouble():\n    os.close(1)\n    os._exit(7)\n"
CLOSES_AT_THE_END = """
def session_prompt(id, params):
    send(id=id, result={"stopReason": "end_turn"})
    os.close(0)
    update("s", **text("closed"))
    time.sleep(1000)
"""


def behind(world: World, monkeypatch: pytest.MonkeyPatch, code: str, grace: float = 0.05) -> None:
    once = f"TROUBLED = {str(world.home / 'troubled')!r}\n{ONCE}"
    command = tiny_agent(world.cwd, once + code)
    monkeypatch.setattr(bridge_support, "fixture_command", lambda *names: command)
    monkeypatch.setattr(waits, "CUT_OFF_GRACE", grace)


@pytest.mark.hazard("P3.3")
@pytest.mark.parametrize("code", [CLOSES_STDOUT, CLOSES_BOTH], ids=["stdout", "both"])
async def test_a_closed_stdout_ends_the_process_and_its_turn(
    world: World, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    behind(world, monkeypatch, code)
    async with world.inside() as client:
        before = len(marked(world.mark))
        assert "signal SIGKILL" in (await refused(client, "one")).message
        await client.logged("agent.cut_off")
        assert len(marked(world.mark)) < before
        assert await client.prompt("two") == {"stopReason": "end_turn"}


@pytest.mark.hazard("P3.3")
async def test_a_write_to_a_closed_stdin_ends_the_process_and_its_turn(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    behind(world, monkeypatch, CLOSES_STDIN)
    async with world.inside() as client:
        prompt = client.send_prompt("one")
        await client.until_text("closed")
        client.notify("_x/y", {"sessionId": client.session_id})
        assert "signal SIGKILL" in (await client.answer_to(prompt))["error"]["message"]
        assert await client.prompt("two") == {"stopReason": "end_turn"}


async def test_a_prompt_for_a_process_that_closed_its_stdin_is_answered(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    behind(world, monkeypatch, CLOSES_AT_THE_END)
    async with world.inside() as client:
        assert await client.prompt("one") == {"stopReason": "end_turn"}
        await client.until_text("closed")
        assert "signal SIGKILL" in (await refused(client, "two")).message


async def test_a_process_that_ends_by_itself_after_closing_is_named_by_its_own_end(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    behind(world, monkeypatch, CLOSES_AND_EXITS, grace=60)
    async with world.inside() as client:
        assert "exit code 7" in (await refused(client, "one")).message
        assert await client.prompt("two") == {"stopReason": "end_turn"}
