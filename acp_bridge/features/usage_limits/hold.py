"""Holds the queue of one session when its agent has met a usage limit, and lets it go on.

- The prompt that met the limit is answered with the agent's own answer, and never sent again. What
  waits would only meet the limit, too: the queue is held, as by the user's `/queue hold`, until
  `/queue go`, or until nothing waits any more. A prompt that comes when nothing waits is the user's
  word, and is sent.
- A hook's feedback after such a turn waits as well: nobody has asked for it to be sent now.
- If the user has asked for that, the queue goes on by itself when the limit resets: by the wall
  clock, a few times in all, while this bridge lives (invariant R12), and only if the hold is not
  the user's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from time import time
from typing import Final

import anyio

from acp_bridge.core.agents.link import Link
from acp_bridge.core.machine.states import Standstill
from acp_bridge.core.protocol import USAGE_UPDATE, Json, as_object, is_feedback
from acp_bridge.core.runtime import waits
from acp_bridge.core.runtime.log import event
from acp_bridge.core.session.core import SessionState
from acp_bridge.core.session.feature import Feature, Parts, Plugin
from acp_bridge.core.session.prompts.pauses import USAGE_LIMIT
from acp_bridge.core.settings import Settings
from acp_bridge.core.updates import agent_trouble
from acp_bridge.core.wire.jsonrpc import Answer, Err
from acp_bridge.features.usage_limits import forms
from acp_bridge.features.usage_limits.forms import Limit

#: how often the queue of a session goes on by itself while this bridge lives.
MOST: Final = 5


class UsageLimit(Feature):
    """Follows the usage limits that the agent of one session meets."""

    states = frozenset({USAGE_UPDATE})

    def __init__(self, session: Parts, *, resumes: bool) -> None:
        """`resumes`: the queue goes on by itself when a limit resets."""
        self._core = session.core
        self._prompts = session.prompts
        self._pauses = session.pauses
        self._resumes = resumes
        #: when the limit resets, as the agent has told in this turn, in seconds since 1970.
        self._told: float | None = None
        #: the limit that the last turn has met; None from the next turn on.
        self._met: Limit | None = None
        #: how often the queue has gone on by itself.
        self._times = 0
        self._waits: anyio.CancelScope | None = None
        #: a limit was told of, or holds the queue: each change of the session concerns it.
        self._active = False

    def note_state(self, link: Link, update: Json, *, announced: bool) -> Json:
        """Note what a `usage_update` of the agent says of the reset of a limit."""
        self._told = forms.reset_in(update, time()) or self._told
        self._active |= self._told is not None
        return update

    def take_answer(self, link: Link, key: int, answer: Answer) -> Answer:
        """Hold what waits if the agent's answer to this prompt, not yet taken, tells of a limit."""
        if isinstance(answer, Err) or "_meta" in as_object(answer.result):
            self._note_answer(link, key, answer)
        return answer

    def _note_answer(self, link: Link, key: int, answer: Answer) -> None:
        limit = forms.met(link.initialized, answer, time())
        now = self._core.now
        if limit is None or key != now.running:
            return
        self._met, self._active = Limit(limit.resets_at or self._told), True
        event("usage_limit.met", session=self._core.id, agent=link.name, resets=self._met.resets_at)
        if self._something_waits(key):
            self._hold(self._met)

    def explains_failure(self) -> bool:
        """Return True while a limit was met, or told of."""
        return self._active

    def concerned(self, before: SessionState, after: SessionState) -> bool:
        """Return True while a limit was met, or told of."""
        return self._active

    def _something_waits(self, running: int) -> bool:
        """Return True if a prompt waits, or may come to wait, as it was to join this turn."""
        now = self._core.now
        found = [self._prompts.find(key) for key in now.unanswered if key != running]
        return bool(now.waiting) or any(each and each.delivery == "queued" for each in found)

    def follow(self, before: SessionState, after: SessionState) -> None:
        """Forget the limit in a new turn, hold feedback after one that met it, and end a hold.

        The hold for a limit ends when nothing waits; with the hold ends the wait for the reset.
        """
        was, now = before.turns, after.turns
        if now.running is not None and now.running != was.running:
            self._told = self._met = None
        if self._waits and not self._pauses.behind_limit:
            self._waits.cancel()
            self._waits = None
        elif self._pauses.behind_limit and not now.unanswered and not now.ending:
            self._pauses.go(agent_trouble.NOTHING_HELD)
        if self._met and now.waiting and not now.ending:
            prompt = self._prompts.find(now.waiting[0])
            if prompt and is_feedback(prompt.params):
                met, self._met = self._met, None  # the user may say go before it is on disk
                self._hold(met)
        self._active = any([self._told, self._met, self._waits, self._pauses.behind_limit])

    def _hold(self, limit: Limit) -> None:
        """Hold the queue, unless it is paused or held already."""
        if self._core.now.standstill is not Standstill.OPEN:
            return
        resets = limit.resets_at
        goes_on = self._resumes and resets is not None and self._times < MOST
        when = None if resets is None else _in_words(resets)
        spent = self._resumes and self._times >= MOST
        said = agent_trouble.usage_limit(when, goes_on=goes_on, spent=MOST if spent else 0)
        told = {} if resets is None else {"resetsAt": int(resets)}
        self._pauses.hold_because(said, {USAGE_LIMIT: told})
        if goes_on and resets is not None:
            self._waits = anyio.CancelScope()
            self._core.spawn(self._wait, self._waits, resets + waits.RESET)

    async def _wait(self, scope: anyio.CancelScope, until: float) -> None:
        """Wait until the wall clock says `until`, also if it is set meanwhile; then end the hold.

        Cancelling `scope` ends the wait, and the hold stays.
        """
        with scope:
            while True:
                left = until - time()
                if left <= 0:
                    break
                await anyio.sleep(min(left, waits.WALL_CLOCK))
        # It may have been cancelled just as the time came; or the user wants the hold now.
        if scope.cancel_called or not self._pauses.behind_limit:
            return
        self._times += 1
        event("usage_limit.reset", session=self._core.id, times=self._times)
        self._pauses.go(agent_trouble.LIMIT_RESET)


def made_for(session: Parts, settings: Settings) -> Sequence[Feature]:
    """Return what follows the usage limits of a session."""
    return [UsageLimit(session, resumes=settings.resume_at_reset)]


PLUGIN: Final = Plugin(made_for)


def _in_words(moment: float) -> str:
    """Return a time since 1970 as the user's clock shows it."""
    return datetime.fromtimestamp(moment).astimezone().strftime("%Y-%m-%d %H:%M %Z")
