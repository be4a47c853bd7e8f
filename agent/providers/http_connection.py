"""The HTTP connection to a provider: sends one request, receives the events of its answer.

Invariants
- Leaving `answering` closes the connection at once, also when a cancellation leaves it.
- Silence, a line of the answer and the text of an error are bounded.
- Whatever the HTTP library raises becomes a Failure.

The HTTP client is LiteLLM's, which knows the user's proxies and certificates and parses in C.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncGenerator, Iterator
from typing import Any

import anyio
from anyio import to_thread
from anyio.lowlevel import RunVar, checkpoint

from agent.providers import library
from agent.providers.failure import Failure, Fault, seconds_to_wait
from agent.providers.request import Request

_CONNECT_SECONDS = 20.0
#: seconds for the text of an error, and for closing
_ERROR_SECONDS, _CLOSE_SECONDS = 10.0, 1.0
_ERROR_BYTES, _LINE_BYTES = 64 * 1024, 4 * 1024 * 1024

#: the data of the event that ends a stream of chat completions
DONE = b"[DONE]"


@contextlib.asynccontextmanager
async def answering(request: Request, silence: float) -> AsyncGenerator[Any]:
    """Sends the request and gives the response, with its body unread, for the block.

    `silence`: seconds without a byte after which it fails. Raises Failure.
    """
    http = await client()
    with failures("unreachable", silence):
        sent = http.build_request(
            "POST",
            request.url,
            headers=request.headers,
            content=request.body,
            timeout=(_CONNECT_SECONDS, None, None, None),
        )
        response = await http.send(sent, stream=True, follow_redirects=False)
    try:
        if response.status_code != 200:
            raise await _refusal(response)
        yield response
    finally:
        with anyio.move_on_after(_CLOSE_SECONDS, shield=True):
            await response.aclose()


async def events(response: Any, silence: float) -> AsyncGenerator[list[bytes]]:
    """Yields the data of server-sent events, in the groups in which they arrive. Raises Failure.

    Each `data:` line counts as an event, because no provider writes JSON over several lines. So
    does a line that is an object without `data:`. A body without any such line is one event.
    """
    #: the pieces of a line that has not ended
    rest: list[bytes] = []
    size = 0
    body = _Body()
    async with contextlib.aclosing(response.aiter_bytes()) as chunks:
        while True:
            with failures("broken", silence):
                chunk = await anext(chunks, None)
            if chunk is None:
                break
            rest.append(chunk)
            size += len(chunk)
            if b"\n" in chunk:
                *lines, last = b"".join(rest).split(b"\n")
                rest, size = [last], len(last)
                yield body.data(lines)
            elif size > _LINE_BYTES:
                raise Failure("garbage", "a line without an end")
            await checkpoint()  # buffered chunks arrive without one
    yield body.data([b"".join(rest)])
    yield body.whole()


class _Body:
    """Tells the body of a stream of events from one that is something else, as a whole."""

    def __init__(self) -> None:
        self._events = False
        self._first = True
        #: the lines so far, while none was an event's
        self._lines: list[bytes] = []
        self._size = 0

    def data(self, lines: list[bytes]) -> list[bytes]:
        """Returns the data of the events in the next lines of the body."""
        if self._first and lines:
            self._first = False
            lines[0] = lines[0].removeprefix(b"\xef\xbb\xbf")
        if not self._events and not any(line.startswith(b"data:") for line in lines):
            self._keep(lines)
            return []
        lines, self._events, self._lines = [*self._lines, *lines], True, []
        return [
            line[5:].strip() if line.startswith(b"data:") else line.strip()
            for line in lines
            if line.startswith((b"data:", b"{"))
        ]

    def _keep(self, lines: list[bytes]) -> None:
        self._size += sum(map(len, lines))
        if self._size > _LINE_BYTES:
            raise Failure("garbage", "a body that is no stream")
        self._lines += lines

    def whole(self) -> list[bytes]:
        """Returns the events of a body that was no stream, and its end.

        They are its lines if each looks like an object, or all of it as one.
        """
        lines = [line for line in self._lines if line.strip()]
        if all(line.startswith((b":", b"event:", b"id:", b"retry:")) for line in lines):
            return []
        if all(line.startswith(b"{") and line.rstrip().endswith(b"}") for line in lines):
            return [*lines, DONE]
        return [b"\n".join(lines), DONE]


@contextlib.contextmanager
def failures(fault: Fault, silence: float) -> Iterator[None]:
    """Turns every exception in the block into a Failure; the block may take `silence` seconds.

    `fault`: the kind of the failure, which is `stall` if the block took longer.
    """
    try:
        with anyio.fail_after(silence):
            yield
    except Failure:
        raise
    except TimeoutError as error:
        raise Failure("stall") from error
    except Exception as error:
        raise Failure(fault, f"{type(error).__name__}: {error}") from error


async def _refusal(response: Any) -> Failure:
    text = b""
    with contextlib.suppress(Failure), failures("broken", _ERROR_SECONDS):
        async with contextlib.aclosing(response.aiter_bytes()) as chunks:
            async for chunk in chunks:
                text += chunk
                if len(text) > _ERROR_BYTES:
                    break
    said = text.decode("utf-8", "replace")
    return Failure("answer", said, response.status_code, seconds_to_wait(response.headers))


_clients: RunVar[tuple[Any, AsyncGenerator[None]]] = RunVar("clients of model providers")


async def client() -> Any:
    """Returns the HTTP client of this event loop.

    It stays open between requests, because a TLS handshake takes longer than everything else. No
    task lives that long; so an asynchronous generator holds it, which the loop closes when it ends.
    """
    if (held := _clients.get(None)) is not None:
        return held[0]
    http = await to_thread.run_sync(new_client, abandon_on_cancel=True)
    if (held := _clients.get(None)) is None:
        held = (http, _holding(http))
        _clients.set(held)
        await anext(held[1])
    return held[0]


async def _holding(http: Any) -> AsyncGenerator[None]:
    try:
        yield
    finally:
        await http.aclose()


def rehearse() -> None:
    """Loads what a first request needs, without a connection; blocks the thread."""
    import httpx

    new_client()
    answer = httpx.Response(200, headers={"set-cookie": "none=none"})
    with httpx.Client(transport=httpx.MockTransport(lambda _: answer), trust_env=False) as http:
        http.post("http://localhost/")


#: the state of the user's certificate files when they were read last
_certificates_read: list[tuple[int, ...]] = []


def new_client() -> Any:
    """Returns a new client; blocks the thread, because it reads certificates.

    LiteLLM keeps the certificates that it has read, and a forked agent has those of its parent. So
    they are read again if the file that the user names for them has changed since.
    """
    handler = library.part("llms.custom_httpx.http_handler")
    if _certificates_read != (now := _certificates()):
        handler._ssl_context_cache.clear()
        _certificates_read[:] = now
    return handler.AsyncHTTPHandler().client


def _certificates() -> list[tuple[int, ...]]:
    """Returns time, size and inode of the certificate files that the environment names."""
    found: list[tuple[int, ...]] = []
    for name in ("SSL_VERIFY", "SSL_CERT_FILE"):
        with contextlib.suppress(OSError, ValueError):
            status = os.stat(os.environ.get(name, ""))
            found.append((status.st_mtime_ns, status.st_size, status.st_ino))
    return found
