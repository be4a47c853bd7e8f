"""What an agent of version 2 tells of its work in its states: foreground, background. SANS-IO.

This is not imported for an agent of version 1, which has no message that tells it.
"""

from __future__ import annotations

from msgspec import Struct


class Piece(Struct, frozen=True):
    """One piece of work that runs in the background."""

    #: `tool_call`, `terminal`, or a type that is not known here.
    kind: str
    #: the id of a tool call or a terminal, as the bridge is told it in updates.
    id: str
    #: what a person knows it by.
    title: str
    #: the agent lets it be cancelled by itself now.
    can_cancel: bool
    #: the ids of the tool calls that show a terminal, or of the tool call itself.
    calls: tuple[str, ...] = ()


class Activity(Struct, frozen=True):
    """What the agent says that it does in one session."""

    #: its foreground works, or waits for a person, though the bridge has no prompt open.
    runs: bool
    #: the background work that it listed last; None if it never listed any.
    background: tuple[Piece, ...] | None
