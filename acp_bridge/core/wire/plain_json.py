"""Reads and writes JSON quickly, as long as it is plain. Sans-IO.

Half a surrogate pair, a number beyond a double and what is nested too deep are not plain:
`wire.slow_json` reads these, and `write_any` writes them.
"""

from __future__ import annotations

import json
from typing import Any, Final

from msgspec.json import Decoder, Encoder

from acp_bridge.core.wire.slow_json import MAX_DEPTH, check_depth

#: bytes; what is in so short a text is not nested too deep.
SHALLOW: Final = 2 * MAX_DEPTH
#: returns the value of a JSON text, however deep; raises ValueError or RecursionError.
read_plain: Final = Decoder().decode
#: returns a value as JSON on one line, with a null for an infinity or NaN; raises ValueError,
#: TypeError or RecursionError.
write_plain: Final = Encoder().encode


def write_any(value: Any) -> bytes:
    """Return a value as JSON on one line; an infinity and NaN have their names in JavaScript.

    Raises ValueError, TypeError or RecursionError if the value holds what JSON cannot.
    """
    return json.dumps(value, separators=(",", ":")).encode("ascii")


def plain_loads(line: bytes) -> Any:
    """Return the value of a line that is plain JSON; raises ValueError for any other."""
    try:
        value = read_plain(line)
    except RecursionError as exc:
        raise ValueError("nested too deep") from exc
    if len(line) > SHALLOW and line.count(b"{") + line.count(b"[") > MAX_DEPTH:
        check_depth(value)
    return value
