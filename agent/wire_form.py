"""The JSON form in which models of the ACP and MCP SDKs go over the wire."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel


def wire_form(model: BaseModel) -> dict[str, Any]:
    """Returns a model as JSON with the protocol's names, without members that are None."""
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)
