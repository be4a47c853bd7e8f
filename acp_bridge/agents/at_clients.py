"""The open requests of one agent process to clients, and the terminals that it made there.

They go with the process from owner to owner: the owner of the process at its death calls the
requests back and releases the terminals (invariants C19, Q12).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

import anyio

from acp_bridge.wire.jsonrpc import is_id
from acp_bridge.wire.peer import Call


class Question(Protocol):
    """A request of the process that a client has not answered yet."""

    @property
    def call(self) -> Call:
        """The request as the process sent it."""

    @property
    def names_session(self) -> bool:
        """True when the request is about a session, not about the agent as such."""

    @property
    def asks_a_person(self) -> bool:
        """True when a client answers only after its user has answered."""

    def call_back(self) -> None:
        """Tell the client that nobody waits for its answer any more."""

    def end(self) -> None:
        """Answer the process in the client's place, and tell the client so."""


@dataclass(slots=True)
class AtClients:
    """Keeps the requests and terminals that are open at clients, in the order of asking."""

    #: the clients' id of the session that the process has, or is to have.
    session_id: str | None = None
    #: by a terminal's id, the function that releases the terminal.
    terminals: dict[str, Callable[[], None]] = field(default_factory=dict)
    #: when a client was last asked something, or a question was last settled.
    touched: float = 0.0
    _questions: dict[Question, None] = field(default_factory=dict)
    #: for how many seconds the process may be silent, and the scope that is cancelled then.
    _limits: list[tuple[float, anyio.CancelScope]] = field(default_factory=list)

    @property
    def questions(self) -> tuple[Question, ...]:
        """The requests that are not answered yet."""
        return tuple(self._questions)

    def has(self, question: Question) -> bool:
        """Return True while this request is not answered."""
        return question in self._questions

    def add(self, question: Question) -> None:
        """Note a request that a client is asked now."""
        self._questions[question] = None
        self._touch()

    def remove(self, question: Question) -> None:
        """Forget a request that is answered, or given up."""
        del self._questions[question]
        self._touch()

    def end_questions(self) -> None:
        """End the permissions and elicitations now, whatever the clients do with them."""
        for question in self.questions:
            if question.asks_a_person:
                question.end()

    def give_up_session(self) -> None:
        """End the requests, and release the terminals, of a session that came to nothing."""
        for question in self.questions:
            if question.names_session:
                question.end()
        self._release_terminals()
        self.session_id = None

    def take_back(self, request_id: object) -> None:
        """Call one of the process's requests back, after its `$/cancel_request`."""
        for question in self.questions if is_id(request_id) else ():
            if question.call.id == request_id:
                question.call_back()
                return

    def release(self) -> None:
        """Release the terminals of a dead process, and call its requests back."""
        for question in self.questions:
            self.remove(question)
            question.call_back()
        self._release_terminals()

    def _release_terminals(self) -> None:
        terminals, self.terminals = self.terminals, {}
        for let_go in terminals.values():
            let_go()

    @contextmanager
    def limit(self, seconds: float) -> Iterator[None]:
        """Raise TimeoutError if the process is silent for so long.

        A wait for the user's word does not count as silence.
        """
        limit = seconds, anyio.CancelScope()
        self._limits.append(limit)
        self._set_limits()
        try:
            with limit[1]:
                yield
        finally:
            self._limits.remove(limit)
        if limit[1].cancelled_caught:
            raise TimeoutError

    def _touch(self) -> None:
        self.touched = anyio.current_time()
        self._set_limits()

    def _set_limits(self) -> None:
        waits = any(question.asks_a_person for question in self._questions)
        now = math.inf if waits else anyio.current_time()
        for seconds, scope in self._limits:
            scope.deadline = now + seconds
