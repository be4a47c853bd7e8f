"""`initialize`: what the client is told of the agent behind the bridge.

The agent's own answer, with what the bridge itself adds: sessions are listed, loaded, resumed,
closed and deleted by the bridge, whatever the agent can do.
"""

from __future__ import annotations

from typing import Any

from acp_bridge import __version__
from acp_bridge.clients.abilities import ClientAbilities
from acp_bridge.protocol import VERSION, Json, with_own_meta

#: The built-in agent's answer, known without starting it (a test compares the two).
BUILTIN: Json = {
    "protocolVersion": VERSION,
    "agentCapabilities": {
        "loadSession": True,
        "promptCapabilities": {"image": True, "embeddedContext": True},
        "mcpCapabilities": {"http": True, "sse": True},
        "sessionCapabilities": {
            "list": {},
            "delete": {},
            "fork": {},
            "additionalDirectories": {},
            "resume": {},
            "close": {},
        },
    },
    "agentInfo": {"name": "acp-bridge-agent", "title": "acp-bridge", "version": __version__},
    "authMethods": [
        {
            "id": "api-key",
            "name": "API key",
            "description": (
                "Set the environment variable of your model's provider, such as ANTHROPIC_API_KEY"
                " or OPENAI_API_KEY, or write NAME=value into keys.env in acp-bridge's data folder"
                " (ACP_BRIDGE_HOME); the file is read again without a restart."
            ),
        }
    ],
}
_OWN_SESSION_CAPABILITIES = ("list", "resume", "close", "delete")


def for_agent(params: Json) -> Json:
    """Return the parameters of `initialize` for the agent: the client's, in our version."""
    return {**params, "protocolVersion": VERSION}


def for_client(agent: Json, abilities: ClientAbilities, settings: Json) -> Json:
    """Return the answer for the client, made from the agent's; `settings` is shown in `_meta`."""
    capabilities = dict(_dict(agent.get("agentCapabilities")))
    session = dict(_dict(capabilities.get("sessionCapabilities")))
    session.pop("fork", None)  # a fork would be a second session of one process
    for name in _OWN_SESSION_CAPABILITIES:
        session.setdefault(name, {})
        session[name] = session[name] or {}
    own = {"version": __version__, "queue": True, **settings}
    capabilities |= {"loadSession": True, "sessionCapabilities": session}
    capabilities = with_own_meta(capabilities, own)
    methods = [method for method in _list(agent.get("authMethods")) if _usable(method, abilities)]
    return {**agent, "agentCapabilities": capabilities, "authMethods": methods}


def name_of(agent: Json) -> str | None:
    """Return the name that the agent gives itself in its answer, or None."""
    name = _dict(agent.get("agentInfo")).get("name")
    return name if isinstance(name, str) and name else None


def _usable(method: object, abilities: ClientAbilities) -> bool:
    terminal = isinstance(method, dict) and method.get("type") == "terminal"
    return not terminal or abilities.has("auth", "terminal")


def _dict(value: object) -> Json:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
