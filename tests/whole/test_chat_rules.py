"""The user's rules in `chat`, in a real terminal, in front of the built-in agent."""

from pathlib import Path

import pytest

from tests.support.person import person

pytestmark = [pytest.mark.process, pytest.mark.hazard("A1")]

RULES = """\
deny = ["Bash(rm *)"]
allow = ["Bash(echo said)"]
"""
DIALOGUE = """\
when: allowed
call: shell {"command": "echo said"}
---
text: Said it.
when: denied
call: shell {"command": "echo said; rm -rf kept"}
---
text: Left it.
when: asked
call: shell {"command": "echo said; touch made"}
---
text: Made it.
"""


async def test_a_person_is_asked_only_what_the_rules_leave_open(
    tmp_path: Path, agent_env: dict[str, str]
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "permissions.toml").write_text(RULES)
    (tmp_path / "said.txt").write_text(DIALOGUE)
    (tmp_path / "kept").write_text("it")
    root = str(Path(__file__).parents[2])
    env = {**agent_env, "ACP_BRIDGE_HOME": str(home), "PYTHONPATH": root}
    model = f"scripted:{tmp_path / 'said.txt'}"
    async with person(["chat", "--model", model], tmp_path, env) as there:
        await there.sees("/help lists keys")
        there.type("allowed\r")
        await there.sees("Said it.")
        there.type("denied\r")
        await there.sees("Left it.")
        assert "Allow" not in there.seen
        assert (tmp_path / "kept").exists()
        there.type("asked\r")
        await there.sees("Allow")
        assert not (tmp_path / "made").exists()
        await there.answers("y")
        await there.sees("Made it.")
        assert (tmp_path / "made").exists()
        there.type("\x04")
        assert await there.process.wait() == 0
