"""`acp-bridge export` and `import`: a session as one file, taken elsewhere or given away."""

from __future__ import annotations

import os
import subprocess
import sys
from argparse import Namespace
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final
from uuid import uuid4

import anyio

from acp_bridge.core.agents import lease
from acp_bridge.core.journal import Journal, JournalError, SessionInfo
from acp_bridge.core.keys import file as keys
from acp_bridge.core.protocol import Json
from acp_bridge.core.records import replace
from acp_bridge.core.runtime import log
from acp_bridge.core.runtime.redacting import redactor
from acp_bridge.core.session.process.memory import Memory
from acp_bridge.core.updates.children import Children
from acp_bridge.core.wire.jsonrpc import encode, read_object
from acp_bridge.terminal.cli.exits import Exit
from acp_bridge.terminal.cli.options import BUILT_IN, data_folder
from acp_bridge.terminal.cli.parser import CommandParser
from acp_bridge.terminal.cli.printing import fail, print_text
from acp_bridge.terminal.shared import known
from acp_bridge.terminal.shared.bundle import (
    MOST_BYTES,
    Bundle,
    NotABundle,
    read,
    read_session,
    statements,
    updates,
    with_masked,
    written,
)
from acp_bridge.terminal.shared.stored import Kept, at_kept, folder_alone
from acp_bridge.terminal.shared.writing import NotWritten, write_private

_EXPORT_ABOUT: Final = """\
Write a session into a new file that only you may read, for 'acp-bridge import' on another machine
or for somebody else: the transcript, the prompts that wait, and what the built-in agent remembers.
It may be a session that runs now. Nothing is started or changed. ID may be shortened."""
_IMPORT_ABOUT: Final = """\
Make a new session of an exported one, under a new id, which is printed. Nothing is started: a
client loads it as any other. Prompts that waited are left over; modes, options and permissions
are those of a new session."""

#: seconds that the agent has for one export or import.
_PATIENCE: Final = 60.0


def export_session_parser() -> CommandParser:
    """Return the parser of the arguments of `acp-bridge export`."""
    parser = CommandParser(
        "export",
        "acp-bridge export ID [--redact] FILE",
        _EXPORT_ABOUT,
        ["acp-bridge export 3f2a session.bundle", "acp-bridge export 3f2a --redact for-a-bug"],
        "exit code: 0 done, 1 no such session, or it can't be read or written, 2 wrong usage.",
    )
    parser.add_argument("session", metavar="ID")
    parser.add_argument("file", metavar="FILE")
    parser.add_argument(
        "--redact",
        action="store_true",
        help="mask what looks like a key, and the keys in keys.env",
    )
    parser.add_home()
    parser.add_journal()
    return parser


def import_session_parser() -> CommandParser:
    """Return the parser of the arguments of `acp-bridge import`."""
    parser = CommandParser(
        "import",
        "acp-bridge import [--folder FOLDER] FILE",
        _IMPORT_ABOUT,
        ["acp-bridge import session.bundle", "acp-bridge import --folder ~/project session.bundle"],
        "exit code: 0 done, 1 the file is not taken, or the session not kept, 2 wrong usage.",
    )
    parser.add_argument("file", metavar="FILE")
    parser.add_argument(
        "--folder", metavar="FOLDER", default=".", help="where it works; default: this folder"
    )
    parser.add_home()
    return parser


def export_session(arguments: Sequence[str]) -> int:
    """Run `acp-bridge export`; returns the exit code."""
    log.configure("error", None)
    given = export_session_parser().parse_args(arguments)
    return at_kept("export", given, partial(_export, given))


def _export(given: Namespace, kept: Kept) -> int:
    try:
        info = known.session(kept.home, given.session)
        kept.fetch(info.session_id, memory=True)
        bundle = read_session(Journal(kept.home).path(info.session_id), info)
        bundle = replace(bundle, memory=take_out(kept.home, info))
        if given.redact:
            bundle = with_masked(bundle, redactor(keys.values(data_folder(given.home))))
        write_private(Path(os.path.expanduser(given.file)), written(bundle))
    except JournalError as error:
        return fail("export", f"{error}; {known.where()}")
    except (known.NotFound, NotWritten, NotABundle) as why:
        return fail("export", why)
    return Exit.DONE


def import_session(arguments: Sequence[str]) -> int:
    """Run `acp-bridge import`; returns the exit code."""
    log.configure("error", None)
    given = import_session_parser().parse_args(arguments)
    if (why := folder_alone()) is not None:
        return fail("import", why)
    home = data_folder(given.home)
    folder = known.real_path(given.folder)
    if not os.path.isdir(folder):
        return fail("import", f"{given.folder} is no folder", Exit.USAGE)
    try:
        bundle = read(_bytes(Path(os.path.expanduser(given.file))))
        session_id = anyio.run(_keep, home, folder, bundle)
    except NotABundle as why:
        return fail("import", f"{given.file} is not taken: {why}")
    except (JournalError, OSError) as error:
        return fail("import", f"the session is not kept: {error}")
    return print_text(f"{session_id}\n")


def _bytes(path: Path) -> bytes:
    try:
        if not path.is_file():  # a pipe would be waited for
            raise NotABundle("it is no file" if path.exists() else "there is no such file")
        with path.open("rb") as file:
            return file.read(MOST_BYTES + 1)
    except OSError as error:
        raise NotABundle(f"it can't be read: {error.strerror}") from error


async def _keep(home: Path, folder: str, bundle: Bundle) -> str:
    """Make a session of the bundle that works in `folder`; return its new id.

    Raises JournalError, OSError; then nothing of it is left.
    """
    session_id, agents_own = uuid4().hex, uuid4().hex
    journal = Journal(home)
    try:
        await journal.prepare()
        lock = await lease.acquire(journal.lock_path(session_id), 0)
        try:
            remembers = put_in(home, bundle, agents_own, folder)
            await _fill(journal, session_id, folder, bundle, agents_own if remembers else None)
        except BaseException:
            take_back(home, agents_own)
            raise
        finally:
            os.close(lock)
    finally:
        await journal.close()
    return session_id


async def _fill(
    journal: Journal, session_id: str, folder: str, bundle: Bundle, agents_own: str | None
) -> None:
    session = await journal.create(
        session_id,
        cwd=folder,
        agent=bundle.agent,
        agent_info=bundle.agent_info,
        agent_session_id=agents_own,
        prompted=False,
    )
    try:
        await session.take_in(statements(bundle))
        children = Children()
        for params in updates(bundle):
            children.note_recorded(params)
        for key, value in children.take_changed(whole=True).items():
            session.set(key, value)
        if agents_own:
            Memory(session).inherit()
        else:
            Memory(session).give_up(restore=True)
        await session.sync()
        await journal.touch(session_id, title=bundle.title)
    except BaseException:
        with suppress(JournalError), anyio.CancelScope(shield=True):
            await journal.delete(session_id, known=False)
        raise


# -- what the built-in agent remembers; the memory of another agent can't be moved -----------------


def take_out(home: Path, info: SessionInfo) -> list[Json]:
    """Return the records that the built-in agent has of a session; [] if there are none."""
    if info.agent != BUILT_IN or info.agent_session_id is None:
        return []
    lines = _carry(["out", str(home), info.agent_session_id], b"") or b""
    return [record for line in lines.split(b"\n") if (record := read_object(line))]


def put_in(home: Path, bundle: Bundle, session_id: str, cwd: str) -> bool:
    """Give the built-in agent the memory in a bundle, as a session `session_id` in `cwd`.

    Return False if the bundle has none, or the agent can't take it.
    """
    if bundle.agent != BUILT_IN or not bundle.memory:
        return False
    lines = b"".join(map(encode, bundle.memory))
    return _carry(["in", str(home), session_id, cwd], lines) is not None


def take_back(home: Path, session_id: str) -> None:
    """Remove the file that `put_in` has made for a session, if it is there."""
    with suppress(OSError):
        (home / "agent" / f"{session_id}.jsonl").unlink()


def _carry(arguments: list[str], lines: bytes) -> bytes | None:
    """Run `agent.carry` with `lines` as its input; returns its output, None if it failed."""
    command = [sys.executable, "-I", "-m", "agent.carry", *arguments]  # isolated: invariant P14
    try:
        done = subprocess.run(
            command, input=lines, capture_output=True, timeout=_PATIENCE, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
