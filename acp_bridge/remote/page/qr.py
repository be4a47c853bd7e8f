"""A QR code for a terminal."""

from __future__ import annotations

import io
from importlib import import_module
from typing import Any


def drawn(text: str) -> str:
    """Return a QR code of a text in block characters; "" if the package `segno` is missing."""
    try:
        segno: Any = import_module("segno")
    except ImportError:
        return ""
    out = io.StringIO()
    segno.make(text, error="m", micro=False).terminal(out, compact=True)
    return out.getvalue() + "\n"
