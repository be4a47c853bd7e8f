"""What our own readers read of MCP is compared with the SDK's models, so what they gain is seen."""

import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

import mcp_types
import pytest

#: the members of each model that our readers read, and those that they leave; with the version of
#: the SDK's models that this was compared with
LISTED: dict[str, Any] = json.loads((Path(__file__).parent / "read_by_us.json").read_text("utf-8"))


@pytest.mark.parametrize("name", LISTED["models"])
def test_the_sdk_s_models_have_the_members_that_are_listed(name: str) -> None:
    fields = getattr(mcp_types, name).model_fields
    members = {field.alias or member for member, field in fields.items()}
    listed = LISTED["models"][name]
    assert members == {*listed["read"], *listed["left"]}, (
        f"{name} of {LISTED['package']} {version(LISTED['package'])} has other members than"
        f" {LISTED['version']}: read or leave them, and list them in read_by_us.json"
    )


def test_the_kinds_of_content_are_those_that_are_listed() -> None:
    kinds = {kind.__name__ for kind in mcp_types.ContentBlock.__args__}
    assert kinds <= set(LISTED["models"])


def test_the_list_was_compared_with_the_version_that_is_installed() -> None:
    assert version(LISTED["package"]) == LISTED["version"]
