"""Asks bridges for the limits of their agents' accounts, and shows them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import anyio

from acp_bridge.core.protocol import QUOTA, QUOTA_READ, Json, as_object, has
from acp_bridge.core.wire.jsonrpc import RpcError
from acp_bridge.features.quotas.proposal import HEAD, local, rows
from acp_bridge.sharing.bridge_client.by_socket import over_socket
from acp_bridge.sharing.bridge_client.connection import Connection
from acp_bridge.sharing.bridge_client.listener import NullListener
from acp_bridge.sharing.bridge_client.sent import ConnectionLost, NoAnswer
from acp_bridge.sharing.listening.run_files import LiveBridge
from acp_bridge.terminal.cli.harmless import one_line
from acp_bridge.terminal.cli.options import log_of
from acp_bridge.terminal.shared.live import bridges_of
from acp_bridge.terminal.shared.table import table

#: seconds for the answer to one request: the agent may ask its provider first.
_PATIENCE: Final = 30.0
#: the answer of an agent that does not report limits.
NOT_REPORTED: Final = "reports no limits"


def reports_limits(initialized: Json) -> bool:
    """Return True if a bridge's answer to `initialize` says that the agent reports limits."""
    return has(initialized, "agentCapabilities", QUOTA)


async def read_limits(connection: Connection, session_id: str | None = None) -> Json:
    """Return the snapshot of the limits, for one session if it is given.

    Raises as `Connection.request` does.
    """
    params = {"sessionId": session_id} if session_id else {}
    return as_object(await connection.request(QUOTA_READ, params, within=_PATIENCE))


async def limits_of_all(home: Path) -> list[tuple[str, Json | str]]:
    """Return for each live bridge its agent and the snapshot, or why there is none.

    Raises NotFound if the bridges can't be looked up.
    """
    found: list[tuple[str, Json | str]] = []

    async def ask(bridge: LiveBridge) -> None:
        said: Json | str = NOT_REPORTED
        try:
            async with over_socket(bridge.socket, NullListener(), log_of(home)) as connection:
                about = await connection.initialize("acp-bridge cost", within=_PATIENCE)
                if reports_limits(about):
                    said = await read_limits(connection)
        except RpcError as why:
            said = f"did not report its limits: {one_line(why.message)}"
        except (OSError, ConnectionLost, NoAnswer):
            said = f"did not answer (process {bridge.pid})"
        found.append((one_line(bridge.agent), said))

    async with anyio.create_task_group() as tasks:
        for bridge in await bridges_of(home):
            tasks.start_soon(ask, bridge)
    return sorted(found, key=lambda each: each[0])


def limits_text(answers: Sequence[tuple[str, Json | str]], columns: int | None) -> str:
    """Return what `limits_of_all` has found, for a terminal of so many columns."""
    texts = [
        f"{agent} {said}.\n" if isinstance(said, str) else f"{agent}\n{shown(said, columns)}"
        for agent, said in answers
    ]
    return "\n".join(texts) or "No bridge is running. Limits are shown while one is.\n"


def shown(snapshot: Json, columns: int | None) -> str:
    """Return a table of a snapshot's pools, without the columns in which nothing is reported."""
    found = rows(snapshot)
    if not found:
        return "No limits are reported.\n"
    there = [at for at in range(len(HEAD)) if any(row[at] for row in found)]
    cells = [[row[at] for at in there] for row in found]
    as_of = local(snapshot.get("updatedAt"))
    text = table([HEAD[at] for at in there], cells, columns)
    return f"{text}As of {as_of}.\n" if as_of else text
