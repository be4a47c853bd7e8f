"""Starts a process of ours without the keys in its environment, which others can read at first.

What a process was executed with stands in /proc until it has made itself private; on macOS `ps`
shows it. So keys go over a socket, which can't be opened there, and the process takes them when
it is private (`guard.take_keys`).
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from acp_bridge.core.agents import guard


@contextmanager
def handed_keys(env: Mapping[str, str]) -> Iterator[tuple[dict[str, str], list[int]]]:
    """Give the block `env` without the keys, for a process of ours, and descriptors to inherit.

    From these the process takes the keys. Keys that are too long for a socket's buffer stay in the
    environment. Raises OSError.
    """
    keys = {name: value for name, value in env.items() if guard.is_key(os.fsencode(name))}
    rest = {name: value for name, value in env.items() if name not in keys}
    ours, its = socket.socketpair()
    with its:
        with ours:
            data = b"\0".join(os.fsencode(f"{name}={value}") for name, value in keys.items())
            ours.setblocking(False)
            handed = ours.send(data) == len(data) if data else False
        if handed:
            yield {**rest, guard.KEYS_FROM: str(its.fileno())}, [its.fileno()]
        else:
            yield dict(env), []
