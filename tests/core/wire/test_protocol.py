"""The words of ACP beside the official SDK's, and what is read and written of `_meta`."""

import ast
import re
from pathlib import Path
from typing import Any

import pytest

from acp_bridge.core import protocol
from tests.core.wire import sdk

Json = dict[str, Any]
PACKAGE = Path(protocol.__file__).parent
CONSTANTS = {
    name: value
    for name, value in vars(protocol).items()
    if name.isupper() and not name.startswith("_") and isinstance(value, str)
}
METHODS = {value for value in CONSTANTS.values() if "/" in value} | {
    "initialize",
    "authenticate",
    "logout",
}
KINDS = (protocol.TRANSCRIPT | set(protocol.STATE)) - {protocol.SAID_UPDATE}


def test_every_method_that_is_named_is_one_of_the_sdk_or_is_left_out_by_it_or_is_ours() -> None:
    known = set(sdk.META["AGENT_METHODS"].values()) | set(sdk.META["CLIENT_METHODS"].values())
    ours = {method for method in METHODS if method.startswith("_acp_bridge/")}
    assert METHODS - known - ours == {
        protocol.CANCEL_REQUEST,
        protocol.STEERING,
        protocol.SET_MODEL,
        protocol.SET_TITLE,
        protocol.QUOTA_READ,
    }


def test_every_kind_of_update_that_the_sdk_knows_is_of_the_conversation_or_a_state() -> None:
    source = sdk.path("schema").read_text()
    known = set(re.findall(r'session_update: Annotated\[Literal\["(\w+)"', source))
    assert known == KINDS
    assert not protocol.TRANSCRIPT & set(protocol.STATE)
    assert set(protocol.MESSAGES) < protocol.TRANSCRIPT


def test_a_tool_call_has_ended_or_it_has_not() -> None:
    (listed,) = re.findall(
        r"(?m)^ToolCallStatus = Literal\[(.+)\]$", sdk.path("schema").read_text()
    )
    assert set(re.findall(r'"(\w+)"', listed)) - set(protocol.ENDED) == {"pending", "in_progress"}


def test_methods_and_kinds_are_named_in_one_file_alone_but_for_the_demo() -> None:
    words = METHODS | KINDS
    quoted = re.compile(f"[\"'](?:{'|'.join(map(re.escape, words))})[\"']")
    found = [
        f"{path.name}:{node.lineno}: {node.value}"
        for path in sorted(PACKAGE.rglob("*.py"))
        if path.name != "protocol.py" and path.parent.name != "demo"
        if quoted.search(source := path.read_text("utf-8"))  # to parse all takes a second
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Constant) and node.value in words
    ]
    assert not found


@pytest.mark.parametrize(
    ("capabilities", "declared"),
    [
        ({"a": {"b": True}}, True),
        ({"a": {"b": {}}}, True),
        ({"a": {"b": {"c": None}}}, True),
        ({"a": {"b": False}}, False),
        ({"a": {"b": None}}, False),
        ({"a": {}}, False),
        ({"a": True}, False),
        ({"a": ["b"]}, False),
        ({}, False),
        (None, False),
        ("a", False),
    ],
)
def test_a_capability_is_declared_as_a_flag_or_an_object(
    capabilities: object, declared: bool
) -> None:
    assert protocol.has(capabilities, "a", "b") is declared


@pytest.mark.parametrize("kind", [*protocol.STATE, *sorted(protocol.TRANSCRIPT), "unknown", None])
def test_only_of_a_state_does_the_last_update_alone_count(kind: str | None) -> None:
    update: Json = {} if kind is None else {"sessionUpdate": kind}
    assert protocol.is_state(update) is (kind in protocol.STATE)


def test_chunks_carry_a_block_as_it_is_and_a_text_under_its_message() -> None:
    block = {"type": "image", "data": "x", "_meta": {"y": None}}
    assert protocol.user_chunk(block) == {
        "sessionUpdate": "user_message_chunk",
        "content": block,
    }
    assert protocol.text_chunk(protocol.AGENT_MESSAGE, "words", "m") == {
        "sessionUpdate": "agent_message_chunk",
        "content": {"type": "text", "text": "words"},
        "messageId": "m",
    }


@pytest.mark.hazard("T3")
@pytest.mark.parametrize(
    "params",
    [{}, {"_meta": None}, {"_meta": []}, {"_meta": {}}, {"_meta": {"other": 1}}, {"x": 1}],
)
def test_where_nothing_is_said_to_the_bridge_the_rest_is_left_as_it_is(params: Json) -> None:
    assert protocol.own_meta(params) == {}
    assert protocol.without_own_meta(params) is params


@pytest.mark.parametrize("odd", [None, "interrupt", ["delivery"], 5])
def test_what_is_said_to_the_bridge_in_an_odd_form_is_nothing(odd: Any) -> None:
    params = {"_meta": {"acp_bridge": odd}}
    assert protocol.own_meta(params) == {}
    assert protocol.without_own_meta(params) == {}


@pytest.mark.hazard("T3")
def test_what_is_said_to_the_bridge_is_read_and_kept_from_the_agent() -> None:
    own = {"delivery": "interrupt"}
    params = {"x": 1, "_meta": {"other": {"kept": None}, "acp_bridge": own}}
    assert protocol.own_meta(params) == own
    assert protocol.without_own_meta(params) == {"x": 1, "_meta": {"other": {"kept": None}}}
    assert protocol.without_own_meta({"x": 1, "_meta": {"acp_bridge": own}}) == {"x": 1}
    assert params["_meta"] == {"other": {"kept": None}, "acp_bridge": own}


@pytest.mark.hazard("T3")
@pytest.mark.parametrize(
    ("meta", "kept"),
    [
        ({"_meta": {"other": 1}}, {"other": 1}),
        ({"_meta": None}, {}),
        ({"_meta": "odd"}, {}),
        ({}, {}),
    ],
)
def test_what_the_bridge_says_stands_beside_what_the_agent_says(meta: Json, kept: Json) -> None:
    holder = {"x": [1, None], **meta}
    before = dict(holder)
    said = protocol.with_own_meta(holder, {"notice": True})
    assert said == {"x": [1, None], "_meta": {**kept, "acp_bridge": {"notice": True}}}
    assert holder == before
