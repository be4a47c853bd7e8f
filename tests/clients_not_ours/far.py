"""`acp-bridge serve` as a process, and a token of it: what a client from elsewhere is given."""

import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
from anyio.streams.buffered import BufferedByteReceiveStream

#: seconds for a server to start, or to end.
LIMIT = 30
SERVE = (sys.executable, "-m", "acp_bridge", "serve")


@dataclass(frozen=True, slots=True)
class Far:
    """Where a server is reached, and with which token."""

    url: str
    token: str


@asynccontextmanager
async def served(root: Path, env: dict[str, str], *agent: str) -> AsyncIterator[Far]:
    """Give a server on the loopback, whose sessions lie in a folder, until the block ends."""
    with anyio.fail_after(LIMIT):
        token = await anyio.run_process([*SERVE, "token", "laptop"], env=env)
    words = [*SERVE, "127.0.0.1:0", "--root", str(root), *(["--", *agent] if agent else [])]
    process = await anyio.open_process(words, env=env, stdout=subprocess.DEVNULL)
    try:
        assert process.stderr
        said = BufferedByteReceiveStream(process.stderr)
        line = ""
        with anyio.fail_after(LIMIT):
            while "ws://" not in line:  # above it stands what the log says
                line = (await said.receive_until(b"\n", 10_000)).decode()
        url = next(word for word in line.replace(",", " ").split() if word.startswith("ws://"))
        yield Far(url, token.stdout.decode().strip())
    finally:
        with anyio.move_on_after(LIMIT, shield=True):
            process.terminate()
            await process.wait()
        await process.aclose()


async def connected(far: Far, env: dict[str, str]) -> list[str]:
    """Return the command of `acp-bridge connect` for a server, whose token it is given."""
    connect = [sys.executable, "-m", "acp_bridge", "connect"]
    with anyio.fail_after(LIMIT):
        words = [*connect, "--login", far.url]
        await anyio.run_process(words, input=f"{far.token}\n".encode(), env=env)
    return [*connect, far.url]
