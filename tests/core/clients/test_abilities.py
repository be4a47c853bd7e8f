"""What a client said that it can do decides what reaches it, and in which form."""

from typing import Any

import pytest

from acp_bridge.core.clients.abilities import ClientAbilities

Json = dict[str, Any]
SELECT: Json = {"id": "s", "type": "select"}
BOOLEAN: Json = {"id": "b", "type": "boolean"}


@pytest.mark.parametrize(
    ("declared", "able"),
    [
        (None, False),
        ([], False),
        ({}, False),
        ({"terminal": False}, False),
        ({"terminal": None}, False),
        ({"terminal": True}, True),
        ({"terminal": {}}, True),
    ],
)
def test_a_capability_is_a_true_flag_or_an_object(declared: object, able: bool) -> None:
    abilities = ClientAbilities(declared)
    assert abilities.has("terminal") is able
    assert abilities.allows("terminal/create", {}) is able
    assert not abilities.has("terminal", "deeper")


@pytest.mark.parametrize(
    ("method", "capabilities"),
    [
        ("fs/read_text_file", {"fs": {"readTextFile": True}}),
        ("fs/write_text_file", {"fs": {"writeTextFile": True}}),
        ("terminal/output", {"terminal": True}),
        ("terminal/not_known_yet", {"terminal": True}),
    ],
)
def test_a_method_needs_its_own_capability_and_no_other(method: str, capabilities: Json) -> None:
    others: Json = {"fs": {}, "terminal": False, "elicitation": {"form": {}}}
    assert ClientAbilities(capabilities).allows(method, {})
    assert not ClientAbilities(others).allows(method, {})
    assert not ClientAbilities().allows(method, {})


@pytest.mark.parametrize(
    ("params", "reaches"),
    [
        ({"mode": "form"}, True),
        ({"mode": "url"}, False),
        ({"mode": ["form"]}, False),
        ({}, False),
        (None, False),
    ],
)
def test_a_question_reaches_a_client_that_knows_its_mode(params: object, reaches: bool) -> None:
    abilities = ClientAbilities({"elicitation": {"form": {}}})
    assert abilities.allows("elicitation/create", params) is reaches


def test_what_needs_no_capability_always_reaches_the_client() -> None:
    for method in ("session/request_permission", "_x/y", "fs/not_known_yet"):
        assert ClientAbilities().allows(method, {})


def test_boolean_options_are_left_out_for_a_client_that_does_not_know_them() -> None:
    told = {"configOptions": [SELECT, BOOLEAN, "odd"], "x": 1}
    shown = ClientAbilities({}).fit(told)
    assert shown == {"configOptions": [SELECT, "odd"], "x": 1}
    assert told["configOptions"] == [SELECT, BOOLEAN, "odd"]
    knows = ClientAbilities({"session": {"configOptions": {"boolean": {}}}})
    assert knows.fit(told) is told


def test_what_has_no_list_of_options_stays_as_it_is() -> None:
    for told in ({}, {"configOptions": None}, {"configOptions": "none"}):
        assert ClientAbilities().fit(told) is told
