"""A request of an agent that is not answered yet, to a client, a person or a hook."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from acp_bridge.core import errors
from acp_bridge.core.agents.link import Link
from acp_bridge.core.protocol import ASKS_A_PERSON, CANCELLED_PERMISSION, REQUEST_PERMISSION
from acp_bridge.core.wire.peer import Call


@dataclass(slots=True, eq=False)
class OpenRequest(ABC):
    """A request that is among `link.at_clients.questions` until somebody has answered it."""

    link: Link
    call: Call

    @property
    def is_open(self) -> bool:
        """True while the agent waits for an answer."""
        return self.link.at_clients.has(self)

    @property
    def names_session(self) -> bool:
        """True when the request is about a session, not about the agent as such."""
        return names_session(self.call.params)

    @property
    def asks_a_person(self) -> bool:
        """True when the answer comes only after a person's word."""
        return self.call.method in ASKS_A_PERSON

    def settled(self) -> None:  # noqa: B027 - most do nothing then
        """Do what follows when the request is open no more."""

    @abstractmethod
    def call_back(self) -> None:
        """Tell the client or hook that is asked that nobody waits for the answer any more."""

    def take_back(self) -> None:
        """Answer the agent, which has cancelled its request; call it back from who is asked.

        Nobody is waited for: a client may not know such a cancel, and a hook takes its time.
        """
        self.link.at_clients.remove(self)
        self.call_back()
        self.link.peer.fail(self.call.id, errors.cancelled())

    def end(self) -> None:
        """Answer the agent as cancelled, and tell the client or hook that was asked."""
        self.link.at_clients.remove(self)
        self.call_back()
        answer_cancelled(self.link, self.call)


def answer_cancelled(link: Link, call: Call) -> None:
    """Answer a request of the agent as cancelled, in the form that its method has for that."""
    if call.method == REQUEST_PERMISSION:
        link.peer.answer(call.id, CANCELLED_PERMISSION)
    else:
        link.peer.fail(call.id, errors.cancelled())


def names_session(params: object) -> bool:
    """Return True for the parameters of a request about a session."""
    return isinstance(params, dict) and isinstance(params.get("sessionId"), str)
