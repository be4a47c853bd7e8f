"""An initialized MCP session: lists and calls a server's tools, in wire form.

Invariants
- The SDK writes to the server, and keeps requests and answers together. What is in an answer is
  read by our own readers, as it came; the SDK gets a stand-in for it (`agent.mcp_servers.heard`).
- The SDK's contexts are entered and left by the task that uses `connect`.
- A server is greeted with `initialize` first, because some servers older than 2026-07-28 end when
  anything else comes first. A server that knows only the newer greeting gets that next.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import anyio

from acp_bridge import __version__
from agent.mcp_servers.pages import Page
from agent.mcp_servers.transports import open_transport

if TYPE_CHECKING:
    from mcp.client._transport import ReadStream
    from mcp.client.session import ClientSession
    from mcp.shared.message import SessionMessage

    from agent.mcp_servers.heard import Heard

    Received = SessionMessage | Exception

#: pages of a list of tools that are read; some servers' lists never end
_PAGES = 100


class McpSession:
    def __init__(self, session: ClientSession, heard: Heard) -> None:
        self._session = session
        self._heard = heard

    async def list_tools(self) -> Page:
        """Returns the tools, and which of them are odd."""
        from mcp.shared.exceptions import MCPError
        from mcp_types import PaginatedRequestParams

        pages: list[Page] = []
        cursor: str | None = None
        for _ in range(_PAGES):
            try:
                taken = await self._session.list_tools(params=PaginatedRequestParams(cursor=cursor))
            except MCPError as error:
                if not pages and not _has_none(error.code, error.message):
                    raise
                if pages:  # those before it can be used
                    pages.append(Page(left_out=(f"page {len(pages) + 1}",)))
                break
            page = self._heard.page
            pages.append(page.without(self._heard.offered - {tool.name for tool in taken.tools}))
            cursor = page.cursor
            if not cursor:
                break
        return Page.joined(pages)

    async def call(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Calls a tool; returns a CallToolResult as it came, for `agent.mcp_servers.results`.

        The SDK's `call_tool` is not used: it checks the answer against the server's own schema and
        returns nothing if they differ.
        """
        from mcp_types import CallToolRequest, CallToolRequestParams, CallToolResult

        params = CallToolRequestParams(name=tool, arguments=arguments)
        await self._session.send_request(CallToolRequest(params=params), CallToolResult)
        return self._heard.result


def _has_none(code: int, said: str) -> bool:
    """Returns True if an error says that the server has no tools to list."""
    from mcp_types import METHOD_NOT_FOUND

    return code == METHOD_NOT_FOUND or _NO_METHOD.search(said) is not None


_NO_METHOD = re.compile(
    r"(method|tools).{0,20}(not (found|supported|implemented|available)|unknown|unsupported)"
    r"|(unknown|unsupported|no such) method",
    re.IGNORECASE,
)


@contextlib.asynccontextmanager
async def connect(
    spec: Mapping[str, Any],
    cwd: Path,
    *,
    on_change: Callable[[], None],
    on_end: Callable[[], None],
) -> AsyncIterator[McpSession]:
    """Connects to a server and initializes, for as long as the context is open.

    `on_change` is called when the server says that its tools have changed, `on_end` when the
    connection has ended. Raises what the transports and the SDK raise; `problems.in_words` turns
    that into a sentence.
    """
    from mcp.client.session import ClientSession
    from mcp_types import Implementation, ToolListChangedNotification

    from agent.mcp_servers.heard import Heard

    async def hear(message: Any) -> None:
        if isinstance(message, ToolListChangedNotification):
            on_change()

    us = Implementation(name="acp-bridge", version=__version__)
    async with open_transport(spec, cwd, on_change) as (received, to_send):
        heard = Heard(_Watched(received, on_end), to_send)
        async with ClientSession(dispatcher=heard, client_info=us, message_handler=hear) as session:
            await _greet(session)
            yield McpSession(session, heard)


async def _greet(session: ClientSession) -> None:
    from mcp.shared.exceptions import MCPError
    from mcp_types import METHOD_NOT_FOUND, UNSUPPORTED_PROTOCOL_VERSION

    try:
        await session.initialize()
    except MCPError as error:
        if error.code not in (METHOD_NOT_FOUND, UNSUPPORTED_PROTOCOL_VERSION):
            raise
        await session.discover()


class _Watched:
    """A stream that calls `on_end` at its end, which the SDK reports only to calls in flight."""

    def __init__(self, stream: ReadStream[Received], on_end: Callable[[], None]) -> None:
        self._stream = stream
        self._on_end = on_end

    async def receive(self) -> Received:
        try:
            return await self._stream.receive()
        except (anyio.EndOfStream, anyio.ClosedResourceError):
            self._on_end()
            raise

    async def aclose(self) -> None:
        await self._stream.aclose()

    def __aiter__(self) -> _Watched:
        return self

    async def __anext__(self) -> Received:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> _Watched:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()
