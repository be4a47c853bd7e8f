"""What may stand behind `/queue` in a session: as clients list it, and as the usage says it.

Only what the agent behind the session allows is offered.
"""

from __future__ import annotations

from typing import Final

from acp_bridge.protocol import CAN_PAUSE, Json, can_ask, can_own

#: what stands behind `/queue` for every agent.
_WORDS: Final = (
    "hold",
    "go",
    "wait",
    "stop",
    "run",
    "drop [number]",
    "memory new",
    "memory restore",
    "title WORDS",
)


def offered(capabilities: object) -> tuple[str, ...]:
    """Return what may stand behind `/queue`, for an agent that can do this."""
    pause = ("pause",) if can_own(capabilities, CAN_PAUSE) else ()
    return (*pause, *_WORDS, *(("ask QUESTION",) if can_ask(capabilities) else ()))


def command(words: tuple[str, ...]) -> Json:
    """Return the command as clients list it."""
    return {
        "name": "queue",
        "description": (
            "Show the prompts that wait; wait for or stop the turn that runs; hold, run or drop"
            " what waits"
        ),
        "input": {"hint": " | ".join(words)},
    }


def usage(words: tuple[str, ...]) -> str:
    """Return the answer to words that `/queue` doesn't know."""
    return f"Usage: {', '.join(['`/queue`', *(f'`/queue {each}`' for each in words)])}."
