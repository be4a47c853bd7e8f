"""The names of a schema, what the bridge does with them, and the table that says so."""

import pytest

from tests.schemas import fixtures, table
from tests.schemas.known import Does, judged
from tests.schemas.names import Json, Names, names_of

SCHEMA: Json = {
    "$defs": {
        "PingRequest": {"x-method": "ping", "x-side": "agent", "properties": {"text": {}}},
        "SessionUpdate": {
            "anyOf": [
                {"properties": {"sessionUpdate": {"const": "pong"}}},
                {"properties": {"sessionUpdate": {"type": "string"}}},
            ]
        },
        "AgentCapabilities": {
            "properties": {
                "_meta": {},
                "plain": {"type": "boolean"},
                "deep": {"anyOf": [{"$ref": "#/$defs/DeepCapabilities"}, {"type": "null"}]},
            }
        },
        "DeepCapabilities": {"properties": {"_meta": {}, "inner": {}}},
        "ClientCapabilities": {},
    }
}


def test_a_schema_s_names_are_its_methods_updates_innermost_capabilities_and_members() -> None:
    assert names_of(SCHEMA) == Names(
        frozenset({"agent ping"}),
        frozenset({"pong"}),
        frozenset({"agent plain", "agent deep.inner"}),
        frozenset(
            {"PingRequest.text", "DeepCapabilities._meta", "DeepCapabilities.inner"}
            | {f"AgentCapabilities.{name}" for name in ("_meta", "plain", "deep")}
        ),
    )


def test_a_name_that_one_schema_lacks_is_the_difference() -> None:
    names = names_of(SCHEMA)
    assert (names - names).lines() == []
    assert (names - Names(updates=names.updates)).updates == frozenset()
    assert "methods: agent ping" in (names - Names()).lines()
    assert Names.of_json(names.as_json()) == names


@pytest.mark.parametrize(
    ("version", "names", "does"),
    [
        (1, Names(methods=frozenset({"agent session/prompt"})), Does.UNDERSTANDS),
        (1, Names(methods=frozenset({"agent nobody/knows"})), Does.PASSES),
        (2, Names(methods=frozenset({"agent nobody/knows"})), Does.PASSES),
        (1, Names(methods=frozenset({"proxy proxy/x"})), Does.NEITHER),
        (1, Names(updates=frozenset({"tool_call"})), Does.UNDERSTANDS),
        (1, Names(updates=frozenset({"nobody_knows"})), Does.PASSES),
        (1, Names(capabilities=frozenset({"agent sessionCapabilities.fork"})), Does.UNDERSTANDS),
        (1, Names(capabilities=frozenset({"client elicitation.form"})), Does.UNDERSTANDS),
        (1, Names(capabilities=frozenset({"client nobodyKnows"})), Does.PASSES),
        (2, Names(capabilities=frozenset({"agent session.prompt.image"})), Does.UNDERSTANDS),
        (2, Names(capabilities=frozenset({"agent nobodyKnows"})), Does.PASSES),
        (2, Names(capabilities=frozenset({"agent session.archive"})), Does.NEITHER),
    ],
)
def test_what_the_bridge_does_with_a_name_is_told_from_its_code(
    version: int, names: Names, does: Does
) -> None:
    assert [*judged(version, names).values()].count({}) == 2
    assert [each for of in judged(version, names).values() for each in of.values()] == [does]


def test_the_stable_schemas_of_both_versions_are_those_of_one_sdk_and_no_draft_is_in_them() -> None:
    assert all(fixtures.source())
    for version in fixtures.VERSIONS:
        assert (fixtures.drafts(version) - fixtures.stable(version)) == fixtures.drafts(version)


def test_the_table_in_the_document_is_that_of_the_kept_schemas() -> None:
    assert table.written() == table.table(), "run make schemas"
