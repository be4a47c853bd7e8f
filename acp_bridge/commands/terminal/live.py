"""The sessions that are live: all bridges of a home are asked at once.

Invariants
- A bridge that does not answer in time holds up neither the command nor the other bridges.
- A session that was not found is only said to be asleep if every bridge has answered.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import anyio

from acp_bridge.agents import lease
from acp_bridge.bridge_client.by_socket import live_sessions, over_socket
from acp_bridge.bridge_client.connection import Connection
from acp_bridge.bridge_client.listener import Listener, NullListener
from acp_bridge.bridge_client.sent import ConnectionLost, NoAnswer
from acp_bridge.cli.harmless import one_line
from acp_bridge.commands.terminal import known
from acp_bridge.listening.peers import NoBridge
from acp_bridge.listening.run_files import LiveBridge, live_bridges
from acp_bridge.protocol import SOCKET_PROTOCOL, Json
from acp_bridge.wire.jsonrpc import RpcError

#: seconds for all bridges together to say what is live, where that is only shown.
GLANCE: Final = 0.2
#: seconds to find the session that something is to be done with.
SEARCH: Final = 3.0

#: of a session whose lock is held by a bridge that is not listed.
UNREACHABLE: Final = (
    "is open in an acp-bridge that can't be asked (--no-listen), or that just opens or ends it"
)

#: Makes a client of a bridge that lives.
Connect = Callable[[LiveBridge, Listener], AbstractAsyncContextManager[Connection]]


def by_socket(bridge: LiveBridge, listener: Listener) -> AbstractAsyncContextManager[Connection]:
    """Connect to a bridge by its socket; entering it raises OSError."""
    return over_socket(bridge.socket, listener)


@dataclass(frozen=True, slots=True)
class Answer:
    """What one bridge says; `sessions` is None if it has not answered in time."""

    bridge: LiveBridge
    sessions: list[Json] | None

    @property
    def silence(self) -> str:
        """Why it has not answered, in words."""
        if _speaks_alike(self.bridge):
            return "not answering"
        return f"of version {one_line(self.bridge.version)}"


@dataclass(frozen=True, slots=True)
class LiveSession:
    """A live session and the bridge that has it; `about` is what the bridge says of it."""

    session_id: str
    bridge: LiveBridge
    about: Json


class Asleep(Exception):
    """The session is kept, and no bridge that can be asked has it; `session_id` is its whole id.

    `held`: a bridge has it all the same.
    """

    def __init__(self, session_id: str, *, held: bool = False) -> None:
        told = UNREACHABLE if held else "is not live"
        super().__init__(f"session {session_id[:8]} {told}")
        self.session_id = session_id


async def bridges_of(home: Path) -> list[LiveBridge]:
    """Return the bridges of a home that live."""
    return await anyio.to_thread.run_sync(live_bridges, home)


async def ask_all(bridges: Sequence[LiveBridge], within: float, connect: Connect) -> list[Answer]:
    """Ask all bridges at once which sessions are live, for so many seconds; answers in order.

    A process that only poses as a bridge is left out.
    """
    found: dict[int, list[Json]] = {}
    posing: set[int] = set()

    async def ask(at: int, bridge: LiveBridge) -> None:
        try:
            async with connect(bridge, NullListener()) as connection:
                found[at] = await live_sessions(connection, within)
        except NoBridge:  # an agent wrote the run file, or took the socket's place
            posing.add(at)
        except (OSError, RpcError, ConnectionLost, NoAnswer):
            pass  # it counts as not answering

    with anyio.move_on_after(within):
        async with anyio.create_task_group() as tasks:
            for at, bridge in enumerate(bridges):
                if _speaks_alike(bridge):
                    tasks.start_soon(ask, at, bridge)
    real = [(at, bridge) for at, bridge in enumerate(bridges) if at not in posing]
    return [Answer(bridge, found.get(at)) for at, bridge in real]


async def find(
    home: Path, given: str, bridges: Sequence[LiveBridge], connect: Connect
) -> LiveSession:
    """Find a live session by its id, or by the beginning of its id.

    Bridges that have not answered at once are given more time if none of the others has it.

    Raises:
        Asleep: the session is kept, and no bridge has it.
        NotFound: no session, or more than one, is meant, or its bridge may be one that is silent.
    """
    kept = await anyio.to_thread.run_sync(known.listing, home)
    titles = {info.session_id: info.title or "" for info in kept}
    live: dict[str, LiveSession] = {}
    silent: list[Answer] = []
    for within in (GLANCE, SEARCH):
        answers = await ask_all(bridges, within, connect)
        for answer in answers:
            for about in answer.sessions or []:
                session = LiveSession(str(about["sessionId"]), answer.bridge, about)
                live[session.session_id] = session
                titles[session.session_id] = str(about.get("title") or "")
        silent = [answer for answer in answers if answer.sessions is None]
        bridges = [answer.bridge for answer in silent]
        if not silent or any(each.startswith(given) for each in live):
            break
    if silent and not any(each.startswith(given) for each in live):
        told = ", ".join(f"process {each.bridge.pid} is {each.silence}" for each in silent)
        raise known.NotFound(f"it is not known if an acp-bridge has it: {told}")
    session_id = known.full_id(given, titles)
    if session_id not in live:
        from acp_bridge.journal import Journal  # what is live alone is told without

        lock = Journal(home).lock_path(session_id)
        raise Asleep(session_id, held=await anyio.to_thread.run_sync(lease.is_held, lock))
    return live[session_id]


def _speaks_alike(bridge: LiveBridge) -> bool:
    """Return True for a bridge whose socket speaks what this version does."""
    return bridge.protocol == SOCKET_PROTOCOL
