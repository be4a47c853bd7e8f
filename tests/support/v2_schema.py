"""The schema of ACP version 2 with what Preview adds, and a judge of one connection by it."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

from acp_bridge.core.protocol import Json
from tests.clients_not_ours.judge import Connection, Refused, Schema, Side

_FOLDER = Path(__file__).parents[2] / "fixtures" / "acp-v2"
#: kinds of updates that version 1 has and version 2 has not: its schema takes any unknown kind.
_OLD_KINDS = frozenset({"tool_call", "plan", "plan_removed", "current_mode_update"})
#: what version 1 tells in `initialize` under other names.
_OLD_HELLO = frozenset({"clientInfo", "clientCapabilities"})


#: what a client of version 2 says that can no more than each of them.
HELLO: Json = {"protocolVersion": 2, "info": {"name": "editor", "version": "1"}, "capabilities": {}}


@cache
def v2_schema() -> Schema:
    """Return the schema of each definition, by its name."""
    whole = extended(_FOLDER / "schema.json", _FOLDER / "preview.json", _FOLDER / "quotas.json")
    whole["$defs"]["ErrorData"] = {
        "additionalProperties": True
    }  # what an error has there more is anybody's own
    return Schema(whole)


def extended(schema: Path, *added: Path) -> Json:
    """Return a schema with the definitions, members and variants that other files add to it."""
    whole: Json = json.loads(schema.read_text())
    for name, more in (item for each in added for item in json.loads(each.read_text()).items()):
        known = whole["$defs"].setdefault(name, more)
        if known is more:
            continue
        known.setdefault("properties", {}).update(more.get("properties", {}))
        for word in ("anyOf", "oneOf"):
            _add_variants(known.get(word, []), more.get(word, []))
    return whole


def _add_variants(known: list[Json], more: list[Json]) -> None:
    """Add variants, none of which is an unknown one any longer."""
    for variant in known:
        if variant.get("title") == "other":
            parts = ("type", "properties", "required")
            variant["not"]["anyOf"] += [{part: each[part] for part in parts} for each in more]
    known += more


def without_old(hello: Json) -> Json:
    """Return the parameters of an `initialize` without what version 1 calls otherwise."""
    return {name: hello[name] for name in hello if name not in _OLD_HELLO}


class V2Connection:
    """Judges every message of one connection, in both directions."""

    def __init__(self, *, whole: bool = False) -> None:
        """`whole`: from its first message on, so no session is named before it is known."""
        self._judged = Connection(v2_schema())
        self._whole = whole
        #: the sessions that the client has asked for, or was told of.
        self._sessions: set[str] = set()

    def judge(self, sender: Side, message: Json) -> None:
        """Take the next message; raises `Refused` for one that breaks version 2."""
        match message:
            case {"method": "session/update", "params": {"update": {"sessionUpdate": kind}}}:
                if kind in _OLD_KINDS:
                    raise Refused(f"{kind} is an update of version 1")
            case {"method": "initialize", "params": {"protocolVersion": 2}}:
                # Whoever has version 1 alone is told of the client, too.
                message = {**message, "params": without_old(message["params"])}
        self._judged.judge(sender, json.dumps(message))
        if self._whole:
            self._judge_names(sender, message)

    def _judge_names(self, sender: Side, message: Json) -> None:
        """Take the sessions that a message names: one of the agent's was opened or announced."""
        match message:
            case {"params": {"sessionId": session_id}} if sender == "client":
                self._sessions.add(session_id)
            case {"params": {"sessionId": session_id}} if session_id not in self._sessions:
                raise Refused(f"nobody has opened or announced {session_id}")
            case {"result": {"sessionId": session_id}}:
                self._sessions.add(session_id)
        match message:
            case {"params": {"update": {"sessionUpdate": "subagent_update", "sessionId": child}}}:
                self._sessions.add(child)
