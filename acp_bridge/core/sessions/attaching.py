"""Several clients on one live session: one more attaches, one of them leaves.

- A client that is slow in its replay holds up neither the loads of others nor a close: only one
  load of the same client waits for the other (invariant V4).
- The session ends with the last client that closes it; a connection that ends ends no session.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from acp_bridge.core import errors
from acp_bridge.core.clients.client import ANSWERED, Client, ClientRequest, Work
from acp_bridge.core.history import attaches_whole
from acp_bridge.core.journal import JournalError
from acp_bridge.core.protocol import SESSION_LOAD, Json, after_of
from acp_bridge.core.runtime.keyed_locks import KeyedLocks
from acp_bridge.core.session.clients.replay import Hold
from acp_bridge.core.session.session import Session
from acp_bridge.core.sessions import params


class Attaching:
    """Lets clients attach to live sessions, and leave them."""

    def __init__(self, live: Mapping[str, Session], busy: KeyedLocks, *, kept: bool) -> None:
        """`busy`: locks by session id, so that its loads, forks, closes and deletes take turns.

        `kept`: the bridge lets work go on in a session that no client has open (`--keep`).
        """
        self._live = live
        self._kept = kept
        self._busy = busy
        self._loads = KeyedLocks()
        #: for loads by clients that have the session already: holds back updates until the replay
        #: has ended.
        self._holds: dict[ClientRequest, Hold] = {}

    def held_back(self, request: ClientRequest, given: Json, work: Work) -> Work:
        """Return the function that is to answer `request`, just read: `work`, or a wrapper of it.

        If the request replays a session that the client has already, updates for the client wait
        from now on until the replay has ended, or it would be shown them twice. The wrapper calls
        `work`, and sends the client the updates that waited if `work` fails before that.
        """
        session_id = given.get("sessionId")
        session = self._live.get(session_id) if isinstance(session_id, str) else None
        view = session.transcript.view_of(request.client) if session else None
        whole = request.method == SESSION_LOAD or attaches_whole(request.method, given)
        goes_on = after_of(request.method, given) is not None
        if session is None or view is None or session.closing or not (whole or goes_on):
            return work
        try:
            hold = self._holds[request] = session.replay.hold(view, whole=not goes_on)
        except JournalError:  # which is told when it is read
            return work

        async def held(request: ClientRequest, given: Json) -> object:
            try:
                return await work(request, given)
            finally:
                del self._holds[request]
                if not hold.ended:
                    hold.end()
                    if not view.over:
                        session.audience.go_on(request.client)

        return held

    def hold_of(self, request: ClientRequest) -> Hold | None:
        """Return the hold that `held_back` made for a load, or None; the replay is to end it."""
        return self._holds.get(request)

    @asynccontextmanager
    async def turn_of(self, client: Client, session_id: str) -> AsyncIterator[None]:
        """Run the block when this client's earlier loads, and leaves, of the session have ended."""
        async with self._loads.hold(f"{id(client)} {session_id}"):
            yield

    async def attach(self, request: ClientRequest, given: Json) -> object:
        """Answer `_acp_bridge/attach`: show a live session, as much of it as `history` says.

        Raises RpcError, also for a session that is not live here.
        """
        session_id, history = params.session_id(given), params.history(given)
        async with self.turn_of(request.client, session_id):
            async with self._busy.hold(session_id):  # it may just be opened
                session = self._live.get(session_id)
                if session is None or session.closing:
                    raise errors.unknown_session()
            session.kept_params.check(given)
            held = self.hold_of(request)
            await session.replay.load(request, history, attached=True, held=held)
            return ANSWERED

    async def leave(self, request: ClientRequest, session_id: str) -> bool:
        """Let the client leave a session that goes on without it; wait until its loads have ended.

        Returns False, and changes nothing, if the session is not live or is to be closed instead.
        """
        session = self._live.get(session_id)
        if session is None or not self.goes_on_without(request.client, session):
            return False
        session.audience.leave(request.client, closes=True)
        async with self.turn_of(request.client, session_id):
            # A load of it that was read before has ended, and was answered first.
            session.audience.leave(request.client, closes=True)
            return True

    def goes_on_without(self, client: Client, session: Session) -> bool:
        """Return True if the session goes on when this client closes it.

        It does while other clients have it open, or one is gone that may come back to its prompt,
        and in a bridge with `--keep` while work runs or waits in it.
        """
        if session.closing:
            return False
        others = session.audience.has_others(client)
        return others or (self._kept and session.busy)

    def forget(self, client: Client) -> None:
        """Let a client whose connection has ended leave every session."""
        for session in list(self._live.values()):
            errors.contained(session.audience.leave, client, what="a client could not leave")

    @property
    def attended(self) -> bool:
        """True if at least one client has one of the live sessions open."""
        return any(session.attended for session in self._live.values())

    @property
    def busy(self) -> bool:
        """True if in one of the sessions a prompt has no answer, or the agent works without one."""
        return any(session.busy for session in self._live.values())

    def listed(self) -> Json:
        """Return the answer to `_acp_bridge/live`: a row for each live session of this bridge."""
        live = [session for session in self._live.values() if not session.closing]
        return {"sessions": [_row(session) for session in live]}


def _row(session: Session) -> Json:
    info = session.journal.info
    row = {"sessionId": session.id, "cwd": session.workspace.cwd, "agent": info.agent}
    if info.title:
        row["title"] = info.title
    return {**row, **session.audience.standing.row()}
