"""Runs one connection: the SDK's router and connection around an agent, and its bounded end.

Invariants
- Every error that a handler raises is answered as `agent.errors` says.
- Nothing but `initialize` is answered before `initialize`.
- However it ends (EOF, a signal, a client that reads nothing), it ends within `answer_grace` and
  `flush_limit` of the transport plus the seconds below (invariant P2).
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Protocol, cast

import anyio
from acp import Agent
from acp.agent.router import build_agent_router
from acp.connection import Connection, MethodHandler
from acp.meta import AGENT_METHODS
from acp.schema import DeleteSessionRequest
from acp.utils import normalize_result
from msgspec import Struct

from agent.errors import not_initialized, request_error
from agent.serve.sdk_transport import SdkTransport
from agent.session.session_client import SendNotification, SendRequest

logger = logging.getLogger(__name__)

#: seconds in which running turns must be answered `cancelled`
_STOP_SECONDS = 1
#: seconds for the end of the connection's tasks, besides the transport's own bound
_CLOSE_SECONDS = 1.5


class Served(Protocol):
    """The handlers of one connection's requests, under the names that the SDK calls."""

    #: True once `initialize` has come
    initialized: bool

    async def stop(self) -> None:
        """Cancels every prompt, waits until all are answered, and leaves nothing running."""
        ...


class Wire(Struct, frozen=True):
    """The functions with which an agent sends to its client.

    `request` waits for the client's answer; `later` starts a task once the response that is being
    returned has been sent.
    """

    request: SendRequest
    notify: SendNotification
    later: Callable[[Callable[[], Coroutine[Any, Any, None]]], object]


async def serve_agent(
    transport: SdkTransport, make: Callable[[Wire], Served], mask: Callable[[str], str]
) -> None:
    """Serves until the client has left or a signal asks the process to end.

    `make` builds the agent; `mask` removes secrets from a sentence.
    """
    async with anyio.create_task_group() as tasks:

        async def handle(method: str, params: Any, is_notification: bool) -> Any:
            return await route(method, params, is_notification)

        connection = Connection(handle, transport, listening=False)
        agent = make(
            Wire(
                request=connection.send_request,
                notify=partial(_notify, transport),
                later=lambda work: transport.after_answer(
                    partial(tasks.start_soon, _contained, work)
                ),
            )
        )
        route = guarded(agent, mask)
        try:
            with anyio.CancelScope() as listening:
                tasks.start_soon(_cancel_on_signal, listening)
                await connection.main_loop()
        finally:
            with anyio.move_on_after(_STOP_SECONDS, shield=True):
                await agent.stop()
            with anyio.CancelScope(shield=True):
                await _close(connection)
            tasks.cancel_scope.cancel()


async def _close(connection: Connection) -> None:
    # A deadline of anyio's is a cancellation, and the SDK would pass it to the very task that it
    # waits for, which may ignore it. asyncio's own wait just stops waiting.
    closing = asyncio.create_task(connection.close())
    await asyncio.wait({closing}, timeout=_CLOSE_SECONDS)


async def _contained(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Runs a session's background task; its failure is logged and ends no other (invariant P6)."""
    try:
        await work()
    except Exception:
        logger.exception("something in the background failed")


def guarded(agent: Served, mask: Callable[[str], str]) -> MethodHandler:
    """Returns a handler that passes requests to `agent` and turns exceptions into ACP errors."""
    router = build_agent_router(cast(Agent, agent), use_unstable_protocol=True)
    router.route_request(
        AGENT_METHODS["session_delete"],
        DeleteSessionRequest,
        agent,
        "delete_session",
        adapt_result=normalize_result,
    )

    async def handle(method: str, params: Any, is_notification: bool) -> Any:
        if not agent.initialized and method != "initialize":
            raise not_initialized()
        try:
            return await router(method, params, is_notification)
        except Exception as error:
            raise request_error(error, mask) from None

    return handle


async def _notify(transport: SdkTransport, method: str, params: dict[str, Any]) -> None:
    # The SDK's connection sends nothing after the end of stdin, but the cards of an interrupted
    # turn's tool calls still have to be ended for the client.
    await transport.send({"jsonrpc": "2.0", "method": method, "params": params})


async def _cancel_on_signal(listening: anyio.CancelScope) -> None:
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGHUP, signal.SIGINT) as signals:
        async for _ in signals:
            listening.cancel()
