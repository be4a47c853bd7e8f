"""Rules and the permissions of subagents."""

from pathlib import Path

import pytest

from tests.core.bridge.test_questions import OPTIONS, PERMISSION, chosen
from tests.core.bridge.test_subagents import SHOWS, at_work
from tests.core.sessions.agent import Json


@pytest.mark.hazard("A1")
@pytest.mark.parametrize("shows", [{}, SHOWS])
async def test_rules_decide_about_a_permission_of_a_subagent_as_about_any(
    tmp_path: Path, shows: Json
) -> None:
    rules = tmp_path / "permissions.toml"
    rules.write_text('deny = ["Bash(rm *)"]')
    rules.chmod(0o600)
    async with at_work(tmp_path, shows) as here:
        here.begins()
        here.calls(kind="execute", rawInput={"command": "rm x"}, status="pending")
        here.asks(sessionId="kid", toolCall={"toolCallId": "t"}, options=OPTIONS)
        assert await here.answered() == chosen("no")
        assert here.it.editor.asked(PERMISSION) == []
