"""What becomes of a question when no client that can answer has the session."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from acp_bridge.core.clients.abilities import ClientAbilities
from acp_bridge.core.protocol import REQUEST_PERMISSION, own_meta
from tests.core.session.memory import ClientEnd
from tests.core.session.waiting import until
from tests.features.hooks.hooked import OPTIONS
from tests.features.rules.test_rules import ALLOW, RULES, Ruled, ruled

pytestmark = pytest.mark.hazard("A1")


def _is_alone(it: Ruled, ability: str) -> None:
    """Let the only client be one that does not answer for a person."""
    own = {"_meta": {"acp_bridge": {ability: True}}}
    it.here.client.client.abilities = ClientAbilities(own)


@pytest.mark.hazard("A1.11")
@pytest.mark.parametrize("ability", ["observer", "ownTurnsOnly"])
@pytest.mark.parametrize("line", ["", 'unattended = "wait"\n', 'unattended = "deny"\n'])
async def test_writing_to_what_guards_the_user_is_denied_where_no_person_can_answer(
    tmp_path: Path, ability: str, line: str
) -> None:
    async with ruled(tmp_path, line + RULES) as it:
        _is_alone(it, ability)
        assert await it.asks(kind="edit", locations=[{"path": ".git/config"}]) == "no"
        assert await it.runs("echo x > .acp_bridge/hooks.toml") == "no"
        assert it.decided() == [{"decision": "deny", "by": "unattended"}] * 2
        assert "since nobody could answer" in it.notices()[0]


async def test_a_hook_that_allows_that_does_not_help_either(tmp_path: Path) -> None:
    async with ruled(tmp_path, None, ALLOW) as it:
        _is_alone(it, "ownTurnsOnly")
        assert await it.asks(kind="edit", locations=[{"path": ".git/config"}]) == "no"


@pytest.mark.hazard("A1.14")
@pytest.mark.parametrize("hook", ["exit 3", "echo nonsense", "kill -9 $$"])
async def test_what_a_hook_that_has_failed_may_refuse_is_denied_where_no_person_can_answer(
    tmp_path: Path, hook: str
) -> None:
    async with ruled(tmp_path, None, hook) as it:
        assert await it.runs("make") == "asked"
        _is_alone(it, "ownTurnsOnly")
        assert await it.runs("make") == "no"
        assert any("A hook of PermissionRequest failed" in each for each in it.notices())


@pytest.mark.hazard("A1.14")
async def test_what_a_program_that_is_not_known_may_run_is_denied_where_no_person_can_answer(
    tmp_path: Path,
) -> None:
    async with ruled(tmp_path, 'allow = ["Bash"]\ndeny = ["Bash(rm *)"]', ALLOW) as it:
        assert await it.runs("runs-it rm x") == "asked"
        _is_alone(it, "ownTurnsOnly")
        assert await it.runs("runs-it rm x") == "no"
        assert await it.runs("runs-it ls x") == "yes"


@pytest.mark.hazard("A1.14")
async def test_what_a_file_with_a_mistake_may_refuse_is_denied_where_no_person_can_answer(
    tmp_path: Path,
) -> None:
    async with ruled(tmp_path, "deny = [") as it:
        assert await it.runs("make") == "asked"
        _is_alone(it, "ownTurnsOnly")
        assert await it.runs("make") == "no"


async def test_a_client_that_answers_for_its_own_turns_decides_what_no_rule_does(
    tmp_path: Path,
) -> None:
    async with ruled(tmp_path, f'unattended = "deny"\n{RULES}') as it:
        _is_alone(it, "ownTurnsOnly")
        assert await it.runs("make") == "asked"
        _is_alone(it, "observer")
        assert await it.runs("make") == "no"


@pytest.mark.parametrize(
    ("line", "waits"),
    [('unattended = "wait"\n', True), ('unattended = "deny"\n', False), ("", False)],
)
async def test_a_client_that_answers_by_a_rule_is_told_that_a_question_waits_for_a_person(
    tmp_path: Path, line: str, waits: bool
) -> None:
    async with ruled(tmp_path, line + RULES) as it:
        forged = {"acp_bridge": {"waitsForPerson": True}}
        call = {"toolCallId": "t", "kind": "execute", "rawInput": {"command": "make"}}
        params = {"sessionId": "0", "toolCall": call, "options": OPTIONS, "_meta": forged}
        it.agent.asks(REQUEST_PERMISSION, params, "p")

        def asked() -> list[Any]:
            return [m for m in it.here.got if m.get("method") == REQUEST_PERMISSION]

        await until(asked)
        own = own_meta(asked()[0]["params"])
        assert own == ({"waitsForPerson": True} if waits else {})


@pytest.mark.hazard("A1.10")
async def test_what_guards_the_user_is_asked_of_persons_alone_even_beside_a_client_with_a_rule(
    tmp_path: Path,
) -> None:
    async with ruled(tmp_path) as it:
        person = ClientEnd()
        it.here.session.transcript.attach(person.client)
        _is_alone(it, "ownTurnsOnly")
        call = {"toolCallId": "t", "kind": "edit", "locations": [{"path": ".git/config"}]}
        params = {"sessionId": "0", "toolCall": call, "options": OPTIONS}
        it.agent.asks(REQUEST_PERMISSION, params, "p")

        def asked(messages: list[Any]) -> list[Any]:
            return [m for m in messages if m.get("method") == REQUEST_PERMISSION]

        await until(lambda: asked(person.sent.messages))
        assert asked(it.here.got) == []
