"""Checks the bridges: which run, what killed ones have left, and who has which session."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from acp_bridge import __version__
from acp_bridge.core.agents import origin
from acp_bridge.core.agents.holder import read_holder
from acp_bridge.core.agents.lease import is_alive, is_locked, takers
from acp_bridge.core.protocol import Json
from acp_bridge.sharing.listening.places import NoPlace, new_socket_path
from acp_bridge.sharing.listening.run_files import Listed, LiveBridge, listed
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
from acp_bridge.terminal.shared.live import Answer, ask_all

AREA: Final = "bridges"
#: seconds that bridges have to answer.
_GLANCE: Final = 1.0
#: seconds; a younger socket without a run file may belong to a bridge that is starting.
_OLD: Final = 60.0
_NAMED: Final = 10


async def check(subject: Subject) -> list[Finding]:
    """Check the bridges that run, or have run, with this data folder; return the findings."""
    home = subject.settings.home
    if not subject.home_usable:
        return [NO_HOME]
    try:
        found = await from_disk(lambda: listed(home))
        held = await from_disk(lambda: held_sessions(home))
    except Silent as silent:
        return [error(f"the bridges of {home} can't be looked at: {silent}")]
    except OSError as failed:
        what = f"{failed.filename or home} can't be looked at: {failed.strerror}"
        return [error(what, "see whose it is: was acp-bridge run as another user?")]
    if origin.runs_in_agent():  # bridges refuse agents
        asked = [Answer(bridge, []) for bridge in found.live]
    else:
        asked = await ask_all(found.live, _GLANCE)
    real = {answer.bridge.socket for answer in asked}
    posing = [bridge for bridge in found.live if bridge.socket not in real]
    findings = [*running(asked, held), *others(found.live, held), *poses(posing), *left(found)]
    return findings + sockets(home, subject)


def running(answers: Sequence[Answer], held: Sequence[Held]) -> list[Finding]:
    """Return a finding for each bridge that runs, or one finding that no bridge runs."""
    if not answers:
        return [ok("no acp-bridge runs now", live=[])]
    return [_bridge(answer, held) for answer in answers]


def _bridge(answer: Answer, held: Sequence[Held]) -> Finding:
    bridge = answer.bridge
    ids = [each.session_id for each in held if each.socket == bridge.socket]
    holds = f"holds {_named(ids)}" if ids else "holds no session"
    text = f"process {bridge.pid} ({bridge.agent}) {holds}"
    data: Json = {
        "pid": bridge.pid,
        "agent": bridge.agent,
        "version": bridge.version,
        "sessions": ids,
    }
    if bridge.version != __version__:
        return warning(
            f"{text}; it is of version {bridge.version}, and this is {__version__}",
            "restart the editor that has started it",
            **data,
        )
    if answer.sessions is None:
        return warning(
            f"{text}; it has not answered within {_GLANCE:g} s",
            f"if that stays so: kill {bridge.pid}, and kill -9 {bridge.pid} if it is stopped; its"
            " sessions are kept",
            **data,
        )
    return ok(text, **data)


def others(bridges: Sequence[LiveBridge], held: Sequence[Held]) -> list[Finding]:
    """Return findings for locked sessions whose bridge is not among `bridges`, one per process."""
    known = {bridge.socket for bridge in bridges}
    found = [each for each in held if each.socket not in known]
    if not found:
        return []
    findings = []
    for pid in sorted({each.pid or 0 for each in found}):
        ids = [each.session_id for each in found if (each.pid or 0) == pid]
        findings.append(_other(pid, ids, lives=bool(pid) and is_alive(pid)))
    return findings


def _other(pid: int, ids: Sequence[str], *, lives: bool) -> Finding:
    data: Json = {"pid": pid or None, "sessions": list(ids)}
    if lives:
        return ok(
            f"process {pid}, which listens on no socket (--no-listen), holds {_named(ids)}", **data
        )
    whom = f"what process {pid} has left, which has ended," if pid else "a process without a name"
    return warning(
        f"{whom} holds {_named(ids)}",
        "nothing, if that ends within some seconds; else look for processes of that agent",
        **data,
    )


def poses(bridges: Sequence[LiveBridge]) -> list[Finding]:
    """Return a warning for each run file whose socket is an agent's process, not a bridge."""
    return [
        warning(
            f"what is listed as process {bridge.pid} is no acp-bridge of yours: nothing connects"
            " to it",
            "an agent has put it there: end that agent",
            pid=bridge.pid,
        )
        for bridge in bridges
    ]


def left(found: Listed) -> list[Finding]:
    """Return the findings about run files and sockets that killed bridges have left."""
    named = {bridge.socket for bridge in (*found.live, *found.dead) if bridge}
    strays = [path for path in found.sockets if path not in named and _is_old(path)]
    findings = []
    if found.dead:
        many = "bridges that were" if len(found.dead) > 1 else "bridge that was"
        text = f"{len(found.dead)} {many} killed left run files; the next bridge removes them"
        findings.append(ok(text))
    if strays:
        findings.append(
            warning(f"sockets without a bridge: {', '.join(strays[:_NAMED])}", "remove them")
        )
    return findings


def sockets(home: Path, subject: Subject) -> list[Finding]:
    """Return a warning if a bridge can't have a socket, without which no other client can join."""
    if subject.settings.listen:
        try:
            new_socket_path(home, subject.env)
        except NoPlace as why:
            return [warning(f"no other client can join a session: {why}", "a shorter --home helps")]
    return []


def _is_old(path: str) -> bool:
    try:
        return time.time() - os.lstat(path).st_mtime > _OLD
    except OSError:
        return False


def _named(ids: Sequence[str]) -> str:
    named = ", ".join(each[:8] for each in ids[:_NAMED])
    more = f" and {len(ids) - _NAMED} more" if len(ids) > _NAMED else ""
    return f"session{'' if len(ids) == 1 else 's'} {named}{more}"


@dataclass(frozen=True, slots=True)
class Held:
    """A session whose lock a process has."""

    session_id: str
    #: the path of the socket of the session's bridge, if the lock file names it.
    socket: str | None
    #: the process that took the lock, if the system knows it.
    pid: int | None


def held_sessions(home: Path) -> list[Held]:
    """Return the sessions whose locks are taken. Raises OSError."""
    owners: dict[int, int] | None = None
    found = []
    for path in sorted((home / "sessions").glob("*.lock")):
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:  # deleted meanwhile, or another user's, which the check of sessions reports
            continue
        try:
            if not is_locked(fd):
                continue
            owners = takers() if owners is None else owners
            holder = read_holder(path)
            pid = owners.get(os.fstat(fd).st_ino)
            found.append(Held(path.stem, holder.socket if holder else None, pid))
        finally:
            os.close(fd)
    return found
