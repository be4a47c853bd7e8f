"""Sends a request to a model and reads the events of the answer directly from HTTP."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from typing import Any

from pydantic_core import from_json

from agent.providers import http_connection
from agent.providers.failure import Failure
from agent.providers.request import Request

_DONE = b"[DONE]"


async def events(request: Request, silence: float) -> AsyncGenerator[list[Any]]:
    """Yields the decoded events of an answer, in the groups in which they arrive.

    `silence`: seconds without a byte after which it fails. Raises Failure.
    """
    heard = False
    async with (
        http_connection.answering(request, silence) as response,
        contextlib.aclosing(http_connection.events(response, silence)) as blocks,
    ):
        async for block in blocks:
            heard = heard or bool(block)
            done = _DONE in block
            yield _decoded(block[: block.index(_DONE)] if done else block)
            if done:
                return
    raise Failure("broken" if heard else "garbage", "the answer has no end")


def _decoded(block: list[bytes]) -> list[Any]:
    try:
        return [from_json(data) for data in block if data]
    except ValueError as error:
        raise Failure("garbage", "an event that is no JSON") from error
