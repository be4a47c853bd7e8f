"""A field for each attack."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.attacks.field import ATTACKER, Field
from tests.process.tiny_agent import tiny_agent
from tests.support.rights import for_commoner

_ROOT = Path(__file__).parents[2]


@pytest.fixture
def field(monkeypatch: pytest.MonkeyPatch) -> Iterator[Field]:
    monkeypatch.delenv("ACP_BRIDGE_DEBUGGABLE")
    with tempfile.TemporaryDirectory(prefix="field-") as name:
        folder = for_commoner(Path(name))
        own = {
            "ACP_BRIDGE_HOME": str(folder / "home"),
            "PYTHONPATH": str(_ROOT),
            "HOME": name,
            "FIELD": str(os.getpid()),
        }
        yield Field(folder, own, tiny_agent(folder, ATTACKER))
