"""Replaces a piece of a file that was read: the exact text, and only if it is unique."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from anyio import to_thread
from pydantic import BaseModel, Field

from agent.tools import Access, Action, Show, ToolContext, ToolError, ToolResult
from agent.tools.cards import diff, short
from agent.tools.files import MAX_TEXT, change, read_to_change
from agent.tools.paths import Place, absolute, edit_action, locate
from agent.tools.text_file import Text, replaced


class EditFileArgs(BaseModel):
    path: str = Field(description="The file, absolute or relative to the session's folder.")
    old: str = Field(
        min_length=1,
        description="What to replace, exactly as in the file, without read_file's line numbers, "
        "with as many lines around as make it unique.",
    )
    new: str = Field(description="What to put in its place.")
    replace_all: bool = Field(default=False, description="Replace it wherever it is.")


class EditFile:
    name = "edit_file"
    description = (
        "Replace a piece of a text file that was read before. `old` must be in the file exactly "
        "once unless `replace_all` is set. Encoding and line ends are kept."
    )
    kind = "edit"
    Args = EditFileArgs
    access: Access = "edit"

    def title(self, args: EditFileArgs) -> str:
        return f"Edit {short(args.path)}"

    def locations(self, args: EditFileArgs, cwd: Path) -> list[dict[str, Any]]:
        return [{"path": absolute(args.path, cwd)}]

    async def prepare(self, args: EditFileArgs, context: ToolContext) -> Action:
        place = await locate(args.path, context)
        before = await read_to_change(place, context)
        if before is None:
            raise ToolError(f"There is no file {args.path}. To make one, use write_file.")
        after, lines, shown = await to_thread.run_sync(
            _edited, place, before, args, abandon_on_cancel=True
        )

        async def run(show: Show) -> ToolResult:
            await change(place, before, after, context)
            where = f"line {lines[0]}" if len(lines) == 1 else f"{len(lines)} places"
            raw = {"path": place.shown, "replacements": len(lines), "line": lines[0]}
            return ToolResult(f"Edited {args.path} at {where}.", raw, shown)

        return edit_action(run, place, context, shown)


# in a thread


def _edited(
    place: Place, before: Text, args: EditFileArgs
) -> tuple[Text, list[int], tuple[dict[str, Any], ...]]:
    """Returns the edited text, the numbers of the changed lines, and the diff for the card.

    Raises ToolError.
    """
    after, lines = replaced(before, args.old, args.new, everywhere=args.replace_all, limit=MAX_TEXT)
    if after == before:
        raise ToolError("`old` and `new` are the same.")
    after.encode()
    return after, lines, diff(place.shown, before.lf, after.lf)
