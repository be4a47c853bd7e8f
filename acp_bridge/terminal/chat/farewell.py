"""The lines printed when a chat is left, or its bridge has died: what did not run, how to go on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from acp_bridge.terminal.shared import known
from acp_bridge.terminal.view.block_text import one_line

#: characters of a prompt, and prompts, that are shown.
_LONGEST: Final = 70
_MOST: Final = 10


def left_over(home: Path, session_id: str) -> list[str]:
    """Return each prompt that a session's ended bridge has left over, its number first, in order.

    Reads the journal; empty if it can't be read.
    """
    # imported here: slow, and needed at the end only
    from acp_bridge.core.journal import JournalError
    from acp_bridge.core.journal.reading import waiting_prompts
    from acp_bridge.core.updates.notices import summary

    try:
        rows = waiting_prompts(home, session_id)
    except JournalError:
        return []
    prompts = [(row.seq, row.params.get("prompt")) for row in rows]
    return [f"{n}: {summary(p if isinstance(p, list) else [], _LONGEST)}" for n, p in prompts]


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
    there = "There /queue run runs what is left over, /queue drop forgets it."
    return "\n".join([f"{them} not run:", *_listed(left), how, there])


def unsent(prompts: Sequence[str]) -> str:
    """Return the lines about prompts that were entered before the session was open."""
    them = "One prompt was" if len(prompts) == 1 else f"{len(prompts)} prompts were"
    back = "Up brings back what was entered, in another chat, too."
    listed = _listed([f"{at}. {text}" for at, text in enumerate(prompts, 1)])
    return "\n".join([f"{them} not sent:", *listed, back])


def _listed(prompts: Sequence[str]) -> list[str]:
    lines = [f"  {one_line(text, _LONGEST)}" for text in prompts[:_MOST]]
    more = len(prompts) - _MOST
    return [*lines, f"  and {more} more"] if more > 0 else lines
