"""Files of the official SDK, read without its package, whose models take a second to import."""

import runpy
from importlib.util import find_spec
from pathlib import Path
from typing import Any


def path(name: str) -> Path:
    """Where a module of the SDK stands."""
    spec = find_spec("acp")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).with_name(f"{name}.py")


#: the names of `acp.meta`: the methods of both sides, and the version.
META: dict[str, Any] = runpy.run_path(str(path("meta")))
