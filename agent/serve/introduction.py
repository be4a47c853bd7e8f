"""What the agent announces in its answer to `initialize`."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from acp.schema import (
    AgentCapabilities,
    AuthMethodAgent,
    Implementation,
    InitializeResponse,
    McpCapabilities,
    PromptCapabilities,
    SessionAdditionalDirectoriesCapabilities,
    SessionCapabilities,
    SessionCloseCapabilities,
    SessionDeleteCapabilities,
    SessionForkCapabilities,
    SessionListCapabilities,
    SessionResumeCapabilities,
)

from acp_bridge import __version__
from acp_bridge.core.protocol import BUILTIN_INFO, CAN_STEER, SYSTEM_PROMPT, VERSION
from agent.key_help import key_help
from agent.serve.extension import ABILITIES

AUTH_METHOD = AuthMethodAgent(
    id="api-key",
    name="API key",
    description=(
        "Set the environment variable of your model's provider, such as ANTHROPIC_API_KEY or"
        " OPENAI_API_KEY, or write NAME=value into keys.env in acp-bridge's data folder"
        " (ACP_BRIDGE_HOME); the file is read again without a restart."
        f" {key_help()}"
    ),
)


#: the model of agent-client-protocol 0.12 has no place for it
_TAKES_PROMPTS: Final[dict[str, Any]] = {"mode": {"override": {}}}


@cache
def introduction() -> dict[str, Any]:
    """Returns the answer to `initialize`, cached: pydantic takes milliseconds to make it."""
    answer = InitializeResponse(
        protocol_version=VERSION,
        agent_capabilities=AgentCapabilities(
            load_session=True,
            prompt_capabilities=PromptCapabilities(image=True, embedded_context=True),
            mcp_capabilities=McpCapabilities(http=True, sse=True),
            session_capabilities=SessionCapabilities(
                list=SessionListCapabilities(),
                resume=SessionResumeCapabilities(),
                close=SessionCloseCapabilities(),
                delete=SessionDeleteCapabilities(),
                fork=SessionForkCapabilities(),
                additional_directories=SessionAdditionalDirectoriesCapabilities(),
            ),
            field_meta=ABILITIES,
        ),
        agent_info=Implementation(name=BUILTIN_INFO, title="acp-bridge", version=__version__),
        auth_methods=[AUTH_METHOD],
        field_meta=CAN_STEER,
    )
    told = answer.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_unset=True)
    told["agentCapabilities"]["sessionCapabilities"][SYSTEM_PROMPT] = _TAKES_PROMPTS
    return told
