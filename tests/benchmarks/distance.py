"""A server that is some milliseconds away: `python distance.py NEAR FAR MILLISECONDS`.

NEAR and FAR are unix sockets; what is said on one is heard on the other half of that time later,
however much is on its way. Each direction of a connection has two threads, since the timers of an
event loop are too coarse.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import TypeAlias

#: when something is to arrive, and what; nothing is the end.
_Way: TypeAlias = SimpleQueue[tuple[float, bytes]]


@contextmanager
def away(far: Path, near: Path, milliseconds: float) -> Iterator[None]:
    """Have the server of the socket `far` be found at `near`, so far away there and back."""
    words = [sys.executable, __file__, str(near), str(far), str(milliseconds)]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
        assert process.stdout
        try:
            process.stdout.readline()
            yield
        finally:
            process.kill()


def main(near: str, far: str, milliseconds: str) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(near)
        listener.listen(100)
        print("listens", flush=True)
        while True:
            one, _ = listener.accept()
            other = socket.socket(socket.AF_UNIX)
            other.connect(far)
            for ends in ((one, other), (other, one)):
                way: _Way = SimpleQueue()
                Thread(target=_hear, args=(ends[0], way, float(milliseconds) / 2000)).start()
                Thread(target=_say, args=(ends[1], way)).start()


def _hear(end: socket.socket, way: _Way, seconds: float) -> None:
    data = b"-"
    while data:
        data = b""
        with suppress(OSError):
            data = end.recv(1 << 20)
        way.put((time.monotonic() + seconds, data))


def _say(end: socket.socket, way: _Way) -> None:
    with suppress(OSError):
        while True:
            at, data = way.get()
            if (left := at - time.monotonic()) > 0:
                time.sleep(left)
            if not data:
                end.shutdown(socket.SHUT_WR)
                return
            end.sendall(data)


if __name__ == "__main__":
    sys.setswitchinterval(0.0005)
    main(*sys.argv[1:])
