"""What the bridge does with each name of a schema: it understands it, passes it on, or neither.

- It understands a method or a kind of update if its code has that name as a string.
- It understands a capability if a module that reads or makes capabilities has its name, and the
  other side is told of it. It passes on any other capability that the other side is told of. What
  that side is told is tried out.
"""

from __future__ import annotations

import ast
from enum import StrEnum
from functools import cache, reduce
from pathlib import Path
from typing import Final, cast

from acp_bridge.core.clients import handshake
from acp_bridge.core.protocol import as_object
from acp_bridge.versions import agent_handshake, greeting_to_v2
from tests.schemas.names import Json, Names
from tests.support.sources import modules, tree


class Does(StrEnum):
    """What the bridge does with something that one side says."""

    UNDERSTANDS = "understood"
    PASSES = "passed on"
    NEITHER = "neither"


#: the sides whose methods are passed on without being known, in either version.
_METHODS_PASSED: Final = ("agent", "client", "protocol")
#: names a method only to say who may ask for it.
_RIGHTS: Final = "acp_bridge.core.clients.rights"
#: names of capabilities that those modules have for something else.
_OTHERWISE: Final = frozenset({"mode", "plan", "status", "title"})
_INFO: Final = {"name": "x", "version": "1"}


def judged(version: int, names: Names) -> dict[str, dict[str, Does]]:
    """Return, by kind of name, what the bridge does with each one; members are not judged."""
    found = {
        "methods": {name: _method(name) for name in names.methods},
        "kinds of update": {name: _update(name) for name in names.updates},
        "capabilities": {name: _capability(version, name) for name in names.capabilities},
    }
    return {kind: dict(sorted(of_kind.items())) for kind, of_kind in found.items()}


def _method(name: str) -> Does:
    side, method = name.split()
    if method in _strings(without=_RIGHTS):
        return Does.UNDERSTANDS
    return Does.PASSES if side in _METHODS_PASSED else Does.NEITHER


def _update(name: str) -> Does:
    return Does.UNDERSTANDS if name in _strings() else Does.PASSES


def _capability(version: int, name: str) -> Does:
    side, path = name.split()
    if not _arrives(version, side, path.split(".")):
        return Does.NEITHER
    name = path.rpartition(".")[2]
    return Does.UNDERSTANDS if name in _of_capabilities() - _OTHERWISE else Does.PASSES


def _arrives(version: int, side: str, path: list[str]) -> bool:
    """Return True if the other side of the bridge is told a capability."""
    only: Json = reduce(lambda inner, member: {member: inner}, reversed(path), cast("Json", {}))
    can = {"loadSession": True, **only}  # a fork is offered only where sessions can be loaded
    told = _told_to_client(version, can) if side == "agent" else _told_to_agent(version, can)
    for member in path:
        if told.get(member) in (None, False):
            return False
        told = as_object(told[member])
    return True


def _told_to_client(version: int, can: Json) -> Json:
    if version == 1:
        return as_object(handshake.for_client({"agentCapabilities": can}, {})["agentCapabilities"])
    said = {"capabilities": can, "info": _INFO, "authMethods": [{"methodId": "x", "type": "agent"}]}
    inner = handshake.for_client(agent_handshake.initialized_to_v1(said), {})
    return as_object(greeting_to_v2.for_client(inner)["capabilities"])


def _told_to_agent(version: int, can: Json) -> Json:
    if version == 1:
        return as_object(handshake.for_agent({"clientCapabilities": can})["clientCapabilities"])
    inner = handshake.for_agent(greeting_to_v2.for_bridge({"capabilities": can, "info": _INFO}))
    return as_object(agent_handshake.initialize_to_v2(inner)["capabilities"])


@cache
def _strings(without: str = "") -> frozenset[str]:
    """Return all strings of the bridge's code, but for docstrings."""
    known = modules("acp_bridge").items()
    return frozenset(each for name, path in known if name != without for each in _in(path))


@cache
def _of_capabilities() -> frozenset[str]:
    """Return the strings of the modules that read or make capabilities."""
    known = modules("acp_bridge")
    found = {name: _in(path) for name, path in known.items()}
    about = [each for each in found.values() if any(w.endswith("apabilities") for w in each)]
    return frozenset[str]().union(*about, found["acp_bridge.core.clients.abilities"])


@cache
def _in(path: Path) -> frozenset[str]:
    parts = [*ast.walk(tree(path))]
    said = {id(node.value) for node in parts if isinstance(node, ast.Expr)}
    return frozenset(
        node.value
        for node in parts
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in said
    )
