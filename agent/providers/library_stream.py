"""Asks a model through LiteLLM's own stream.

It serves the providers whose answers have a form that this package does not read: Gemini, Bedrock,
Vertex, Azure and Ollama. It takes 700 us a chunk (1,400 a second), most of it
for objects that are built, copied and dumped for logging, which no setting prevents.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import AsyncGenerator, Iterator, Sequence
from copy import deepcopy
from typing import Any

import anyio

from agent.loose import members, objects, words
from agent.model import Message, ToolSpec
from agent.providers import http_connection, library
from agent.providers.failure import Failure, Fault, seconds_to_wait
from agent.providers.http_connection import failures
from agent.providers.outgoing import Target, outgoing
from agent.providers.request import options


async def events(
    model_id: str,
    target: Target,
    messages: Sequence[Message],
    tools: Sequence[ToolSpec],
    silence: float,
) -> AsyncGenerator[list[Any]]:
    """Yields the chunks of an answer in the form of chat completions.

    `silence`: seconds without a chunk after which it fails. Raises Failure.
    """
    with failures("unreachable", silence), _told(asking=True):
        own = deepcopy([*tools])  # a copy, since for some providers LiteLLM changes the schemas
        wanted = {"api_key": target.key, **dict(target.parameters), **options(target, own)}
        stream = await library.load().acompletion(
            model=model_id,
            messages=outgoing(messages, target),
            api_base=target.base_url,
            timeout=2 * silence,  # longer than our own limit, which so comes first
            num_retries=0,
            max_retries=0,
            **wanted,
        )
    source = _Source(stream)
    async with contextlib.aclosing(stream):
        while True:
            with failures("broken", silence), _told(asking=False):
                chunk = await anext(stream, None)
            if chunk is None:
                return
            source.deadline = math.inf
            yield [chunk.model_dump(exclude_none=True)]


class _Source:
    """Stands between LiteLLM's stream and its source, and ends when the answer has ended.

    LiteLLM keeps the end to itself until its source has ended, however long that takes.
    """

    def __init__(self, stream: Any) -> None:
        self.deadline = math.inf
        self._ended = False
        self._stream = stream
        self._source: Any = stream.completion_stream
        make: Any = getattr(stream, "make_call", None)

        async def made(**options: Any) -> Any:
            self._source = await make(**options)
            self._watch()
            return self if hasattr(self._source, "__aiter__") else self._source

        if hasattr(self._source, "__aiter__"):
            stream.completion_stream = self
        elif self._source is None and make is not None:
            stream.make_call = made

    def __aiter__(self) -> _Source:
        self._chunks = aiter(self._source)
        return self

    def _watch(self) -> None:
        """Looks at the events that LiteLLM parses: for Gemini it keeps no reason to stop."""
        parse: Any = getattr(self._source, "chunk_parser", None)

        def parsed(chunk: Any, *more: Any, **options: Any) -> Any:
            candidates = objects(members(chunk).get("candidates"))
            self._ended = self._ended or any(words(c.get("finishReason")) for c in candidates)
            return parse(chunk, *more, **options)

        if parse is not None:
            self._source.chunk_parser = parsed

    async def __anext__(self) -> Any:
        ended = self._ended or self._stream.received_finish_reason
        if self.deadline == math.inf and ended:
            self.deadline = anyio.current_time() + http_connection.AFTER_END
        with anyio.CancelScope(deadline=self.deadline):
            return await anext(self._chunks)
        raise StopAsyncIteration

    async def aclose(self) -> None:
        if close := getattr(self._source, "aclose", None):
            await close()


#: httpx's, aiohttp's and the system's errors for a server to which there is no way.
_NO_WAY = frozenset(
    [
        *("ConnectError", "ConnectTimeout", "ConnectionRefusedError", "gaierror"),
        *("ClientConnectorError", "ClientConnectorDNSError"),
        *("ClientConnectorSSLError", "ClientConnectorCertificateError"),
    ]
)


@contextlib.contextmanager
def _told(*, asking: bool) -> Any:
    """Turns LiteLLM's exception into a Failure that has the server's words, or none.

    The words are the server's if they came with an HTTP status, or as an error in a stream.
    `asking`: no stream has come yet. Then other words are LiteLLM's own.
    """
    try:
        yield
    except Exception as error:
        status = getattr(error, "status_code", None)
        causes = list(_causes(error))
        if not isinstance(status, int) or type(error).__name__ == "APIConnectionError":
            raise
        if any(type(cause).__name__ in _NO_WAY for cause in causes):
            # LiteLLM gives some of them the status 500, which no server has sent.
            raise Failure("unreachable", type(error).__name__) from error
        for cause in causes:
            response: Any = getattr(cause, "response", None)
            if body := _body(response):
                wait = seconds_to_wait(response.headers)
                raise Failure("answer", body, response.status_code, wait) from error
        if asking:
            raise Failure("answer", f"{error}".partition("\n")[0], status, by="LiteLLM") from error
        made_by = type(causes[-1]).__module__.partition(".")[0]
        if made_by in ("litellm", "openai"):
            raise Failure("answer", f"{causes[-1]}", status) from error
        fault: Fault = "broken" if made_by in ("httpx", "httpcore", "aiohttp") else "garbage"
        raise Failure(fault, type(causes[-1]).__name__) from error


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yields an error and what it comes from."""
    seen = list[BaseException]()
    cause: BaseException | None = error
    while cause is not None and cause not in seen:
        yield cause
        seen.append(cause)
        cause = cause.__cause__ or cause.__context__


def _body(response: Any) -> str:
    try:
        return str(response.text) if response is not None else ""
    except Exception:  # it was not read
        return ""
