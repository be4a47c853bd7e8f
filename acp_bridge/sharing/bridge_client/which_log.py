"""Adds the path of the log to errors that name an entry of it: on the wire there is only an id."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

from acp_bridge.core.wire.jsonrpc import Answer, Err, RpcError

#: what `acp_bridge.core.errors` and the built-in agent's errors say.
_NAMED: Final = re.compile(r"the log has more under id [0-9a-f]+", re.IGNORECASE)


def with_log(answer: Answer, log: Path) -> Answer:
    """Return an answer; in an error that names an entry of the log, the path of `log` is added."""
    if not isinstance(answer, Err) or not _NAMED.search(answer.error.message):
        return answer
    error = answer.error
    return Err(RpcError.received(error.code, _named(error.message, log), _named(error.data, log)))


def _named(value: Any, log: Path) -> Any:
    match value:
        case str():
            return _NAMED.sub(lambda found: f"{found[0]}: {log}", value)
        case {"details": str(details)}:
            return {**value, "details": _named(details, log)}
    return value
