"""The seam between a session and what it can do beyond core.

A feature is a subclass of `Feature` in its own folder. `acp_bridge/serving.py` lists all features.
Core knows none of them.

Invariants
- A session calls a feature only at the moments that its class overrides. `Features` makes a table
  for each moment once, so a feature that is off costs nothing.
- The session calls the features in the order in which `serving.py` names them.
- If a feature raises, the session logs the error and goes on without that feature. `take_words` is
  the exception: it may refuse, so if it raises, the words are refused.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Concatenate, ParamSpec, Protocol, TypeAlias, TypeVar

from acp_bridge.core import errors
from acp_bridge.core.agents.deadline import Deadline
from acp_bridge.core.agents.link import Link
from acp_bridge.core.journal import SessionJournal
from acp_bridge.core.machine.effects import Outcome
from acp_bridge.core.protocol import Json
from acp_bridge.core.session.core import Core, Follower, SessionState
from acp_bridge.core.session.prompts.pauses import Pauses
from acp_bridge.core.session.prompts.prompts import Prompts
from acp_bridge.core.session.requests.user_settings import UserSettings
from acp_bridge.core.session.transcript.transcript_out import TranscriptOut
from acp_bridge.core.settings import Settings
from acp_bridge.core.updates.updates import Updates
from acp_bridge.core.wire.jsonrpc import Answer

P = ParamSpec("P")
R = TypeVar("R")


class Feature:
    """What one session can do beyond core: override the moments at which the feature acts."""

    #: the kinds of the agent's states that `note_state` gets.
    states: frozenset[str] = frozenset()

    def take_words(self) -> None:
        """Act before the session takes a prompt, or words for the running turn.

        If this raises, the session refuses them.
        """

    def begin_turn(self, link: Link, seq: int) -> None:
        """Act before the process `link` gets a prompt. Clients already show its words.

        `seq`: the prompt's number in the journal.
        """

    def note_progress(self) -> None:
        """Act after the agent wrote something of its turn, or asked something."""

    def note_state(self, link: Link, update: Json, *, announced: bool) -> None:
        """Act on a state from the agent, of one of the kinds in `states`.

        `announced`: the process has the session. Before that it may repeat old states.
        """

    def take_answer(self, link: Link, key: int, answer: Answer) -> Answer:
        """Return the agent's answer to the prompt `key`, changed or not."""
        return answer

    def explains_failure(self) -> bool:
        """Return True if the feature knows why the agent answers prompts with errors."""
        return False

    def end_turn(self, outcome: Outcome) -> None:
        """Act before the client gets the outcome of a prompt."""

    async def open(self) -> str | None:
        """Act before a client loads the session. Return a notice for that client, or None."""
        return None

    async def note_use(self) -> None:
        """Act after the session took a prompt, or a turn ended."""

    async def close(self) -> None:
        """Act at the end of the session. Each wait has a bound."""

    def concerned(self, before: SessionState, after: SessionState) -> bool:
        """Return True if a change of the session's state concerns this feature."""
        return True

    def follow(self, before: SessionState, after: SessionState) -> None:
        """Follow a change of the session's state."""


class Parts(Protocol):
    """The parts of a session that its features use (`Session` has them)."""

    core: Core
    journal: SessionJournal
    transcript: TranscriptOut
    updates: Updates
    prompts: Prompts
    pauses: Pauses
    user_settings: UserSettings
    #: the deadline of the agent's guards; None: they have none.
    deadline: Deadline | None

    def unread(self) -> bool:
        """Return True while the process is not read, because a client doesn't read."""


#: makes the features of one folder for a session, by the bridge's settings; none if they are off.
MakeFeatures: TypeAlias = Callable[[Parts, Settings], Sequence[Feature]]


class Features:
    """The features of one session. Each method calls the features that override that moment."""

    def __init__(self, features: Sequence[Feature]) -> None:
        """`features`: those that are on, in the order of the calls."""
        self.on = tuple(features)
        self._follow = [each for each in features if _overrides(each, Feature.follow)]
        self._take_words = _having(features, Feature.take_words)
        self._begin_turn = _having(features, Feature.begin_turn)
        self._note_progress = _having(features, Feature.note_progress)
        self._take_answer = _having(features, Feature.take_answer)
        self._end_turn = _having(features, Feature.end_turn)
        self._explain = _having(features, Feature.explains_failure)
        self._open = _having(features, Feature.open)
        self._note_use = _having(features, Feature.note_use)
        self._close = _having(features, Feature.close)
        self._note_state = {
            kind: tuple(each.note_state for each in features if kind in each.states)
            for kind in frozenset[str]().union(*(each.states for each in features))
        }

    def take_words(self) -> None:
        """Announce a prompt, or words for the running turn. Raises what a feature raises."""
        for take_words in self._take_words:
            take_words()

    def begin_turn(self, link: Link, seq: int) -> None:
        """Announce that the agent gets a prompt."""
        _call(self._begin_turn, link, seq)

    def note_progress(self) -> None:
        """Announce that the agent wrote something of its turn, or asked something."""
        _call(self._note_progress)

    def note_state(self, link: Link, update: Json, *, announced: bool) -> None:
        """Pass on a state from the agent."""
        _call(self._note_state.get(update["sessionUpdate"], ()), link, update, announced=announced)

    def take_answer(self, link: Link, key: int, answer: Answer) -> Answer:
        """Return the agent's answer to a prompt as all features leave it."""
        for take in self._take_answer:
            try:
                answer = take(link, key, answer)
            except Exception as exc:
                errors.internal(exc, "a feature failed")
        return answer

    def explains_failure(self) -> bool:
        """Return True if a feature knows why the agent answers prompts with errors."""
        return any(_sure(explains) for explains in self._explain)

    def end_turn(self, outcome: Outcome) -> None:
        """Pass on the outcome of a prompt."""
        _call(self._end_turn, outcome)

    async def open(self) -> list[str]:
        """Return the features' notices for a client that loads the session."""
        return [notice for open_ in self._open if (notice := await _awaited(open_))]

    async def note_use(self) -> None:
        """Announce that the session took a prompt, or that a turn ended."""
        for note_use in self._note_use:
            await _awaited(note_use)

    async def close(self) -> None:
        """Announce the end of the session."""
        for close in self._close:
            await _awaited(close)

    def followers(self, before: SessionState, after: SessionState) -> Iterable[Follower]:
        """Return the features' followers that a change of the state concerns."""
        return [each.follow for each in self._follow if _sure(each.concerned, before, after)]


def _overrides(feature: Feature, moment: Callable[..., object]) -> bool:
    return getattr(type(feature), moment.__name__) is not moment


def _having(
    features: Sequence[Feature], moment: Callable[Concatenate[Feature, P], R]
) -> tuple[Callable[P, R], ...]:
    """Return the method for a moment of each feature that overrides it."""
    return tuple(getattr(each, moment.__name__) for each in features if _overrides(each, moment))


def _sure(asked: Callable[P, bool], *args: P.args, **named: P.kwargs) -> bool:
    """Return the answer of a feature. If it raises, log the error and return False."""
    try:
        return asked(*args, **named)
    except Exception as exc:
        errors.internal(exc, "a feature failed")
        return False


async def _awaited(method: Callable[[], Awaitable[R]]) -> R | None:
    """Return the result of a feature. If it raises, log the error and return None."""
    try:
        return await method()
    except Exception as exc:
        errors.internal(exc, "a feature failed")
        return None


def _call(methods: Iterable[Callable[P, object]], *args: P.args, **named: P.kwargs) -> None:
    """Call each method. If one raises, log the error and call the others."""
    for method in methods:
        try:
            method(*args, **named)
        except Exception as exc:
            errors.internal(exc, "a feature failed")
