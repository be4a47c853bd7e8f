"""The names under which a model sees the tools of MCP servers: mcp__SERVER__TOOL.

Invariants
- At most LIMIT characters of a-z, A-Z, 0-9, `_` and `-`: what every provider takes.
- No two tools of a session share one, whatever their servers are called. A server's part holds no
  `__` and has no `_` at its ends, so where it ends is plain.
- The same servers and tools have the same names after a reload, where the history speaks of them.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

LIMIT = 64
#: of them for the server
_SERVER_LIMIT = 24
_HASH_LENGTH = 6


def server_parts(names: Sequence[str]) -> list[str]:
    """The part of each server in its tools' names, in order."""
    parts: list[str] = []
    for name in names:
        part, count = _server_part(name), 1
        while part in parts:
            count += 1
            part = _server_part(f"{name} {count}")
        parts.append(part)
    return parts


def tool_names(server: str, tools: Sequence[str]) -> dict[str, str]:
    """Full name -> the server's own; `server` comes from `server_parts`. Doubles are left out."""
    prefix = f"mcp__{server}__"
    names: dict[str, str] = {}
    # A name that can stay as it is goes before one that is made to look like it.
    for tool in sorted(dict.fromkeys(tools), key=lambda tool: _clean(tool) != tool):
        names.setdefault(prefix + _fitted(tool, _clean(tool), LIMIT - len(prefix)), tool)
    return names


def _server_part(name: str) -> str:
    clean = re.sub(r"[^a-zA-Z0-9-]+", "_", name).strip("_") or "server"
    return _fitted(name, clean, _SERVER_LIMIT)


def _clean(tool: str) -> str:
    return re.sub(r"[^a-zA-Z0-9_-]", "_", tool)


def _fitted(name: str, clean: str, room: int) -> str:
    """`clean`, if it is all that there is to `name`; else with a hash of the name at its end."""
    if clean == name and len(clean) <= room:
        return clean
    mark = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH_LENGTH]
    return f"{clean[: room - _HASH_LENGTH - 1].rstrip('_')}_{mark}"
