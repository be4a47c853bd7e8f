"""The HTTP connection to a provider: sends one request, receives the lines of its answer.

Invariants
- Leaving `answering` closes the connection at once, also when a cancellation leaves it.
- Silence, a line of the answer and the text of an error are bounded.
- Whatever the HTTP library raises becomes a Failure.

The HTTP client is LiteLLM's, which knows the user's proxies and certificates and parses in C, or
`plain_http` while LiteLLM is not loaded.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncGenerator, Iterator, Mapping
from typing import Any

import anyio
from anyio import to_thread
from anyio.lowlevel import RunVar, checkpoint

from agent.loose import Lines
from agent.providers import library, plain_http
from agent.providers.failure import Failure, Fault, seconds_to_wait
from agent.providers.request import Request

_CONNECT_SECONDS = 20.0
#: seconds for the text of an error, and for closing
_ERROR_SECONDS, _CLOSE_SECONDS = 10.0, 1.0
#: seconds to wait, once the server has said that the answer has ended, for its usage, which comes
#: behind that, and for the end of the connection
AFTER_END = 2.0
_ERROR_BYTES, _LINE_BYTES = 64 * 1024, 4 * 1024 * 1024


@contextlib.asynccontextmanager
async def answering(request: Request, silence: float) -> AsyncGenerator[Any]:
    """Sends the request and gives the response, with its body unread, for the block.

    `silence`: seconds without a byte after which it fails. Raises Failure.
    """
    post = _post if library.is_loaded() else plain_http.post
    with failures("unreachable", silence):
        response = await post(request.url, request.headers, request.body, _CONNECT_SECONDS)
    try:
        if response.status_code != 200:
            raise await _refusal(response)
        yield response
    finally:
        with anyio.move_on_after(_CLOSE_SECONDS, shield=True):
            await response.aclose()


async def _post(url: str, headers: Mapping[str, str], body: bytes, connect: float) -> Any:
    http = await client()
    timeout = (connect, None, None, None)
    sent = http.build_request("POST", url, headers=headers, content=body, timeout=timeout)
    return await http.send(sent, stream=True, follow_redirects=False)


async def lines(response: Any, silence: float) -> AsyncGenerator[list[bytes]]:
    """Yields the lines of a body, in the groups in which they arrive; the last may be empty.

    Raises Failure.
    """
    found = Lines()
    async with contextlib.aclosing(response.aiter_bytes()) as chunks:
        while True:
            with failures("broken", silence):
                chunk = await anext(chunks, None)
            if chunk is None:
                break
            if ended := found.read(chunk):
                yield ended
            elif found.size > _LINE_BYTES:
                raise Failure("garbage", "a line without an end")
            await checkpoint()  # buffered chunks arrive without one
    yield [found.rest()]


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
