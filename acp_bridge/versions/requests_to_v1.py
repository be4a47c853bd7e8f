"""Requests of a client of version 2, translated into version 1."""

from __future__ import annotations

from acp_bridge.core import errors, protocol
from acp_bridge.core.protocol import Json, own_meta, with_own_meta, without
from acp_bridge.versions import v2
from acp_bridge.versions.settings_to_v2 import servers


def resume(params: Json) -> tuple[str, Json]:
    """Return method and parameters of version 1 for `session/resume`: a load to replay all.

    Raises RpcError for a replay from an unknown place.
    """
    replay = params.get(v2.REPLAY_FROM)
    told = without(params, v2.REPLAY_FROM)
    told["mcpServers"] = servers(params.get("mcpServers"))
    match replay:
        case None:
            return protocol.SESSION_RESUME, told
        case {"type": protocol.REPLAY_AFTER, "cursor": str(cursor)}:
            return protocol.SESSION_RESUME, protocol.resuming(told, cursor)
        case {"type": "start"}:
            return protocol.SESSION_LOAD, told
    raise errors.invalid(
        f"must be of the type `start`, or `{protocol.REPLAY_AFTER}` with a cursor", v2.REPLAY_FROM
    )


def prompt(params: Json) -> Json:
    """Return the parameters of a prompt with its idempotency key moved to the bridge's `_meta`."""
    key = params.get(v2.IDEMPOTENCY_KEY)
    told = without(params, v2.IDEMPOTENCY_KEY)
    if key is None:
        return told
    return with_own_meta(told, {**own_meta(told), protocol.PROMPT_KEY: key})
