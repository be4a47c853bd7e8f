"""What `acp-bridge show` tells of a session beside its transcript: its turns, and its files."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from acp_bridge.cli.parser import CommandParser
from acp_bridge.cli.printing import columns, print_json, print_text
from acp_bridge.commands.terminal.files import deeds, files_as_json, files_table
from acp_bridge.commands.terminal.turns import turns, turns_as_json, turns_table
from acp_bridge.journal import SessionInfo


def add_options(parser: CommandParser) -> None:
    """Add the options that say what is told."""
    parser.add_argument(
        "--turns",
        action="store_true",
        help="a line for each turn: when it began, how long it took, how it\n"
        "ended, the tokens that the agent tells, and who decided what",
    )
    parser.add_argument(
        "--files", action="store_true", help="what was read, edited and run, each once"
    )


def show(given: Namespace, home: Path, info: SessionInfo) -> int:
    """Print what the options say; returns the exit code. Raises JournalError."""
    if given.turns:
        ran = turns(home, info)
        if given.json:
            return print_json(turns_as_json(ran, info.session_id))
        return print_text(turns_table(ran, columns()))
    did = deeds(home, info)
    if given.json:
        return print_json(files_as_json(did, info.session_id))
    return print_text(files_table(did, columns()))
