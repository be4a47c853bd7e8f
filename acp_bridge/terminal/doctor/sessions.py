"""Checks the recorded sessions: the index, and the file of each session."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from acp_bridge.core.protocol import Json
from acp_bridge.terminal.doctor.data_folder import size
from acp_bridge.terminal.doctor.findings import (
    NO_HOME,
    Finding,
    Silent,
    Subject,
    error,
    from_disk,
    ok,
    warning,
)
from acp_bridge.terminal.doctor.looking import IndexState, Sessions, index_state, look_at_sessions

AREA: Final = "sessions"
#: seconds: for opening all files of sessions, and for the disk to answer at all.
_OPENING, _PATIENCE = 5.0, 15.0
_NAMED: Final = 5


async def check(subject: Subject) -> list[Finding]:
    """Check the recorded sessions; return the findings."""
    home = subject.settings.home
    if not subject.home_usable:
        return [NO_HOME]
    if not home.is_dir():
        return [ok("none are kept yet", sessions=0)]

    def look() -> list[Finding]:
        return [index(home, index_state(home)), *files(home, look_at_sessions(home, _OPENING))]

    try:
        return await from_disk(look, _PATIENCE)
    except Silent as silent:
        return [error(f"the sessions in {home} can't be looked at: {silent}")]
    except OSError as failed:
        what = f"{failed.filename or home} can't be looked at: {failed.strerror}"
        return [error(what, "see whose it is: was acp-bridge run as another user?")]


def index(home: Path, state: IndexState) -> Finding:
    """Return the finding about the state of the index of sessions."""
    file = home / "index.db"
    data: Json = {"index": state.value}
    match state:
        case IndexState.MISSING:
            return ok("there is no list of sessions yet; the first bridge makes it", **data)
        case IndexState.WHOLE:
            return ok("the list of sessions is whole", **data)
        case IndexState.DAMAGED:
            return warning(
                f"the list of sessions ({file}) is damaged; no session is lost",
                "nothing: the next bridge keeps it as index.db.damaged and makes it again",
                **data,
            )
        case IndexState.NEWER:
            return error(
                f"the list of sessions ({file}) is of a newer acp-bridge: sessions open, but they"
                " can't be listed or deleted",
                "install that version, or move index.db away: it is made again",
                **data,
            )
    return error(
        f"the list of sessions ({file}) can't be read",
        "see whose file it is, and if the disk is well",
        **data,
    )


def files(home: Path, found: Sessions) -> list[Finding]:
    """Return findings about the sessions' files: their number and size, and unreadable ones."""
    count = f"{found.count} session{'' if found.count == 1 else 's'}"
    findings = [
        ok(f"{count}, {size(found.size)}", sessions=found.count, sessionBytes=found.size)
        if found.count
        else ok("none are kept yet", sessions=0)
    ]
    if found.unreadable:
        named = ", ".join(each[:8] for each in found.unreadable[:_NAMED])
        more = len(found.unreadable) - _NAMED
        findings.append(
            warning(
                f"{len(found.unreadable)} of them can't be read: {named}"
                + (f" and {more} more" if more > 0 else ""),
                f"the files are in {home / 'sessions'}, or should be: from a backup they can be put"
                " back; the others are not hurt",
                unreadable=list(found.unreadable),
            )
        )
    if found.not_looked_at:
        findings.append(ok(f"{found.not_looked_at} of them were not opened, for want of time"))
    return findings
