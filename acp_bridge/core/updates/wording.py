"""Puts times and texts of others into the form in which notices show them. SANS-IO.

A text that the bridge did not write is one line of bounded length inside a notice: `words` of a
sentence, or code (`as_code`, `code`). So nobody writes lines of their own in the bridge's name.
"""

from __future__ import annotations

import re
from typing import Final

from acp_bridge.core.runtime.own_commands import OWN_COMMANDS

#: characters of a text of others in a notice.
_LONGEST: Final = 500
#: what a program writes to move a cursor or to colour its words.
_ESCAPES: Final = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[ -/]*[0-~]"
)


def without_escapes(text: str) -> str:
    """Return what a program wrote for a terminal without colours and moves of the cursor."""
    return _ESCAPES.sub("", text)


def duration(seconds: float) -> str:
    """Return a time in words, in its two largest units: `1 h 5 min`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    left, parts = round(seconds), list[str]()
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min"), (1, "s")):
        if number := left // size:
            parts.append(f"{number} {unit}")
        left %= size
    return " ".join(parts[:2])


def visible(line: str) -> str:
    """Return a line with its invisible characters escaped."""
    if line.isprintable():
        return line
    shown = (each if each.isprintable() else ascii(each)[1:-1] for each in line)
    return "".join(shown)


def _one_line(text: str, most: int) -> str:
    """Return a text as one visible line of at most `most` characters."""
    looked_at = text[: 8 * most]  # a text of megabytes is not read as a whole for one line
    line = visible(" ".join(looked_at.split()))
    return line if len(line) <= most and looked_at == text else f"{line[: most - 1]}…"


def words(text: str, most: int = _LONGEST) -> str:
    """Return a text of others as one line of at most `most` characters, for a notice's sentence.

    No link of Markdown is left in it, since that would lead elsewhere than it says.
    """
    return _one_line(text, most).replace("](", "] (")


def code(text: str) -> str:
    """Return a text as one short line that can stand between backticks."""
    return _one_line(text, 80).replace("`", "'") or " "


def as_code(text: str, most: int = _LONGEST) -> str:
    """Return a text of others as one line of code in Markdown, with its own backticks.

    `most`: the characters of the line.
    """
    line = _one_line(text, most)
    longest = max((len(run) for run in re.findall("`+", line)), default=0)
    if line.startswith("/queue"):  # in one backtick it is the bridge's command (`own_command`)
        longest = max(longest, 1)
    fence = "`" * (1 + longest)
    edge = " " if len(fence) > 1 or not line else ""
    return f"{fence}{edge}{line}{edge}{fence}"


def trust(folder: str) -> str:
    """Return the command with which the user trusts a project, as code; a path is shown whole."""
    return as_code(OWN_COMMANDS.line("trust", folder), 8_400)


def named(names: list[str], most: int) -> str:
    """Return the first `most` names, as a list in a sentence, and how many more there are."""
    told = [as_code(code(each)) for each in names[:most]]
    return ", ".join([*told, *([f"{len(names) - most} more"] if len(names) > most else [])])
