"""What the bridge reads of ACP is compared with the SDK's models, so what they gain is seen.

In read_by_us.json a member is `read` if a reader of ours names it. One that is `left` passes as it
came.
"""

import importlib
import re
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

import pytest

from tests.support.read_by_us import ReadByUs

LIST = ReadByUs(Path(__file__).parent / "read_by_us.json")
CORE = Path(__file__).parents[3] / "acp_bridge"


@pytest.fixture(scope="module")
def schema() -> ModuleType:
    """The SDK's models. Only a worker that runs these tests imports them: that takes a second."""
    return importlib.import_module("acp.schema")


def kinds_in(model: type[Any], member: str) -> set[str]:
    """Return the names of the models that a member of a model may be."""
    (union,) = {model.model_fields[member].annotation}
    return {each.__name__ for each in get_args(union) if hasattr(each, "model_fields")}


@pytest.mark.parametrize("name", LIST.models)
def test_the_sdk_s_models_have_the_members_that_are_listed(schema: ModuleType, name: str) -> None:
    LIST.compare(schema, name)


def test_the_kinds_of_updates_are_those_that_are_listed(schema: ModuleType) -> None:
    kinds = kinds_in(schema.SessionNotification, "update")
    assert len(kinds) > 10
    assert kinds <= set(LIST.models)


def test_every_member_that_is_said_to_be_read_is_named_in_the_source() -> None:
    source = "\n".join(path.read_text("utf-8") for path in CORE.rglob("*.py"))
    named = set(re.findall(r"[\"'](\w+)[\"']", source))
    read = {member for model in LIST.listed["models"].values() for member in model["read"]}
    assert read <= named


def test_the_list_was_compared_with_the_version_that_is_installed() -> None:
    LIST.compare_version()
