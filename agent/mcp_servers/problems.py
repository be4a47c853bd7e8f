"""Says in this agent's own words what is wrong with an MCP server.

Invariants
- No library's words, no path and no key are in a sentence.
"""

from __future__ import annotations

from collections.abc import Iterator

from agent.loose import members
from agent.mcp_servers.messages import SAID
from agent.mcp_servers.results import ERROR_LIMIT, cut


class Problem(Exception):
    """A server can't be used; the text is the end of a sentence that begins with "it"."""


def in_words(error: BaseException) -> str:
    """Returns what is wrong with a server, as the end of a sentence that begins with "it".

    Of an error group, the clearest member is described.
    """
    found = list(_leaves(error))
    for tells in (_problem, _http, _protocol, _process):
        for leaf in found:
            if words := tells(leaf):
                return words
    return "it failed unexpectedly"


def refusal(server: str, error: Exception) -> str:
    """Returns a sentence on why a tool's call failed, with the server's own words in it."""
    from mcp.shared.exceptions import MCPError
    from mcp_types import CONNECTION_CLOSED, INTERNAL_ERROR, INVALID_REQUEST, PARSE_ERROR

    if not isinstance(error, MCPError):
        return f"What the MCP server {server} answered makes no sense."
    if SAID in members(error.data):
        return f"The MCP server {server} refused the call: {cut(error.message, ERROR_LIMIT)}"
    if error.code == CONNECTION_CLOSED:
        return f"The connection to the MCP server {server} ended."
    # Errors with these codes may come from the SDK, with its text.
    if error.code in (INVALID_REQUEST, PARSE_ERROR) or (
        error.code == INTERNAL_ERROR and error.message == "Server returned an error response"
    ):
        return f"The MCP server {server} could not take the call."
    return f"The MCP server {server} refused the call: {cut(error.message, ERROR_LIMIT)}"


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error


def _problem(error: BaseException) -> str | None:
    return str(error) if isinstance(error, Problem) else None


def http_status(status: int) -> str:
    if status in (401, 403):
        return f"it wants an authorization that it was not given (HTTP {status})"
    return f"it answered with an error (HTTP {status})"


def _http(error: BaseException) -> str | None:
    import httpx2

    if isinstance(error, httpx2.HTTPStatusError):
        return http_status(error.response.status_code)
    if isinstance(error, httpx2.SSEError):  # a page, or a message over the limit
        return "what it answers is not MCP"
    if isinstance(error, httpx2.TimeoutException):
        return "it did not answer in time"
    if isinstance(error, httpx2.TransportError | httpx2.InvalidURL):
        return "it can't be reached"
    return None


def _protocol(error: BaseException) -> str | None:
    from mcp.shared.exceptions import MCPError
    from mcp_types import CONNECTION_CLOSED, REQUEST_TIMEOUT
    from pydantic import ValidationError

    if isinstance(error, MCPError) and SAID in members(error.data):
        return "it refused the connection"
    if isinstance(error, MCPError):
        known = {
            CONNECTION_CLOSED: "its connection ended",
            REQUEST_TIMEOUT: "it did not answer in time",
        }
        return known.get(error.code, "it refused the connection")
    return "what it answers is not MCP" if isinstance(error, ValidationError) else None


def _process(error: BaseException) -> str | None:
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return "its command was not found"
    if isinstance(error, PermissionError):
        return "its command may not be executed"
    return "its process could not be started" if isinstance(error, OSError) else None
