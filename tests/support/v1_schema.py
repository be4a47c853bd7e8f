"""The schema of ACP version 1, with its subagents and the proposed quotas."""

from functools import cache
from pathlib import Path

from tests.clients_not_ours.judge import Schema
from tests.support.v2_schema import extended

_FOLDER = Path(__file__).parents[2] / "fixtures" / "acp-v1"
#: what the proposal of quotas adds, which no published schema has.
QUOTAS_OF_V1 = _FOLDER / "quotas.json"


@cache
def v1_schema() -> Schema:
    """Return the schema of each definition, by its name."""
    return Schema(extended(_FOLDER / "schema.json", _FOLDER / "subagents.json", QUOTAS_OF_V1))
