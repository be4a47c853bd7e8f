"""What `acp-bridge show` prints of a session beside its transcript: turns, files, changes."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from acp_bridge.core.journal import SessionInfo
from acp_bridge.core.journal.reading import turns_of
from acp_bridge.core.runtime.own_commands import OWN_COMMANDS
from acp_bridge.terminal.cli.parser import CommandParser
from acp_bridge.terminal.cli.printing import columns, fail, print_json, print_text
from acp_bridge.terminal.shared.changes import changes, changes_as_json, changes_text
from acp_bridge.terminal.shared.files import deeds, files_as_json, files_table
from acp_bridge.terminal.shared.turns import turns, turns_as_json, turns_table


def add_options(parser: CommandParser) -> None:
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


def show(given: Namespace, home: Path, info: SessionInfo) -> int:
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
