"""A field for each attack."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import anyio
import pytest

from tests.attacks.field import ATTACKER, Field
from tests.support.rights import for_commoner
from tests.support.waiting import until
from tests.whole.tiny_agent import tiny_agent

_ROOT = Path(__file__).parents[2]


@pytest.fixture
def field(monkeypatch: pytest.MonkeyPatch) -> Iterator[Field]:
    monkeypatch.delenv("ACP_BRIDGE_DEBUGGABLE")
    folder = for_commoner(Path(tempfile.mkdtemp(prefix="field-")))
    own = {
        "ACP_BRIDGE_HOME": str(folder / "home"),
        "PYTHONPATH": str(_ROOT),
        "HOME": str(folder),
        "FIELD": str(os.getpid()),
    }
    try:
        yield Field(folder, own, tiny_agent(folder, ATTACKER))
    finally:
        anyio.run(until, partial(_removed, folder))


def _removed(folder: Path) -> bool:
    """Remove a field; a bridge that ends with its terminal may still write there for a moment."""
    try:
        shutil.rmtree(folder)
    except OSError:
        return False
    return True
