"""The schema of ACP version 2 with what Preview adds, and a judge of one connection by it."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

from acp_bridge.protocol import Json
from tests.clients_not_ours.judge import Connection, Refused, Schema, Side

_FOLDER = Path(__file__).parents[2] / "fixtures" / "acp-v2"
#: kinds of updates that version 1 has and version 2 has not: its schema takes any unknown kind.
_OLD_KINDS = frozenset({"tool_call", "plan", "plan_removed", "current_mode_update"})
#: what version 1 tells in `initialize` under other names.
_OLD_HELLO = frozenset({"clientInfo", "clientCapabilities"})


@cache
def v2_schema() -> Schema:
    """Return the schema of each definition, by its name."""
    whole = json.loads((_FOLDER / "schema.json").read_text())
    for name, added in json.loads((_FOLDER / "preview.json").read_text()).items():
        known = whole["$defs"][name]
        known.setdefault("properties", {}).update(added.get("properties", {}))
        known.get("anyOf", []).extend(added.get("anyOf", []))
    whole["$defs"]["ErrorData"] = {
        "additionalProperties": True
    }  # what an error has there more is anybody's own
    return Schema(whole)


class V2Connection:
    """Judges every message of one connection, in both directions."""

    def __init__(self) -> None:
        self._judged = Connection(v2_schema())

    def judge(self, sender: Side, message: Json) -> None:
        """Take the next message; raises `Refused` for one that breaks version 2."""
        match message:
            case {"method": "session/update", "params": {"update": {"sessionUpdate": kind}}}:
                if kind in _OLD_KINDS:
                    raise Refused(f"{kind} is an update of version 1")
            case {"method": "initialize", "params": {"protocolVersion": 2, **params}}:
                # Whoever has version 1 alone is told of the client, too.
                told = {name: params[name] for name in params if name not in _OLD_HELLO}
                message = {**message, "params": {"protocolVersion": 2, **told}}
        self._judged.judge(sender, json.dumps(message))
