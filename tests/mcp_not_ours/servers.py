"""Which servers, pinned by the locks, how they are installed and reached."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import anyio
from anyio.streams.buffered import BufferedByteReceiveStream

from tests.agent.mcp_servers.support import stdio
from tests.support.processes import MARK

HERE = Path(__file__).parent
NODE_MODULES = HERE / "node_modules"
EVERYTHING = str(NODE_MODULES / ".bin" / "mcp-server-everything")
FILESYSTEM = str(NODE_MODULES / ".bin" / "mcp-server-filesystem")
SECONDS = 240

#: nothing that is installed runs a script of its own
NPM = ("npm", "install", "--no-save", "--ignore-scripts", "--omit=optional", "--no-audit")
PIP = (
    *(sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"),
    *("--require-hashes", "--only-binary", ":all:", "--no-deps", "-r", "requirements.lock"),
)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a server is tried."""

    #: in its environment
    mark: str
    #: its working directory
    folder: Path
    #: where pip puts what it installs
    packages: Path


def install_npm(packages: Path) -> str | None:
    """What package-lock.json names; the reason if that can't be."""
    if shutil.which("npm") is None:
        return "npm is not on the PATH"
    lock = HERE / "package-lock.json"
    before = lock.read_bytes()
    trouble = _run([*NPM, "--no-fund", "--loglevel=error"])
    return trouble or (None if lock.read_bytes() == before else "npm changed the lock")


def install_python(packages: Path) -> str | None:
    """What requirements.lock names; the reason if that can't be."""
    return _run([*PIP, "--target", str(packages)])


def _run(command: list[str]) -> str | None:
    done = subprocess.run(
        command, cwd=HERE, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    return None if done.returncode == 0 else done.stderr.strip()[-400:] or "it failed"


def everything(place: Place) -> dict[str, Any]:
    return stdio("everything", EVERYTHING, "stdio", mark=place.mark)


def filesystem(place: Place) -> dict[str, Any]:
    return stdio("filesystem", FILESYSTEM, str(place.folder), mark=place.mark)


def clock(place: Place) -> dict[str, Any]:
    command = (sys.executable, "-m", "mcp_server_time", "--local-timezone", "UTC")
    return stdio("time", *command, mark=place.mark, PYTHONPATH=str(place.packages))


@asynccontextmanager
async def everything_on_http(
    place: Place, kind: Literal["http", "sse"]
) -> AsyncIterator[dict[str, Any]]:
    """Started by us, on a port that was free a moment ago."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    mode, path = {"http": ("streamableHttp", "mcp"), "sse": ("sse", "sse")}[kind]
    env = {**os.environ, "PORT": str(port), MARK: place.mark}
    async with await anyio.open_process(
        [EVERYTHING, mode], env=env, stdout=subprocess.DEVNULL
    ) as process:
        assert process.stderr
        said = BufferedByteReceiveStream(process.stderr)
        with anyio.fail_after(30):
            await said.receive_until(f"port {port}\n".encode(), 10_000)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_drain, said)
            url = f"http://127.0.0.1:{port}/{path}"
            yield {"type": kind, "name": "everything", "url": url, "headers": []}
            tasks.cancel_scope.cancel()
        process.kill()


async def _drain(stream: BufferedByteReceiveStream) -> None:
    async for _ in stream:
        pass
