"""The lines printed when a chat is left, or its bridge has died: what did not run, how to go on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from acp_bridge.cli.harmless import one_line
from acp_bridge.commands.terminal import known

#: characters of a prompt, and prompts, that are shown.
_LONGEST: Final = 70
_MOST: Final = 10


def left_over(home: Path, session_id: str) -> list[str]:
    """Return each prompt that a session's ended bridge has left over, as one line, in order.

    Reads the journal; empty if it can't be read.
    """
    # imported here: slow, and needed at the end only
    from acp_bridge.journal import JournalError
    from acp_bridge.journal.reading import waiting_prompts
    from acp_bridge.updates.notices import summary

    try:
        rows = waiting_prompts(home, session_id)
    except JournalError:
        return []
    prompts = [row.params.get("prompt") for row in rows]
    return [one_line(summary(p if isinstance(p, list) else [], _LONGEST)) for p in prompts]


def is_kept(home: Path, session_id: str) -> bool:
    """Return False if a session can't be opened again, since nothing was said in it.

    Reads the journal; True if it can't be read.
    """
    try:
        return known.kept(home, session_id) is not None
    except known.NotFound:
        return True


def farewell(left: Sequence[str], how: str) -> str:
    """Return the lines about the prompts that are left over and `how` to come back."""
    if not left:
        return how
    them = "One prompt has" if len(left) == 1 else f"{len(left)} prompts have"
    lines = [f"{them} not run:", *(f"  {at}. {text}" for at, text in enumerate(left[:_MOST], 1))]
    if (more := len(left) - _MOST) > 0:
        lines.append(f"  and {more} more")
    return "\n".join(
        [*lines, how, "There /queue run runs what is left over, /queue drop forgets it."]
    )
