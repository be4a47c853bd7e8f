"""Sends a request to a model and reads the events of the answer directly from HTTP."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any

from agent.loose import read_json
from agent.providers import http_connection
from agent.providers.failure import Failure
from agent.providers.request import Request

_log = logging.getLogger(__name__)

#: bytes of an event that is no JSON that are logged
_LOGGED = 200
#: how a text begins that says nothing to a person: spoiled JSON, or a page
_NO_WORDS = ("{", "[", "<", '"')


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Stands for an event that is no JSON. `said`: its words, if it has any for a person."""

    said: str


async def events(request: Request, silence: float) -> AsyncGenerator[list[Any]]:
    """Yields the decoded events of an answer, in the groups in which they arrive.

    An event that is no JSON is `Unreadable`. `silence`: seconds without a byte after which it
    fails. Raises Failure.
    """
    heard = False
    async with (
        http_connection.answering(request, silence) as response,
        contextlib.aclosing(http_connection.events(response, silence)) as blocks,
    ):
        async for block in blocks:
            heard = heard or bool(block)
            done = http_connection.DONE in block
            yield [
                _decoded(data)
                for data in block[: block.index(http_connection.DONE) if done else None]
                if data
            ]
            if done:
                return
    raise Failure("broken" if heard else "garbage", "the answer has no end")


def _decoded(data: bytes) -> Any:
    try:
        return read_json(data)
    except ValueError:
        _log.info("an event that is no JSON: %r", data[:_LOGGED])
        said = data.decode("utf-8", "replace").strip()
        return Unreadable("" if said.startswith(_NO_WORDS) else said)
