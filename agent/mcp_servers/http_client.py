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

from agent.loose import members, read_json, text_of, words
from agent.mcp_servers.http_body import HttpBody, TooLong
from agent.mcp_servers.messages import SAID, OpenRequests, read_messages
from agent.providers.server_words import words_of

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
        self._open = OpenRequests()
        #: the requests that began the session: `initialize`, then the notification behind it
        self._beginning: dict[str, httpx2.Request] = {}
        #: the session's id if it is another one than the SDK knows
        self._session: str | None = None

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        message = _sent(request)
        self._open.ask(message)
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
        return await self._mended(response, message)

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

    def _is_stream_of_old(self, response: httpx2.Response) -> bool:
        """Returns True for the stream of the transport of old, whatever type it has but a page."""
        kind = response.headers.get("content-type", "").lower()
        is_get = self._on_refused is not None and response.request.method == "GET"
        return is_get and response.status_code == 200 and "html" not in kind

    async def _mended(self, response: httpx2.Response, message: dict[str, Any]) -> httpx2.Response:
        asked = _asked(message)
        is_stream = _is_events(response) or self._is_stream_of_old(response)
        if response.next_request is not None or (asked is None and not is_stream):
            return response
        if response.is_success:
            if response.status_code in (202, 204) and not _has_body(response):
                return response
            body = HttpBody(asked, self._limit, self._open)
            return _with(response, _EVENTS, 200, stream=_Events(response, body))
        body_of_error = await _whole(response)
        answers = [m for m in read_messages(body_of_error, asked) if "error" in m]
        if not _is_rpc_error(body_of_error):
            told = words_of(text_of(body_of_error), str)
            if message.get("method") != "tools/call" or not told:
                return response
            error = {"code": response.status_code, "message": told, "data": {SAID: True}}
            answers = [{"jsonrpc": "2.0", "id": asked, "error": error}]
        self._open.matched(answers[0])
        content = json.dumps(answers[0]).encode()
        return _with(response, _JSON, response.status_code, content=content)


async def _whole(response: httpx2.Response) -> bytes:
    try:
        return await response.aread()
    except httpx2.HTTPError as error:
        logger.debug("an error of the MCP server broke off", exc_info=error)
        return b""


class _Events(httpx2.AsyncByteStream):
    """The events that a body is read as."""

    def __init__(self, response: httpx2.Response, body: HttpBody) -> None:
        self._response = response
        self._body = body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._response.aiter_bytes():
                if said := self._body.read(chunk):
                    yield said
        except TooLong as error:
            raise httpx2.SSEError("a message without an end") from error
        except httpx2.HTTPError as error:  # it broke off: the call ends, the connection goes on
            logger.debug("an answer of the MCP server broke off", exc_info=error)
        if said := self._body.end():
            yield said

    async def aclose(self) -> None:
        await self._response.aclose()


def _has_body(response: httpx2.Response) -> bool:
    return response.headers.get("content-length", "0") != "0" or _is_events(response)


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


def _with(response: httpx2.Response, kind: str, status: int, **body: Any) -> httpx2.Response:
    headers = httpx2.Headers(response.headers)
    for name in ("content-encoding", "content-length", "transfer-encoding"):
        headers.pop(name, None)
    headers["content-type"] = kind
    return httpx2.Response(status, headers=headers, request=response.request, **body)
