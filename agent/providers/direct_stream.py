"""Sends a request to a model and reads the events of the answer directly from HTTP."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from typing import Any

from agent.providers import http_connection
from agent.providers.event_body import EventBody
from agent.providers.failure import Failure
from agent.providers.request import Request


async def events(request: Request, silence: float) -> AsyncGenerator[list[Any]]:
    """Yields the decoded events of an answer, in the groups in which they arrive.

    `silence`: seconds without a byte after which it fails. Raises Failure.
    """
    body = EventBody()
    heard = False
    async with (
        http_connection.answering(request, silence) as response,
        contextlib.aclosing(http_connection.lines(response, silence)) as groups,
    ):
        async for lines in groups:
            found = body.read(lines)
            heard = heard or bool(found)
            yield found
            if body.done:
                return
        last = body.end()
        yield last
    heard = heard or bool(last)
    if not (heard and body.done):
        raise Failure("broken" if heard else "garbage", "the answer has no end")
