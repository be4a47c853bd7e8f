"""`initialize`, logins and MCP servers between the bridge and an agent of version 2. SANS-IO."""

from __future__ import annotations

from typing import Final

from acp_bridge import __version__
from acp_bridge.core import errors
from acp_bridge.core.clients.abilities import unknown_capabilities
from acp_bridge.core.protocol import (
    CAN_CANCEL_ITEM,
    LOGOUT,
    VERSION,
    VERSION_2,
    Json,
    as_object,
    has,
    objects,
    own_meta,
    with_own_meta,
    without,
)

#: the `info` of a client that does not name itself; version 2 requires one.
_INFO: Final = {"name": "acp-bridge", "version": __version__}
#: what an agent of version 2 always can do with its sessions, and what it has to declare.
_BASELINE: Final = ("list", "resume", "close")
_OPTIONAL: Final = ("delete", "additionalDirectories", "fork")
_PROMPTS: Final = ("image", "audio", "embeddedContext")
#: members of an agent's capabilities that are none of version 2.
_NAMES_OF_VERSION_1: Final = (
    *("loadSession", "promptCapabilities", "mcpCapabilities", "sessionCapabilities"),
)


def initialize_to_v2(params: Json) -> Json:
    """Return the parameters of `initialize` in version 2, for those of version 1.

    They have version 1's members, too, for an agent that answers in version 1.
    """
    can = as_object(params.get("clientCapabilities"))
    told: Json = {name: can[name] for name in ("elicitation", "_meta") if name in can}
    told |= unknown_capabilities(can)
    if has(can, "auth", "terminal"):
        told["auth"] = {"terminal": {}}
    info = as_object(params.get("clientInfo"))
    named = all(isinstance(info.get(name), str) for name in ("name", "version"))
    asked: Json = {"protocolVersion": VERSION_2, "info": info if named else _INFO}
    return {**params, **asked, "capabilities": told}


def initialized_to_v1(result: Json) -> Json:
    """Return the agent's answer to `initialize` as one of version 1."""
    can = as_object(result.get("capabilities"))
    session = can.get("session")
    methods = [_auth_method(each) for each in objects(result.get("authMethods"))]
    capabilities: Json = {}
    if isinstance(session, dict):
        capabilities = {
            "loadSession": True,
            "promptCapabilities": {
                **as_object(session.get("prompt")),
                **{name: has(session, "prompt", name) for name in _PROMPTS},
            },
            "mcpCapabilities": {
                **without(as_object(session.get("mcp")), "stdio"),
                "http": has(session, "mcp", "http"),
                "sse": False,
            },
            "sessionCapabilities": {
                **without(session, "prompt", "mcp", *_OPTIONAL),
                **{name: {} for name in _BASELINE},
                **{name: session[name] for name in _OPTIONAL if has(session, name)},
            },
        }
    capabilities |= without(can, "session", "auth", *_NAMES_OF_VERSION_1)
    if methods:
        capabilities["auth"] = {LOGOUT: {}}
    own = {**own_meta(capabilities), CAN_CANCEL_ITEM: True}
    return {
        **without(result, "info", "capabilities"),
        "protocolVersion": VERSION,
        "agentCapabilities": with_own_meta(capabilities, own),
        "agentInfo": result["info"],
        "authMethods": [each for each in methods if each],
    }


def _auth_method(method: Json) -> Json:
    """Return a login method in version 1; empty if version 1 has no method of its type."""
    told = {"id" if name == "methodId" else name: value for name, value in method.items()}
    if method.get("type") == "terminal":
        if "env" in told:
            told["env"] = {str(e.get("name")): e.get("value") for e in objects(told["env"])}
        return told
    return told if told.pop("type", None) == "agent" else {}


def opening_to_v2(params: Json) -> Json:
    """Return the parameters of a request that opens a session, each MCP server with its type.

    Raises RpcError for a server of the type `sse`, which version 2 has not.
    """
    servers = []
    for server in objects(params.get("mcpServers")):
        kind = server.get("type", "stdio")
        if kind == "sse":
            name = server.get("name")
            raise errors.invalid(f"the agent takes no MCP server of type sse: {name}", "mcpServers")
        servers.append({**server, "type": kind})
    return {**params, "mcpServers": servers}
