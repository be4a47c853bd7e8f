"""The log has one line for each event, with session and turn, and nothing secret in it.

The protocol has stdout, so the log goes to stderr or to `--log-file`. What users and models
write, and what an agent prints, is never logged below the level `debug`.
"""

from __future__ import annotations

import logging
import os
import re
import select
import sys
from contextlib import suppress
from pathlib import Path

logger = logging.getLogger("acp_bridge")

_SECRET = re.compile(
    r"(?i)((?:api[-_]?key|token|secret|password|authorization|bearer)[\"']?\s*[:=]?\s*[\"']?)"
    r"([A-Za-z0-9_\-./+=]{8,})|\b(sk-[A-Za-z0-9_\-]{8,})"
)
#: Events with text that an agent wrote: they are logged at the level `debug` only.
_QUIET = frozenset({"agent.stderr", "agent.noise"})


def masked(text: str) -> str:
    """Return the text with everything that looks like a key masked (invariant K5)."""
    return _SECRET.sub(lambda found: f"{found[1] or ''}***", text)


def event(name: str, **fields: object) -> None:
    """Log one event: `name key=value ...`; fields that are None are left out."""
    level = logging.DEBUG if name in _QUIET else logging.INFO
    if logger.isEnabledFor(level):
        told = " ".join(
            f"{key}={_word(value)}" for key, value in fields.items() if value is not None
        )
        logger.log(level, "%s %s", name, told)


def _word(value: object) -> str:
    text = masked(str(value))
    return repr(text) if not text or any(char.isspace() for char in text) else text


class _Formatter(logging.Formatter):
    """Formats one line for each event, whatever text is in it."""

    def format(self, record: logging.LogRecord) -> str:
        return masked(super().format(record)).replace("\n", "\\n")


class StderrHandler(logging.Handler):
    """Writes to stderr what it has room for, and drops the rest.

    Many clients never read the stderr of what they start. Were its pipe waited for when it is full,
    the event loop would stop for good, and no cancel would come through (invariant C4).
    """

    def __init__(self, fd: int) -> None:
        super().__init__()
        self._fd = fd
        self._room = select.poll()
        self._room.register(fd, select.POLLOUT)
        #: the last line was not written to its end.
        self._cut = False

    def emit(self, record: logging.LogRecord) -> None:
        line = f"{self.format(record)}\n".encode(errors="backslashreplace")
        rest = whole = b"\n" + line if self._cut else line
        with suppress(OSError):  # nobody has the other end any more
            while rest and self._room.poll(0):
                # A pipe that has room takes this much without waiting.
                rest = rest[os.write(self._fd, rest[: select.PIPE_BUF]) :]
        if len(rest) < len(whole):
            self._cut = bool(rest)


def configure(level: str, file: Path | None) -> None:
    """Send the log to stderr or to a file (mode 0600); raises OSError."""
    handler: logging.Handler
    if file is None:
        handler = StderrHandler(2) if sys.stderr is not None else logging.NullHandler()
    else:
        file.touch(mode=0o600)
        handler = logging.FileHandler(file, encoding="utf-8")
    handler.setFormatter(_Formatter("%(asctime)s %(levelname)s %(message)s"))
    logger.handlers[:] = [handler]
    logger.propagate = False
    logger.setLevel(level.upper())
