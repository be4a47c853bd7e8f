"""What a kept session has read, changed and run, as its tool calls tell it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from acp_bridge.core.journal import SessionInfo
from acp_bridge.core.journal.reading import in_turns, unanswered_calls
from acp_bridge.core.protocol import Json
from acp_bridge.terminal.cli.options import BUILT_IN
from acp_bridge.terminal.shared.table import table
from acp_bridge.terminal.view.work import Done, Ran, Work, work

#: stands behind a command that has ended, where nothing tells of its run.
NOT_KNOWN: Final = "(not known whether it ran)"
#: how many turns of a file or a command are shown.
_TURNS: Final = 5


@dataclass(frozen=True, slots=True)
class Deed:
    """A file that was read or edited, or a command, with the turns in which it was.

    `did` is `unknown` for a command of which nobody knows whether it ran.
    """

    did: str
    what: str
    #: how the command ended last; "" for a success, and where that is not known.
    end: str = ""
    turns: list[int] = field(default_factory=list)


def deeds(home: Path, info: SessionInfo) -> list[Deed]:
    """Return what a session did: what was read, edited, run, each once. Raises JournalError."""
    found: dict[tuple[str, str], Deed] = {}
    for done in work_of(home, info).done:
        for did, what in _did(done, info.cwd):
            before = found.get((did, what))
            turns = before.turns if before else []
            found[did, what] = Deed(did, what, done.end if did == "run" else "", turns)
            if done.turn not in turns:
                turns.append(done.turn)
    order = ("read", "edited", "run", "unknown")
    return sorted(found.values(), key=lambda deed: order.index(deed.did))


def work_of(home: Path, info: SessionInfo) -> Work:
    """Return what the agent of a kept session did. Raises JournalError."""
    unanswered = unanswered_calls(home, info.session_id)
    own_agent = info.agent == BUILT_IN
    return work(in_turns(home, info.session_id), unanswered, tells_begin=own_agent)


def files_table(found: list[Deed], columns: int | None) -> str:
    """Return a table with a line for each file and command."""
    if not found:
        return "Nothing was read, edited or run.\n"
    rows = [[deed.did, _turns(deed.turns), _what(deed)] for deed in found]
    return table(["DID", "TURN", "WHAT"], rows, columns)


def files_as_json(found: list[Deed], session_id: str) -> Iterator[Json]:
    """Give an object for each file and command."""
    for deed in found:
        is_command = deed.did in ("run", "unknown")
        what = {"command": deed.what, "end": deed.end} if is_command else {"path": deed.what}
        yield {"sessionId": session_id, "did": deed.did, **what, "turns": deed.turns}


def within(path: str, folder: str) -> str:
    """Return a path relative to `folder` if it lies in that, else as it is."""
    inside = folder.rstrip("/") + "/"
    return path[len(inside) :] if folder and path.startswith(inside) else path


def _did(done: Done, folder: str) -> Iterator[tuple[str, str]]:
    for command in done.commands(Ran.YES):
        yield "run", command
    for command in done.commands(Ran.UNKNOWN):
        yield "unknown", command
    if done.changes or done.reads:
        for path in done.paths:
            yield "edited" if done.changes else "read", within(path, folder)


def _what(deed: Deed) -> str:
    if deed.did == "unknown":
        return f"{deed.what} {NOT_KNOWN}"
    return f"{deed.what} ({deed.end})" if deed.end else deed.what


def _turns(numbers: list[int]) -> str:
    """Return numbers of turns as text, only the first of many; `-` means outside of any turn."""
    told = [str(number or "-") for number in numbers]
    more = [f"{len(told) - _TURNS} more"] if len(told) > _TURNS else []
    return ", ".join([*told[:_TURNS], *more])
