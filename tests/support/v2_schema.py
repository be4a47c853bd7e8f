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
    }  # it is any value: the schema only names two of them
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
        self._judged.judge(sender, json.dumps(message))
