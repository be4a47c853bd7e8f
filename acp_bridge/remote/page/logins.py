"""The logins of pages: tokens that only a page can use, and that end after `IDLE` days unused.

There is no cookie. A browser sends a cookie of this host to each of its ports, so also to any
server that an agent starts here. The browser keeps the secret of a login for the page's own origin,
and the page sends it only in the first message of each WebSocket.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from datetime import UTC, date, datetime
from functools import partial
from typing import Any, Final

import anyio

from acp_bridge.core.clients.rights import May
from acp_bridge.core.runtime.log import event
from acp_bridge.core.runtime.threads import in_thread
from acp_bridge.core.wire.streams import Incoming, Outgoing
from acp_bridge.remote.page.client import Login
from acp_bridge.remote.page.codes import Codes
from acp_bridge.remote.page.taps import AllReceipts
from acp_bridge.remote.serve.tokens import Token, Tokens, Unusable, digest, new_secret, new_token

#: days without use after which a login ends.
IDLE: Final = 30

#: Serves a client of the bridge with the rights of a token.
JoinAs = Callable[[Token, Incoming, Outgoing], Coroutine[Any, Any, None]]


def today() -> date:
    """Return today's date in UTC."""
    return datetime.now(UTC).date()


class PageLogins:
    """Checks, makes and ends the logins of pages."""

    def __init__(
        self,
        tokens: Tokens,
        codes: Codes,
        join_as: JoinAs,
        day: Callable[[], date] = today,
    ) -> None:
        """`join_as` serves a client with the rights of a token; `day` returns today."""
        self._tokens, self._codes, self._join_as, self._day = tokens, codes, join_as, day
        self._receipts = AllReceipts()

    async def enter(self, secret: str) -> Login | None:
        """Return the login that a secret belongs to, and note its use; None if there is none."""
        token = self._tokens.find(secret, of_page=True)
        if token is None:
            return None
        idle = (self._day() - date.fromisoformat(token.used)).days
        if idle > IDLE:
            event("remote.page_expired", token=token.name)
            await self.leave(secret)
            return None
        if idle:
            await self._written(partial(self._tokens.use, token, self._day().isoformat()))
            if self._tokens.find(secret, of_page=True) is None:  # revoked in this moment
                return None
        receipts = self._receipts.of(token.hash)
        id = digest(f"page of {token.hash}")[:16]
        return Login(token.name, token.may, partial(self._join_as, token), receipts, id)

    async def exchange(self, code: str) -> str | None:
        """Use up a code for a new login, and return its secret; None if the code is not good."""
        promise = self._codes.take(code, anyio.current_time())
        if promise is None:
            return None
        secret = new_secret()
        token = new_token(promise.name, May(promise.may), secret, self._day().isoformat())
        return secret if await self._written(partial(self._tokens.add, token)) else None

    async def leave(self, secret: str) -> None:
        """Remove the login that a secret belongs to."""
        token = self._tokens.find(secret, of_page=True)
        if token is not None:
            self._receipts.forget(token.hash)
            await self._written(partial(self._tokens.remove, token.name))

    async def _written(self, change: Callable[[], object]) -> bool:
        """Call `change` in a thread; returns False, and logs why, if it can't write the tokens."""
        try:
            await in_thread(change)
        except (OSError, Unusable) as why:
            event("remote.not_written", what=why)
            return False
        return True
