"""The names under which a model gets the tools of MCP servers: mcp__SERVER__TOOL.

Invariants
- A name has at most LIMIT characters of a-z, A-Z, 0-9, `_` and `-`, which every provider accepts.
- No two tools of a session share a name, whatever their servers are called. A server's part
  contains no `__` and has no `_` at its ends, so it is clear where it ends.
- The same servers and tools have the same names after a reload, because the history has them.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

LIMIT = 64
#: how many characters of a name the server's part may have
_SERVER_LIMIT = 24
_HASH_LENGTH = 6


def server_parts(names: Sequence[str]) -> list[str]:
    """Returns for each server, in order, the SERVER part of its tools' names; all parts differ."""
    parts: list[str] = []
    for name in names:
        part, count = _server_part(name), 1
        while part in parts:
            count += 1
            part = _server_part(f"{name} {count}")
        parts.append(part)
    return parts


def tool_names(server: str, tools: Sequence[str]) -> dict[str, str]:
    """Returns the server's own name of each tool, by the name that the model gets.

    `server` comes from `server_parts`. A tool that is listed twice is there once.
    """
    prefix = f"mcp__{server}__"
    names: dict[str, str] = {}
    # Names that need no change come first, so that a changed one can't take their place.
    for tool in sorted(dict.fromkeys(tools), key=lambda tool: _clean(tool) != tool):
        names.setdefault(prefix + _fitted(tool, _clean(tool), LIMIT - len(prefix)), tool)
    return names


def _server_part(name: str) -> str:
    clean = re.sub(r"[^a-zA-Z0-9-]+", "_", name).strip("_") or "server"
    return _fitted(name, clean, _SERVER_LIMIT)


def _clean(tool: str) -> str:
    return re.sub(r"[^a-zA-Z0-9_-]", "_", tool)


def _fitted(name: str, clean: str, room: int) -> str:
    """Returns `clean` if it equals `name` and has at most `room` characters.

    Otherwise returns `clean`, cut, with a hash of `name` at its end.
    """
    if clean == name and len(clean) <= room:
        return clean
    mark = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH_LENGTH]
    return f"{clean[: room - _HASH_LENGTH - 1].rstrip('_')}_{mark}"


def identity(spec: Mapping[str, Any], cwd: Path) -> str:
    """Returns a digest of a server's start, which tells it from another server of the same name.

    Values of variables and headers are left out, because they may be secret and may change.
    """
    told = [spec.get(name) for name in ("type", "command", "args", "url")]
    where = str(cwd) if "command" in spec else ""
    variables = sorted(str(pair.get("name")) for pair in spec.get("env") or ())
    whole = json.dumps([*told, where, variables], sort_keys=True, default=str)
    return hashlib.sha256(whole.encode(errors="replace")).hexdigest()[:32]
