"""What is kept of a request, a question and a session while the line comes and goes."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any, Final

from acp_bridge.connect.rules import Again
from acp_bridge.connect.shown import OwnWords, Replayed, Shown
from acp_bridge.protocol import Json
from acp_bridge.wire.jsonrpc import Message, RequestId

#: notices that are not recorded, of which one that is repeated is not shown again.
_NOTICES: Final = 20
#: turns that have ended, and messages of users whose words came whole.
_MESSAGES: Final = 200


@dataclass(slots=True, eq=False)
class Asked:
    """A request of the editor's that is not answered, or a notification that waits for a line."""

    message: Message
    method: str
    params: Json
    again: Again
    session_id: str | None = None
    #: of a prompt.
    key: str | None = None
    #: the connection on which it was sent last; 0: it was not sent.
    line: int = 0
    #: it was sent on an earlier connection, too.
    repeated: bool = False
    #: the parameters of a Stop that is meant for this prompt.
    stop: Json | None = None
    #: the editor has given it up.
    given_up: bool = False
    #: the turn that its answer has begun, and that this has ended before it was sent again.
    turn: str = ""
    is_over: bool = False

    @property
    def id(self) -> RequestId:
        """The editor's id of it."""
        id: RequestId = self.message.get("id")
        return id


@dataclass(slots=True, eq=False)
class Dialog:
    """A question of the other end's that the editor was asked."""

    message: Message
    params: Any
    session_id: str
    #: the question's own id, the same whenever it is asked again.
    question: object
    #: the connection on which it was asked last, and its id there.
    line: int
    asked_as: RequestId
    answer: Message | None = None
    #: nobody waits for the editor's answer.
    called_back: bool = False


@dataclass(slots=True, eq=False)
class Session:
    """A session that the editor has, or is about to have."""

    id: str
    #: the request that opened it, and the same while that is not answered.
    opened: Json
    opening: Asked | None = None
    #: the editor has it.
    had: bool = False
    #: the place in the transcript up to which it was shown; None: not known.
    cursor: object = None
    #: what it was shown begins where the session does.
    whole: bool = False
    shown: Shown = field(default_factory=Shown)
    words: OwnWords = field(default_factory=OwnWords)
    #: it is loaded anew: what comes before its first prompt may have happened before that.
    awaits_replay: bool = False
    #: the id of its first prompt, where a load has told it.
    first: object = None
    #: it is being opened again on this connection: nothing is sent to it until it is.
    reopening: bool = False
    #: a whole replay is being compared with what was shown.
    replayed: Replayed | None = None
    #: prompts whose turns have begun, where the answer says that alone.
    begun: list[Asked] = field(default_factory=list)
    #: where it stood when it was opened last, and whether a turn runs, as far as that is told.
    stands: Json = field(default_factory=dict)
    runs: bool = False
    #: the turns of which the editor was told the end.
    ended: deque[object] = field(default_factory=lambda: deque(maxlen=_MESSAGES))
    #: what was shown and what is there don't fit; what was said meanwhile can't be told.
    fits: bool = True
    unseen: bool = False
    #: the ids under which the editor was shown whole words of a user's.
    whole_words: deque[object] = field(default_factory=lambda: deque(maxlen=_MESSAGES))
    #: states that wait for the answer that says how a turn has ended.
    states: list[Message] = field(default_factory=list)
    #: the editor was told that the line is down.
    told_down: bool = False
    #: it comes from another machine, and is not open here yet.
    moves: bool = False
    notices: deque[object] = field(default_factory=lambda: deque(maxlen=_NOTICES))


@dataclass(slots=True, eq=False)
class Moving:
    """A session that is taken from one place to another, and what is open of it."""

    session_id: str
    #: None: the editor does not have it yet.
    session: Session | None
    asked: list[Asked]
