"""The records of requests, questions and sessions that outlive a connection."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any, Final

from acp_bridge.core.protocol import Json
from acp_bridge.core.wire.jsonrpc import Message, RequestId
from acp_bridge.remote.connect.rules import Again
from acp_bridge.remote.connect.shown import OwnWords, Replayed, Shown

#: notices that no transcript has which are remembered, so that a repeated one is not shown again.
_NOTICES: Final = 20
#: ended turns, and messages of users that came whole, whose ids are remembered.
_MESSAGES: Final = 200


@dataclass(slots=True, eq=False)
class Asked:
    """A request of the editor's that is not answered, or a notification that waits for a line."""

    message: Message
    method: str
    params: Json
    again: Again
    session_id: str | None = None
    #: the idempotency key of a prompt.
    key: str | None = None
    #: the number of the connection on which it was sent last; 0: it was not sent.
    line: int = 0
    #: it was sent on an earlier connection, too.
    repeated: bool = False
    #: the parameters of a Stop that is meant for this prompt.
    stop: Json | None = None
    #: the editor has given it up.
    given_up: bool = False
    #: the id of the turn that a prompt has begun, and whether it had ended before a repetition.
    turn: str = ""
    is_over: bool = False

    @property
    def id(self) -> RequestId:
        """The id that the editor gave the request."""
        id: RequestId = self.message.get("id")
        return id


@dataclass(slots=True, eq=False)
class Dialog:
    """A question of the remote bridge that the editor was asked."""

    message: Message
    params: Any
    session_id: str
    #: the question's own id, the same whenever it is asked again.
    question: object
    #: the number of the connection on which it came last, and the id of the request there.
    line: int
    asked_as: RequestId
    answer: Message | None = None
    #: nobody waits for the editor's answer.
    called_back: bool = False


@dataclass(slots=True, eq=False)
class Seen:
    """What the editor was shown of a session, as far as it counts for a replay."""

    #: the place in the transcript up to which it was shown; None: not known.
    cursor: object = None
    #: it was shown from its beginning.
    whole: bool = False
    shown: Shown = field(default_factory=Shown)
    words: OwnWords = field(default_factory=OwnWords)
    #: the ids of whole user messages that were shown.
    whole_words: deque[object] = field(default_factory=lambda: deque(maxlen=_MESSAGES))


@dataclass(slots=True, eq=False)
class Session:
    """A session that the editor has open, or has asked to open."""

    id: str
    #: the params of the request that opened it last.
    opened: Json
    #: the requests to open it that are not answered, as they were sent.
    openings: list[Asked] = field(default_factory=list)
    #: the editor has it open.
    had: bool = False
    #: a request to close or delete it that is not answered.
    leaving: Asked | None = None
    seen: Seen = field(default_factory=Seen)
    #: it is loaded once more: what was seen before, which counts again if the load is refused.
    before: Seen | None = None
    #: the replay of that load has begun: updates before it belong to what was seen before.
    in_replay: bool = False
    #: the id of its first prompt, if a load has told that.
    first: object = None
    #: it is being opened again on this connection: until that is done nothing is sent to it.
    reopening: bool = False
    #: the id of the request that does that.
    reopened_by: RequestId = None
    #: compares a whole replay, which is on its way, with what the editor was shown.
    replayed: Replayed | None = None
    #: prompts whose answer has begun a turn that has not ended (version 2).
    begun: list[Asked] = field(default_factory=list)
    #: its state as the remote bridge told it last, and whether a turn runs, as far as it tells.
    stands: Json = field(default_factory=dict)
    runs: bool = False
    #: the ids of turns whose end the editor was told.
    ended: deque[object] = field(default_factory=lambda: deque(maxlen=_MESSAGES))
    #: the replay fits what the editor was shown; there are missed updates that can't be shown.
    fits: bool = True
    unseen: bool = False
    #: updates with states that wait until the session is open again.
    states: list[Message] = field(default_factory=list)
    #: the editor was told that the line is down.
    told_down: bool = False
    #: it comes from another bridge, and is not open at this one yet.
    moves: bool = False
    notices: deque[object] = field(default_factory=lambda: deque(maxlen=_NOTICES))

    @property
    def opening(self) -> Asked | None:
        """The last request to open it that is not answered."""
        return self.openings[-1] if self.openings else None

    @property
    def setup(self) -> Json:
        """The params with which it is opened again: those of a request that opens it go first."""
        return self.opening.params if self.opening else self.opened

    @property
    def all_seen(self) -> list[Seen]:
        """What was seen, also before a load that is not answered."""
        return [self.seen, *([self.before] if self.before else [])]

    def refuse(self, asked: Asked | None) -> None:
        """Forget a request that opens it, None: all of them.

        After the last one the session is for the editor as it was before.
        """
        self.openings = [each for each in self.openings if asked and each is not asked]
        if not self.openings:
            self.seen, self.before = self.before or self.seen, None


@dataclass(slots=True, eq=False)
class Moving:
    """A session that moves from one bridge to another, with its open requests."""

    session_id: str
    #: None: the editor does not have it yet.
    session: Session | None
    asked: list[Asked]
