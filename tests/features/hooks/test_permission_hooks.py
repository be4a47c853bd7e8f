"""Hooks that decide about the agent's permissions, before the person is asked."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import anyio
import pytest

from acp_bridge.core.machine import events as ev
from acp_bridge.core.protocol import REQUEST_PERMISSION, SESSION_PROMPT
from acp_bridge.features.hooks.definitions import HookEvent
from tests.core.session.living import CANCELLED, first
from tests.core.session.played_agent import PlayedAgent
from tests.core.session.waiting import until
from tests.features.hooks.hooked import (
    CALL,
    LEAVES,
    OPTIONS,
    alive,
    asked_of_client,
    asks,
    given,
    hooked,
    told,
    waits_at,
)

pytestmark = pytest.mark.process
PERMISSION = HookEvent.PERMISSION

ALLOW = """echo '{"hookSpecificOutput": {"permissionDecision": "allow"}}'"""
DENY = """echo '{"permissionDecision": "deny", "permissionDecisionReason": "too risky"}'"""
ASK = """echo '{"permissionDecision": "ask"}'"""


def answers(agent: PlayedAgent) -> list[Any]:
    """Return the answers that the agent got to its question."""
    return [message for message in agent.sent.messages if message.get("id") == "p"]


@pytest.mark.hazard("C18.7")
@pytest.mark.parametrize(
    ("commands", "option"),
    [
        ([ALLOW], "yes"),
        ([DENY], "no"),
        (["echo why >&2; exit 2"], "no"),
        ([ALLOW, DENY], "no"),
        ([DENY, ALLOW], "no"),
        (["true", ALLOW], "yes"),
    ],
)
async def test_hooks_may_decide_about_a_permission_and_one_that_refuses_wins(
    tmp_path: Path, commands: list[str], option: str
) -> None:
    agent = first()
    hooks = [(PERMISSION, command) for command in commands]
    async with hooked(tmp_path, *hooks, agent=agent) as here:
        await asks(here, agent)
        assert await told(agent) == {"outcome": "selected", "optionId": option}
        assert asked_of_client(here) == []
        card = next(each for each in here.updates() if each["sessionUpdate"] == "tool_call")
        assert (card["toolCallId"], card["title"]) == ("t", "rm -r build")
        (named,) = [text for text in here.texts() if "[acp-bridge] A hook" in text]
        assert ("allowed" in named) == (option == "yes")
        assert "rm -r build" in named
        here.session.feed(ev.Cancel())
        assert len(answers(agent)) == 1


@pytest.mark.hazard("C18.7")
@pytest.mark.parametrize(
    "commands",
    [
        ["true"],
        [ASK],
        [ALLOW, ASK],
        ["exit 1"],
        ["echo sure"],
        ["echo '{'"],
        ["""echo '{"permissionDecision": "always"}'"""],
        ["""echo '{"permissionDecision": true}'"""],
        [ALLOW, "exit 1"],
        ["exit 3", ALLOW],
        [f"{ALLOW}; exit 1"],
        [f"{ALLOW}; kill -9 $$"],
        ["yes | head -c 200000"],
        ["nothing-of-this-name"],
    ],
)
async def test_whatever_else_a_hook_does_the_person_is_asked(
    tmp_path: Path, commands: list[str]
) -> None:
    agent = first()
    hooks = [(PERMISSION, command) for command in commands]
    async with hooked(tmp_path, *hooks, agent=agent) as here:
        await asks(here, agent)
        await until(lambda: asked_of_client(here))
        here.session.feed(ev.Cancel())


@pytest.mark.hazard("C18.1")
async def test_a_hook_never_chooses_an_option_that_holds_for_longer(tmp_path: Path) -> None:
    agent = first()
    async with hooked(tmp_path, (PERMISSION, ALLOW), agent=agent) as here:
        await asks(here, agent, OPTIONS[:1])
        await until(lambda: asked_of_client(here))
        here.session.feed(ev.Cancel())


@pytest.mark.hazard("C18.8")
async def test_while_a_hook_may_be_missing_none_allows_and_each_may_refuse(tmp_path: Path) -> None:
    agent = first()
    async with hooked(tmp_path, (PERMISSION, ALLOW), agent=agent, person_asked=True) as here:
        await asks(here, agent)
        await until(lambda: asked_of_client(here))
        here.session.feed(ev.Cancel())
    (tmp_path / "work").rmdir()
    other = first()
    (again := tmp_path / "again").mkdir()
    async with hooked(again, (PERMISSION, DENY), agent=other, person_asked=True) as here:
        await asks(here, other)
        assert (await told(other))["optionId"] == "no"
        here.session.feed(ev.Cancel())


async def test_a_hook_is_told_of_the_call_what_the_agent_has_said_of_it_before(
    tmp_path: Path,
) -> None:
    agent = first()
    async with hooked(tmp_path, (PERMISSION, f"cat > in; {DENY}"), agent=agent) as here:
        here.prompt()
        await agent.asked(SESSION_PROMPT)
        agent.update(
            sessionUpdate="tool_call",
            toolCallId="t",
            title="first",
            kind="edit",
            rawInput={"path": "a"},
            _meta={"claudeCode": {"toolName": "Write"}},
        )
        call = {"toolCallId": "t", "title": "Write a"}
        params = {"sessionId": "0", "toolCall": call, "options": OPTIONS}
        agent.asks(REQUEST_PERMISSION, params, "p")
        await told(agent)
        told_hook = given(tmp_path, "in")
        assert {key: told_hook[key] for key in told_hook if key.startswith("tool")} == {
            "tool_name": "Write",
            "tool_kind": "edit",
            "tool_title": "Write a",
            "tool_input": {"path": "a"},
            "tool_use_id": "t",
        }
        here.session.feed(ev.Cancel())


@pytest.mark.hazard("V9", "C18")
@pytest.mark.parametrize("when", ["meanwhile", "before"])
async def test_a_hook_that_allows_allows_nothing_but_what_it_was_told(
    tmp_path: Path, when: str
) -> None:
    agent = first()
    allows = f"touch began; cat go; {ALLOW}"
    async with hooked(tmp_path, (PERMISSION, allows), agent=agent) as here:
        os.mkfifo(tmp_path / "work" / "go")
        here.prompt()
        await agent.asked(SESSION_PROMPT)
        card = {"toolCallId": "t", "title": "ls", "rawInput": {"command": "rm -rf src"}}
        if when == "before":
            agent.update(sessionUpdate="tool_call", **card)
        call = {"toolCallId": "t", "title": "ls", "rawInput": {"command": "ls"}}
        params = {"sessionId": "0", "toolCall": call, "options": OPTIONS}
        agent.asks(REQUEST_PERMISSION, params, "p")
        await waits_at(tmp_path, "began")
        if when == "meanwhile":
            agent.update(sessionUpdate="tool_call_update", **card)
        await anyio.Path(tmp_path / "work" / "go").write_text("")
        await until(lambda: asked_of_client(here))
        assert not [m for m in agent.sent.messages if m.get("id") == "p"]
        here.session.feed(ev.Cancel())


@pytest.mark.hazard("C10", "C15.1")
async def test_stop_answers_a_permission_at_once_and_cancelled_comes_when_its_hook_is_dead(
    tmp_path: Path,
) -> None:
    agent = first()
    async with hooked(tmp_path, (PERMISSION, LEAVES), agent=agent) as here:
        request = here.prompt()
        sent = await agent.asked(SESSION_PROMPT)
        params = {"sessionId": "0", "toolCall": CALL, "options": OPTIONS}
        agent.asks(REQUEST_PERMISSION, params, "p")
        await waits_at(tmp_path, "began")
        pid = int((tmp_path / "work" / "pid").read_text())
        here.session.feed(ev.Cancel())
        assert agent.sent.messages[-1]["result"] == {"outcome": {"outcome": "cancelled"}}
        agent.answer(sent, CANCELLED)
        assert alive(pid)
        assert here.answers() == {}
        assert await here.answered(request) == CANCELLED
        assert not alive(pid)
        assert asked_of_client(here) == []
        assert len(answers(agent)) == 1


async def test_an_agent_that_takes_its_question_back_is_answered_at_once_and_its_hook_is_ended(
    tmp_path: Path,
) -> None:
    agent = first()
    async with hooked(tmp_path, (PERMISSION, LEAVES), agent=agent) as here:
        await asks(here, agent)
        await waits_at(tmp_path, "began")
        pid = int((tmp_path / "work" / "pid").read_text())
        agent.says({"method": "$/cancel_request", "params": {"requestId": "p"}})
        assert [each["error"]["code"] for each in answers(agent)] == [-32800]
        await until(lambda: not alive(pid))
        assert len(answers(agent)) == 1
        here.session.feed(ev.Cancel())


async def test_the_user_is_told_that_a_question_waits_when_hooks_have_left_it_to_them(
    tmp_path: Path,
) -> None:
    agent = first()
    hooks = [(PERMISSION, "touch began; cat go"), (HookEvent.WAITING, "touch told")]
    async with hooked(tmp_path, *hooks, agent=agent) as here:
        os.mkfifo(tmp_path / "work" / "go")
        await asks(here, agent)
        await waits_at(tmp_path, "began")
        assert not (tmp_path / "work" / "told").exists()
        await anyio.Path(tmp_path / "work" / "go").write_text("")
        await waits_at(tmp_path, "told")
        assert len(asked_of_client(here)) == 1
        here.session.feed(ev.Cancel())


@pytest.mark.hazard("P3", "Q12")
async def test_the_death_of_the_agent_ends_its_permissions_hook_and_is_told_to_its_own(
    tmp_path: Path,
) -> None:
    agent = first()
    death = (HookEvent.DEATH, "cat > in; touch told")
    async with hooked(tmp_path, (PERMISSION, LEAVES), death, agent=agent) as here:
        asked = here.prompt()
        await agent.asked(SESSION_PROMPT)
        params = {"sessionId": "0", "toolCall": CALL, "options": OPTIONS}
        agent.asks(REQUEST_PERMISSION, params, "p")
        await waits_at(tmp_path, "began")
        pid = int((tmp_path / "work" / "pid").read_text())
        agent.dies()
        assert (await here.answered(asked))["code"] == -32603
        await waits_at(tmp_path, "told")
        assert given(tmp_path, "in")["reason"] == "signal SIGKILL"
        await until(lambda: not alive(pid))
        assert answers(agent) == []
