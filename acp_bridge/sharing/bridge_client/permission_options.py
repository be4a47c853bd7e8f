"""The options of a permission that the bridge asks for, and the answer that selects one."""

from __future__ import annotations

from typing import Any

from acp_bridge.core.protocol import Json


def options_of(params: Json) -> list[Json]:
    """Return the well-formed options of a permission request."""
    given = params.get("options")
    return [
        option
        for option in (given if isinstance(given, list) else [])
        if isinstance(option, dict) and isinstance(option.get("optionId"), str)
    ]


def selected(option_id: str) -> dict[str, Any]:
    """Return the result of a permission request that selects an option."""
    return {"outcome": {"outcome": "selected", "optionId": option_id}}
