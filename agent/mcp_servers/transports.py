"""Opens the transport to an MCP server, from an entry in ACP's `mcpServers`.

Its forms:
    {"name", "command", "args": [str], "env": [{"name", "value"}]}
    {"type": "http" | "sse", "name", "url", "headers": [{"name", "value"}]}
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread

from agent.mcp_servers.problems import Problem, http_status
from agent.mcp_servers.stdio import LINE_LIMIT, stdio_transport

if TYPE_CHECKING:
    import httpx2
    from mcp.client._transport import TransportStreams

#: seconds to connect and to send; reading has no limit here, because each call has its own
_HTTP_SECONDS = 30.0
_NO_LIMIT = 24 * 3600.0


def open_transport(
    spec: Mapping[str, Any], cwd: Path, on_renewed: Callable[[], None]
) -> AbstractAsyncContextManager[TransportStreams]:
    """Returns the transport as a context manager. Raises Problem for an unknown type.

    `on_renewed` is called when an expired session was replaced by a new one.
    """
    match spec.get("type") or "stdio":
        case "stdio":
            command = [spec["command"], *spec.get("args", ())]
            return stdio_transport(spec["name"], command, _pairs(spec.get("env")), cwd)
        case "http":
            return _http(spec["url"], _pairs(spec.get("headers")), on_renewed)
        case "sse":
            return _sse(spec["url"], _pairs(spec.get("headers")))
    raise Problem("this agent has no such transport")


@contextlib.asynccontextmanager
async def _http(
    url: str, headers: Mapping[str, str], on_renewed: Callable[[], None]
) -> AsyncIterator[TransportStreams]:
    """Opens Streamable HTTP; raises Problem with a refusal's HTTP status, which the SDK hides."""
    import httpx2
    from mcp.client.streamable_http import streamable_http_client

    from agent.mcp_servers.http_client import HttpClient

    tls = await anyio.to_thread.run_sync(httpx2.create_ssl_context)  # takes a tenth of a second
    status = 0

    async def note(response: httpx2.Response) -> None:
        nonlocal status
        if response.request.method == "POST":
            status = response.status_code

    async with HttpClient(
        limit=LINE_LIMIT,
        on_renewed=on_renewed,
        headers=headers,
        timeout=httpx2.Timeout(_HTTP_SECONDS, read=_NO_LIMIT),
        verify=tls,
        event_hooks={"response": [note]},
    ) as client:
        try:
            async with streamable_http_client(
                url, http_client=client, max_sse_event_size=LINE_LIMIT
            ) as streams:
                yield streams
        except Exception as error:
            if status >= 400:
                raise Problem(http_status(status)) from error
            raise


@contextlib.asynccontextmanager
async def _sse(url: str, headers: dict[str, str]) -> AsyncIterator[TransportStreams]:
    import httpx2
    from mcp.client.sse import sse_client

    from agent.mcp_servers.http_client import HttpClient

    tls = await anyio.to_thread.run_sync(httpx2.create_ssl_context)

    def client(
        headers: dict[str, str] | None = None,
        timeout: httpx2.Timeout | None = None,
        auth: httpx2.Auth | None = None,
    ) -> httpx2.AsyncClient:
        return HttpClient(limit=LINE_LIMIT, headers=headers, timeout=timeout, auth=auth, verify=tls)

    async with sse_client(
        url, headers, _HTTP_SECONDS, sse_read_timeout=_NO_LIMIT, httpx_client_factory=client
    ) as streams:
        yield streams


def _pairs(given: Any) -> dict[str, str]:
    return {entry["name"]: entry["value"] for entry in given or ()}
