"""Who has decided about a call: a rule, a hook, a client or a Stop; each stands on its card."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from acp_bridge.core.journal.reading import unanswered_calls
from acp_bridge.core.machine import events as ev
from acp_bridge.core.protocol import REQUEST_PERMISSION
from tests.core.session.waiting import until
from tests.features.rules.test_rules import ALLOW, DENY, Ruled, ruled


async def _answers(it: Ruled, outcome: dict[str, Any], number: str) -> str:
    """What the agent is told when the client answers the open question so."""
    asked = [m for m in it.here.got if m.get("method") == REQUEST_PERMISSION][-1]
    it.here.client.answers(asked["id"], {"outcome": outcome})
    await until(lambda: it.told(number))
    return it.told(number)


async def test_what_a_person_answers_stands_on_the_card_with_the_option(tmp_path: Path) -> None:
    async with ruled(tmp_path, None) as it:
        for number, chosen in enumerate(("always", "yes", "no"), 1):
            assert await it.runs("make") == "asked"
            outcome = {"outcome": "selected", "optionId": chosen}
            assert await _answers(it, outcome, f"p{number}") == chosen
        assert await it.runs("make") == "asked"
        assert await _answers(it, {"outcome": "cancelled"}, "p4") == "cancelled"
        await until(lambda: len(it.decided()) == 4)
        assert it.decided() == [
            {"decision": "allow", "by": "client", "option": "allow_always"},
            {"decision": "allow", "by": "client", "option": "allow_once"},
            {"decision": "deny", "by": "client", "option": "reject_once"},
            {"decision": "cancelled", "by": "client"},
        ]


async def test_what_hooks_decide_stands_on_the_card(tmp_path: Path) -> None:
    async with ruled(tmp_path, None, ALLOW) as it:
        assert await it.runs("make") == "yes"
        assert it.decided() == [{"decision": "allow", "by": "hook"}]
    (again := tmp_path / "again").mkdir()
    async with ruled(again, None, DENY) as it:
        assert await it.runs("make") == "no"
        assert it.decided() == [{"decision": "deny", "by": "hook"}]


async def test_a_question_that_all_clients_have_left_is_decided_by_nobody(tmp_path: Path) -> None:
    async with ruled(tmp_path, None) as it:
        assert await it.runs("make") == "asked"
        it.here.session.audience.leave(it.here.client.client)
        await until(lambda: it.told("p1"))
        assert it.told("p1") == "no"
        assert it.recorded() == [{"decision": "deny", "by": "withdrawn"}]


async def test_a_stop_is_what_ends_an_open_question(tmp_path: Path) -> None:
    async with ruled(tmp_path, None) as it:
        assert await it.runs("make") == "asked"
        it.here.session.feed(ev.Cancel())
        await until(lambda: it.told("p1"))
        assert it.told("p1") == "cancelled"
        await until(lambda: it.decided() == [{"decision": "cancelled", "by": "stop"}])


@pytest.mark.hazard("K1")
async def test_the_record_has_which_permissions_are_not_answered_also_after_the_agents_death(
    tmp_path: Path,
) -> None:
    def unanswered() -> set[str]:
        return set(unanswered_calls(tmp_path / "home", it.here.session.id))

    async with ruled(tmp_path) as it:
        assert (await it.runs("rm x"), await it.runs("ls -l")) == ("no", "yes")
        assert unanswered() == set()
        it.says({"sessionUpdate": "tool_call", "toolCallId": "p3", "title": "t", "kind": "other"})
        assert await it.runs("make") == "asked"
        assert await it.runs("make all") == "asked"
        assert unanswered() == {"p3", "p4"}
        assert await _answers(it, {"outcome": "selected", "optionId": "yes"}, "p4") == "yes"
        await until(lambda: unanswered() == {"p3"})
        it.agent.dies()
        await it.here.answered(1)
        assert unanswered() == {"p3"}
    assert unanswered() == {"p3"}
