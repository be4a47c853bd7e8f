"""Asks a person on a terminal for a word that agents must not give in the person's place."""

from __future__ import annotations

import sys

from acp_bridge.core.agents import origin


def hindrance(change: str, consent: str) -> tuple[str, int]:
    """Return why nobody can be asked, with the exit code for it; empty and 0 if somebody can.

    `change`, `consent`: what an agent can't do, and what only a person can.
    """
    if origin.runs_in_agent():
        return f"an agent can't {change}: use a terminal of your own", 1
    if not all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout)):
        return f"only a person at a terminal can {consent}: stdin and stdout must be one", 2
    return "", 0


def says_yes(question: str) -> bool:
    """Ask, and return True for the whole word yes alone."""
    try:
        return input(f"{question} [yes/no] ").strip() == "yes"
    except (EOFError, KeyboardInterrupt):
        print()
        return False
