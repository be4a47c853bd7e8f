"""`acp-bridge cost --limits` and the chat's `/cost`: the limits that agents report."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from acp_bridge.core.journal import Journal
from acp_bridge.core.protocol import Json
from acp_bridge.core.wire.jsonrpc import RpcError
from acp_bridge.features.quotas.proposal import local
from acp_bridge.sharing.bridge_client.connection import Connection
from acp_bridge.sharing.bridge_client.listener import Listener
from acp_bridge.sharing.listening.run_files import LiveBridge
from acp_bridge.terminal.chat.conversation import Conversation
from acp_bridge.terminal.chat.session_commands import SessionCommands
from acp_bridge.terminal.shared import limits
from acp_bridge.terminal.view.blocks import Tone
from tests.sharing.bridge_client.fake_bridge import FakeBridge, connection_to
from tests.support.waiting import until
from tests.terminal.shared.conftest import Said
from tests.terminal.shared.test_looking_back import session_in, turn

AT = "2026-10-06T13:10:00Z"
POOLS: Any = [
    {
        "id": "plan",
        "label": "Pl\x1ban",
        "meters": [
            {"id": "hours", "label": "5-hour limit", "usedPercent": 42, "resetsAt": AT},
            {"id": "week", "remaining": {"value": "3", "unit": "credits"}},
        ],
    }
]
SNAPSHOT: Json = {"updatedAt": AT, "pools": POOLS}
REPORTS: Json = {"protocolVersion": 1, "agentCapabilities": {"quota": {}}}
WHEN = local(AT)
TABLE = (
    f"POOL    METER         USED  LEFT       RESETS\n"
    f"Pl\\x1ban  5-hour limit  42 %             {WHEN}\n"
    f"Pl\\x1ban  week                3 credits\n"
    f"As of {WHEN}.\n"
)


def bridges(monkeypatch: pytest.MonkeyPatch, **answers: dict[str, Any] | None) -> list[FakeBridge]:
    """Let a bridge live for each agent, with its answers; None: it has just ended."""
    made: list[FakeBridge] = []
    live = [
        LiveBridge(number, "h", agent, 1, agent.replace("_", "-"), "0.1.0")
        for number, agent in enumerate(answers)
    ]

    async def found(home: Path) -> list[LiveBridge]:
        return live

    @asynccontextmanager
    async def connect(
        path: str, listener: Listener, log: Path | None = None
    ) -> AsyncIterator[Connection]:
        if (of_bridge := answers[path]) is None:
            raise ConnectionRefusedError(111, "Connection refused")
        made.append(FakeBridge(**of_bridge))
        async with connection_to(made[-1], listener) as connection:
            yield connection

    monkeypatch.setattr(limits, "bridges_of", found)
    monkeypatch.setattr(limits, "over_socket", connect)
    return made


def cells(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_the_pools_of_each_running_agent_are_shown_and_absent_values_are_absent(
    said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = bridges(
        monkeypatch,
        reports={"initialize": REPORTS, "quota/read": SNAPSHOT},
        none={"initialize": REPORTS, "quota/read": {"updatedAt": "odd", "pools": []}},
        older={},
        failing={"initialize": REPORTS, "quota/read": RpcError(-32603, "no\x1bnet")},
        gone=None,
    )
    code, out, err = said("cost", "--limits")
    assert (code, err) == (0, "")
    texts = out.split("\n\n")
    assert [each.split()[0] for each in texts] == ["failing", "gone", "none", "older", "reports"]
    assert texts[0] == "failing did not report its limits: no\\x1bnet."
    assert texts[1] == "gone did not answer (process 4)."
    assert texts[2] == "none\nNo limits are reported."
    assert texts[3] == "older reports no limits."
    assert cells(texts[4]) == [["reports"], *cells(TABLE)]
    (asked,) = [c.params for each in made for c in each.calls if c.method == "quota/read"][:1]
    assert asked == {}
    assert not [c for c in made[2].calls if c.method == "quota/read"]


def test_with_json_each_agent_is_an_object_with_what_it_said(
    said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    bridges(monkeypatch, a={"initialize": REPORTS, "quota/read": SNAPSHOT}, b={})
    lines = said("cost", "--limits", "--json")[1].splitlines()
    assert [json.loads(line) for line in lines] == [
        {"agent": "a", "limits": SNAPSHOT},
        {"agent": "b", "error": "reports no limits"},
    ]


def test_without_a_running_bridge_that_is_said(said: Said) -> None:
    assert said("cost", "--limits") == (
        0,
        "No bridge is running. Limits are shown while one is.\n",
        "",
    )


@pytest.mark.parametrize("reports", [True, False])
async def test_the_chats_cost_shows_what_was_used_and_the_limits_of_the_session(
    tmp_path: Path, journal: Journal, reports: bool
) -> None:
    session = await session_in(journal, tmp_path)
    turn(session)
    shown: list[str] = []

    class Talk(Conversation):
        def say(self, text: str, tone: Tone = Tone.NEWS) -> None:
            shown.append(text)

    talk, bridge = Talk(tmp_path, lambda: None, lambda: 0.0), FakeBridge(**{"quota/read": SNAPSHOT})
    commands = SessionCommands(talk, tmp_path / "home", lambda session: None)
    commands.reports_limits = reports
    async with connection_to(bridge, talk) as connection, anyio.create_task_group() as tasks:
        talk.opened(session.info.session_id, {})
        shown.clear()
        tasks.start_soon(commands.serve, connection)
        commands.run("cost", "")
        with anyio.fail_after(5):
            await until(lambda: len(shown) == 2)
        tasks.cancel_scope.cancel()
    commands._send.close()
    commands._asked.close()
    assert shown[0].startswith("MODEL")
    if reports:
        assert cells(shown[1]) == cells(TABLE)
        assert bridge.calls[-1].params == {"sessionId": session.info.session_id}
    else:
        assert shown[1] == "this agent reports no limits"
        assert not bridge.calls
