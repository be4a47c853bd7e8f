"""Takes stdin and stdout for the protocol alone."""

from __future__ import annotations

import fcntl
import os


def claim_stdio() -> tuple[int, int]:
    """Keep stdin and stdout for the protocol; returns fresh descriptors for them (invariant P4).

    From then on fd 0 is /dev/null and fd 1 is stderr, for this process and its children, so that
    no stray print reaches the client. Raises OSError if one of them is closed.
    """
    claimed: list[int] = []
    for fd, name in ((0, "standard input"), (1, "standard output")):
        try:
            # Above 2, so that none lands on a standard descriptor that is closed.
            claimed.append(fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3))
        except OSError as exc:
            for taken in claimed:
                os.close(taken)
            raise OSError(exc.errno, f"{name} is closed") from exc
    null = os.open(os.devnull, os.O_RDWR)
    try:
        os.dup2(null, 0)
        try:
            os.dup2(2, 1)
        except OSError:  # no stderr: fd 2 is taken, too, or the next file opened would get prints
            os.dup2(null, 1)
            os.dup2(null, 2)
    finally:
        if null > 2:
            os.close(null)
    return claimed[0], claimed[1]
