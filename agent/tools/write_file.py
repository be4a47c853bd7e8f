"""Writes a whole file: a new one with its folders, or new content for a file that was read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from anyio import to_thread
from pydantic import BaseModel, Field

from agent.tools import Access, Action, Show, ToolContext, ToolResult
from agent.tools.cards import diff, short
from agent.tools.files import change, read_to_change
from agent.tools.paths import absolute, edit_action, locate
from agent.tools.text_file import Text


class WriteFileArgs(BaseModel):
    path: str = Field(description="The file, absolute or relative to the session's folder.")
    content: str = Field(description="All of what the file is to hold.")


class WriteFile:
    name = "write_file"
    description = (
        "Write a whole text file; folders that are missing are made. A file that exists must have "
        "been read before, and keeps its encoding and line ends. To change a part, use edit_file."
    )
    kind = "edit"
    Args = WriteFileArgs
    access: Access = "edit"

    def title(self, args: WriteFileArgs) -> str:
        return f"Write {short(args.path)}"

    def locations(self, args: WriteFileArgs, cwd: Path) -> list[dict[str, Any]]:
        return [{"path": absolute(args.path, cwd)}]

    async def prepare(self, args: WriteFileArgs, context: ToolContext) -> Action:
        place = await locate(args.path, context)
        before = await read_to_change(place, context)
        after = Text(args.content) if before is None else before.rewritten(args.content)
        after.encode()
        old = before.lf if before else None
        shown = await to_thread.run_sync(diff, place.shown, old, after.lf, abandon_on_cancel=True)

        async def run(show: Show) -> ToolResult:
            await change(place, before, after, context)
            done = "Created" if before is None else "Wrote"
            lines = len(after.lf.splitlines())
            raw = {"path": place.shown, "created": before is None, "lines": lines}
            return ToolResult(f"{done} {args.path}: {lines} lines.", raw, shown)

        return edit_action(run, place, context, shown)
