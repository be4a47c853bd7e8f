"""`acp-bridge sessions` and `show`: read recorded sessions, also while bridges have them open."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from acp_bridge.core.journal import JournalError, SessionInfo
from acp_bridge.core.journal.reading import turns_of
from acp_bridge.core.protocol import CONTEXT, Json, own_meta
from acp_bridge.core.runtime import log
from acp_bridge.core.runtime.own_commands import OWN_COMMANDS
from acp_bridge.terminal.cli.exits import Exit
from acp_bridge.terminal.cli.parser import CommandParser
from acp_bridge.terminal.cli.printing import columns, fail, print_json, print_text
from acp_bridge.terminal.shared import known
from acp_bridge.terminal.shared.changes import changes, changes_as_json, changes_text
from acp_bridge.terminal.shared.files import deeds, files_as_json, files_table
from acp_bridge.terminal.shared.kept import (
    decisions,
    html_page,
    page,
    sessions_table,
    transcript_of,
)
from acp_bridge.terminal.shared.searching import with_places
from acp_bridge.terminal.shared.since import add_since, since_of
from acp_bridge.terminal.shared.stored import Holder, Kept, at_kept
from acp_bridge.terminal.shared.turns import turns, turns_as_json, turns_table
from acp_bridge.terminal.shared.writing import NotWritten, write_text

_SESSIONS_ABOUT: Final = """\
List the sessions that are kept, the one that was used last first. Nothing is started, and nothing
is changed."""
_SHOW_ABOUT: Final = """\
Write the transcript of a session as Markdown, or as HTML: what was said, tool calls with their
changes, and the prompts that wait. It may be a session that runs now. Nothing is started or
changed. ID may be shortened; without one, it is the session that was used last in this folder."""


def sessions_parser() -> CommandParser:
    """Return the parser of the arguments of `acp-bridge sessions`."""
    parser = CommandParser(
        "sessions",
        "acp-bridge sessions [--cwd FOLDER] [--search TEXT] [--since TIME] [--limit N] [--json]",
        _SESSIONS_ABOUT,
        [
            "acp-bridge sessions --cwd .",
            "acp-bridge sessions --since 7d --limit 10",
            "acp-bridge sessions --search 'parser \"empty line\"'",
        ],
        "exit code: 0 done, 1 the list can't be read or searched, 2 wrong usage.",
    )
    parser.add_argument("--cwd", metavar="FOLDER", help="only sessions that work in this folder")
    parser.add_argument(
        "--search",
        metavar="TEXT",
        help="only sessions in which these words, or beginnings of words, were said at once;\n"
        'or whose title, folder, agent or id has this text. A phrase is put in "quotes"',
    )
    add_since(parser, "sessions that were used")
    parser.add_argument(
        "--limit", metavar="N", help="no more than this many, those that were used last"
    )
    parser.add_argument(
        "--json", action="store_true", help="one line of JSON for each session, whole"
    )
    parser.add_home()
    parser.add_journal()
    return parser


def show_parser() -> CommandParser:
    """Return the parser of the arguments of `acp-bridge show`."""
    parser = CommandParser(
        "show",
        "acp-bridge show [ID] [--html FILE | --json | --decisions]\n"
        "acp-bridge show [ID] --turns | --files | --diff [--turn N] [--json]",
        _SHOW_ABOUT,
        [
            "acp-bridge show 3f2a | less",
            "acp-bridge show --html session.html 3f2a",
            "acp-bridge show --json 3f2a > session.jsonl",
            "acp-bridge show 3f2a --turns",
            "acp-bridge show 3f2a --diff --turn 2",
        ],
        "exit code: 0 done, 1 no such session, or it can't be read, 2 wrong usage.",
    )
    parser.add_argument("session", nargs="?", metavar="ID")
    parser.add_argument(
        "--html",
        metavar="FILE",
        help="write a new file for a browser, without script, that fetches nothing",
    )
    parser.add_argument(
        "--json",
        action="store_true",
        help="each update as one line of JSON, as an editor would get it;\n"
        "with --turns, --files and --diff a line for each",
    )
    parser.add_argument(
        "--decisions",
        action="store_true",
        help="only what was decided about permissions, and by whom\n(docs/permissions.md)",
    )
    _add_looking_back(parser)
    parser.add_home()
    parser.add_journal()
    return parser


def sessions(arguments: Sequence[str]) -> int:
    """Run `acp-bridge sessions`; returns the exit code."""
    log.configure("error", None)
    parser = sessions_parser()
    given = parser.parse_args(arguments)
    since = since_of(parser, given.since)
    if given.limit is not None and (not given.limit.isdecimal() or int(given.limit) < 1):
        parser.error("--limit: a number from 1")
    given.limit = None if given.limit is None else int(given.limit)
    return at_kept("sessions", given, partial(_sessions, given, since))


def _sessions(given: Namespace, since: str, kept: Kept) -> int:
    home, holders = kept.home, kept.holders
    try:
        found = [info for info in known.listing(home) if info.updated_at >= since]
        said = None if given.search is None else kept.said(found, given.search)
    except (known.NotFound, JournalError) as why:
        return fail("sessions", why)
    if given.cwd is not None:
        folder = known.real_path(given.cwd)
        found = [info for info in found if info.cwd and known.real(info.cwd) == folder]
    if said is not None:
        text = given.search.casefold()
        found = [info for info in found if info.session_id in said or _has(info, text)]
    shown = found[: given.limit]
    if not given.json:
        return _print_table(shown, said or {}, holders, len(found) - len(shown))
    if said is None:
        return print_json(_as_json(info, holders) for info in shown)
    return print_json({**_as_json(i, holders), "said": said.get(i.session_id)} for i in shown)


def _print_table(
    found: list[SessionInfo], said: Mapping[str, str], holders: Mapping[str, Holder], more: int
) -> int:
    table = with_places(sessions_table(found, columns(), holders=holders), found, said, columns())
    if more:
        table += f"{more} session{'' if more == 1 else 's'} more: --limit shows more.\n"
    return print_text(table)


def show(arguments: Sequence[str]) -> int:
    """Run `acp-bridge show`; returns the exit code."""
    log.configure("error", None)
    parser = show_parser()
    given = parser.parse_args(arguments)
    if given.turn is not None and not given.diff:
        parser.error("--turn goes with --diff")
    return at_kept("show", given, partial(_show, given))


def _show(given: Namespace, kept: Kept) -> int:
    home = kept.home
    try:
        if given.session is None:
            info = known.last_used(home, known.here())
        else:
            info = known.session(home, given.session)
    except known.NotFound as why:
        return fail("show", why)
    try:
        kept.fetch(info.session_id)
        if given.decisions:
            return print_text(decisions(home, info, columns()))
        if given.turns or given.files or given.diff:
            return _look_back(given, home, info)
        if given.html is not None:
            write_text(Path(os.path.expanduser(given.html)), html_page(home, info))
            return Exit.DONE
        if not given.json:
            return print_text(page(home, info))
        said = transcript_of(home, info)
    except JournalError as error:
        return fail(
            "show", f"session {info.session_id[:8]} can't be read: {error}; {known.where()}"
        )
    except NotWritten as why:
        return fail("show", why)
    shown = (each for each in said if not own_meta(each).get(CONTEXT))
    return print_json({"sessionId": info.session_id, **each} for each in shown)


def _has(info: SessionInfo, text: str) -> bool:
    said = (info.title or "", info.cwd, info.agent, info.session_id)
    return any(text in each.casefold() for each in said)


def _as_json(info: SessionInfo, holders: Mapping[str, Holder]) -> Json:
    holder = holders.get(info.session_id)
    return {
        "sessionId": info.session_id,
        "title": info.title,
        "cwd": info.cwd,
        "agent": info.agent,
        "updatedAt": info.updated_at,
        **({"heldBy": holder._asdict()} if holder else {}),
    }


def _add_looking_back(parser: CommandParser) -> None:
    """Add the options that say what is printed: `--turns`, `--files`, `--diff` and `--turn`."""
    parser.add_argument(
        "--turns",
        action="store_true",
        help="a line for each turn: when it began, how long it took, how it\n"
        "ended, the tokens that the agent tells, and who decided what",
    )
    parser.add_argument(
        "--files", action="store_true", help="what was read, edited and run, each once"
    )
    parser.add_argument(
        "--diff",
        action="store_true",
        help="what the session changed, as a patch from its tool calls; what it\n"
        "can't tell is said in lines that begin with #",
    )
    parser.add_argument(
        "--turn", type=int, metavar="N", help="with --diff: only what this turn changed"
    )


def _look_back(given: Namespace, home: Path, info: SessionInfo) -> int:
    """Print the session's turns, changes or files, as `given` says; returns the exit code.

    Raises JournalError.
    """
    if given.turns:
        ran = turns(home, info)
        if given.json:
            return print_json(turns_as_json(ran, info.session_id))
        return print_text(turns_table(ran, columns()))
    if given.turn is not None and (why := _no_such_turn(home, info, given.turn)) is not None:
        return fail("show", why)
    if given.diff:
        changed = changes(home, info, given.turn)
        if given.json:
            return print_json(changes_as_json(changed, info.session_id))
        return print_text(changes_text(changed))
    did = deeds(home, info)
    if given.json:
        return print_json(files_as_json(did, info.session_id))
    return print_text(files_table(did, columns()))


def _no_such_turn(home: Path, info: SessionInfo, turn: int) -> str | None:
    """Return what to tell the user if a session has no turn of this number, else None."""
    numbers = [row.prompt.seq for row in turns_of(home, info.session_id)]
    if turn in (0, *numbers):  # 0: outside of any
        return None
    short = info.session_id[:8]
    how = OWN_COMMANDS.line("show", f"{short} --turns")
    return f"session {short} has no turn {turn}: {how} lists the turns that it has"
