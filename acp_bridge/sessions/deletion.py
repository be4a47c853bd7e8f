"""The part of `session/delete` that concerns the agent."""

from __future__ import annotations

import anyio

from acp_bridge import waits
from acp_bridge.protocol import SESSION_DELETE, ErrorCode, has
from acp_bridge.sessions.listing import Listing
from acp_bridge.sessions.waiting_process import WaitingProcess
from acp_bridge.wire.jsonrpc import RpcError


async def delete_at_agent(
    capabilities: object,
    listing: Listing,
    waiting: WaitingProcess,
    agent_id: str,
    session_id: str,
) -> str | None:
    """Delete a session at the agent, in a process that has none; returns why it may be there.

    An agent may number its sessions from 0 in each process: if another session of ours has the
    same number, nobody can say which one the agent would delete. Raises RpcError.
    """
    if not has(capabilities, "sessionCapabilities", "delete"):
        if agent_id == session_id and not await listing.agent_lists(session_id):
            return None  # it was nobody's
        return "the agent can't delete sessions"
    if await listing.is_shared(agent_id, session_id):
        return "another session has the same id at the agent"
    try:
        with anyio.fail_after(waits.DELETE):
            link = await waiting.ready()
        with anyio.fail_after(waits.AGENT_PATIENCE):
            await link.ask(SESSION_DELETE, {"sessionId": agent_id})
    except TimeoutError:
        return "the agent did not delete it in time"
    except RpcError as exc:
        gone = exc.code == ErrorCode.RESOURCE_NOT_FOUND
        return None if gone else f"the agent did not delete it: {exc.message}"
    return None
