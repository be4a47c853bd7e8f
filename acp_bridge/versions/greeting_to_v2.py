"""`initialize` between a client that speaks version 2 and the bridge, which speaks version 1."""

from __future__ import annotations

from typing import Final

from acp_bridge import __version__
from acp_bridge.core import protocol
from acp_bridge.core.clients.abilities import unknown_capabilities
from acp_bridge.core.protocol import (
    Json,
    as_object,
    has,
    objects,
    own_meta,
    renamed,
    with_own_meta,
    without,
)

#: the bridge's own notifications and members that the translator needs, as abilities.
_HEARS: Final[Json] = {
    protocol.HEARS_ACCEPTED: True,
    protocol.HEARS_STATE: True,
    protocol.SHOWS_SAID: True,
}
_PROMPT: Final = ("image", "audio", "embeddedContext")
#: the known members of an agent's abilities, by the members of its capabilities that have them.
_KNOWN: Final = {
    "promptCapabilities": _PROMPT,
    "mcpCapabilities": ("http", "sse"),
    "sessionCapabilities": (
        *("list", "resume", "close", "fork", "delete", "additionalDirectories"),
    ),
}
#: capabilities of version 1 that version 2 has not, or tells otherwise.
_NONE: Final = ("auth", "nes", "positionEncoding")


def for_bridge(params: Json) -> Json:
    """Return the client's parameters of `initialize` in version 1. They declare what every client
    of version 2 is able to do, and that it offers the agent neither files nor terminals.
    """
    can = as_object(params.get("capabilities"))
    meta = as_object(can.get("_meta"))
    unknown = unknown_capabilities(can)
    told: Json = {
        **unknown,
        "fs": {"readTextFile": False, "writeTextFile": False},
        "terminal": False,
        "session": {
            **as_object(unknown.get("session")),
            "configOptions": {"boolean": {}},
            "compaction": {},
        },
        "auth": {"terminal": has(can, "auth", "terminal")},
        protocol.SUBAGENTS: {},
        "_meta": meta,
    }
    if isinstance(can.get("elicitation"), dict):
        told["elicitation"] = can["elicitation"]
    told = with_own_meta(told, {**own_meta(can), **_HEARS})
    return {
        **without(params, "info", "capabilities"),
        "protocolVersion": protocol.VERSION,
        "clientInfo": params.get("info"),
        "clientCapabilities": told,
    }


def for_client(result: Json) -> Json:
    """Return the bridge's result of `initialize` in version 2."""
    can = as_object(result.get("agentCapabilities"))
    unknown = {name: _marked(without(as_object(can.get(name)), *_KNOWN[name])) for name in _KNOWN}
    session: Json = {
        **unknown["sessionCapabilities"],
        "prompt": unknown["promptCapabilities"],
        "mcp": {**unknown["mcpCapabilities"], "stdio": {}},
    }
    for name in _PROMPT:
        if has(can, "promptCapabilities", name):
            session["prompt"][name] = {}
    if has(can, "mcpCapabilities", "http"):
        session["mcp"]["http"] = {}
    for name in ("delete", "additionalDirectories"):
        if has(can, "sessionCapabilities", name):
            session[name] = {}
    told: Json = {**without(can, "loadSession", *_KNOWN, *_NONE), "session": session}
    methods = [_method(each) for each in objects(result.get("authMethods"))]
    if methods:
        told["auth"] = {}
    return {
        **without(result, "agentCapabilities", "agentInfo"),
        "protocolVersion": protocol.VERSION_2,
        "info": _info(as_object(result.get("agentInfo"))),
        "capabilities": told,
        "authMethods": methods,
    }


def _marked(can: Json) -> Json:
    """Return abilities of version 1 as version 2 has them: an object for one that is there."""
    there = {name: said for name, said in can.items() if said is not False and said is not None}
    return {name: {} if said is True else said for name, said in there.items()}


def _info(info: Json) -> Json:
    """Return an agent's `info` with a name and a version, which version 2 requires."""
    own = {"name": "acp-bridge", "version": __version__}
    return {**own, **{key: value for key, value in info.items() if isinstance(value, str)}}


def _method(method: Json) -> Json:
    told = renamed(method, "id", "methodId")
    told.setdefault("type", "agent")
    if isinstance(env := told.get("env"), dict):
        told["env"] = [{"name": name, "value": value} for name, value in env.items()]
    return told
