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
from anyio.streams.memory import MemoryObjectSendStream

from agent.mcp_servers.problems import Problem, http_status
from agent.mcp_servers.stdio import LINE_LIMIT, stdio_transport

if TYPE_CHECKING:
    import httpx2
    from mcp.client._transport import TransportStreams
    from mcp.shared._httpx_utils import McpHttpClientFactory

#: seconds to connect and to send; reading has no limit here, because each call has its own
_HTTP_SECONDS = 30.0
_NO_LIMIT = 24 * 3600.0
#: messages that wait for the session, refusals among them
_REFUSALS = 64


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
    """Opens the transport of old, in which answers come on one stream of events.

    A request that the server refuses on its own connection gets an error on that stream.
    """
    import httpx2
    from mcp.client.sse import sse_client

    tls = await anyio.to_thread.run_sync(httpx2.create_ssl_context)
    heard, received = anyio.create_memory_object_stream[Any](_REFUSALS)

    async with (
        heard,
        received,
        sse_client(
            url,
            headers,
            _HTTP_SECONDS,
            sse_read_timeout=_NO_LIMIT,
            httpx_client_factory=_telling(heard, tls),
        ) as (source, to_send),
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(_forward, source, heard)
        yield received, to_send
        tasks.cancel_scope.cancel()


def _telling(heard: MemoryObjectSendStream[Any], tls: Any) -> McpHttpClientFactory:
    """Returns what makes the client of a server that answers on a stream of events.

    `heard` gets an error for each request that the server refuses.
    """
    from mcp.shared.message import SessionMessage
    from mcp_types import INVALID_REQUEST, ErrorData, JSONRPCError

    from agent.mcp_servers.http_client import HttpClient

    def refused(asked: Any) -> None:
        error = ErrorData(code=INVALID_REQUEST, message="The request was refused")
        with contextlib.suppress(anyio.WouldBlock, anyio.BrokenResourceError):
            heard.send_nowait(SessionMessage(JSONRPCError(jsonrpc="2.0", id=asked, error=error)))

    def client(
        headers: dict[str, str] | None = None,
        timeout: httpx2.Timeout | None = None,
        auth: httpx2.Auth | None = None,
    ) -> httpx2.AsyncClient:
        given = {"headers": headers, "timeout": timeout, "auth": auth, "verify": tls}
        return HttpClient(limit=LINE_LIMIT, on_refused=refused, **given)

    return client


async def _forward(source: Any, heard: MemoryObjectSendStream[Any]) -> None:
    async with heard:
        async for message in source:
            await heard.send(message)


def _pairs(given: Any) -> dict[str, str]:
    return {entry["name"]: entry["value"] for entry in given or ()}
