"""Reads a text file inside the session's folder.

Through the client if it can (it knows what is not saved yet), else from the disk. Links are
followed first and must end inside the folder.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import anyio
from pydantic import BaseModel, Field

from agent.client import ClientError
from agent.tools import ToolContext, ToolError, ToolResult

#: bytes given to the model
_MAX_BYTES = 256 * 1024


class ReadFileArgs(BaseModel):
    path: str = Field(description="The file, absolute or relative to the session's folder.")
    line: int | None = Field(None, ge=1, description="First line to read, counted from 1.")
    limit: int | None = Field(None, ge=1, description="How many lines to read.")


class ReadFile:
    name = "read_file"
    description = "Read a text file inside the session's folder."
    kind = "read"
    Args = ReadFileArgs
    needs_permission = False

    def title(self, args: ReadFileArgs) -> str:
        return f"Read {args.path}"

    def locations(self, args: ReadFileArgs, cwd: Path) -> list[dict[str, Any]]:
        location: dict[str, Any] = {"path": _absolute(args.path, cwd)}
        if args.line is not None:
            location["line"] = args.line
        return [location]

    async def run(self, args: ReadFileArgs, context: ToolContext) -> ToolResult:
        path = _absolute(args.path, context.cwd)
        inside = await anyio.to_thread.run_sync(_inside, path, context.cwd)
        if not inside:
            raise ToolError(f"{args.path} is outside the session's folder")
        if context.client.reads_files:
            try:
                text = await context.client.read_file(path, args.line, args.limit)
            except ClientError as error:
                raise ToolError(f"The editor could not read {args.path}") from error
            return ToolResult(_bounded(text.encode("utf-8", "replace")))
        try:
            data = await anyio.to_thread.run_sync(
                _read, path, (args.line or 1) - 1, args.limit, abandon_on_cancel=True
            )
        except OSError as error:
            raise ToolError(f"Could not read {args.path}: {error.strerror}") from error
        return ToolResult(_bounded(data))


def _absolute(path: str, cwd: Path) -> str:
    return os.path.normpath(cwd / path)


def _inside(path: str, cwd: Path) -> bool:
    return Path(path).resolve().is_relative_to(cwd.resolve())


def _read(path: str, skip: int, limit: int | None) -> bytes:
    """`limit` lines after the first `skip`; a little more than may be kept, if there is more."""
    if not os.path.isfile(path):  # a pipe or a device could block for ever
        os.stat(path)
        raise OSError(0, "it is not a regular file")
    kept = bytearray()
    number = 0
    with open(path, "rb") as file:
        while len(kept) <= _MAX_BYTES and (limit is None or number < skip + limit):
            piece = file.readline(_MAX_BYTES)
            if not piece:
                break
            if number >= skip:
                kept += piece
            number += piece.endswith(b"\n")
    return bytes(kept)


def _bounded(data: bytes) -> str:
    text = data[:_MAX_BYTES].decode("utf-8", "replace")
    return text if len(data) <= _MAX_BYTES else f"{text}\n[cut after {_MAX_BYTES} bytes]"
