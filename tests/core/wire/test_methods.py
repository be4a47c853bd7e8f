"""The front's method tables beside the official SDK's, which the front does not import."""

import sys
from pathlib import Path

import anyio
import pytest

from acp_bridge.core.agents.connection import AgentCommand
from acp_bridge.core.bridge.bridge import Bridge
from acp_bridge.core.clients import handshake
from acp_bridge.core.clients.abilities import ClientAbilities
from acp_bridge.core.journal import Journal
from acp_bridge.core.session.session_context import SessionContext
from acp_bridge.core.settings import Settings
from tests.core.wire.sdk import META
from tests.support.client import RecordingClient

NOTIFICATIONS = {"session/cancel"}
#: taken where they are read; `Bridge.slow` has those that are answered later.
AT_ONCE = {"initialize", "session/prompt"}
#: passed on to the session's agent as they are.
OF_A_SESSION = {"session/set_mode", "session/set_config_option", "nes/suggest", "nes/close"}
#: passed on to any process of the agent, or to each if they are notifications.
OF_THE_AGENT = {
    "providers/list",
    "providers/set",
    "providers/disable",
    "mcp/message",
    "nes/start",
    "nes/accept",
    "nes/reject",
    "document/didOpen",
    "document/didChange",
    "document/didClose",
    "document/didSave",
    "document/didFocus",
}


async def test_every_method_that_the_sdk_knows_is_taken_passed_on_or_refused(
    tmp_path: Path,
) -> None:
    async with anyio.create_task_group() as tasks:
        settings = Settings(("agent",), "agent", tmp_path)
        command = AgentCommand(settings.command, {})
        bridge = Bridge(SessionContext(settings, Journal(tmp_path), tasks, command))
    own = {method for method in bridge.slow if method.startswith("_")}
    taken = set(bridge.slow) - own | AT_ONCE | NOTIFICATIONS
    assert taken | OF_A_SESSION | OF_THE_AGENT == set(META["AGENT_METHODS"].values())


@pytest.mark.parametrize(
    ("method", "capability"),
    [
        ("fs/read_text_file", {"fs": {"readTextFile": True}}),
        ("fs/write_text_file", {"fs": {"writeTextFile": True}}),
        ("elicitation/create", {"elicitation": {"form": {}}}),
        *((m, {"terminal": True}) for m in META["CLIENT_METHODS"].values() if "terminal/" in m),
    ],
)
def test_a_request_reaches_the_client_only_with_its_capability(
    method: str, capability: dict[str, object]
) -> None:
    assert method in META["CLIENT_METHODS"].values()
    assert ClientAbilities(capability).allows(method, {"mode": "form"})
    assert not ClientAbilities({}).allows(method, {"mode": "form"})
    assert not ClientAbilities({"elicitation": {}}).allows(method, {"mode": "form"})


def test_the_version_is_the_sdks() -> None:
    assert handshake.BUILTIN["protocolVersion"] == META["PROTOCOL_VERSION"]


@pytest.mark.process
async def test_the_built_in_agents_answer_to_initialize_is_the_one_given_for_it(
    tmp_path: Path,
) -> None:
    command = [sys.executable, "-I", "-m", "agent", "--model", "demo"]
    env = {"ACP_BRIDGE_HOME": str(tmp_path)}
    async with RecordingClient.start(command, env=env) as client:
        assert await client.initialize(within=20) == handshake.BUILTIN
