"""The folders that bound a remote client: where its sessions are, and which ones it may have.

- A path counts as what it leads to. Links are resolved, also those above it; `..` is refused, since
  agents resolve it in different ways.
- A session whose folder lies outside is neither listed nor opened, forked, stopped or deleted.
- No error names a path.
- It is no sandbox: a prompt has an agent read and write wherever the user may.

A client on stdin or on the bridge's socket has no bounds.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable, Mapping, Set
from functools import partial
from pathlib import PurePath
from typing import Final

import anyio

from acp_bridge.core import errors
from acp_bridge.core.clients.client import Client, ClientRequest, Work
from acp_bridge.core.clients.rights import Right
from acp_bridge.core.journal import IndexUnusable
from acp_bridge.core.protocol import (
    OPENING,
    Json,
    as_object,
    objects,
    strings,
    without_own_meta,
)
from acp_bridge.core.records import replace
from acp_bridge.core.runtime import waits
from acp_bridge.core.runtime.threads import NoThread, in_thread
from acp_bridge.core.session.opening import Workspace
from acp_bridge.core.session.session import Session
from acp_bridge.core.session.session_context import SessionContext
from acp_bridge.core.sessions import mcp_servers, params
from acp_bridge.core.updates import notices
from acp_bridge.core.updates.wording import code

_OUTSIDE: Final = "lies outside of the folders that this login may use"
_UNSEEN: Final = "could not be looked at in time"
#: the most sessions that one login may have open at a time, over all of its connections.
MOST_OPEN: Final = 32
#: the most threads that look at folders at a time; a disk that hangs blocks no other work.
_LOOKING: Final = 4


class Bounds:
    """Checks the requests of remote clients, and leaves out what lies outside of their folders."""

    def __init__(
        self,
        context: SessionContext,
        live: Mapping[str, Session],
        elsewhere: Callable[[], Set[tuple[Client, str]]],
    ) -> None:
        """`live`: the sessions that this bridge runs, by id.

        `elsewhere` returns (client, session id) for each session that a client has through this
        bridge from another one.
        """
        self._elsewhere = elsewhere
        self._context = context
        self._live = live
        self._limiter = anyio.CapacityLimiter(_LOOKING)

    def checked(self, work: Work) -> Work:
        """Return a function that checks a remote client's request, and then answers it by `work`.

        It raises RpcError for a folder or session out of bounds, or one open session too many.
        """

        async def checked(request: ClientRequest, given: Json) -> object:
            await self.check(request.client, given)
            if request.method in OPENING:
                self._check_count(request.client, given.get("sessionId"))
            return await work(request, given)

        return checked

    async def check(self, client: Client, given: Json) -> None:
        """Raise RpcError if a request names a folder, or a session, outside the client's bounds.

        `given`: the request's parameters.
        """
        named: list[tuple[str, str]] = []
        if isinstance(cwd := given.get("cwd"), str):
            named.append(("cwd", cwd))
        for number, folder in enumerate(strings(given.get("additionalDirectories"))):
            named.append((f"additionalDirectories.{number}", folder))
        if given.get("sessionId") is not None:
            session_id = params.session_id(given)
            if (folder_of := await self.folder_of(session_id)) is not None:
                named.append(("sessionId", folder_of))
            elif "cwd" not in given or not client.may(Right.OPEN):  # the agent may have it
                raise errors.unknown_session()
        for where, path in named:
            if where != "sessionId" and ".." in PurePath(path).parts:
                raise errors.invalid("must not contain ..", where)
        within = await self._within(client, {path for _, path in named})
        for where, path in named:
            if path not in within:
                raise errors.invalid(_OUTSIDE, where)

    def _check_count(self, client: Client, session_id: object) -> None:
        """Raise RpcError if a login would open one more session than it may have open."""
        open_ones = {of for who, of in self._elsewhere() if _is_same(who, client)}
        for session in self._live.values():
            if any(_is_same(view.client, client) for view in session.transcript.views):
                open_ones.add(session.id)
        if session_id not in open_ones and len(open_ones) >= MOST_OPEN:
            raise errors.refused(f"this login has {MOST_OPEN} sessions open, which is the most")

    async def folder_of(self, session_id: str) -> str | None:
        """Return the folder of a session, live or not; None if the journal does not know it.

        Raises RpcError if the journal's index can't be read.
        """
        if session := self._live.get(session_id):
            return session.workspace.cwd
        try:
            info, _ = await self._context.journal.known(session_id)
        except IndexUnusable as exc:
            raise errors.agent_trouble(str(exc)) from exc
        return info.cwd if info else None

    async def kept(self, client: Client, rows: list[Json]) -> list[Json]:
        """Return those `rows` of a list of sessions whose folder lies in the client's bounds.

        Raises RpcError.
        """
        if client.rights is None:
            return rows
        within = await self._within(client, set(strings([row.get("cwd") for row in rows])))
        return [row for row in rows if row.get("cwd") in within]

    async def page(self, client: Client, page: Json) -> Json:
        """Return a page of `session/list` as the client may see it: without sessions out of bounds.

        Remarks on the agent's own list are left out too, since they may name folders.
        """
        if client.rights is None:
            return page
        kept = await self.kept(client, objects(page.get("sessions")))
        return without_own_meta({**page, "sessions": kept})

    async def _within(self, client: Client, paths: set[str]) -> frozenset[str]:
        """Return those of `paths` that lie in the client's bounds; all, if it has none.

        Raises RpcError if the disk does not answer in time.
        """
        if client.rights is None or not paths:
            return frozenset(paths)
        look = partial(_within, client.rights.roots, paths)
        try:
            with anyio.fail_after(waits.FOLDERS):
                return await in_thread(look, abandon_on_cancel=True, limiter=self._limiter)
        except (TimeoutError, NoThread):
            raise errors.agent_trouble(f"a folder {_UNSEEN}") from None

    # --- what a remote client sends with a session ---------------------------------------------

    def workspace(self, client: Client, given: Workspace) -> Workspace:
        """Return `given` without the MCP servers that would be started here, for a remote client.

        A local client's workspace, or any with the setting `client_mcp`, stays as it is.
        """
        refused = self._refused(client, given.mcp_servers)
        kept = tuple(each for each in given.mcp_servers if not any(each is no for no in refused))
        return replace(given, mcp_servers=kept) if refused else given

    def tell_refused(self, session: Session, request: ClientRequest) -> None:
        """Show the client that opened the session which of its MCP servers are not started.

        Shows nothing if none was refused, or to a client that may not act.
        """
        servers = mcp_servers.read(as_object(request.params).get("mcpServers"))
        named = self._refused(request.client, servers or [])
        if named and request.client.may(Right.ACT):
            names = [str(as_object(each).get("name")) for each in named]
            said = notices.notice(servers_left_out(names, socket.gethostname()))
            session.transcript.show_to(request.client, said)

    def _refused(self, client: Client, servers: Iterable[object]) -> list[object]:
        if client.rights is None or self._context.settings.client_mcp:
            return []
        return [each for each in servers if not _is_remote(each)]


def _is_same(one: Client, other: Client) -> bool:
    """Return True if both clients are remote and have the same login."""
    return one.rights is not None and one.rights.login == (other.rights and other.rights.login)


def _is_remote(server: object) -> bool:
    """Return True if an MCP server surely is reached over the network, and is no command.

    An agent may start a server of an unknown type if the server has a member `command`.
    """
    described = as_object(server)
    kind = described.get("type")
    return isinstance(kind, str) and kind != "stdio" and "command" not in described


def _within(roots: Iterable[str], paths: Iterable[str]) -> frozenset[str]:
    """Return those of `paths` that lead, links resolved, into one of `roots`.

    It reads the disk, so it belongs in a thread.
    """
    bounds = [PurePath(os.path.realpath(root)) for root in roots]
    return frozenset(path for path in paths if _leads_into(bounds, path))


def _leads_into(bounds: list[PurePath], path: str) -> bool:
    try:
        real = PurePath(os.path.realpath(path))
    except (OSError, ValueError):  # a path that no system has
        return False
    return os.path.isabs(path) and any(real.is_relative_to(bound) for bound in bounds)


def servers_left_out(names: list[str], machine: str) -> str:
    """Return the notice of MCP servers that a remote client has named and that are not started."""
    told = ", ".join(f"`{code(name)}`" for name in names)
    return (
        f"[acp-bridge] MCP servers that would be started as commands on {machine} are left out:"
        f" {told}. `--client-mcp` of `acp-bridge serve` lets clients from elsewhere start them."
    )
