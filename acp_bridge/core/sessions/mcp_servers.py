"""Reads the list of MCP servers that a client gives with a session, in whatever form it comes.

An editor in Lua writes an empty list as `{}`, and others write `env` and `headers` as objects. What
is understood is put into the protocol's form; agents get nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from acp_bridge.core.protocol import Json
from acp_bridge.core.runtime.log import event

#: the members of a server that are lists of objects with a name and a value.
_PAIRS: Final = ("env", "headers")
#: names that other programs have for the type `http`.
_HTTP: Final = re.compile(r"(streamable)?[-_ ]?http(s|[-_ ]?stream(able)?)?", re.IGNORECASE)


def read(given: object) -> list[Any] | None:
    """Return the servers in the protocol's form; None if `given` is no list of any form.

    The log says what was put into that form, by the names of members alone.
    """
    if given is None:
        return []
    if isinstance(given, dict):
        _log("mcpServers")
        if isinstance(given.get("command", given.get("url")), str):
            given = [given]
        else:
            named = [(name, each) for name, each in given.items() if isinstance(each, dict)]
            given = [{"name": name, **each} for name, each in named]
    return [_server(each) for each in given] if isinstance(given, list) else None


def _log(what: str) -> None:
    event("client.mended", what=what)


def _server(server: Any) -> Any:
    if not isinstance(server, dict):
        return server
    told: Json = dict(server)
    for name in _PAIRS:
        if name in told and not _is_pairs(told[name]):
            told[name] = [*_pairs(told[name])]
            _log(name)
    if isinstance(told.get("args"), str):
        told["args"] = [told["args"]]
        _log("args")
    elif "args" in told and not isinstance(told["args"], list):
        told["args"] = []
        _log("args")
    if told.get("command", "") is None:
        del told["command"]
    kind = told.get("type")
    remote = isinstance(told.get("url"), str) and "command" not in told
    if remote and (kind is None or (isinstance(kind, str) and _HTTP.fullmatch(kind))):
        if kind != "http":
            told["type"] = "http"
            _log("type")
        told.setdefault("headers", [])
    elif "command" in told and kind in (None, "stdio"):
        if kind is None:
            told.pop("type", None)
        told.setdefault("args", [])
        told.setdefault("env", [])
    return told


def _is_pairs(value: object) -> bool:
    return isinstance(value, list) and all(
        isinstance(each, dict) and isinstance(each.get("value"), str) for each in value
    )


def _pairs(value: Any) -> Iterator[Json]:
    """Yield the names and values of variables or headers that came in another form."""
    if isinstance(value, dict):
        value = [{"name": name, "value": each} for name, each in value.items()]
    for each in value if isinstance(value, list) else []:
        if isinstance(each, str) and "=" in each:
            name, _, text = each.partition("=")
            yield {"name": name, "value": text}
        elif isinstance(each, dict) and isinstance(each.get("name"), str):
            given = each.get("value")
            if given is not None:
                text = str(given).lower() if isinstance(given, bool) else str(given)
                yield {**each, "value": text}
