"""What a bridge asks of the bridges that hold other sessions of its data folder.

`sharing` has the bridge that can ask. By default there is none: a session that another bridge holds
can't be opened here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Set
from pathlib import Path
from typing import Protocol, TypeAlias

from acp_bridge.core.clients.client import Client, ClientRequest
from acp_bridge.core.protocol import Json
from acp_bridge.core.session.session import Session
from acp_bridge.core.session.session_context import SessionContext
from acp_bridge.core.sessions.attaching import Attaching

#: loads a session for a request with these parameters; returns or raises the request's answer.
Load: TypeAlias = Callable[[ClientRequest, Json], Awaitable[object]]


class Reach(Protocol):
    """Passes one request on to the bridge that holds its session."""

    #: why the last try failed; None before the first failure.
    why: str | None

    async def try_holder(self, lock_file: Path) -> None:
        """Send the bridge that `lock_file` names the request; raise if it takes or refuses it."""


class Elsewhere:
    """Knows no other bridge. A subclass passes requests on to the bridges that it knows."""

    def __init__(self, context: SessionContext, attaching: Attaching, load: Load) -> None:
        """`load` opens a session here after the end of the bridge that held it."""

    @property
    def in_use(self) -> bool:
        """True while a client has, or had just now, a session from another bridge."""
        return False

    def sessions(self) -> Set[tuple[Client, str]]:
        """Return (client, session id) for each session that a client has from another bridge.

        Those are among them whose bridge has just ended, and that are opened again.
        """
        return frozenset()

    def reach(self, request: ClientRequest) -> Reach | None:
        """Return what passes the request on if its session is held elsewhere; None: nothing."""
        return None

    async def or_elsewhere(self, request: ClientRequest, work: Awaitable[object]) -> object:
        """Await `work`, which answers the request here or has passed it on. Raises RpcError."""
        return await work

    async def load_again(self, request: ClientRequest, session_id: str) -> bool:
        """Load a session again where the client has it from; False if that is nowhere."""
        return False

    def take_load(self, request: ClientRequest, params: Json) -> None:
        """Pass a `session/load` on at the moment it is read, if its session is held elsewhere."""

    def take(self, request: ClientRequest, params: Json) -> bool:
        """Pass a request on; False if the client does not have its session from elsewhere."""
        return False

    def notify(self, client: Client, method: str, params: Json, session_id: object) -> bool:
        """Pass a notification on; False if the client does not have its session from elsewhere."""
        return False

    def cancel_request(self, client: Client, request_id: object) -> bool:
        """Pass on that a client gives a request up; False if the request was not passed on."""
        return False

    def forget(self, client: Client) -> None:
        """Let a client that is gone leave its sessions in other bridges."""

    async def end(self) -> None:
        """Let all clients leave their sessions in other bridges, since this bridge ends."""

    async def live(self) -> list[Json]:
        """Return a row for each session of this bridge's agent that another bridge has live."""
        return []

    async def tell_kept_work(self, session: Session, client: Client) -> None:
        """Show a client that opened a session a notice of unattended work in its folder."""


MakeElsewhere: TypeAlias = Callable[[SessionContext, Attaching, Load], Elsewhere]
