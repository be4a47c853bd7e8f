"""Searches files for a regular expression, with ripgrep.

It reads the disk, so text that an editor has not saved is not found.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field

from agent.secrets import Secrets
from agent.tools import Access, Action, ToolContext, ToolResult
from agent.tools.cards import code, short
from agent.tools.paths import Place, search_action, search_from, search_locations
from agent.tools.ripgrep import ripgrep

#: characters that are shown of a line
MAX_COLUMNS = 400
#: characters given to the model at once
MAX_CHARACTERS = 64 * 1024

_LINE = re.compile(r"(\d+)([:-])(.*)", re.DOTALL)


class SearchArgs(BaseModel):
    pattern: str = Field(
        min_length=1, max_length=2000, description="A regular expression, matched line by line."
    )
    path: str = Field(default=".", description="A folder or a file to search.")
    glob: str | None = Field(
        default=None,
        max_length=1000,
        description="Search these files only: `*.py` by name, `src/**/*.py` by path from the "
        "folder, `!*.md` all others.",
    )
    ignore_case: bool = Field(default=False, description="Take upper and lower case for the same.")
    context: int = Field(
        default=0, ge=0, le=20, description="Lines to show before and after each match."
    )
    limit: int = Field(default=100, ge=1, le=1000, description="How many matching lines to show.")


class Search:
    name = "search"
    description = (
        "Search the files below a folder for a regular expression (ripgrep's), without those that "
        "are binary or that .gitignore names. Matches are given as `line:text` below their file."
    )
    kind = "search"
    Args = SearchArgs
    access: Access = "read"

    def title(self, args: SearchArgs) -> str:
        where = args.glob if args.path == "." else args.path
        return f"Search `{short(args.pattern)}`" + (f" in {short(where)}" if where else "")

    def locations(self, args: SearchArgs, cwd: Path) -> list[dict[str, Any]]:
        return search_locations(args.path, args.glob, cwd)

    async def prepare(self, args: SearchArgs, context: ToolContext) -> Action:
        return await search_action(
            args.path,
            args.glob,
            context,
            lambda place, glob: _run(place, glob, args, context),
        )


async def _run(
    place: Place, glob: str | None, args: SearchArgs, context: ToolContext
) -> ToolResult:
    folder, file, prefix = await search_from(place, context)
    found = _Found(args.limit, prefix, file, context.secrets)
    columns = MAX_COLUMNS + context.secrets.longest + 1
    options = [
        *("--no-heading", "--with-filename", "--line-number", "--null"),
        *(f"--max-columns={columns}", "--max-columns-preview"),
        *(f"--context={args.context}", f"--regexp={args.pattern}"),
        *(["--ignore-case"] if args.ignore_case else []),
        # With it `$` matches before the line ends of Windows, and `\r` nothing.
        *([] if "\r" in args.pattern or r"\r" in args.pattern else ["--crlf"]),
    ]
    in_time = await ripgrep(options, folder, found.take, context, glob=glob, file=file)
    text = "\n".join(found.lines) if found.lines else "[no match]"
    if not in_time:
        text += "\n[it took too long: search in a folder further down, or fewer files]"
    elif found.more:
        text += f"\n[cut after {found.matches} matching lines: narrow it down, or raise the limit]"
    raw = {
        "path": place.shown,
        "matches": found.matches,
        "files": found.files,
        "complete": in_time and not found.more,
    }
    return ToolResult(text, raw, code(text))


class _Found:
    """Collects ripgrep's matches, grouped by file, up to the limits.

    `only`: the one file that is searched, if it is one.
    """

    def __init__(self, limit: int, prefix: str, only: str, secrets: Secrets) -> None:
        self.lines: list[str] = []
        self.matches = 0
        self.files = 0
        self.more = False
        self._limit = limit
        self._prefix = prefix
        self._only = only
        self._secrets = secrets
        self._file = b""
        self._size = 0

    def take(self, line: bytes) -> bool:
        """Adds one line of ripgrep's output; returns False once a limit is reached."""
        file, _, rest = line.partition(b"\0")
        found = _LINE.fullmatch(rest.decode("utf-8", "replace"))
        if found is None:  # a separator or a message
            return True
        is_match = found[2] == ":"
        if (is_match and self.matches == self._limit) or self._size > MAX_CHARACTERS:
            self.more = True
            return False
        if file != self._file:
            self._name(file)
        self._add(f"{found[1]}{found[2]}{self._cut(found[3].removesuffix(chr(13)))}")
        self.matches += is_match
        return True

    def _cut(self, line: str) -> str:
        if len(line) <= MAX_COLUMNS:
            return line
        return f"{self._secrets.mask_part(line, 0, MAX_COLUMNS)} [the line goes on]"

    def _name(self, file: bytes) -> None:
        if self._file:
            self._add("")
        name = self._only or file.removeprefix(b"./").decode("utf-8", "replace")
        self._add(self._prefix + name)
        self._file = file
        self.files += 1

    def _add(self, line: str) -> None:
        self.lines.append(line)
        self._size += len(line) + 1
