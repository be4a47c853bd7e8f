"""Reads a text file, or some lines of it, or an image.

Invariants
- A text is read through the client if it can, because it has what is not saved yet. Images, and
  files that are too long to be edited, are read from the disk.
- The text for the model is bounded, and says where to go on.
- A file that was read may be edited as long as it stays the same, however little was shown of it.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, BinaryIO

from anyio import from_thread, to_thread
from pydantic import BaseModel, Field

from agent.content.images import IMAGE_BYTES, image_type
from agent.secrets import Secrets
from agent.tools import Access, Action, ToolContext, ToolError, ToolResult
from agent.tools.cards import code, image, short
from agent.tools.files import MAX_TEXT, binary, note_seen, open_regular, read, unreadable
from agent.tools.paths import Place, absolute, locate, look, read_grant
from agent.tools.written import left_copies

#: lines given to the model at once if it does not ask for fewer, and characters kept of a line
MAX_LINES = 2000
MAX_LINE = 2000
#: characters given to the model at once
MAX_CHARACTERS = 64 * 1024
#: in a file that is read line by line: lines between two checks for a cancellation, and bytes kept
#: of a line
_STRIDE = 4096
_PIECE = 64 * 1024
#: what is said below the lines
_ODD = "[each \ufffd stands for a byte that is not of the file's encoding: repeat it, and it stays]"
_CUT_OFF = "[a write of this file was cut off; what it held before is in {}]"


class ReadFileArgs(BaseModel):
    path: str = Field(description="The file, absolute or relative to the session's folder.")
    line: int = Field(default=1, ge=1, description="First line to read, counted from 1.")
    limit: int = Field(
        default=MAX_LINES, ge=1, description=f"How many lines to read, {MAX_LINES} at most."
    )


class ReadFile:
    name = "read_file"
    description = (
        "Read a text file, or show an image (PNG, JPEG, GIF, WebP). Each line is given as its "
        "number, a tab, and the line; the number and the tab are not part of the file. Long files "
        "are cut: go on with `line`. A file must have been read before it is changed."
    )
    kind = "read"
    Args = ReadFileArgs
    access: Access = "read"

    def title(self, args: ReadFileArgs) -> str:
        lines = f":{args.line}" if args.line > 1 else ""
        return f"Read {short(args.path)}{lines}"

    def locations(self, args: ReadFileArgs, cwd: Path) -> list[dict[str, Any]]:
        location: dict[str, Any] = {"path": absolute(args.path, cwd)}
        if args.line > 1:
            location["line"] = args.line
        return [location]

    async def prepare(self, args: ReadFileArgs, context: ToolContext) -> Action:
        place = await locate(args.path, context)
        run = partial(_run, place, args, context)
        return look(place, context, read_grant(place, context), run)


async def _run(place: Place, args: ReadFileArgs, context: ToolContext) -> ToolResult:
    start, size = await to_thread.run_sync(_start, place, abandon_on_cancel=True)
    if mime_type := image_type(start):
        if size > IMAGE_BYTES:
            raise ToolError(f"{args.path} is an image of {size} bytes; {IMAGE_BYTES} is the most.")
        data = await to_thread.run_sync(_read_image, place, abandon_on_cancel=True)
        return _image(place, data, mime_type)
    if size > MAX_TEXT:
        return await to_thread.run_sync(_long_file, place, start, args, context.secrets)
    cut_off = [
        _CUT_OFF.format(copy) for copy in await to_thread.run_sync(left_copies, place, context)
    ]
    try:
        text = await read(place, context)
    except ToolError as error:
        raise ToolError("\n".join([str(error), *cut_off])) from error
    if text is None:
        raise ToolError(f"There is no file {args.path}.")
    note_seen(place, text, context)
    lines = text.lf.split("\n")
    if not lines[-1]:
        lines.pop()
    notes = [*([_ODD] if text.odd else []), *cut_off]
    if not lines:
        said = "\n".join(["[the file is empty]", *notes])
        return ToolResult(said, {"path": place.shown, "totalLines": 0})
    if args.line > len(lines):
        raise ToolError(f"{args.path} has only {len(lines)} lines.")
    page = _Page(iter(lines[args.line - 1 :]), args, context.secrets)
    return page.result(place, {"totalLines": len(lines), "encoding": text.encoding}, notes)


class _Page:
    """Numbered lines for the model: as many as it asked for, within this tool's own limits."""

    def __init__(self, lines: Iterator[str], args: ReadFileArgs, secrets: Secrets) -> None:
        self._line = args.line
        self._kept: list[str] = []
        size = 0
        for line in islice(lines, min(args.limit, MAX_LINES)):
            kept = line
            if len(line) > MAX_LINE:
                kept = f"{secrets.mask_part(line, 0, MAX_LINE)} [the line goes on]"
            size += len(kept) + 8
            if size > MAX_CHARACTERS:
                self._more = True
                return
            self._kept.append(kept)
        self._more = next(lines, None) is not None

    def result(self, place: Place, about: dict[str, Any], notes: Sequence[str] = ()) -> ToolResult:
        text = "\n".join(f"{n:>6}\t{line}" for n, line in enumerate(self._kept, self._line))
        if self._more:
            after = self._line + len(self._kept)
            end = f" of {about['totalLines']}" if "totalLines" in about else ""
            text += f"\n[lines {self._line} to {after - 1}{end}; go on with line={after}]"
        text = "\n".join([text, *notes])
        raw = {"path": place.shown, "line": self._line, "lines": len(self._kept), **about}
        return ToolResult(text, raw, code("\n".join(self._kept)))


def _image(place: Place, data: bytes, mime_type: str) -> ToolResult:
    encoded = base64.b64encode(data).decode("ascii")
    raw = {"path": place.shown, "mimeType": mime_type, "bytes": len(data)}
    return ToolResult(
        f"[the image {place.given}: {mime_type}, {len(data)} bytes]",
        raw,
        image(encoded, mime_type),
        (f"data:{mime_type};base64,{encoded}",),
    )


# in a thread


def _start(place: Place) -> tuple[bytes, int]:
    """Returns the first 8192 bytes and the size of a file; b"" and 0 if it is not on the disk.

    Raises ToolError.
    """
    try:
        with open_regular(place) as file:
            return file.read(8192), os.fstat(file.fileno()).st_size
    except FileNotFoundError:
        return b"", 0
    except OSError as error:
        raise unreadable(place, error) from error


def _read_image(place: Place) -> bytes:
    try:
        with open_regular(place) as file:
            return file.read(IMAGE_BYTES)
    except OSError as error:
        raise unreadable(place, error) from error


def _long_file(place: Place, start: bytes, args: ReadFileArgs, secrets: Secrets) -> ToolResult:
    """Reads lines of a file that is too long for memory; such a file can't be edited.

    Raises ToolError.
    """
    if b"\0" in start:
        raise binary(place)
    try:
        with open_regular(place) as file:
            lines = _lines(file)
            skipped = sum(1 for _ in islice(lines, args.line - 1))
            first = next(lines, None)
            if first is None:
                raise ToolError(f"{place.given} has only {skipped} lines.")
            page = _Page(chain([first], lines), args, secrets)
    except OSError as error:
        raise unreadable(place, error) from error
    return page.result(place, {"tooLongToChange": True})


def _lines(file: BinaryIO) -> Iterator[str]:
    """Yields the lines, each cut after `_PIECE` bytes and without its newline."""
    number = 0
    while line := file.readline(_PIECE):
        rest = line
        while rest and not rest.endswith(b"\n"):
            from_thread.check_cancelled()
            rest = file.readline(_PIECE)
        if number % _STRIDE == 0:
            from_thread.check_cancelled()
        number += 1
        yield line.decode("utf-8", "replace").removesuffix("\n").removesuffix("\r")
