"""Decides what the user is told, and when: from the states of all sessions of a bridge. SANS-IO.

- There is at most one notification a minute, for all sessions together. News that come meanwhile
  are kept back; those that still hold when the minute is over are told in one, the rest never.
- A question is told of when nobody has answered it for a moment. Whoever answers one is there: then
  the moment begins anew for those left.
- Each question, hold, death and end of a turn is told once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from acp_bridge.core.runtime.log import masked

#: how many characters of a folder's name and of a question are told, and how many names in a line.
_NAME, _WORDS, _NAMES = 60, 200, 5
#: how many characters of a text are looked at.
_LOOKED_AT: Final = 2000


class News(Enum):
    """Kinds of news of a session, the most urgent first: of several only the first is told."""

    WAITS = ("waits for you", "{} sessions wait for you")
    DIED = ("the agent has died", "the agent has died in {} sessions")
    HELD = ("the queue is held", "the queue is held in {} sessions")
    ENDED = ("a turn has ended", "a turn has ended in {} sessions")


#: the news of events: one that is kept back is told unless the next turn has begun by then.
_EVENTS: Final = (News.DIED, News.ENDED)


@dataclass(frozen=True, slots=True)
class Times:
    """The waits before a notification, in seconds."""

    #: how long a question is open before the user is told of it.
    moment: float = 10.0
    #: how long a turn has to take for its end to be told.
    long_turn: float = 60.0
    #: how long it takes at least from one notification to the next.
    between: float = 60.0


@dataclass(frozen=True, slots=True)
class Stand:
    """The state of a session, as far as it concerns a user who is not looking."""

    #: the last part of the session's folder.
    name: str
    #: the oldest question that a person has not answered, in one line, and how many there are.
    oldest: str = ""
    asked: int = 0
    #: the key of the prompt that runs, and those of all that have no answer.
    running: int | None = None
    unanswered: tuple[int, ...] = ()
    #: the turn that runs is being cancelled: somebody knows.
    stopped: bool = False
    #: the bridge holds the queue, not the user.
    held: bool = False


@dataclass(slots=True)
class _Session:
    stand: Stand
    #: the news to be told, and from when on.
    due: dict[News, float] = field(default_factory=dict)
    #: the prompt whose turn runs, hooks at its end included, and since when.
    turn: tuple[int, float] | None = None
    #: the turn was cancelled, or its agent has died: its end is no news.
    over: bool = False


@dataclass(frozen=True, slots=True)
class Told:
    """One notification: what is told of each session, with its name and what it asks."""

    rows: tuple[tuple[News, str, str], ...]

    def text(self, *, words: bool) -> str:
        """Return the text; `words`: with what the agent asks, where one session alone does."""
        lines = []
        for news in News:
            about = [(name, asked) for told, name, asked in self.rows if told is news]
            one, several = news.value
            if len(about) == 1:
                asks = f": {about[0][1]}" if words and about[0][1] else ""
                lines.append(f"{about[0][0]}: {one}{asks}")
            elif about:
                lines.append(f"{several.format(len(about))}: {_names([name for name, _ in about])}")
        return "\n".join(lines)


class Notes:
    """Follows all sessions of a bridge; times in seconds, of any clock that only goes on."""

    def __init__(self, times: Times) -> None:
        """`times`: the waits before a notification. No session is known yet."""
        self._times = times
        self._sessions: dict[str, _Session] = {}
        #: the time until which nothing is told.
        self._quiet = float("-inf")

    def note(self, session_id: str, stand: Stand | None, now: float) -> None:
        """Take the state of a session; None: it ends, and nothing of it is told any more."""
        if stand is None:
            self._sessions.pop(session_id, None)
            return
        session = self._sessions.setdefault(session_id, _Session(Stand(stand.name)))
        was, session.stand = session.stand, stand
        self._note_asked(session, was, now)
        if not stand.held:
            session.due.pop(News.HELD, None)
        elif not was.held:
            session.due[News.HELD] = now
        self._note_turn(session, now)

    def note_death(self, session_id: str, name: str, now: float) -> None:
        """Note that the agent of a session has died; `name`: the last part of its folder."""
        session = self._sessions.setdefault(session_id, _Session(Stand(name)))
        session.due[News.DIED] = now
        session.over = True

    @property
    def due(self) -> float | None:
        """The time of the next notification, if nothing changes; None: there is nothing to tell."""
        moments = [min(each.due.values()) for each in self._sessions.values() if each.due]
        return max(min(moments), self._quiet) if moments else None

    def take(self, now: float) -> Told | None:
        """Return the notification that is due, and count it as told; None if there is none."""
        if now < self._quiet:
            return None
        rows = []
        for session in self._sessions.values():
            found = [news for news in News if session.due.get(news, now + 1) <= now]
            for news in found:
                del session.due[news]
            if found:
                asked = session.stand.oldest if found[0] is News.WAITS else ""
                rows.append((found[0], _short(session.stand.name, _NAME), _short(asked, _WORDS)))
        if not rows:
            return None
        self._quiet = now + self._times.between
        return Told(tuple(rows))

    def _note_asked(self, session: _Session, was: Stand, now: float) -> None:
        stand = session.stand
        if not stand.asked:
            session.due.pop(News.WAITS, None)
        elif not was.asked or stand.oldest != was.oldest or stand.asked < was.asked:
            session.due[News.WAITS] = now + self._times.moment

    def _note_turn(self, session: _Session, now: float) -> None:
        """Note the end of the session's turn, then the beginning of the next one, by its state."""
        stand, turn = session.stand, session.turn
        if turn and turn[0] not in (stand.running, *stand.unanswered):
            if now - turn[1] >= self._times.long_turn and not session.over:
                session.due[News.ENDED] = now
            session.turn = None
        if session.turn is None and stand.running is not None:
            session.turn, session.over = (stand.running, now), False
            for news in _EVENTS if now < self._quiet else ():
                session.due.pop(news, None)
        session.over |= stand.stopped


def _names(names: Sequence[str]) -> str:
    more = len(names) - _NAMES
    return ", ".join(names[:_NAMES]) + (f" and {more} more" if more > 0 else "")


def _short(text: str, most: int) -> str:
    """Return a text as one line of at most `most` characters, without unprintable ones.

    What looks like a key is masked while it is whole.
    """
    seen = "".join(each if each.isprintable() else " " for each in text[:_LOOKED_AT])
    text = masked(" ".join(seen.split()))
    return text if len(text) <= most else f"{text[: most - 1]}…"
