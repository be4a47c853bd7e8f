"""The user's rules about what the agent asks, beside hooks and persons."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from acp_bridge.core.clients.abilities import ClientAbilities
from acp_bridge.core.journal.reading import transcript
from acp_bridge.core.machine import events as ev
from acp_bridge.core.protocol import (
    CREATE_TERMINAL,
    READ_TEXT_FILE,
    REQUEST_PERMISSION,
    SESSION_PROMPT,
    WRITE_TEXT_FILE,
    own_meta,
)
from acp_bridge.features.hooks import trust
from acp_bridge.features.hooks.definitions import Hook, HookEvent
from acp_bridge.features.hooks.found import FoundHooks
from acp_bridge.features.hooks.in_session import HooksOfSession
from acp_bridge.features.rules.places import PROJECT_FILE, RECORDS
from tests.core.session.living import Living, first, living
from tests.core.session.played_agent import PlayedAgent
from tests.core.session.waiting import until
from tests.features.hooks.hooked import OPTIONS

ALLOW = """echo '{"permissionDecision": "allow"}'"""
DENY = """echo '{"permissionDecision": "deny", "permissionDecisionReason": "too risky"}'"""
ASK = """echo '{"permissionDecision": "ask"}'"""
RULES = """\
deny  = ["Bash(rm *)", "Read(**/.env*)", "Edit(secret/**)"]
ask   = ["Bash(git push *)"]
allow = ["Bash(ls *)", "Bash(git *)", "Edit", "mcp__github__get_*"]
"""


class Ruled:
    """A session with rules, and an agent that asks in a turn of it."""

    def __init__(self, here: Living, agent: PlayedAgent, work: Path) -> None:
        self.here, self.agent, self.work = here, agent, work
        self._last = 0

    async def asks(self, options: Any = OPTIONS, **call: Any) -> str:
        """What becomes of a permission: the option that the agent is told, or "asked"."""
        self._last += 1
        number = f"p{self._last}"
        params = {"sessionId": "0", "toolCall": {"toolCallId": number, **call}, "options": options}
        asked = self._asked()
        self.agent.asks(REQUEST_PERMISSION, params, number)
        await until(lambda: self.told(number) or self._asked() > asked)
        return self.told(number) or "asked"

    async def does(self, method: str, **params: Any) -> Any:
        """The answer to a request about the client's files or terminals, or "passed on"."""
        self._last += 1
        number = f"d{self._last}"
        before = self._got(method)
        self.agent.asks(method, {"sessionId": "0", **params}, number)

        def answers() -> list[Any]:
            return [m for m in self.agent.sent.messages if m.get("id") == number]

        await until(lambda: answers() or self._got(method) > before)
        return answers()[0]["error"] if answers() else "passed on"

    async def runs(self, command: str) -> str:
        return await self.asks(title="a command", kind="execute", rawInput={"command": command})

    def says(self, update: dict[str, Any]) -> None:
        self.agent.update(**update)

    def decided(self) -> list[Any]:
        """What the cards tell of decisions."""
        told = [m["params"].get("_meta", {}).get("acp_bridge", {}) for m in self.here.got]
        return [each["decided"] for each in told if "decided" in each]

    def recorded(self) -> list[Any]:
        """What the transcript tells of decisions."""
        read = transcript(self.work.parent / "home", self.here.session.id)
        own = [own_meta(each) for each in read]
        return [each["decided"] for each in own if "decided" in each]

    def notices(self) -> list[str]:
        return [text for text in self.here.texts() if "[acp-bridge]" in text]

    def _asked(self) -> int:
        return self._got(REQUEST_PERMISSION)

    def _got(self, method: str) -> int:
        return len([m for m in self.here.got if m.get("method") == method])

    def told(self, number: str) -> str:
        for each in self.agent.sent.messages:
            if each.get("id") == number:
                outcome = each["result"]["outcome"]
                return str(outcome.get("optionId", outcome["outcome"]))
        return ""


@asynccontextmanager
async def ruled(
    tmp_path: Path,
    rules: str | None = RULES,
    *hooks: str,
    settings: Mapping[str, Any] | None = None,
    **more: Any,
) -> AsyncIterator[Ruled]:
    """A session in a folder `work`, with this file of rules and these hooks for permissions."""
    (work := tmp_path / "work").mkdir(exist_ok=True)
    (home := tmp_path / "home").mkdir(exist_ok=True)
    if rules is not None:
        (home / "permissions.toml").write_text(rules)
    event = HookEvent.PERMISSION
    found = FoundHooks(tuple(Hook(event, command, timeout=20) for command in hooks), **more)
    agent = first()
    more = {"cwd": str(work), **(settings or {})}
    async with living(home, first=agent, found=[HooksOfSession(found)], **more) as here:
        here.prompt()
        await agent.asked(SESSION_PROMPT)
        yield Ruled(here, agent, work)


@pytest.mark.hazard("A1.15", "C18")
async def test_rules_refuse_allow_and_ask_with_the_options_that_the_agent_offered(
    tmp_path: Path,
) -> None:
    async with ruled(tmp_path) as it:
        assert await it.runs("ls -l") == "yes"
        assert await it.runs("rm x") == "no"
        assert await it.runs("git push") == "asked"
        assert await it.runs("make") == "asked"
        assert await it.runs("ls && rm x") == "no"
        assert await it.asks(options=OPTIONS[:1], kind="execute", rawInput={"command": "ls"}) == (
            "asked"
        )
        refused = await it.asks(options=OPTIONS[:2], kind="execute", rawInput={"command": "rm x"})
        assert refused == "cancelled"


async def test_a_card_tells_which_rule_has_decided_and_a_refusal_is_said(tmp_path: Path) -> None:
    async with ruled(tmp_path) as it:
        await it.runs("ls -l")
        await it.runs("rm x")
        assert it.decided() == [
            {
                "decision": "allow",
                "by": "rule",
                "rules": ["allow Bash(ls *) (permissions.toml, line 3)"],
            },
            {
                "decision": "deny",
                "by": "rule",
                "rules": ["deny Bash(rm *) (permissions.toml, line 1)"],
            },
        ]
        (said,) = it.notices()
        assert "Your rule refused `a command`: deny Bash(rm *) (permissions.toml, line 1)" in said


@pytest.mark.hazard("A1.9")
@pytest.mark.parametrize(
    ("hook", "command", "becomes"),
    [
        (ALLOW, "rm x", "no"),
        (DENY, "ls", "no"),
        (DENY, "git push", "no"),
        (ALLOW, "git push", "asked"),
        ("exit 1", "ls", "asked"),
        (ASK, "ls", "asked"),
        (ALLOW, "make", "yes"),
        ("true", "ls", "yes"),
        ("true", "make", "asked"),
    ],
)
async def test_rules_and_hooks_have_their_order(
    tmp_path: Path, hook: str, command: str, becomes: str
) -> None:
    async with ruled(tmp_path, RULES, hook) as it:
        assert await it.runs(command) == becomes


@pytest.mark.hazard("A1.13")
async def test_hooks_that_are_missing_leave_the_word_to_the_person_and_not_to_a_rule(
    tmp_path: Path,
) -> None:
    async with ruled(tmp_path, RULES, "true", person_asked=True) as it:
        assert await it.runs("ls") == "asked"
        assert await it.runs("rm x") == "no"


@pytest.mark.hazard("A1.10")
@pytest.mark.parametrize("rules", [None, 'allow = ["Edit", "Bash"]'])
async def test_neither_rule_nor_hook_allows_writing_to_what_guards_the_user(
    tmp_path: Path, rules: str | None
) -> None:
    async with ruled(tmp_path, rules, ALLOW if rules is None else "true") as it:
        home = tmp_path / "home"
        for path in (".git/config", ".acp_bridge/hooks.toml", home / "hooks.toml", home / "x"):
            assert await it.asks(kind="edit", locations=[{"path": str(path)}]) == "asked"
        (it.work / "link").symlink_to(home)
        assert await it.asks(kind="edit", locations=[{"path": "link/keys.env"}]) == "asked"
        assert await it.runs("echo x > .git/hooks/pre-commit") == "asked"
        assert await it.asks(kind="edit", locations=[{"path": "a"}]) == "yes"


@pytest.mark.hazard("A1")
async def test_neither_rule_nor_hook_allows_what_the_agent_says_is_a_persons_to_allow(
    tmp_path: Path,
) -> None:
    mark = {"acpBridgeAgent": {"onlyPerson": True}}
    async with ruled(tmp_path, RULES, ALLOW) as it:
        call = {"kind": "edit", "rawInput": {"path": "src/a"}}
        assert await it.asks(**call) == "yes"
        assert await it.asks(**call, _meta=mark) == "asked"
        assert await it.asks(kind="edit", rawInput={"path": "secret/a"}, _meta=mark) == "no"


@pytest.mark.hazard("C18")
async def test_a_client_that_answers_by_a_rule_of_its_own_is_not_asked_what_is_a_persons_to_allow(
    tmp_path: Path,
) -> None:
    """As `acp-bridge run --permissions allow` does; without any file of rules."""
    async with ruled(tmp_path, None) as it:
        own = {"_meta": {"acp_bridge": {"ownTurnsOnly": True}}}
        it.here.client.client.abilities = ClientAbilities(own)
        assert await it.asks(kind="edit", rawInput={"path": "src/a"}) == "asked"
        mark = {"acpBridgeAgent": {"onlyPerson": True}}
        assert await it.asks(kind="edit", rawInput={"path": "src/a"}, _meta=mark) == "no"


@pytest.mark.hazard("A1.1", "A1.4", "C18")
async def test_a_call_that_is_not_understood_is_allowed_by_no_rule(tmp_path: Path) -> None:
    async with ruled(tmp_path, 'allow = ["Bash", "Edit", "Read", "WebFetch", "Search"]') as it:
        assert await it.asks(kind="read", locations=[{"path": "a"}]) == "yes"
        assert await it.asks(kind="other", locations=[{"path": "a"}]) == "asked"
        assert await it.asks(title="ls") == "asked"
        assert await it.asks(kind="execute", title="ls") == "asked"
        assert await it.asks(kind="edit") == "asked"
        raw = {"command": "ls", "env": {"PATH": "/evil"}}
        assert await it.asks(kind="execute", rawInput=raw) == "asked"
        raw = {"command": "str_replace", "path": "a"}
        assert await it.asks(kind="edit", rawInput=raw) == "asked"
        it.says({"sessionUpdate": "tool_call", "toolCallId": "p8", "title": "x", "kind": "execute"})
        assert await it.asks(kind="read", locations=[{"path": "a"}]) == "asked"


@pytest.mark.hazard("A1")
async def test_the_ordinary_commands_of_each_agent_are_allowed_and_no_more_than_those(
    tmp_path: Path,
) -> None:
    calls = Path(__file__).parents[2] / "features/rules/recorded_calls.json"
    recorded = json.loads(calls.read_text())
    runs = [each["call"] for each in recorded if each["call"]["kind"] == "execute"]
    async with ruled(tmp_path, 'allow = ["Bash(npm test *)", "Bash(cat *)"]') as it:
        for call in runs:
            given = json.loads(json.dumps(call).replace("/project", str(it.work)))
            assert await it.asks(**given) == "yes"
            given["rawInput"]["executable"] = "/tmp/evil"
            assert await it.asks(**given) == "asked"


@pytest.mark.hazard("A1", "V9.1")
async def test_what_a_request_does_not_say_is_taken_from_the_calls_card(tmp_path: Path) -> None:
    async with ruled(tmp_path) as it:
        card = {"sessionUpdate": "tool_call", "title": "x", "kind": "execute"}
        it.says({**card, "toolCallId": "p1", "rawInput": {"command": "ls"}})
        assert await it.asks() == "yes"
        it.says({**card, "toolCallId": "p2", "rawInput": {"command": "rm x"}})
        assert await it.asks() == "no"
        it.says({**card, "toolCallId": "p3", "rawInput": {"command": "ls"}})
        assert await it.asks(rawInput={"command": "git log"}) == "asked"


async def test_an_mcp_tool_is_known_by_its_own_name_and_never_by_a_title(tmp_path: Path) -> None:
    async with ruled(tmp_path) as it:
        meta = {"claudeCode": {"toolName": "mcp__github__get_issue"}}
        assert await it.asks(kind="other", _meta=meta) == "yes"
        assert await it.asks(kind="other", title="mcp__github__get_issue") == "asked"
        meta = {"claudeCode": {"toolName": "mcp__github__delete_repo"}}
        assert await it.asks(kind="other", _meta=meta, rawInput={"command": "ls"}) == "asked"


@pytest.mark.hazard("A1")
async def test_what_rules_refuse_the_agent_does_not_get_from_the_client_either(
    tmp_path: Path,
) -> None:
    async with ruled(tmp_path) as it:
        able = {"terminal": True, "fs": {"readTextFile": True, "writeTextFile": True}}
        it.here.client.client.abilities = ClientAbilities(able)
        for method, params in (
            (READ_TEXT_FILE, {"path": str(it.work / ".env")}),
            (WRITE_TEXT_FILE, {"path": str(it.work / "secret/x"), "content": ""}),
            (CREATE_TERMINAL, {"command": "rm", "args": ["x y"]}),
            (CREATE_TERMINAL, {"command": "ls; rm x"}),
            (CREATE_TERMINAL, {"command": "rm", "args": 5}),
            (CREATE_TERMINAL, {"command": "ls; rm", "args": ["x"]}),
            (CREATE_TERMINAL, {"command": "tee", "args": ["x"], "cwd": str(it.work / "secret")}),
            (READ_TEXT_FILE, {"path": "a\0b"}),
        ):
            error = await it.does(method, **params)
            assert "a rule of the user's refuses this: " in json.dumps(error), method
        assert await it.does(CREATE_TERMINAL, command="make") == "passed on"


@pytest.mark.hazard("A1.12")
async def test_a_changed_file_counts_and_while_it_has_a_mistake_only_its_refusals_do(
    tmp_path: Path,
) -> None:
    async with ruled(tmp_path) as it:
        file = tmp_path / "home/permissions.toml"
        assert await it.runs("ls") == "yes"
        file.write_text('allow = ["Bash(make)"]\ndeny = ["Bash(mv *)"]')
        assert await it.runs("ls") == "asked"
        assert await it.runs("make") == "asked"
        assert await it.runs("rm x") == "no"
        file.write_text('allow = ["Bash(make)"]\ndeny = ["Bsah(mv *)"]')
        assert await it.runs("make") == "asked"
        assert await it.runs("mv x y") == "no"
        (said,) = [each for each in it.notices() if "Until that is mended" in each]
        assert "line 2: 'Bsah(mv *)' names no tool" in said
        file.unlink()
        assert await it.runs("mv x y") == "asked"
        file.write_text(RULES)
        assert await it.runs("ls") == "yes"


@pytest.mark.hazard("A1.12")
async def test_a_pipe_or_a_folder_in_the_place_of_the_file_keeps_its_last_refusals(
    tmp_path: Path,
) -> None:
    async with ruled(tmp_path) as it:
        file = tmp_path / "home/permissions.toml"
        assert await it.runs("ls") == "yes"
        file.unlink()
        os.mkfifo(file)
        assert await it.runs("ls") == "asked"
        assert await it.runs("rm x") == "no"
        file.unlink()
        file.mkdir()
        assert await it.runs("ls") == "asked"
        assert await it.runs("rm x") == "no"


@pytest.mark.hazard("A1", "S2")
async def test_a_file_that_anybody_may_write_allows_nothing(tmp_path: Path) -> None:
    async with ruled(tmp_path) as it:
        (tmp_path / "home/permissions.toml").chmod(0o666)
        assert await it.runs("ls") == "asked"
        assert await it.runs("rm x") == "no"
        assert "anybody may write this file" in "".join(it.notices())


@pytest.mark.hazard("A2.1", "A2.2")
async def test_a_projects_own_rules_refuse_and_ask_but_allow_nothing_by_themselves(
    tmp_path: Path,
) -> None:
    async with ruled(tmp_path) as it:
        (it.work / ".acp_bridge").mkdir()
        (it.work / ".acp_bridge/permissions.toml").write_text(
            'deny = ["Bash(ls *)"]\nask = ["Bash(git log *)"]\nallow = ["Bash(make *)"]'
        )
        assert await it.runs("ls") == "no"
        assert await it.runs("git log") == "asked"
        assert await it.runs("git status") == "yes"
        assert await it.runs("make") == "asked"
        (it.work / ".acp_bridge/permissions.toml").write_text('default = "deny"')
        assert await it.runs("make") == "no"


@pytest.mark.hazard("A2.2")
async def test_what_a_project_allows_counts_while_the_user_trusts_its_file_as_it_is(
    tmp_path: Path,
) -> None:
    async with ruled(tmp_path) as it:
        (it.work / ".acp_bridge").mkdir()
        file = it.work / ".acp_bridge/permissions.toml"
        file.write_text('allow = ["Bash(make *)", "Bash(rm *)"]\nask = ["Bash(make x)"]')
        assert await it.runs("make") == "asked"
        (said,) = it.notices()
        assert "The `allow` rules of this project" in said
        folder, home = str(await anyio.Path(it.work).resolve()), tmp_path / "home"
        files = {PROJECT_FILE: trust.digest(file.read_bytes())}
        trust.write_record(home, trust.Record(folder, files))  # as hooks are: not rules
        assert await it.runs("make") == "asked"
        trust.write_record(home, trust.Record(folder, files), RECORDS)
        assert await it.runs("make") == "yes"
        assert await it.runs("make x") == "asked"
        assert await it.runs("rm x") == "no"
        file.write_text(file.read_text() + "\n")
        assert await it.runs("make") == "asked"
        assert "since the file changed" in it.notices()[-1]
        file.write_text(file.read_text().rstrip())
        assert await it.runs("make") == "yes"
        trust.record_path(home, folder, RECORDS).unlink()
        assert await it.runs("make") == "asked"


async def test_the_default_denies_what_no_rule_allows_and_says_why(tmp_path: Path) -> None:
    async with ruled(tmp_path, f'default = "deny"\n{RULES}') as it:
        assert await it.runs("make") == "no"
        assert await it.runs("git push") == "asked"
        assert await it.runs("ls") == "yes"
        assert "Your rule refused `a command`: no rule allows make" in "".join(it.notices())


async def test_a_question_that_nobody_can_answer_waits_or_is_denied_as_the_rules_say(
    tmp_path: Path,
) -> None:
    async with ruled(tmp_path, f'unattended = "deny"\n{RULES}') as it:
        assert await it.runs("make") == "asked"
        able = {"_meta": {"acp_bridge": {"observer": True}}}
        it.here.client.client.abilities = ClientAbilities(able)
        assert await it.runs("make") == "no"
        assert it.decided() == [{"decision": "deny", "by": "unattended"}]


@pytest.mark.hazard("C10", "C15")
async def test_a_stop_ends_what_rules_have_not_decided_yet(tmp_path: Path) -> None:
    async with ruled(tmp_path, RULES, "touch began; sleep 60") as it:
        params = {
            "sessionId": "0",
            "toolCall": {"toolCallId": "t", "kind": "execute", "rawInput": {"command": "ls"}},
            "options": OPTIONS,
        }
        it.agent.asks(REQUEST_PERMISSION, params, "p")
        await until((it.work / "began").exists)
        it.here.session.feed(ev.Cancel())

        def answers() -> list[Any]:
            return [m for m in it.agent.sent.messages if m.get("id") == "p"]

        await until(answers)
        assert answers()[0]["result"]["outcome"] == {"outcome": "cancelled"}
