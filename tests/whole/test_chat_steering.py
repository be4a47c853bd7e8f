"""Words that a person sends into the turn that runs, in `chat` and with `send`: real processes."""

from pathlib import Path

import pytest

from tests.support.gates import Gates
from tests.support.person import person
from tests.support.waiting import until

pytestmark = pytest.mark.process

DIALOGUE = """\
when: story
text: Once upon a time.
gate: middle
call: list_files {"path": "."}
when: verse
text: In rhymes, then.
turn
text: Well.
"""


@pytest.fixture
def env(agent_env: dict[str, str], tmp_path: Path) -> dict[str, str]:
    root = str(Path(__file__).parents[2])
    return {**agent_env, "ACP_BRIDGE_HOME": str(tmp_path / "home"), "PYTHONPATH": root}


async def test_alt_enter_reaches_the_turn_of_the_built_in_agent_and_stands_there_once(
    tmp_path: Path, env: dict[str, str], gates: Gates
) -> None:
    (tmp_path / "said.txt").write_text(DIALOGUE)
    model = f"scripted:{tmp_path / 'said.txt'}"
    async with person(["chat", "--model", model], tmp_path, env) as there:
        await there.sees("/help lists keys")
        there.type("a story\r")
        await gates.reached("middle", within=20)
        there.type("in verse\x1b\r")
        await there.sees("» in verse")
        log = tmp_path / "home" / "bridge.log"
        await until(lambda: "turn.steered" in log.read_text())
        gates.open("middle")
        await there.sees("In rhymes, then.")
        await there.sees("Not run: the user has said something meanwhile")
        assert there.seen.count("in verse") == 1
        there.type("\x04")
        assert await there.process.wait() == 0
