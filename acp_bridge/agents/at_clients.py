"""What one agent process has at the clients: open requests, and terminals that it made there.

It goes with the process from owner to owner: whoever has the process when it dies calls the
requests back and releases the terminals (invariants C19, Q12).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from acp_bridge.wire.peer import Call


class Question(Protocol):
    """A request of the process that a client has not answered yet."""

    @property
    def call(self) -> Call:
        """The request as the process sent it."""

    @property
    def names_session(self) -> bool:
        """True when the request is about a session, not about the agent as such."""

    def call_back(self) -> None:
        """Tell the client that nobody waits for its answer any more."""

    def end(self) -> None:
        """Answer the process in the client's place, which is told so."""


@dataclass(slots=True)
class AtClients:
    """What is open at the clients, in the order of asking."""

    #: the id under which they know, or will know, the session that the process is to have.
    session_id: str | None = None
    questions: list[Question] = field(default_factory=list)
    #: what releases a terminal, by its id.
    terminals: dict[str, Callable[[], None]] = field(default_factory=dict)
