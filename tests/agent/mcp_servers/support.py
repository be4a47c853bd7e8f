"""The MCP servers of a session, served in the test's task group."""

from __future__ import annotations

import contextlib
import json
import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import anyio
from anyio.abc import SocketAttribute, SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream

from agent.mcp_servers.server_set import ServerSet
from agent.tools import AnyTool, ToolContext, ToolResult
from tests.agent.support import MemoryClient
from tests.support.processes import MARK

SUPPORT = Path(__file__).parents[2] / "support"
SDK_SERVER = (sys.executable, "-I", str(SUPPORT / "mcp_server.py"))


def stdio(name: str, *command: str, mark: str = "", **env: str) -> dict[str, Any]:
    """As ACP has it."""
    env = {**env, **({MARK: mark} if mark else {})}
    return {
        "name": name,
        "command": command[0],
        "args": list(command[1:]),
        "env": [{"name": key, "value": value} for key, value in env.items()],
    }


def odd(name: str, *behaviours: str, mark: str = "") -> dict[str, Any]:
    script = str(SUPPORT / "odd_mcp_server.py")
    return stdio(name, sys.executable, "-I", "-S", script, *behaviours, mark=mark)


@dataclass(slots=True)
class Stand:
    servers: ServerSet
    cwd: Path
    #: what was reported in the session
    said: list[str] = field(default_factory=list)
    spoke: anyio.Event = field(default_factory=anyio.Event)

    async def report(self, sentence: str) -> None:
        self.said.append(sentence)
        self.spoke.set()
        self.spoke = anyio.Event()

    async def until_said(self, count: int) -> None:
        while len(self.said) < count:
            await self.spoke.wait()

    @property
    def names(self) -> list[str]:
        return [tool.name for tool in self.servers.tools]

    def tool(self, name: str) -> AnyTool:
        """`name`: the end of its full one."""
        [tool] = [tool for tool in self.servers.tools if tool.name.endswith(f"__{name}")]
        return tool

    async def call(self, name: str, **arguments: Any) -> ToolResult:
        return await call(self.tool(name), self.cwd, **arguments)


async def call(tool: AnyTool, cwd: Path, **arguments: Any) -> ToolResult:
    context = ToolContext(cwd, MemoryClient())
    action = await tool.prepare(tool.Args.model_validate(arguments), context)

    async def show(content: Any) -> None:
        raise AssertionError("MCP tools show nothing while they run")

    with anyio.fail_after(10):
        return await action.run(show)


Report = Callable[[str], Awaitable[None]]


@asynccontextmanager
async def serving(
    cwd: Path, *specs: dict[str, Any], report: Report | None = None
) -> AsyncIterator[Stand]:
    """Each is connected or given up; closed at the end."""
    async with starting(cwd, *specs, report=report) as stand:
        with anyio.fail_after(20):
            await stand.servers.ready(20)
        yield stand


@asynccontextmanager
async def starting(
    cwd: Path, *specs: dict[str, Any], report: Report | None = None
) -> AsyncIterator[Stand]:
    async def say(sentence: str) -> None:
        await (report or stand.report)(sentence)

    stand = Stand(ServerSet(specs, cwd, say), cwd)
    ended = anyio.Event()

    async def serve() -> None:
        await stand.servers.serve()
        ended.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(serve)
        try:
            yield stand
        finally:
            with anyio.fail_after(6, shield=True):
                await stand.servers.close()
                await ended.wait()


class Loopback:
    """`async with`: serves on a loopback port, in this process."""

    async def __aenter__(self) -> Self:
        self._listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        self._tasks.start_soon(self._listener.serve, self._serve)
        return self

    async def __aexit__(self, *exc: Any) -> bool | None:
        self._tasks.cancel_scope.cancel()
        try:
            return await self._tasks.__aexit__(*exc)
        finally:
            await self._listener.aclose()

    @property
    def address(self) -> str:
        """Where it serves MCP."""
        return f"http://127.0.0.1:{self._listener.extra(SocketAttribute.local_port)}/mcp"

    async def _serve(self, stream: SocketStream) -> None:
        raise NotImplementedError


class HttpServer(Loopback):
    """Streamable HTTP as no SDK serves it.

    What it does is in the address: `status` for every answer; it `dies` in a call, or is `deaf` to
    it and to what follows.
    """

    def spec(self, kind: str, name: str, **behaviour: Any) -> dict[str, Any]:
        query = "&".join(f"{key}={value}" for key, value in behaviour.items())
        return {
            "type": kind,
            "name": name,
            "url": f"{self.address}?{query}",
            "headers": [],
        }

    async def _serve(self, stream: SocketStream) -> None:
        buffered = BufferedByteReceiveStream(stream)
        async with stream:
            with contextlib.suppress(anyio.IncompleteRead):
                while True:
                    head = (await buffered.receive_until(b"\r\n\r\n", 100_000)).decode().lower()
                    [size] = re.findall(r"content-length: (\d+)", head) or [0]
                    body = await buffered.receive_exactly(int(size)) if int(size) else b"{}"
                    status, answer = await self._answer(head, json.loads(body))
                    data = json.dumps(answer).encode() if answer else b""
                    fields = (
                        "mcp-session-id: 1\r\ncontent-type: application/json\r\n"
                        f"content-length: {len(data)}"
                    )
                    await stream.send(f"HTTP/1.1 {status} x\r\n{fields}\r\n\r\n".encode() + data)

    async def _answer(self, head: str, message: dict[str, Any]) -> tuple[int, Any]:
        if status := re.findall(r"status=(\d+)", head):
            return int(status[0]), None
        if head.startswith("get"):
            return 405, None
        method = message.get("method", "farewell")
        if method == "tools/call" and "dies=" in head:
            raise anyio.IncompleteRead
        if method in ("tools/call", "notifications/cancelled", "farewell") and "deaf=" in head:
            await anyio.sleep_forever()
        if method == "initialize":
            version = message["params"]["protocolVersion"]
            info = {"name": "loopback", "version": "1"}
            result = {"protocolVersion": version, "capabilities": {}, "serverInfo": info}
        else:
            result = {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]}
        if "id" not in message:
            return 202, None
        return 200, {"jsonrpc": "2.0", "id": message["id"], "result": result}
