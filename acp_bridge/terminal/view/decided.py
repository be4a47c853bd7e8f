"""The decision about a tool call (`_meta.acp_bridge.decided`) as a sentence."""

from __future__ import annotations

from typing import Any, Final

from acp_bridge.core.protocol import Json
from acp_bridge.terminal.view.block_text import one_line

_DECISIONS: Final = {"allow": "Allowed", "deny": "Denied", "cancelled": "Cancelled"}
_BY: Final = {
    "rule": "by a rule",
    "default": "by the default of the rules",
    "unattended": "since nobody was there",
    "hook": "by a hook",
    "client": "by a person",
    "withdrawn": "since no client was left to answer",
    "stop": "by a Stop",
    "agent": "by the agent itself",
}


def sentence(decided: Json) -> str:
    """Return a decision as a sentence: what, by whom, and for how long."""
    said = _DECISIONS.get(_word(decided.get("decision")), "Decided")
    by = _BY.get(_word(decided.get("by")), "")
    name, option = decided.get("name"), _word(decided.get("option"))
    rules = decided.get("rules")
    more = [f"token {one_line(name)}"] if isinstance(name, str) else []
    more += ["always"] if option.endswith("_always") else []
    more += [one_line(each) for each in rules if each] if isinstance(rules, list) else []
    return f"{said} {by}".strip() + (f" ({', '.join(more)})" if more else "")


def _word(value: Any) -> str:
    return value if isinstance(value, str) else ""
