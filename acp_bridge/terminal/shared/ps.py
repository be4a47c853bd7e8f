"""The output of `acp-bridge ps`: the answers of all bridges as a table or as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from acp_bridge.core.protocol import SOCKET_PROTOCOL, Json, as_object
from acp_bridge.core.runtime.own_commands import OWN_COMMANDS
from acp_bridge.sharing.listening.run_files import LiveBridge
from acp_bridge.terminal.cli.harmless import one_line
from acp_bridge.terminal.shared.known import short_ids
from acp_bridge.terminal.shared.live import Answer
from acp_bridge.terminal.shared.table import cut, table

if TYPE_CHECKING:
    from acp_bridge.core.journal import SessionInfo
    from acp_bridge.terminal.shared.stored import Holder

#: characters of a question that are shown; a permission takes fewer, a form may take more.
_ASKS = 500
_HEAD = ("ID", "STATE", "FOR", "WAITING", "CLIENTS", "AGENT", "FOLDER", "TITLE")


def as_text(answers: Sequence[Answer], columns: int | None, again: str = "") -> str:
    """Return a table of the live sessions, with the open questions below it.

    `columns`: the width of the terminal; None: lines are not cut. `again`: the option with which
    the command that answers a question reaches the session, such as `--at URL `.
    """
    sessions = [about for answer in answers for about in answer.sessions or []]
    short = short_ids(str(about["sessionId"]) for about in sessions)
    rows = [_row(short[str(about["sessionId"])], about) for about in sessions]
    rows += [_silent(answer) for answer in answers if answer.sessions is None]
    if not rows:
        return "No live sessions.\n"
    asked = [
        _asked(short[str(each["sessionId"])], each, again) for each in sessions if "asks" in each
    ]
    lines = [f"{line}\n" for line in asked]  # never cut: a person must see all of it
    return table(_HEAD, rows, columns) + "".join(["\n", *lines] if lines else [])


def elsewhere(
    answers: Sequence[Answer], listed: Sequence[SessionInfo], holders: Mapping[str, Holder]
) -> list[Answer]:
    """Return an answer for each listed session that has a holder, and of which no answer tells.

    They are sessions of a database; most of their bridges are on other machines.
    """
    told = {each["sessionId"] for answer in answers for each in answer.sessions or []}
    return [
        Answer(
            LiveBridge(0, holder.machine, "", SOCKET_PROTOCOL, "", info.agent),
            [
                {
                    "sessionId": info.session_id,
                    "state": "elsewhere",
                    "heldBy": holder._asdict(),
                    "agent": info.agent,
                    "cwd": info.cwd,
                    "title": info.title,
                }
            ],
        )
        for info in listed
        if (holder := holders.get(info.session_id)) and info.session_id not in told
    ]


def as_json(answers: Sequence[Answer]) -> Iterator[Json]:
    """Yield each session as its bridge describes it, and an object for each silent bridge."""
    for answer in answers:
        if answer.sessions is None:
            yield {"state": answer.silence, "agent": answer.bridge.agent, "pid": answer.bridge.pid}
        else:
            yield from answer.sessions


def duration(seconds: object) -> str:
    """Return a duration in seconds as a number and one unit, such as "5m"; "" for no number."""
    if not isinstance(seconds, int | float):
        return ""
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return f"{int(seconds // size)}{unit}"
    return f"{int(seconds)}s"


def _row(short: str, about: Json) -> list[str]:
    said = [about.get(key) for key in ("waiting", "clients", "agent", "cwd", "title")]
    told = ["" if each is None else str(each) for each in said]
    state = str(about.get("state") or "")
    if held := as_object(about.get("heldBy")):
        state = f"at {held.get('machine')} ({held.get('lease')}s)"
    return [short, state, duration(about.get("seconds")), *told]


def _silent(answer: Answer) -> list[str]:
    bridge = answer.bridge
    return [
        "-",
        answer.silence,
        "",
        "",
        "",
        bridge.agent,
        "",
        f"process {bridge.pid} on {bridge.host}",
    ]


def _asked(short: str, about: Json, again: str) -> str:
    what, short = cut(one_line(str(about["asks"])), _ASKS) or "something", one_line(short)
    return f"{short} asks: {what} ({OWN_COMMANDS.line('approve', again + short)}, or deny)"
