"""`acp-bridge serve` as a process behind a wire, and `acp-bridge connect` in front of it.

The server listens on a unix socket, as behind a proxy: one that is started again is found at the
same place.
"""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import anyio

from acp_bridge.core.clients.rights import May
from acp_bridge.remote.connect.logins import Login, keep, read_address
from acp_bridge.remote.serve.tokens import held, new_secret, new_token
from tests.support import processes
from tests.support.processes import gone
from tests.support.wire import Wire, wire


@dataclass
class Served:
    """A server of one data folder, its wire, and who comes in through that."""

    #: of the server, of whoever connects, and where sessions lie.
    home: Path
    laptop: Path
    root: Path
    #: its options, with `--` and its agent behind them.
    words: Sequence[str]
    env: Mapping[str, str]
    wire: Wire = field(init=False)
    process: processes.Process | None = None
    _url: str = ""

    @property
    def _socket(self) -> Path:
        return self.laptop / "serve.sock"

    @property
    def log(self) -> Path:
        """What the servers have said, one after the other."""
        return self.laptop / "serve.log"

    @property
    def connect(self) -> list[str]:
        """The command of an editor."""
        place = ["--home", str(self.laptop)]
        return [sys.executable, "-m", "acp_bridge", "connect", self._url, *place]

    @asynccontextmanager
    async def wired(self) -> AsyncIterator[Wire]:
        """Lay the wire for the block, and give whoever comes in at its end a token."""
        self.laptop.mkdir(mode=0o700, parents=True)
        async with wire(partial(anyio.connect_unix, self._socket)) as self.wire:
            self._url = f"http://127.0.0.1:{self.wire.port}"
            secret = new_secret()
            with held(self.home) as tokens:
                tokens.add(new_token("laptop", May.ALL, secret))
            keep(self.laptop, read_address(self._url), Login(secret))
            yield self.wire

    def start(self) -> None:
        """Start a server, which is there some time later."""
        where = [f"unix:{self._socket}", "--behind-proxy", self._url, "--allow-local"]
        words = [sys.executable, "-m", "acp_bridge", "serve", *where, "--root", str(self.root)]
        with self.log.open("ab") as log:
            env = {**os.environ, **self.env, "ACP_BRIDGE_HOME": str(self.home)}
            said = log.fileno()
            with open(os.devnull) as nothing:
                streams = (nothing.fileno(), said, said)
                self.process = processes.start([*words, *self.words], env, None, streams)

    def pid(self) -> int | None:
        """The server that runs now."""
        return self.process.pid if self.process and self.process.poll() is None else None

    async def end(self, number: int, within: float = 5) -> int:
        """End the server by a signal; returns its exit code. Raises TimeoutError."""
        assert self.process
        self.process.send_signal(number)
        await gone(self.process.pid, within)
        return self.process.wait()
