"""The sentences about words that join the turn that runs."""

from __future__ import annotations

from typing import Any

from acp_bridge.core.updates.notices import beginning
from acp_bridge.core.updates.wording import words


def given_back(prompt: list[Any]) -> str:
    """Return the notice that a turn was stopped before the agent took these words into it."""
    return f"[acp-bridge] Stopped before the agent took these words: {beginning(prompt)}"


def steers(prompt: list[Any], *, now: bool) -> str:
    """Return the answer to `/queue steer`; `now`: the agent takes words into the turn that runs."""
    what = "joins the turn that runs" if now else "is the next to run: this agent takes no words in"
    return f"{beginning(prompt)} {what}."


def no_such_waiting(given: list[str], usage: str) -> str:
    """Return the answer to `/queue steer` with words that are no waiting prompt's number."""
    return f"No prompt {words(repr(' '.join(given)))} waits that could join the turn. {usage}"
