"""The HTTP client of a connection to an MCP server: mends what comes, on its way to the SDK.

It is imported only where there is a server, since `httpx2` takes long to import.

Invariants
- The SDK reads JSON-RPC that `agent.mcp_servers.messages` has read before: no odd byte, type or
  member of an answer makes its request wait for what has come.
- When the server says that the session has expired, the session is initialized once, and the
  request sent again (modelcontextprotocol.io, "Session Management"). Requests that meet this
  together share one new session.
- Errors of HTTP that are no JSON-RPC stay what they are.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import AsyncIterator, Callable
from typing import Any

import anyio
import httpx2

from agent.loose import members, read_json, words
from agent.mcp_servers.messages import read_messages

logger = logging.getLogger(__name__)

_SESSION, _VERSION = "mcp-session-id", "mcp-protocol-version"
#: the session is not known any more: as the specification says it, and as others do
_GONE, _PERHAPS_GONE = (404, 410), (400,)
_ABOUT_SESSION = re.compile(
    r"session.{0,60}(not found|expired|invalid|unknown|terminated|closed|no longer|not exist"
    r"|not initialized|missing)|(no|invalid|unknown|expired|missing) (valid )?session",
    re.IGNORECASE | re.DOTALL,
)
#: seconds for a new session
_RENEW_SECONDS = 30.0
_JSON, _EVENTS = "application/json", "text/event-stream"


class HttpClient(httpx2.AsyncClient):
    """Sends the requests of the SDK's transports.

    `limit`: bytes of one message. `on_renewed` is called when there is a new session, which may
    have other tools. `on_refused` is called with the id of a request that was refused, or that did
    not arrive, where answers come on another stream: the SDK would wait for one.
    """

    def __init__(
        self,
        *,
        limit: int,
        on_renewed: Callable[[], None] = lambda: None,
        on_refused: Callable[[Any], None] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self._on_refused = on_refused
        self._limit = limit
        self._on_renewed = on_renewed
        self._renewing = anyio.Lock()
        #: the requests that began the session: `initialize`, then the notification behind it
        self._beginning: dict[str, httpx2.Request] = {}
        #: the session's id if it is another one than the SDK knows
        self._session: str | None = None

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        message = _sent(request)
        if self._on_refused is not None and message:
            return await self._posted(request, _asked(message), self._on_refused, options)
        if message.get("method") in ("initialize", "notifications/initialized"):
            self._beginning[message["method"]] = request
        used = self._with_session(request)
        response = await super().send(request, **options)
        if await self._has_expired(request, response) and await self._renewed(used):
            await response.aclose()
            self._with_session(request)
            response = await super().send(request, **options)
        return await self._mended(response, _asked(message))

    async def _posted(
        self,
        request: httpx2.Request,
        asked: Any,
        on_refused: Callable[[Any], None],
        options: dict[str, Any],
    ) -> httpx2.Response:
        """Sends a message whose answer comes on another stream."""
        try:
            response = await super().send(request, **options)
        except httpx2.TransportError as error:
            logger.debug("a message to the MCP server did not arrive", exc_info=error)
        else:
            if not response.is_error:
                return response
            await response.aclose()
        if asked is not None:
            on_refused(asked)
        return httpx2.Response(202, request=request)

    def _with_session(self, request: httpx2.Request) -> str | None:
        """Puts the id of the new session into a request, if there is one; returns what it has."""
        if self._session is not None and _SESSION in request.headers:
            request.headers[_SESSION] = self._session
        found: str | None = request.headers.get(_SESSION)
        return found

    async def _has_expired(self, request: httpx2.Request, response: httpx2.Response) -> bool:
        if _SESSION not in request.headers or request.method == "DELETE":
            return False
        if response.status_code in _GONE:
            return True
        if response.status_code not in _PERHAPS_GONE:
            return False
        body = await response.aread()
        return _ABOUT_SESSION.search(body.decode("utf-8", "replace")) is not None

    async def _renewed(self, expired: str | None) -> bool:
        """Begins a new session in the place of this one, unless that was done meanwhile.

        Returns False if there is none.
        """
        async with self._renewing:
            if self._session not in (None, expired):
                return True
            begin = self._beginning.get("initialize")
            if begin is None:
                return False
            try:
                with anyio.fail_after(_RENEW_SECONDS):
                    return await self._begin(begin)
            except (TimeoutError, httpx2.HTTPError) as error:
                logger.debug("there is no new session of the MCP server", exc_info=error)
                return False

    async def _begin(self, begin: httpx2.Request) -> bool:
        response = await self._again(begin)
        body = await response.aread()
        messages = [m for data in _datas(response, body) for m in read_messages(data, 0)]
        if not response.is_success or not any("result" in message for message in messages):
            return False
        # A server without sessions has none from now on.
        self._session = response.headers.get(_SESSION, "")
        if (initialized := self._beginning.get("notifications/initialized")) is not None:
            await self._again(initialized)
        self._on_renewed()
        return True

    async def _again(self, earlier: httpx2.Request) -> httpx2.Response:
        headers = httpx2.Headers(earlier.headers)
        headers.pop(_SESSION, None)
        if self._session:
            headers[_SESSION] = self._session
        request = self.build_request("POST", earlier.url, headers=headers, content=earlier.content)
        response = await super().send(request, stream=True, follow_redirects=False)
        try:
            await response.aread()
        finally:
            await response.aclose()
        return response

    async def _mended(self, response: httpx2.Response, asked: Any) -> httpx2.Response:
        if response.next_request is not None or (asked is None and not _is_events(response)):
            return response
        if _is_events(response):
            stream = _Events(response, asked, self._limit)
            return _with(response, _EVENTS, stream=stream)
        if response.status_code == 202:
            return response
        try:
            body = await response.aread()
        except httpx2.HTTPError as error:  # it broke off: the call ends, the connection goes on
            logger.debug("an answer of the MCP server broke off", exc_info=error)
            body = b""
        if response.is_error and not _is_rpc_error(body):
            return response
        messages = [m for data in _datas(response, body) for m in read_messages(data, asked)]
        answer = next((m for m in messages if "method" not in m), None)
        if answer is None:
            answer = read_messages("{", asked)[0]  # nothing came: an answer that can't be read
        return _with(response, _JSON, content=json.dumps(answer).encode())


class _Events(httpx2.AsyncByteStream):
    """The events of a response, each message in them mended."""

    def __init__(self, response: httpx2.Response, asked: Any, limit: int) -> None:
        self._response = response
        self._asked = asked
        self._limit = limit

    async def __aiter__(self) -> AsyncIterator[bytes]:
        lines: list[str] = []
        async for line in self._lines():
            if line:
                lines.append(line)
            elif lines:
                yield _mended_event(lines, self._asked)
                lines = []
        if lines:
            yield _mended_event(lines, self._asked)

    async def _lines(self) -> AsyncIterator[str]:
        parts: list[bytes] = []
        size, first = 0, True
        async for chunk in self._response.aiter_bytes():
            *whole, rest = chunk.split(b"\n")
            for end in whole:
                yield _text(b"".join([*parts, end]), first)
                parts, size, first = [], 0, False
            parts.append(rest)
            size += len(rest)
            if size > self._limit:
                raise httpx2.SSEError("a line without an end")
        if last := b"".join(parts):
            yield _text(last, first)

    async def aclose(self) -> None:
        await self._response.aclose()


def _text(line: bytes, first: bool) -> str:
    """Returns a line of events; a byte order mark before the first one is left out."""
    line = line.removeprefix(b"\xef\xbb\xbf") if first else line
    return line.removesuffix(b"\r").decode("utf-8", "replace")


def _mended_event(lines: list[str], asked: Any) -> bytes:
    """Returns an event of these lines, once for each message in its data."""
    data = "\n".join(_value(line) for line in lines if line.startswith("data"))
    others = [line for line in lines if not line.startswith(("data", "event"))]
    event = next((_value(line) for line in lines if line.startswith("event")), "message")
    messages = read_messages(data, asked if event == "message" else None)
    messages = [m for m in messages if "method" in m or m["id"] is not None]
    if not messages:
        if event != "message" or not data:
            return _encoded(lines)
        return _encoded(others) if others else b":\n\n"  # its data are no message
    told = (json.dumps(message) for message in messages)
    return b"".join(_encoded([*others, "event: message", f"data: {text}"]) for text in told)


def _value(line: str) -> str:
    return line.partition(":")[2].removeprefix(" ")


def _encoded(lines: list[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode() + b"\n"


def _sent(request: httpx2.Request) -> dict[str, Any]:
    """Returns the message that a request sends; an empty one if it sends none."""
    if request.method != "POST":
        return {}
    try:
        message = read_json(request.content)
    except (ValueError, httpx2.RequestNotRead):
        return {}
    return message if isinstance(message, dict) else {}


def _asked(message: dict[str, Any]) -> Any:
    return message.get("id") if "method" in message else None


def _is_events(response: httpx2.Response) -> bool:
    kind = response.headers.get("content-type", "")
    return response.is_success and kind.lower().startswith(_EVENTS)


def _is_rpc_error(body: bytes) -> bool:
    try:
        found = members(read_json(body))
    except ValueError:
        return False
    error = found.get("error")
    return "jsonrpc" in found or bool(words(members(error).get("message")))


def _datas(response: httpx2.Response, body: bytes) -> list[bytes]:
    """Returns the texts of a body that may be messages: all of it, or the data of its events."""
    if not _is_events(response) and not body.lstrip().startswith(
        (b"data:", b"event:", b"id:", b":")
    ):
        return [body]
    return [line[5:].strip() for line in body.splitlines() if line.startswith(b"data:")]


def _with(response: httpx2.Response, kind: str, **body: Any) -> httpx2.Response:
    headers = httpx2.Headers(response.headers)
    for name in ("content-encoding", "content-length", "transfer-encoding"):
        headers.pop(name, None)
    headers["content-type"] = kind
    return httpx2.Response(response.status_code, headers=headers, request=response.request, **body)
