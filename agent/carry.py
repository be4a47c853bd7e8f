"""`python -m agent.carry`: takes what the model was given in a session out of this data folder.

Or into another, as a new session. One record a line, on stdout or stdin:

    python -m agent.carry out HOME SESSION
    python -m agent.carry in HOME SESSION CWD

Choices, "always" answers, modes and the system prompt stay behind: they are made anew where the
session goes on. Exit code: 0 done, 1 not done, and nothing is left of it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from agent.conversation.decisions import DECISIONS
from agent.conversation.entries import Record
from agent.conversation.transcript import (
    Transcript,
    UnknownSession,
    delete_session,
    dump,
    parse,
    path_of,
)

#: the kinds of records that are not carried
_LEFT = ("session", "system", *DECISIONS)


def main(arguments: list[str]) -> int:
    """Runs the command; returns its exit code."""
    match arguments:
        case ["out", home, session_id]:
            return carry_out(Path(home) / "agent", session_id)
        case ["in", home, session_id, cwd]:
            return carry_in(Path(home) / "agent", session_id, cwd, sys.stdin.buffer)
    print(__doc__, file=sys.stderr)
    return 2


def carry_out(folder: Path, session_id: str) -> int:
    """Writes a session's records to stdout; returns 0, or 1 if they can't be read."""
    try:
        with path_of(folder, session_id).open("rb") as file:
            for record in _joined(file):
                sys.stdout.buffer.write(dump(record))
    except (OSError, UnknownSession) as error:
        print(f"agent: {error}", file=sys.stderr)
        return 1
    return 0


def carry_in(folder: Path, session_id: str, cwd: str, lines: Iterable[bytes]) -> int:
    """Creates the session `session_id` from `lines`, the output of `carry_out`.

    Returns 0, or 1 if the session exists already or can't be written; then it leaves nothing new.
    """
    if path_of(folder, session_id).exists():
        return 1
    try:
        created = Transcript.create(folder, session_id, cwd)
        for record in _joined(lines):
            created.append(record)
        created.close()
    except (OSError, UnknownSession) as error:
        delete_session(folder, session_id)
        print(f"agent: {error}", file=sys.stderr)
        return 1
    return 0


def _joined(lines: Iterable[bytes]) -> Iterator[Record]:
    """Yields the records of `lines` that are carried; consecutive tokens of one kind become one."""
    open_one: Record | None = None
    for line in lines:
        record = parse(line)
        if record is None or record.get("t") in _LEFT:
            continue
        record.pop("mode", None)
        if open_one and _is_piece(record) and _is_piece(open_one) and record["t"] == open_one["t"]:
            open_one["d"] += record["d"]
            continue
        if open_one:
            yield open_one
        open_one = record
    if open_one:
        yield open_one


def _is_piece(record: Record) -> bool:
    return record.keys() == {"t", "d"} and isinstance(record["d"], str)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
