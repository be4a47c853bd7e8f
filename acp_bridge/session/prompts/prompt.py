"""One prompt that has no outcome yet, and who has sent it, on connections that live or have ended.

- A client with a name that comes back on another connection has sent what it sent on earlier ones:
  so requests are kept here when their connections have ended.
- Of a prompt that was sent again and again on connections that end, only a few are kept.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final
from uuid import uuid4

from acp_bridge.clients.client import Client, ClientRequest
from acp_bridge.protocol import Json
from acp_bridge.session.transcript.client_view import ClientView

#: requests on ended connections that are kept of those that brought a prompt again.
_ENDED: Final = 8


@dataclass(slots=True)
class Prompt:
    """A prompt that waits, runs, or is left over."""

    params: Json
    #: the request that waits for the answer; None for one that is left over.
    request: ClientRequest | None
    #: the requests that brought it once more under its key (invariant X2).
    again: list[ClientRequest] = field(default_factory=list)
    #: those of them whose clients want to be told that it is on disk, and were not.
    untold: list[ClientRequest] = field(default_factory=list)
    #: its number in the journal; 0 until it is written there.
    seq: int = 0
    #: the journal has it as left over; if that could not be written, it waits there still.
    is_left_over: bool = False
    #: how the agent ended its turn, while hooks may still send the agent back to work.
    answer: object = None
    #: what the agent answered when the prompt had been cancelled.
    cancelled_with: object = None
    #: the client that sent it; None for one that is left over, and for a hook's feedback.
    client: Client | None = None
    #: the clients that have sent it, and how many replays each had been shown then.
    senders: dict[Client, int] = field(default_factory=dict)
    #: the blocks that hooks have added to it for the agent.
    added: list[Json] = field(default_factory=list)
    #: the user has given it other words since its client sent it.
    edited: bool = False
    #: it was sent into a turn, so its words stand there.
    shown: bool = False
    #: it was to be sent, in this turn, and perhaps the journal has that; it waits again since that
    #: was away.
    put_off: int = 0
    #: who was shown its words then, as `senders` has it.
    seen: dict[Client, int] = field(default_factory=dict)
    #: the `_session/steering` that brought it, until that is answered.
    steering: ClientRequest | None = None
    #: for one that was to join a turn, what the answer tells: "steered" or "queued".
    delivery: str = ""
    prompt_id: str = field(default_factory=lambda: uuid4().hex)
    #: the requests that wait for its end beside its own (`/queue wait`).
    waits: list[ClientRequest] = field(default_factory=list)

    @property
    def asked(self) -> list[ClientRequest]:
        """The requests that brought it and have no answer, the first one first."""
        return [self.request, *self.again] if self.request else self.again

    @property
    def requests(self) -> list[ClientRequest]:
        """The requests that are answered when it ends, its own first."""
        return [*self.asked, *self.waits]

    def is_shown_by(self, view: ClientView) -> bool:
        """Return True if a client has sent it as it is, and was not shown the session from its
        beginning since: it shows the words by itself. Or if it was shown them already.

        One that has come back has not been shown that yet, whatever it was shown before.
        """
        if self.seen.get(view.client) == view.replays:
            return True
        if self.edited:
            return False
        then = self.senders.get(view.client)
        if then is None:
            return self.is_of(view.client) and not view.replays
        return view.replays == then

    def is_of(self, client: Client) -> bool:
        """Return True if the client has sent it, on this connection or an earlier one."""
        return client in self.senders or client.identity in [each.identity for each in self.senders]

    def forget_ended(self) -> None:
        """Forget all but the last few requests that brought it again, and have no connection."""
        ended = [each for each in self.again if each.client.gone]
        self.again = [each for each in self.again if each not in ended[:-_ENDED]]
        known = [each.client for each in self.asked]
        self.senders = {
            each: then for each, then in self.senders.items() if not each.gone or each in known
        }

    @property
    def unheard_of(self) -> bool:
        """True if it was to have a turn, had none, and every client to be told so is gone.

        A `/queue run`, which is not in the journal, has no turn of its own.
        """
        gone = bool(self.requests) and all(each.client.gone for each in self.requests)
        return gone and bool(self.seq) and self.answer is None
