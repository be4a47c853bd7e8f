"""Where a command looks for live sessions: at the bridges of a data folder, or at one elsewhere."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from acp_bridge.bridge_client.by_socket import live_sessions
from acp_bridge.bridge_client.listener import NullListener
from acp_bridge.bridge_client.sent import ConnectionLost, NoAnswer
from acp_bridge.cli.harmless import one_line
from acp_bridge.cli.options import log_of
from acp_bridge.cli.own_agent import install_command, isolated_path
from acp_bridge.cli.parser import CommandParser
from acp_bridge.commands.terminal import known, live
from acp_bridge.commands.terminal.live import Answer, Connect, LiveSession
from acp_bridge.listening.run_files import LiveBridge
from acp_bridge.protocol import SOCKET_PROTOCOL
from acp_bridge.wire.jsonrpc import RpcError

#: seconds in which a bridge elsewhere says what is live there.
_ELSEWHERE: Final = 20.0


@dataclass(frozen=True, slots=True)
class Place:
    """Some bridges, and how they are connected to; `at`: the address of the one elsewhere."""

    home: Path
    bridges: Sequence[LiveBridge]
    connect: Connect
    at: str | None = None

    async def answers(self) -> list[Answer]:
        """Return what is live at each bridge; raises NotFound."""
        if self.at is None:
            return await live.ask_all(self.bridges, live.GLANCE, self.connect)
        (bridge,) = self.bridges
        try:
            async with self.connect(bridge, NullListener()) as connection:
                return [Answer(bridge, await live_sessions(connection, _ELSEWHERE))]
        except OSError as error:
            raise known.NotFound(f"{self.at} can't be reached: {error.strerror}") from error
        except (RpcError, ConnectionLost, NoAnswer) as why:
            raise known.NotFound(f"{self.at}: {one_line(str(why))}") from why

    async def find(self, given: str) -> LiveSession:
        """Return the live session whose id is, or begins with, `given`; raises as `live.find`."""
        if self.at is None:
            return await live.find(self.home, given, self.bridges, self.connect)
        (answer,) = await self.answers()
        rows = {str(about["sessionId"]): about for about in answer.sessions or []}
        titles = {name: str(about.get("title") or "") for name, about in rows.items()}
        session_id = known.full_id(given, titles)
        return LiveSession(session_id, answer.bridge, rows[session_id])

    async def last_used(self) -> str:
        """Return the id of the session that is meant when none is named; raises NotFound."""
        if self.at is None:
            return await live.in_folder(self.home, known.here(), self.bridges, self.connect)
        (answer,) = await self.answers()
        rows = answer.sessions or []
        if len(rows) != 1:
            raise known.NotFound(f"{len(rows)} sessions are live there: name one by its ID")
        return str(rows[0]["sessionId"])


def add_at(parser: CommandParser) -> None:
    """Add the option `--at` to the parser of a command on live sessions."""
    parser.add_argument(
        "--at",
        metavar="URL",
        help="at the bridge that 'acp-bridge serve' runs there; acp-bridge connect\n"
        "--login URL keeps the token",
    )


async def place_of(home: Path, at: str | None) -> Place:
    """Return where a command looks; raises NotFound."""
    if at is None:
        bridges = await live.bridges_of(home)
        return Place(
            home, bridges, lambda bridge, listener: live.by_socket(bridge, listener, log_of(home))
        )
    if find_spec("websockets") is None:
        how = install_command("remote", isolated_path(os.environ))
        raise known.NotFound(f"the package websockets is missing, of the extra remote. Run: {how}")
    from acp_bridge.connect import logins
    from acp_bridge.connect.client import over_web_socket

    try:
        where = logins.read_address(at)
        login = logins.find(home, where)
    except logins.Unusable as why:
        raise known.NotFound(str(why)) from why
    if login is None:
        how = f"acp-bridge connect --login {at}"
        raise known.NotFound(f"there is no token for {where.url}: run {how}")
    bridge = LiveBridge(0, where.place, where.url, SOCKET_PROTOCOL, "", "")
    return Place(
        home, [bridge], lambda _, listener: over_web_socket(where, login, home, listener), where.url
    )
