"""The schema of ACP version 1."""

import json
from functools import cache
from pathlib import Path

from tests.clients_not_ours.judge import Schema

_FOLDER = Path(__file__).parents[2] / "fixtures" / "acp-v1"


@cache
def v1_schema() -> Schema:
    """Return the schema of each definition, by its name."""
    return Schema(json.loads((_FOLDER / "schema.json").read_text()))
