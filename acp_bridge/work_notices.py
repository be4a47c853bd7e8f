"""What the bridge says of turns that run and prompts that wait, to who was not there before."""

from __future__ import annotations

from typing import Final

from acp_bridge import notices
from acp_bridge.protocol import Json

#: characters of a prompt's text.
_LENGTH: Final = 70

NOTHING_RUNS: Final = "Nothing runs and nothing waits."
NEXT: Final = (
    "[acp-bridge] What was waited for has ended, and there is more: `/queue wait` waits for the"
    " next, `/queue` shows what waits."
)


def at_work(running: Json | None, waiting: list[Json]) -> str:
    """Return what a load says of work that goes on; the arguments are parameters of prompts."""
    lines = []
    if running is not None:
        lines.append(f"A turn runs in this session: {_quoted(running)}.")
    if waiting:
        count = "1 prompt waits" if len(waiting) == 1 else f"{len(waiting)} prompts wait"
        lines += [f"{count} in the queue:", notices.numbered(waiting)]
    lines.append(
        "`/queue wait` waits until the turn ends, and meanwhile Stop reaches it; `/queue stop`"
        " stops it at once."
    )
    return "[acp-bridge] " + "\n\n".join(lines)


def stopping(prompt: Json) -> str:
    """Return the answer to `/queue stop`; `prompt`: the parameters of the prompt that it ends."""
    return f"Stopping {_quoted(prompt)}."


def _quoted(prompt: Json) -> str:
    return f"“{notices.summary(prompt['prompt'], _LENGTH)}”"
