"""What OpenHands' agent announces in its answer to `initialize`."""

from __future__ import annotations

from acp.schema import (
    AgentCapabilities,
    AuthMethodAgent,
    Implementation,
    InitializeResponse,
    McpCapabilities,
    PromptCapabilities,
    SessionCapabilities,
    SessionCloseCapabilities,
    SessionDeleteCapabilities,
    SessionForkCapabilities,
    SessionListCapabilities,
    SessionResumeCapabilities,
)

from acp_bridge import __version__
from acp_bridge.core.protocol import VERSION
from agent.key_help import key_help
from agent.openhands.settings import KEY_VARIABLE
from agent.serve.extension import ABILITIES

AUTH_METHOD = AuthMethodAgent(
    id="session-api-key",
    name="Session API key",
    description=(
        f"Set the environment variable {KEY_VARIABLE} to the agent-server's key, or write it into"
        " keys.env in acp-bridge's data folder, and start the agent again."
        f" {key_help(KEY_VARIABLE)}"
    ),
)


def introduction() -> InitializeResponse:
    return InitializeResponse(
        protocol_version=VERSION,
        agent_capabilities=AgentCapabilities(
            load_session=True,
            prompt_capabilities=PromptCapabilities(image=True, embedded_context=True),
            field_meta=ABILITIES,
            mcp_capabilities=McpCapabilities(http=False, sse=False),
            session_capabilities=SessionCapabilities(
                list=SessionListCapabilities(),
                resume=SessionResumeCapabilities(),
                close=SessionCloseCapabilities(),
                delete=SessionDeleteCapabilities(),
                fork=SessionForkCapabilities(),
            ),
        ),
        agent_info=Implementation(
            name="acp-bridge-openhands", title="OpenHands", version=__version__
        ),
        auth_methods=[AUTH_METHOD],
    )
