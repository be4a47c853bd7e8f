"""A field for each attack."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import anyio
import pytest

from tests.attacks.field import ATTACKER, Field
from tests.support.rights import for_commoner
from tests.support.waiting import until
from tests.whole.tiny_agent import tiny_agent

_ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def interpreters(whole_starts: None) -> None:
    """What an attack finds is of processes with interpreters of their own."""


@pytest.fixture
def field() -> Iterator[Field]:
    with a_field() as made:
        yield made


@contextmanager
def a_field() -> Iterator[Field]:
    """Make a field; it is removed at the end of the block."""
    folder = for_commoner(Path(tempfile.mkdtemp(prefix="field-")))
    own = {
        "ACP_BRIDGE_HOME": str(folder / "home"),
        "PYTHONPATH": str(_ROOT),
        "HOME": str(folder),
        "FIELD": str(os.getpid()),
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("ACP_BRIDGE_DEBUGGABLE")
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
