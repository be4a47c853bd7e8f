"""The log: one line for each event, with session and turn, and nothing secret in it.

The protocol has stdout, so the log goes to a file, and what somebody should see to stderr, too.
What users and models write, and what an agent prints, is logged at the level `debug` only, but for
the last lines of an agent that has not started: it knows nothing of users and models.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import re
import stat
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final

from acp_bridge.core.wire.lossy import LossyWriter

logger = logging.getLogger("acp_bridge")

#: Patterns of secrets. The first group, if any, is text to keep. Quotes may be escaped, as in JSON.
_SECRETS: Final = (
    r"()-----BEGIN [A-Z ]*PRIVATE KEY(?: BLOCK)?-----"
    r".*?(?:-----END [A-Z ]*PRIVATE KEY(?: BLOCK)?-----|\Z)",
    r"(authorization\\*+[\"']?\s*+[:=]\s*+\\*+[\"']?)(?:[A-Za-z]+ +)?[A-Za-z0-9_\-./+=~]{4,}",
    r"((?:api[-_]?key|token|secret(?:[-_]access[-_]key)?|passw(?:or)?d|passphrase|authorization|bearer"
    r"|(?:account|access)[-_]?key)"
    r"\\*+[\"']?\s*+[:=]?\s*+\\*+[\"']?)[A-Za-z0-9_\-./+=]{8,}",
    r"(://[^/@:\s]*:)[^/@\s]+(?=@)",
    r"(://)[^/@:\s]{20,}(?=@)",
    r"(https://(?:hooks\.slack\.com|(?:\w+\.)?discord(?:app)?\.com/api/webhooks"
    r"|[\w.-]+\.webhook\.office\.com|hooks\.zapier\.com)/)[^\s\"'<>\\]+",
    r"()\b(?:acpb_|sk-|gh[a-z]_|github_pat_|glpat-|xox[a-z]-|AKIA|AIza)[A-Za-z0-9_\-]{8,}",
    r"()\b(?:[sr]k_(?:live|test)_|gsk_|hf_|npm_|pplx-|r8_|tk_|xai-|dckr_pat_|lin_api_|shpat_"
    r"|dop_v1_|sbp_|ASIA)[A-Za-z0-9]{16,}",
    r"()(?<![\w\-])eyJ[\w\-]{8,}\.eyJ[\w\-]{8,}(?:\.[\w\-]*)?",
)
#: A text that fits any of the patterns has at least one of these: most lines have none, and to look
#: for them costs a tenth of that for the patterns.
_SIGNS: Final = (
    *("-----begin", "key", "token", "secret", "password", "authorization", "bearer", "://"),
    *("acpb_", "sk-", "gh", "_pat_", "glpat-", "xox", "akia", "aiza", "passwd", "passphrase"),
    *("k_", "hf_", "npm_", "pplx-", "r8_", "xai-", "_api_", "shpat_", "_v1_", "sbp_", "asia"),
    "eyj",
)
_SPACE: Final = re.compile(r"\s")
#: how many characters of a field are logged: others write it, and to mask 10 MB takes seconds.
_LONGEST: Final = 20_000
#: bytes of a log file above which the next one begins.
_MOST: Final = 4_000_000
_APPENDING: Final = (
    os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
)
#: Events with text that an agent wrote: they are logged at the level `debug` only.
_QUIET = frozenset({"agent.stderr", "agent.noise"})


def masked(text: str) -> str:
    """Return the text with everything that looks like a key masked (invariant K5)."""
    folded = text.casefold()
    for sign in _SIGNS:  # a loop, since each line of the log comes here several times
        if sign in folded:
            break
    else:
        return text
    for pattern in _compiled():
        text = pattern.sub(r"\1***", text)
    return text


@cache
def _compiled() -> list[re.Pattern[str]]:
    """Return the patterns of secrets, compiled at the first sign of one: no start waits for it."""
    return [re.compile(pattern, re.IGNORECASE | re.DOTALL) for pattern in _SECRETS]


def event(name: str, **fields: object) -> None:
    """Log one event: `name key=value ...`; fields that are None are left out."""
    level = logging.DEBUG if name in _QUIET else logging.INFO
    if logger.isEnabledFor(level):
        told = ""
        for key, value in fields.items():
            if value is not None:
                text = str(value)
                if len(text) > _LONGEST:
                    text = f"{text[:_LONGEST]}..."
                if not isinstance(value, int):  # a number holds no key
                    text = masked(text)
                told += f" {key}={repr(text) if not text or _SPACE.search(text) else text}"
        logger.log(level, "%s %s", name, told[1:])


class _Formatter(logging.Formatter):
    """Formats one line for each event, whatever text is in it."""

    def format(self, record: logging.LogRecord) -> str:
        return masked(super().format(record)).replace("\n", "\\n")


class StderrHandler(logging.Handler):
    """Writes to stderr without waiting; lines for which it has no room are dropped."""

    def __init__(self, fd: int) -> None:
        super().__init__()
        self._stderr = LossyWriter(fd)

    def emit(self, record: logging.LogRecord) -> None:
        self._stderr.write(f"{self.format(record)}\n".encode(errors="backslashreplace"))


class _FileHandler(logging.FileHandler):
    """Writes to a file; lines that can't be written are lost, without a word on stderr."""

    def handleError(self, record: logging.LogRecord) -> None:
        """Do nothing: a traceback for each line would fill stderr, which nobody may read."""


class RotatedFile(logging.Handler):
    """Writes to a file of 4 MB at most, mode 0600; a full one becomes `FILE.1`.

    All bridges of a data folder write to the same file. What the file does not take is lost.
    """

    def __init__(self, path: Path) -> None:
        """Open the file, in a folder that is made if it is missing; raises OSError."""
        super().__init__()
        self._path = path
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._fd = opened_to_append(self._path)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            if os.fstat(self._fd).st_size > _MOST:
                self._set_aside()
            if not self._has_the_name():  # this bridge or another has set it aside
                before, self._fd = self._fd, opened_to_append(self._path)
                os.close(before)
            os.write(self._fd, f"{self.format(record)}\n".encode(errors="backslashreplace"))
        except OSError:
            pass

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        super().close()

    def _set_aside(self) -> None:
        """Rename a full file to `FILE.1`, unless another bridge does so now; raises OSError."""
        with suppress(BlockingIOError):
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if self._has_the_name():
                self._path.replace(self._path.with_name(f"{self._path.name}.1"))

    def _has_the_name(self) -> bool:
        try:
            return os.path.samestat(os.fstat(self._fd), os.lstat(self._path))
        except FileNotFoundError:
            return False


def opened_to_append(path: Path) -> int:
    """Open a file to append to it, made if missing, mode 0600; return the descriptor.

    Raises OSError for anything but a file. An agent has the rights to put something else there, so
    no link is followed, and no reader of a pipe is waited for.
    """
    fd = os.open(path, _APPENDING, 0o600)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(errno.EINVAL, "it is no file")
        os.fchmod(fd, 0o600)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _is_no_late_read(record: logging.LogRecord) -> bool:
    """Return False for the error of a read from a UNIX socket that ends as it is cancelled.

    anyio then resolves a future that has ended already; nothing is lost by it.
    """
    error = record.exc_info[1] if record.exc_info else None
    is_late = type(error).__name__ == "InvalidStateError"
    return not is_late or "Future.set_result" not in record.getMessage()


def configure(
    level: str, file: Path | None, stderr: str | None = None, *, rotated: bool = False
) -> None:
    """Send the log to stderr or to a file (mode 0600); raises OSError.

    `stderr` is the level from which on what goes to the file is written to stderr, too; `rotated`
    makes the file a `RotatedFile`.
    """
    handlers: list[logging.Handler] = []
    if file is not None and rotated:
        handlers.append(RotatedFile(file))
    elif file is not None:
        file.touch(mode=0o600)
        handlers.append(_FileHandler(file, encoding="utf-8"))
    if file is None or stderr is not None:
        handlers.append(StderrHandler(2) if sys.stderr is not None else logging.NullHandler())
        handlers[-1].setLevel((stderr or level).upper())
    for handler in handlers:
        handler.setFormatter(_Formatter("%(asctime)s %(levelname)s %(message)s"))
    logger.handlers[:] = handlers
    logging.lastResort = handlers[0]  # of libraries: Python's own waits for who reads stderr
    logging.getLogger("asyncio").addFilter(_is_no_late_read)
    logger.propagate = False
    logger.setLevel(level.upper())
