"""The JSON form in which models of the ACP and MCP SDKs go over the wire."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel


def wire_form(model: BaseModel) -> dict[str, Any]:
    """Returns the model with the protocol's own names, without the fields that are None."""
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)
