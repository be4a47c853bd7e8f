"""The sentences about prompts that are edited, moved or dropped while they wait."""

from __future__ import annotations

from typing import Any

from acp_bridge.core.updates.notices import beginning
from acp_bridge.core.updates.wording import words


def dropped_one(number: int) -> str:
    """Return the answer to a drop of one prompt."""
    return f"Dropped prompt {number}."


def dropped_unsynced(number: int) -> str:
    """Return the answer to a drop of one prompt that the disk has not taken."""
    return (
        f"Dropped prompt {number}, but the disk has not taken that: after a loss of power it may"
        " be left over."
    )


def edited(number: int, prompt: list[Any]) -> str:
    """Return the answer to an edit of a prompt, with its words from now on."""
    return f"Prompt {number} is now: {beginning(prompt)}"


def moved(number: int) -> str:
    """Return the answer to a move of a prompt."""
    return f"Moved prompt {number}. `/queue` shows the order."


def not_changed(why: str) -> str:
    """Return the answer to a change of a prompt that was not made."""
    return f"Nothing is changed: {words(why)}."


def changed_by_other(how: str) -> str:
    """Return the notice, to who sent a prompt, of a change that another client has made."""
    return f"[acp-bridge] Another client has changed your prompt. {how}"


def no_such_prompt(number: str) -> str:
    """Return why a number names no prompt that waits or is left over."""
    return f"no prompt {words(number, 80)} waits: it has begun or has ended, or never was"
