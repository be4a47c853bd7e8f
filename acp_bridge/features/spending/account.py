"""Keeps what the agent of one session tells of its usage, turn by turn, for `acp-bridge cost`.

Nothing is counted here: what the figures mean is each agent's own (`usage_figures.py`), and a
budget counts them (`budget.py`). What comes after the end of a turn is that turn's, until the
next one begins; what an agent tells before the first one belongs to none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from uuid import uuid4

from acp_bridge.core.agents.link import Link
from acp_bridge.core.journal import JournalError
from acp_bridge.core.journal.records import now
from acp_bridge.core.protocol import (
    SET_MODEL,
    TOKENS,
    USAGE_UPDATE,
    Json,
    as_object,
    own_meta,
    without_own_meta,
)
from acp_bridge.core.runtime.log import event
from acp_bridge.core.session.feature import Feature, Parts, Plugin
from acp_bridge.core.session.requests import options
from acp_bridge.core.settings import Settings
from acp_bridge.core.wire.jsonrpc import Answer, Err, Ok
from acp_bridge.features.spending import spent as spending
from acp_bridge.features.spending.budget import Budget
from acp_bridge.features.spending.usage_figures import is_amount, tokens_in_meta

#: characters of a name, a version, a model or a currency that are kept.
_LONGEST: Final = 200
#: costs that are kept of a turn: more only if totals of several currencies begin anew many times.
_MOST: Final = 100


class Account(Feature):
    """Notes who ran each turn of a session, on which model, and the costs that were told in it."""

    states = frozenset({USAGE_UPDATE})

    def __init__(self, session: Parts, budget: Budget | None) -> None:
        """No turn has run yet in this bridge."""
        self._journal = session.journal
        self.budget = budget
        self._settings = session.user_settings
        #: what is told before the first turn has a name of its own in each bridge.
        self._turn, self._began = f"0.{uuid4().hex[:8]}", now()
        self._costs: list[Json] = []
        self._tokens: Json = {}
        #: the settings that were shown last, and the model that they name.
        self._shown: Json | None = None
        self._model: object = None

    def begin_turn(self, link: Link, seq: int) -> None:
        """Note that a turn begins, and which agent and model run it."""
        self._turn, self._began, self._costs, self._tokens = str(seq), now(), [], {}
        self._keep(link)

    def note_state(self, link: Link, update: Json, *, announced: bool) -> Json:
        """Note the cost that a `usage_update` tells, in the place of a lower one before it."""
        if announced:  # a replay repeats what was told before
            self._note_usage(link, update)
        return update

    def _note_usage(self, link: Link, update: Json) -> None:
        cost = as_object(update.get("cost"))
        amount, currency = cost.get("amount"), cost.get("currency")
        if not is_amount(amount) or not isinstance(currency, str) or len(currency) > _LONGEST:
            return
        last = next((each for each in self._costs[::-1] if each["currency"] == currency), None)
        if last == {"amount": amount, "currency": currency}:
            return
        if last and amount > last["amount"]:
            last["amount"] = amount
        elif len(self._costs) < _MOST:  # a lower total has begun anew, so the last one counts, too
            self._costs.append({"amount": amount, "currency": currency})
        else:
            return
        kept = self._keep(link)
        if self.budget:
            self.budget.note(spending.told(0, kept, {}, None))

    def take_answer(self, link: Link, key: int, answer: Answer) -> Answer:
        """Note the tokens that an agent reports with a prompt's answer, but not in its `usage`.

        Returns the answer without those of the built-in agent: only the bridge has asked for them.
        """
        if isinstance(answer, Err) or "_meta" not in (result := as_object(answer.result)):
            return answer
        ours = link.command.ours
        used = as_object(own_meta(result).get(TOKENS)) if ours else tokens_in_meta(result)
        self._tokens = {kind: used[kind] for kind in spending.TOKENS if is_amount(used.get(kind))}
        if self._tokens:
            self._keep(link)
        return Ok(without_own_meta(result)) if ours else answer

    def _keep(self, link: Link) -> Json:
        """Write what is known of the turn now into the journal, and return it."""
        about = as_object(link.initialized.get("agentInfo"))
        named = {
            "agent": about.get("name"),
            "version": about.get("version"),
            "model": self._in_force(),
        }
        kept = {name: value[:_LONGEST] for name, value in named.items() if isinstance(value, str)}
        whole: Json = {**kept, "at": self._began, "costs": self._costs}
        if self._tokens:
            whole[TOKENS] = self._tokens
        try:
            self._journal.set_usage(self._turn, whole)
        except JournalError as exc:
            event("journal.failed", session=self._journal.info.session_id, what=exc)
        return whole

    def _in_force(self) -> object:
        """Return the model that is in force, as the agent names it."""
        shown = self._settings.shown
        if shown is not self._shown:
            chosen = [option.value for option in options.of_category(shown, "model")]
            self._model = chosen[0] if chosen else options.current(shown, SET_MODEL, {})
            self._shown = shown
        return self._model


def made_for(session: Parts, settings: Settings) -> Sequence[Feature]:
    """Return the account of a session, behind its budget if it has one. Raises JournalError."""
    if settings.budget is None:
        return [Account(session, None)]
    budget = Budget(session, settings.budget)
    return [budget, Account(session, budget)]


PLUGIN: Final = Plugin(made_for)
