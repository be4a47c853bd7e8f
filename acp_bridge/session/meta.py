"""`_meta.acp_bridge`: what of a message is meant for the bridge."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]


def own_meta(params: Json) -> Json:
    """What the client says to the bridge with a request."""
    meta = params.get("_meta")
    own = meta.get("acp_bridge") if isinstance(meta, dict) else None
    return own if isinstance(own, dict) else {}


def without_own_meta(params: Json) -> Json:
    """The parameters without what is meant for the bridge."""
    meta = params.get("_meta")
    if not isinstance(meta, dict) or "acp_bridge" not in meta:
        return params
    kept = {key: value for key, value in meta.items() if key != "acp_bridge"}
    rest = {key: value for key, value in params.items() if key != "_meta"}
    return {**rest, "_meta": kept} if kept else rest
