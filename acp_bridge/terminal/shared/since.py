"""The option `--since`: only what is of the last hours, days or weeks."""

from __future__ import annotations

import re
from typing import Final

from acp_bridge.core.journal.records import days_ago
from acp_bridge.terminal.cli.parser import CommandParser

_SINCE: Final = re.compile(r"(\d{1,5})([hdw])")
_DAYS: Final = {"h": 1 / 24, "d": 1, "w": 7}


def add_since(parser: CommandParser, what: str) -> None:
    """Add the option `--since` to a command's parser; `what` it leaves in, and what that did."""
    parser.add_argument(
        "--since", metavar="TIME", help=f"only {what} in this last time, such as 12h, 7d or 4w"
    )


def since_of(parser: CommandParser, given: str | None) -> str:
    """Return the time that `--since` means, in UTC as ISO 8601; "" if the option was not given.

    Raises SystemExit(2) after a message on stderr if it is no time.
    """
    if given is None:
        return ""
    found = _SINCE.fullmatch(given)
    if found is None:
        parser.error("--since: a time such as 12h, 7d or 4w")
    return days_ago(int(found[1]) * _DAYS[found[2]])
