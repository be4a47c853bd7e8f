"""Runs an MCP server as a process and gives its streams the form that the SDK's session wants.

The SDK's own `stdio_client` is not used: it leaves the children of a server that ends alive, takes
6 s to end a server that does not want to, and reads a line of any length.

Invariants
- When the context is left, the server and every process that it has started are dead, after 2.5 s
  at the most (invariant P1).
- The server's stdin and stdout carry the protocol, its stderr goes to our log (invariant P4). Its
  environment is the SDK's small default and what the client sent, and nothing else.
- A text without a message is dropped (`agent.mcp_servers.framing`, `messages`); one over
  `LINE_LIMIT` ends the connection.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from acp_bridge.core.agents.birth import standard_streams
from acp_bridge.core.wire.stdio import Reader, Writer
from agent.guarded_process import GuardedProcess
from agent.mcp_servers.framing import Framing
from agent.mcp_servers.messages import OpenRequests, read_messages

if TYPE_CHECKING:
    from mcp.client._transport import TransportStreams
    from mcp.shared.message import SessionMessage

logger = logging.getLogger(__name__)

#: bytes of one message, which may hold images in base64
LINE_LIMIT = 32 * 1024 * 1024
#: seconds to wait for the next line of a message over several lines; then it counts as spoiled
NEXT_LINE_SECONDS = 2.0
#: bytes that may wait for a server to read them before a call waits
_HIGH_WATER = 1 << 20
#: bytes of a line of stderr that are logged
_LOG_LINE = 500
#: the members of a message that say what it asks for
_ASKED = ("id", "method", "params")
#: seconds to wait after closing stdin, after SIGTERM, after killing the tree, and for the last
#: output
_AFTER_EOF, _AFTER_TERM, _AFTER_KILL, _AFTER_SILENCE = 1.0, 0.5, 0.5, 0.5


@contextlib.asynccontextmanager
async def stdio_transport(
    name: str, command: Sequence[str], env: Mapping[str, str], cwd: Path
) -> AsyncIterator[TransportStreams]:
    """Starts a server, and kills it when the context is left.

    Raises OSError or ValueError if it can't be started, Problem if it sends a line that is too
    long.
    """
    server = _Server(name, *await _start(command, env, cwd))
    try:
        async with anyio.create_task_group() as tasks:
            for task in (server.receive, server.send, server.log):
                tasks.start_soon(task)
            try:
                yield server.received, server.to_send
            finally:
                with anyio.CancelScope(shield=True):
                    await server.end()
                tasks.cancel_scope.cancel()
    finally:
        server.close()


async def _start(
    command: Sequence[str], env: Mapping[str, str], cwd: Path
) -> tuple[GuardedProcess, int, int, int]:
    """Starts the server; returns its process, and the agent's ends of stdin, stdout and stderr."""
    from mcp.client.stdio import get_default_environment

    ours, theirs = standard_streams()
    try:
        process = await GuardedProcess.start(
            list(command),
            cwd=cwd,
            env=get_default_environment() | dict(env),
            stdin=theirs[0],
            stdout=theirs[1],
            stderr=theirs[2],
        )
    except BaseException:
        for fd in ours:
            os.close(fd)
        raise
    finally:
        for fd in theirs:
            os.close(fd)
    stdin, stdout, stderr = ours
    return process, stdin, stdout, stderr


class _Server:
    """A running server: passes its messages on, logs its stderr, and ends it."""

    def __init__(
        self, name: str, process: GuardedProcess, stdin: int, stdout: int, stderr: int
    ) -> None:
        self._name = name
        self._process = process
        self._arrived, self.received = anyio.create_memory_object_stream[Any](0)
        self.to_send, self._sent = anyio.create_memory_object_stream[Any](0)
        self._stdin = Writer(stdin, on_broken=self._arrived.close)
        self._stdout = Reader(stdout)
        self._stderr = Reader(stderr)
        #: set once the server's stdout is closed by all its processes
        self._silent = anyio.Event()
        self._open = OpenRequests()

    async def end(self) -> None:
        """Ends the server: closes its stdin, sends SIGTERM, then kills its whole tree."""
        self._stdin.close()
        with anyio.move_on_after(_AFTER_EOF):
            await self._process.wait()
        if self._process.returncode is None:
            self._process.send_signal(signal.SIGTERM)
            with anyio.move_on_after(_AFTER_TERM):
                await self._process.wait()
        await self._process.kill(_AFTER_KILL)
        with anyio.move_on_after(_AFTER_SILENCE):
            await self._silent.wait()

    def close(self) -> None:
        self._stdin.close()
        self._stdout.close()
        self._stderr.close()
        streams: tuple[MemoryObjectSendStream[Any] | MemoryObjectReceiveStream[Any], ...]
        streams = (self._arrived, self.received, self.to_send, self._sent)
        for stream in streams:
            stream.close()

    async def receive(self) -> None:
        from mcp.shared.message import SessionMessage
        from mcp_types import jsonrpc_message_adapter

        with self._arrived:
            async for text in texts(self._stdout, LINE_LIMIT):
                messages = read_messages(text)
                if not messages:
                    logger.debug("the MCP server %s wrote what is not JSON-RPC", self._name)
                for message in filter(None, map(self._open.matched, messages)):
                    whole = jsonrpc_message_adapter.validate_python(message, by_name=False)
                    with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                        await self._arrived.send(SessionMessage(whole))
        self._silent.set()

    async def send(self) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._stdin.run)
            message: SessionMessage
            async for message in self._sent:
                self._open.ask({name: getattr(message.message, name, None) for name in _ASKED})
                text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                self._stdin.write(text.encode() + b"\n")
                await self._stdin.drain_below(_HIGH_WATER)

    async def log(self) -> None:
        async for line in lines(self._stderr, _LOG_LINE):
            logger.debug("the MCP server %s: %s", self._name, line.decode("utf-8", "replace"))


async def texts(source: Reader, limit: int) -> AsyncIterator[bytes]:
    """Yields the texts of a stream that may be messages; raises Problem for one over `limit`."""
    framing = Framing(limit)
    while True:
        data: bytes | None = None
        with anyio.move_on_after(NEXT_LINE_SECONDS if framing.waits else None):
            data = await source.read()
        for text in framing.give_up() if data is None else framing.read(data):
            yield text
        if data == b"":
            break
    for text in framing.end():
        yield text


async def lines(source: Reader, limit: int) -> AsyncIterator[bytes]:
    """Yields the lines of a stream without their newlines, each cut at `limit` bytes.

    Blank lines are left out.
    """
    parts: list[bytes] = []
    size = 0
    while data := await source.read():
        *whole, rest = data.split(b"\n")
        for end in whole:
            if line := b"".join([*parts, end]).strip():
                yield line[:limit]
            parts, size = [], 0
        size += len(rest)
        if size <= limit or not parts:
            parts.append(rest)
