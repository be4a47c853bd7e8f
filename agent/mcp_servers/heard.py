"""Keeps what an MCP server answers as it came, and gives the SDK's session what it takes.

The SDK checks a whole answer against the protocol's schema, and one odd member takes everything
away. So its session gets a stand-in that the schema allows, and the answer itself is read by our
own readers: `agent.mcp_servers.pages` and `results`. It is imported only where there is a server.

Invariants
- `page`, `offered` and `result` belong to the answer that a request of the session has just
  returned: nothing else runs between that and reading them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp_types import Tool
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from pydantic import ValidationError

from agent.loose import members
from agent.mcp_servers.messages import VALUE
from agent.mcp_servers.pages import Page, read_page

#: what the newest version of the protocol wants of every result
_COMPLETE = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}


class Heard(JSONRPCDispatcher):
    """The SDK's dispatcher, between a connection and a session."""

    page = Page()
    #: the names of the tools that the session was given to check
    offered: frozenset[str] = frozenset()
    result: dict[str, Any]

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: Any = None, **more: Any
    ) -> dict[str, Any]:
        answer = await super().send_raw_request(method, params, opts, **more)
        match method:
            case "initialize":
                return _greeting(answer)
            case "server/discover":
                return _discovery(answer)
            case "tools/list":
                return self._list(answer)
            case "tools/call":
                self.result = answer
                return {"content": [], **_COMPLETE}
        return answer

    def _list(self, answer: dict[str, Any]) -> dict[str, Any]:
        self.page = read_page(answer)
        tools = [tool for tool in map(_bare, self.page.tools) if _fits(tool)]
        self.offered = frozenset(tool["name"] for tool in tools)
        following = {"nextCursor": self.page.cursor} if self.page.cursor else {}
        return {"tools": tools, **following, **_COMPLETE}


def _bare(tool: dict[str, Any]) -> dict[str, Any]:
    """Returns a tool with nothing but what the session needs for its headers."""
    properties = tool["inputSchema"].get("properties", {})
    return {"name": tool["name"], "inputSchema": {"type": "object", "properties": properties}}


def _fits(tool: dict[str, Any]) -> bool:
    try:
        Tool.model_validate(tool, by_name=False)
    except ValidationError:
        return False
    return True


def _greeting(answer: dict[str, Any]) -> dict[str, Any]:
    """Returns the answer to `initialize` as the SDK takes it; what has no sense stays as it is."""
    said = answer.get("protocolVersion", HANDSHAKE_PROTOCOL_VERSIONS[0])
    if not isinstance(said, str) or (VALUE in answer and answer[VALUE] is not None):
        return answer
    about = members(answer.get("serverInfo"))
    named = {name: about[name] for name in ("name", "version") if isinstance(about.get(name), str)}
    return {
        "protocolVersion": _version(said),
        "capabilities": {},
        "serverInfo": {"name": "", "version": "", **named},
    }


def _version(said: str) -> str:
    """Returns the version of the protocol that a server means: its own, or the one before it."""
    known = sorted(HANDSHAKE_PROTOCOL_VERSIONS)
    return next((version for version in reversed(known) if version <= said.strip()), known[0])


def _discovery(answer: dict[str, Any]) -> dict[str, Any]:
    versions = answer.get("supportedVersions")
    if not isinstance(versions, list):
        return answer
    known = [version for version in versions if isinstance(version, str)]
    return {**_COMPLETE, "supportedVersions": known, "capabilities": {}}
