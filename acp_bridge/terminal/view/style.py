"""The style of a session, which its page and its file share."""

from __future__ import annotations

from importlib import resources


def session_style() -> str:
    """Return the style sheet for the pieces of a session."""
    return (resources.files(__package__) / "session.css").read_text("utf-8")
