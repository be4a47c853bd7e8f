"""Lists the files below a folder, without those that git ignores."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field

from agent.tools import Access, Action, ToolContext, ToolError, ToolResult
from agent.tools.cards import code, short
from agent.tools.paths import Place, search_action, search_from, search_locations
from agent.tools.ripgrep import ripgrep

#: how many files the model is given at most
MAX_FILES = 1000


class ListFilesArgs(BaseModel):
    path: str = Field(
        default=".", description="The folder, absolute or relative to the session's folder."
    )
    pattern: str | None = Field(
        default=None,
        max_length=1000,
        description="A glob: `*.py` by name anywhere below, `src/**/*.py` by path from the "
        "folder. It may also be absolute.",
    )


class ListFiles:
    name = "list_files"
    description = (
        "List the files below a folder, sorted, without those that .gitignore names. At most "
        f"{MAX_FILES} are listed: a pattern or a folder further down gives the others."
    )
    kind = "search"
    Args = ListFilesArgs
    access: Access = "read"

    def title(self, args: ListFilesArgs) -> str:
        what = f"`{short(args.pattern)}`" if args.pattern else "files"
        return f"List {what}" if args.path == "." else f"List {what} in {short(args.path)}"

    def locations(self, args: ListFilesArgs, cwd: Path) -> list[dict[str, Any]]:
        return search_locations(args.path, args.pattern, cwd)

    async def prepare(self, args: ListFilesArgs, context: ToolContext) -> Action:
        return await search_action(
            args.path,
            args.pattern,
            context,
            lambda place, pattern: _run(place, pattern, context),
        )


async def _run(place: Place, pattern: str | None, context: ToolContext) -> ToolResult:
    folder, file, prefix = await search_from(place, context)
    if file:
        raise ToolError(f"{place.given} is not a folder.")
    names: list[str] = []
    count = 0

    def take(name: bytes) -> bool:
        nonlocal count
        count += 1
        if count <= MAX_FILES:
            names.append(prefix + name.removeprefix(b"./").decode("utf-8", "replace"))
        return True

    options = ["--files", "--null"]
    in_time = await ripgrep(options, folder, take, context, end=b"\0", glob=pattern)
    text = "\n".join(names) if names else "[no files]"
    if not in_time:
        text += "\n[there are more: it took too long; list a folder further down]"
    elif count > MAX_FILES:
        text += f"\n[{MAX_FILES} of {count} files: narrow it with a pattern or a folder]"
    raw = {"path": place.shown, "files": len(names), "complete": in_time and count <= MAX_FILES}
    return ToolResult(text, raw, code(text))
