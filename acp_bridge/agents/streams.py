"""The standard streams of a process behind a guard.

Each pipe can be opened in /proc by any process of the same user: a tool would answer what its agent
has asked, an agent would read what another one is told, or say in a hook's place that it may
(invariant P17). A socket can't be opened there. The stderr decides nothing, and stays a pipe, which
scripts may open as /dev/stderr.
"""

from __future__ import annotations

import os
import socket


def standard_streams() -> tuple[list[int], list[int]]:
    """Return our ends of stdin, stdout and stderr, and those of the process. Raises OSError."""
    stdin, its_stdin = socket.socketpair()
    with stdin, its_stdin:
        stdin.shutdown(socket.SHUT_RD)  # what it wrote there would turn its end of file into errors
        stdout, its_stdout = socket.socketpair()
        with stdout, its_stdout:
            stderr, its_stderr = os.pipe()
            ours = [stdin.detach(), stdout.detach(), stderr]
            return ours, [its_stdin.detach(), its_stdout.detach(), its_stderr]
