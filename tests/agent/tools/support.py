"""A client's files in memory, and one call of a tool from its preparation to its result."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio

from agent.client import ClientError, NotOffered, Update
from agent.secrets import Secrets
from agent.tools import Action, AnyTool, ToolContext, ToolError, ToolResult


class FilesClient:
    """Reads and writes buffers; a path that it has no buffer for comes from `disk`, if set, as
    an editor reads it, and is refused without. `missing`: it has no such methods after all."""

    def __init__(
        self,
        *,
        reads: bool = False,
        writes: bool = False,
        disk: bool = False,
        missing: bool = False,
    ) -> None:
        self.reads_files = reads
        self.writes_files = writes
        self.has_terminals = False
        self.buffers: dict[str, str] = {}
        self.written: list[str] = []
        self._disk = disk
        self._missing = missing

    async def read_file(self, path: str, line: int | None, limit: int | None) -> str:
        assert (line, limit) == (None, None)
        if path in self.buffers:
            return self.buffers[path]
        if self._missing:
            raise NotOffered("detail", "Method not found")
        if not self._disk:
            raise ClientError("detail", "it is private")
        return _as_an_editor_reads(Path(path))

    async def write_file(self, path: str, content: str) -> None:
        if self._missing:
            raise NotOffered("detail", "Method not found")
        self.buffers[path] = content
        self.written.append(path)

    async def update(self, update: Update) -> None:
        raise AssertionError

    async def ask(self, tool_call: dict[str, Any], options: list[dict[str, Any]]) -> str | None:
        raise AssertionError

    async def create_terminal(self, command: str, args: Sequence[str], cwd: str, limit: int) -> str:
        raise AssertionError

    async def terminal_output(self, terminal_id: str) -> dict[str, Any]:
        raise AssertionError

    async def wait_for_terminal(self, terminal_id: str) -> dict[str, Any]:
        raise AssertionError

    async def kill_terminal(self, terminal_id: str) -> None:
        raise AssertionError

    async def release_terminal(self, terminal_id: str) -> None:
        raise AssertionError


def session(
    cwd: Path, client: FilesClient | None = None, *roots: Path, secrets: Secrets | None = None
) -> ToolContext:
    return ToolContext(
        cwd,
        client or FilesClient(),
        roots,
        environment=dict(os.environ),
        secrets=secrets or Secrets(),
    )


async def prepare(tool: AnyTool, context: ToolContext, /, **args: Any) -> Action:
    with anyio.fail_after(5):
        return await tool.prepare(tool.Args.model_validate(args), context)


async def run(action: Action) -> ToolResult:
    with anyio.fail_after(5):
        return await action.run(_no_show)


async def call(tool: AnyTool, context: ToolContext, /, **args: Any) -> ToolResult:
    return await run(await prepare(tool, context, **args))


async def problem(tool: AnyTool, context: ToolContext, /, **args: Any) -> str:
    """What the model is told of a call that can't be done."""
    try:
        result = await call(tool, context, **args)
    except ToolError as error:
        return str(error)
    raise AssertionError(f"it was done: {result.text}")


def _as_an_editor_reads(path: Path) -> str:
    return path.read_bytes().decode("utf-8", "replace").replace("\r\n", "\n")


async def _no_show(content: Sequence[dict[str, Any]]) -> None:
    raise AssertionError
