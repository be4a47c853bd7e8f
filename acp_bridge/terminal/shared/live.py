"""Finds live sessions by asking all bridges of a data folder at once.

Invariants
- A bridge that does not answer in time delays neither the command nor the other bridges.
- A session is only reported as asleep if every bridge has answered.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

import anyio

from acp_bridge.core.agents import lease
from acp_bridge.core.history import HISTORY, History
from acp_bridge.core.protocol import ATTACH, SOCKET_PROTOCOL, Json, resuming
from acp_bridge.core.runtime.own_commands import OWN_COMMANDS
from acp_bridge.sharing.bridge_client import by_socket
from acp_bridge.sharing.bridge_client.by_socket import live_at
from acp_bridge.sharing.bridge_client.connection import Connection
from acp_bridge.sharing.bridge_client.listener import Listener
from acp_bridge.sharing.listening.places import run_folder
from acp_bridge.sharing.listening.run_files import LiveBridge, live_bridges
from acp_bridge.terminal.cli.harmless import one_line
from acp_bridge.terminal.cli.options import log_of
from acp_bridge.terminal.shared import known

#: seconds for all bridges together to answer, where live sessions are only listed.
GLANCE: Final = 0.2
#: seconds to find the session that a command is for.
SEARCH: Final = 3.0

Request: TypeAlias = tuple[str, Json]
"""A method and its parameters."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of one bridge; `sessions` is None if it did not answer in time."""

    bridge: LiveBridge
    sessions: list[Json] | None

    @property
    def silence(self) -> str:
        """Why the bridge did not answer: another version, or just silence.

        In words for the user.
        """
        if _speaks_alike(self.bridge):
            return "not answering"
        return f"of version {one_line(self.bridge.version)}"


@dataclass(frozen=True, slots=True)
class LiveSession:
    """A live session and its bridge; `about`: the bridge's description of it."""

    session_id: str
    bridge: LiveBridge
    about: Json


class Asleep(Exception):
    """The session is recorded, but no bridge that answers has it open; `session_id` is its full id.

    `held`: says that some bridge has it open all the same, if its lock is taken; else None.
    `session`: what a bridge on another machine, which could open it, has told of it.
    """

    def __init__(
        self, session_id: str, held: str | None = None, session: LiveSession | None = None
    ) -> None:
        told = held or "is not live"
        super().__init__(f"session {session_id[:8]} {told}")
        self.session_id, self.session = session_id, session


async def bridges_of(home: Path) -> list[LiveBridge]:
    """Return the running bridges of a data folder; raises NotFound if they can't be looked up."""

    def looked_for() -> list[LiveBridge]:
        folder = run_folder(home)
        try:
            with os.scandir(folder):
                pass
        except FileNotFoundError:  # no bridge has listened here yet
            return []
        except OSError as error:
            why = f"who runs can't be looked up in {folder}: {error.strerror}"
            raise known.NotFound(
                f"{why}; `{OWN_COMMANDS.line('doctor')}` says what to do"
            ) from error
        return live_bridges(home)

    return await anyio.to_thread.run_sync(looked_for)


async def ask_all(bridges: Sequence[LiveBridge], within: float) -> list[Answer]:
    """Ask all bridges at once for their live sessions, for `within` seconds.

    Return their answers in the order of `bridges`, but none of a process that only poses as one.
    """
    found: dict[str, list[Json] | None] = {}
    with anyio.move_on_after(within):
        await live_at({each.socket for each in bridges if _speaks_alike(each)}, found)
    real = [each for each in bridges if found.get(each.socket, ()) is not None]
    return [Answer(each, found.get(each.socket)) for each in real]


class Here:
    """Finds sessions at the bridges of a data folder, by their sockets."""

    again = ""
    joins_first = False

    def __init__(self, home: Path) -> None:
        self._home = home

    async def ask(self) -> list[Answer]:
        """Return the answers of all bridges; raises NotFound."""
        return await ask_all(await bridges_of(self._home), GLANCE)

    async def find(self, given: str) -> LiveSession:
        """Return the live session whose id is, or begins with, `given`.

        Bridges that did not answer within `GLANCE` seconds are asked again for `SEARCH` seconds if
        none of the others has the session.

        Raises:
            Asleep: the session is recorded, and no bridge has it open.
            NotFound: no session or several fit, or it may be at a bridge that did not answer.
        """
        bridges = await bridges_of(self._home)
        kept = await anyio.to_thread.run_sync(known.listing, self._home)
        titles = {info.session_id: info.title or "" for info in kept}
        live: dict[str, LiveSession] = {}
        for within in (GLANCE, SEARCH):
            answers = await ask_all(bridges, within)
            for answer in answers:
                for about in answer.sessions or []:
                    session = LiveSession(str(about["sessionId"]), answer.bridge, about)
                    live[session.session_id] = session
                    titles[session.session_id] = str(about.get("title") or "")
            silent = [answer for answer in answers if answer.sessions is None]
            bridges = [answer.bridge for answer in silent]
            if not silent or any(each.startswith(given) for each in live):
                break
        else:
            told = ", ".join(f"process {each.bridge.pid} is {each.silence}" for each in silent)
            raise known.NotFound(f"it is not known if an acp-bridge has it: {told}")
        session_id = known.full_id(given, titles)
        if session_id not in live:
            raise Asleep(session_id, await anyio.to_thread.run_sync(self._held, session_id))
        return live[session_id]

    def _held(self, session_id: str) -> str | None:
        """Return the words for a session that some bridge has open all the same, else None."""
        from acp_bridge.core.journal import Journal  # imported here, since `ps` needs no journal

        lock = Journal(self._home).lock_path(session_id)
        return unreachable(lock) if lease.is_held(lock) else None

    async def in_folder(self, folder: Path) -> str:
        """Return the id of the session that was used last in a folder; a live one goes first.

        Raises NotFound.
        """
        here = known.real(str(folder))
        live = [
            str(about["sessionId"])
            for answer in await self.ask()
            for about in answer.sessions or []
            if isinstance(cwd := about.get("cwd"), str) and known.real(cwd) == here
        ]
        if len(live) == 1:
            return live[0]
        listed = await anyio.to_thread.run_sync(known.listing, self._home)
        newest = next((each.session_id for each in listed if each.session_id in live), None)
        return newest or known.last_used(self._home, folder).session_id

    def connect(
        self, session: LiveSession, listener: Listener
    ) -> AbstractAsyncContextManager[Connection]:
        """Connect to the bridge of a session; entering the context manager raises OSError."""
        return by_socket.over_socket(session.bridge.socket, listener, log_of(self._home))

    def joining(self, session: LiveSession, history: History, cursor: str | None = None) -> Request:
        """Return the request that joins a session (`_acp_bridge/attach`)."""
        return ATTACH, resuming({"sessionId": session.session_id, HISTORY: history}, cursor)


def unreachable(lock: Path) -> str:
    """Return the words for a session whose `lock` is held by a bridge that can't be asked."""
    pid = lease.taker(lock)
    where = f"process {pid}, an acp-bridge" if pid else "an acp-bridge"
    end = f", or end that process: kill {pid}" if pid else ""
    return (
        f"is open in {where} that can't be asked (--no-listen), or that just opens or ends it:"
        f" try again{end}"
    )


def _speaks_alike(bridge: LiveBridge) -> bool:
    """Return True if a bridge's socket speaks this version's protocol."""
    return bridge.protocol == SOCKET_PROTOCOL
