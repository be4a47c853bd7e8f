"""A connection of ours to a bridge elsewhere, in the place of one by its socket."""

from __future__ import annotations

import errno
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from acp_bridge.bridge_client.connection import Connection, connected
from acp_bridge.bridge_client.listener import Listener
from acp_bridge.connect import line
from acp_bridge.connect.logins import Login, Where


@asynccontextmanager
async def over_web_socket(
    where: Where, login: Login, home: Path, listener: Listener
) -> AsyncGenerator[Connection, None]:
    """Give a connection to a bridge elsewhere for the block.

    Raises OSError, whose `strerror` says why there is none.
    """
    async with AsyncExitStack() as stack:
        try:
            socket = await stack.enter_async_context(line.connected(where, login, home))
        except (line.Unreached, line.NotTrusted) as exc:
            raise OSError(errno.ECONNREFUSED, str(exc)) from exc
        yield await stack.enter_async_context(connected((socket, socket), listener))
