"""What our own readers read of MCP is compared with the SDK's models, so what they gain is seen."""

from pathlib import Path

import mcp_types
import pytest

from tests.support.read_by_us import ReadByUs

LIST = ReadByUs(Path(__file__).parent / "read_by_us.json")


@pytest.mark.parametrize("name", LIST.models)
def test_the_sdk_s_models_have_the_members_that_are_listed(name: str) -> None:
    LIST.compare(mcp_types, name)


def test_the_kinds_of_content_are_those_that_are_listed() -> None:
    kinds = {kind.__name__ for kind in mcp_types.ContentBlock.__args__}
    assert kinds <= set(LIST.models)


def test_the_list_was_compared_with_the_version_that_is_installed() -> None:
    LIST.compare_version()
