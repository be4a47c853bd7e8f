"""Finds out whom a wrong token counts against.

- From elsewhere it counts against the address, behind a proxy against the one that the proxy tells.
- From this machine it counts against the process that has sent it, and against nobody else: an
  agent has the same address as the user's browser, and can have as many connections as it likes.
- A process that can't be seen counts as its user. So does who comes through a proxy from this
  machine. Nobody is refused for these: an agent can hide, and come through the proxy, too.
"""

from __future__ import annotations

import os
from collections import deque
from functools import partial
from time import perf_counter
from typing import Final

import anyio
from anyio.abc import SocketAttribute, SocketStream
from websockets.http11 import Request

from acp_bridge.core.agents.origin import Unseen, is_from_agent
from acp_bridge.core.runtime import waits
from acp_bridge.core.runtime.threads import NoThread, in_thread
from acp_bridge.remote.serve import local
from acp_bridge.remote.serve.door import Looks
from acp_bridge.remote.serve.local import Address, Process
from acp_bridge.sharing.listening import peers

#: the processes that have sent the last wrong tokens, which are looked at first.
_LIKELY: Final = 8
#: characters of an address that a proxy tells.
_LONGEST: Final = 64
_THROUGH_PROXY: Final = "a client of this machine"


class Senders:
    """Tells addresses and processes apart, in the time that `looks` allows."""

    def __init__(self, looks: Looks, *, proxied: bool) -> None:
        """`proxied`: connections from this machine are a proxy's."""
        self._looks, self._proxied = looks, proxied
        self._busy = False
        self._likely = deque[int](maxlen=_LIKELY)

    def told(self, request: Request) -> str | None:
        """Return the client's address that a proxy tells; None without one."""
        if self._proxied and (told := request.headers.get_all("X-Forwarded-For")):
            return told[-1].rpartition(",")[2].strip()[:_LONGEST]
        return None

    def is_here(self, raw: SocketStream) -> bool:
        """Return True if the other end of a connection is on this machine."""
        ends = _ends(raw)
        return ends is None or local.is_own(ends[0][0])

    def blocked(self, process: Process | None, told: str | None) -> list[str]:
        """Return the keys whose wrong tokens also refuse a right one, of a connection from here."""
        found = [process.key] if process and process.pid and not self._proxied else []
        return [*found, told] if told is not None and not local.is_own(told) else found

    async def process(self, raw: SocketStream) -> Process | None:
        """Return the process at the other end of a connection; None if there is no time to look."""
        if self._busy or not self._looks.may(anyio.current_time()):
            return None
        self._busy, took = True, waits.PEER
        try:
            with anyio.fail_after(waits.PEER):
                look = partial(_look, raw, tuple(self._likely))
                found, took = await in_thread(look, abandon_on_cancel=True)
        except (TimeoutError, NoThread):
            return None
        finally:
            self._busy = False
            self._looks.took(took)
        if found.pid and found.pid not in self._likely:
            self._likely.appendleft(found.pid)
        return found

    def key(self, process: Process | None, told: str | None) -> str | None:
        """Return whom a wrong token counts against that came over a connection from this machine.

        `process`: the one at the other end; `told`: the address that a proxy tells. None if the
        process is not known, because there was no time to look.
        """
        if process is None:
            return None
        if not self._proxied or not _is_proxy(process):
            return process.key
        return _THROUGH_PROXY if told is None or local.is_own(told) else told


def _is_proxy(process: Process) -> bool:
    """Return True if a process may be the proxy: no agent, and none that may be one."""
    if process.uid == os.getuid():
        return process.pid > 0 and not process.agent
    return process.uid != local.NOBODY


def _look(raw: SocketStream, likely: tuple[int, ...]) -> tuple[Process, float]:
    """Return the process at the other end, and how long the look has taken; for a thread."""
    began = perf_counter()
    ends = _ends(raw)
    found = local.sender(*ends, likely) if ends else _of_unix_socket(raw)
    return found, perf_counter() - began


def _of_unix_socket(raw: SocketStream) -> Process:
    try:
        pid, uid = peers.other_end(raw.extra(SocketAttribute.raw_socket))
    except (OSError, peers.Refused):
        return Process(local.NOBODY)
    try:
        return Process(uid, pid, local.start(pid), is_from_agent(pid))
    except (OSError, ValueError, Unseen):
        return Process(uid)


def _ends(raw: SocketStream) -> tuple[Address, Address] | None:
    """Return the client's end of a TCP connection and this one; None for a Unix socket."""
    try:
        peer = raw.extra(SocketAttribute.remote_address)
        own = raw.extra(SocketAttribute.local_address)
    except OSError:  # it is cut
        return None
    if not isinstance(peer, tuple) or not isinstance(own, tuple):
        return None
    return (str(peer[0]), peer[1]), (str(own[0]), own[1])
