"""Stops and holds one session when it has cost what it may, by the costs that its agent tells.

- What counts is what `acp-bridge cost` counts: all turns of the session, earlier bridges' too, in
  the budget's currency. Another currency, and what can't be counted, is said once.
- A session that has spent its budget is held, as by `/queue hold`: what waits stays, and so does
  what comes. A turn that still runs a moment later is cancelled as by a Stop, and so is what the
  agent does without one: agents that tell the cost at the end of a turn have ended it by then.
- The user's go lets the session cost as much again. That is kept with the session.
"""

from __future__ import annotations

from typing import Final

import anyio

from acp_bridge.core.agents.link import Link
from acp_bridge.core.journal import JournalError
from acp_bridge.core.journal.turns import ELSEWHERE
from acp_bridge.core.machine import events as ev
from acp_bridge.core.machine.effects import Outcome, Replied
from acp_bridge.core.machine.states import Standstill, State
from acp_bridge.core.protocol import Json, as_object
from acp_bridge.core.runtime import waits
from acp_bridge.core.runtime.log import event
from acp_bridge.core.session.core import SessionState
from acp_bridge.core.session.feature import Feature, Parts
from acp_bridge.core.settings import Money
from acp_bridge.core.wire.jsonrpc import Ok
from acp_bridge.features.spending import notices as said
from acp_bridge.features.spending.spent import Told, Totals, of_turn, told
from acp_bridge.features.spending.usage_figures import is_amount, tells_no_cost

#: the journal's key for the cost up to which the user has let the session go on.
_KEPT: Final = "budget"
#: the part of a budget that may be spent before that is said.
_UNSAID: Final = 0.8
#: digits behind the point that count, so that a sum of floats is what it looks like.
_DIGITS: Final = 9


class Budget(Feature):
    """Counts what one session costs, and holds the session when its budget is spent."""

    def __init__(self, session: Parts, budget: Money) -> None:
        """Count what the session has cost until now. Raises JournalError."""
        self._core = session.core
        self._journal = journal = session.journal
        self._transcript = session.transcript
        self._pauses = session.pauses
        self._budget, self._currency = budget.amount, budget.currency
        #: the agent's totals before the last turn, and what all turns before that one have cost.
        self._totals: Totals = {}
        self._before = 0.0
        #: what was told in the last turn, or in the one that runs, and what that comes to.
        self._last: Told | None = None
        self._in_last = 0.0
        #: a cost of the session was counted.
        self._counts = False
        for turn, about in journal.usage():
            row = told(turn, about, {}, journal.info.agent_info)
            if about.get(ELSEWHERE) is True:  # it was paid for before the session was imported
                of_turn(row, self._totals)
                continue
            self._take(row)
            self._count_next()
        #: it was said that costs are lacking, and that there are some in another currency.
        self._said_lacking = self._said_other = False
        kept = as_object(journal.get(_KEPT))
        limit = kept.get("limit") if kept.get("currency") == self._currency else None
        self._limit = max(self._budget, limit) if is_amount(limit) else self._budget
        #: it is still to be said that the limit is near; it is still to be held when it is reached.
        self._nears = self._open = True
        self._stops: anyio.CancelScope | None = None

    @property
    def cost(self) -> float:
        """What the session has cost."""
        return round(self._before + self._in_last, _DIGITS)

    # --- what the agent tells ------------------------------------------------------------------

    def begin_turn(self, link: Link, seq: int) -> None:
        """Count for another turn from now on. Show a notice if the agent never tells a cost."""
        self._count_next()
        about = as_object(link.initialized.get("agentInfo"))
        if tells_no_cost(about.get("name"), about.get("version")):
            self._say_lacking(said.never_told(self._budget, self._currency))

    def _count_next(self) -> None:
        if self._last:
            of_turn(self._last, self._totals)
        self._before, self._last, self._in_last = self._before + self._in_last, None, 0.0

    def note(self, told: Told) -> None:
        """Count all that was told in the turn until now; hold the session if its budget is spent.

        That it is nearly spent, or that a cost has another currency, is said once.
        """
        before = self.cost
        others = self._take(told)
        if others and not self._said_other:
            self._said_other = True
            self._transcript.notice(said.other_currency(others[0], self._budget, self._currency))
        if self.cost <= before:
            return
        if self.cost >= self._limit:
            self._hold()
        elif self._nears and self.cost >= self._limit - (1 - _UNSAID) * self._budget:
            self._nears = False
            self._transcript.notice(said.nearly_spent(self.cost, self._limit, self._currency))

    def end_turn(self, outcome: Outcome) -> None:
        """Say once, when a turn has ended well, that no cost of the session can be counted."""
        well = isinstance(outcome, Replied) and isinstance(outcome.answer, Ok)
        if well and not self._counts and not self._said_other:
            self._say_lacking(said.not_told(self._budget, self._currency))

    def _take(self, told: Told) -> list[str]:
        """Count what was told in the last turn; returns the other currencies in it."""
        costs = of_turn(told, dict(self._totals)).costs
        self._last, self._in_last = told, costs.get(self._currency, 0.0)
        self._counts |= self._currency in costs
        return [currency for currency in costs if currency != self._currency]

    def _say_lacking(self, text: str) -> None:
        """Show `text`, a notice that costs are lacking, unless one was shown before."""
        if not self._said_lacking:
            self._said_lacking = True
            self._transcript.notice(text)

    # --- what is held and stopped --------------------------------------------------------------

    def take_words(self) -> None:
        """Hold the session, before it takes words, if it has spent its budget."""
        self._hold()

    def _hold(self) -> None:
        """Hold the session if it has spent its budget, and stop what still runs a moment later."""
        if self.cost < self._limit:
            return
        if self._open:
            if self._core.now.standstill in (Standstill.PAUSING, Standstill.PAUSED):
                self._cancel()  # a hold would let the turn go on
            self._open = False
            event("budget.spent", session=self._core.id, cost=self.cost, limit=self._limit)
            why = {"cost": self.cost, "limit": self._limit, "currency": self._currency}
            text = said.is_spent(self.cost, self._limit, self._budget, self._currency)
            self._pauses.hold_because(text, {"budget": why})
        if self._stops is None and _at_work(self._core.now.state):
            self._stops = anyio.CancelScope()
            self._core.spawn(self._stop, self._stops)

    async def _stop(self, scope: anyio.CancelScope) -> None:
        with scope:
            await anyio.sleep(waits.LAST_COST)
        if not scope.cancel_called:
            self._cancel()

    def _cancel(self) -> None:
        """Cancel what the agent does, as a Stop does, if it does anything."""
        now = self._core.now
        if not _at_work(now.state):
            return
        event("budget.stopped", session=self._core.id)
        self._transcript.notice(said.STOPPING)
        requests = now.unanswered[:1] if now.running is not None else ()
        self._core.feed(ev.Cancel(frozenset(requests)))

    def follow(self, before: SessionState, after: SessionState) -> None:
        """Raise the limit after the user's go; call off a planned stop if what ran has ended."""
        now = after.turns
        if not self._open and now.standstill is Standstill.OPEN and not now.ending:
            self._go_on()
        if self._stops and (self._open or not _at_work(now.state)):
            self._stops.cancel()
            self._stops = None

    def _go_on(self) -> None:
        """Let the session cost as much again, from what it has cost until now."""
        self._nears = self._open = True
        self._limit = round(self.cost + self._budget, _DIGITS)
        kept: Json = {"limit": self._limit, "currency": self._currency}
        try:
            self._journal.set(_KEPT, kept)
        except JournalError as exc:
            event("journal.failed", session=self._core.id, what=exc)


def _at_work(state: State) -> bool:
    """Return True while the agent has a prompt that nobody cancelled, or works without one."""
    return state in (State.RUNNING, State.WORKING)
