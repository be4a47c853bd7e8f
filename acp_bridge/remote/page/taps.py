"""What a tap on a page is about, and what has become of each tap. SANS-IO.

A page keeps a tap until the server confirms it, and sends it again over each new line. So each tap
has a key of its own, and names what its user saw: a prompt, a question, a queue.

Invariants
- A tap is carried out once, however often it arrives, while the server runs.
- A Stop names the prompt that ran, an answer names all that was shown of a question.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from acp_bridge.core.protocol import PROMPT_ID, QUESTION, Json, LiveState, as_object, own_meta
from acp_bridge.core.updates import tool_calls
from acp_bridge.terminal.view.queue_rows import Row
from acp_bridge.terminal.view.standing import standing

#: taps of one login, and logins, whose outcomes are kept.
_MOST: Final = 500
_MOST_LOGINS: Final = 200

#: begins the name of a turn whose prompt is not told yet.
_BEGINS: Final = "begins"

#: the sentences for taps that come to nothing.
TURN_ENDED: Final = "The turn had already ended."
WORK_ENDED: Final = "The agent had already stopped working."
CLOSED: Final = "The session was closed."
CHANGED: Final = "The agent changed its question. Look at it again."
NOT_ASKED: Final = "Somebody else answered, or the agent no longer asks."
NOT_OFFERED: Final = "The agent does not offer that option."
NOT_WAITING: Final = "That prompt is no longer waiting."
QUEUE_CHANGED: Final = "The queue has changed. Nothing was moved."
UNSENT_CHANGED: Final = "The unsent prompts have changed. Nothing was run."
SETTING_CHANGED: Final = "Somebody else changed the {kind} meanwhile. It stays as it is."
SETTING_UNKNOWN: Final = "The session no longer offers that {kind}."
TAKEN_BACK: Final = "Taken back. It was not carried out."
PERHAPS_DONE: Final = (
    "Taken back. The server has restarted, and might have carried it out before that."
)
TOO_LATE: Final = "It had already been carried out."
_DECIDED_BY: Final = {
    "client": "Somebody else answered.",
    "stop": "The turn was stopped before your answer.",
    "withdrawn": "Nobody answered in time.",
}
_BY_RULE: Final = "A rule or a hook had already answered."
_SAME_LOGIN: Final = "This login had already answered."


@dataclass(frozen=True, slots=True)
class Outcome:
    """What has become of a tap: it was carried out or not, and a sentence for its user."""

    done: bool
    line: str = ""


@dataclass(slots=True, eq=False)
class Receipt:
    """One tap that has arrived; without an outcome it is being carried out."""

    key: str
    outcome: Outcome | None = None
    #: is called with the outcome; with None when nobody carries the tap out any more.
    tell: list[Callable[[Outcome | None], None]] = field(default_factory=list)

    def when_known(self, tell: Callable[[Outcome | None], None]) -> None:
        """Call `tell` with the outcome, at once if it is known."""
        if self.outcome is not None:
            tell(self.outcome)
        else:
            self.tell.append(tell)


class Receipts:
    """What has become of the taps of one login, by their keys; the newest are kept."""

    def __init__(self, server: str = "") -> None:
        """`server`: a text that no other run of the server has."""
        self.server = server or secrets.token_hex(8)
        self._known: OrderedDict[str, Receipt] = OrderedDict()

    def find(self, key: str) -> Receipt | None:
        """Return the receipt of a tap; None for a tap that has never arrived."""
        return self._known.get(key)

    def begin(self, key: str) -> Receipt:
        """Return a receipt for a tap that is carried out now."""
        while len(self._known) >= _MOST:
            self._known.popitem(last=False)
        self._known[key] = receipt = Receipt(key)
        return receipt

    def end(self, receipt: Receipt, outcome: Outcome | None) -> None:
        """Note the outcome; None forgets the tap, which may arrive again."""
        receipt.outcome = outcome
        if outcome is None and self._known.get(receipt.key) is receipt:
            del self._known[receipt.key]
        waiting, receipt.tell = receipt.tell, []
        for tell in waiting:
            tell(outcome)

    def take_back(self, key: str, sent_to: str) -> Outcome:
        """Have a tap never carried out; returns what is true of it, for its user.

        `sent_to`: the `server` that the page last sent it to.
        """
        receipt = self._known.get(key)
        if receipt is None:
            line = TAKEN_BACK if sent_to == self.server else PERHAPS_DONE
            self.end(self.begin(key), Outcome(False, TAKEN_BACK))
            return Outcome(False, line)
        if receipt.outcome is None or receipt.outcome.done:
            return Outcome(True, TOO_LATE)
        return receipt.outcome


class AllReceipts:
    """The receipts of all logins of a server."""

    def __init__(self) -> None:
        self._server = secrets.token_hex(8)
        self._of: OrderedDict[str, Receipts] = OrderedDict()

    def of(self, login: str) -> Receipts:
        """Return the receipts of a login; those of the login used longest ago give way."""
        found = self._of.get(login) or Receipts(self._server)
        self._of[login] = found
        self._of.move_to_end(login)
        while len(self._of) > _MOST_LOGINS:
            self._of.popitem(last=False)
        return found

    def forget(self, login: str) -> None:
        """Forget the receipts of a login that has ended."""
        self._of.pop(login, None)


def stop_key(state: Json) -> str:
    """Return what a Stop would end, from the params of `_acp_bridge/state`; "" for nothing.

    A turn is named by its prompt. Work without a prompt, and a turn whose prompt is not told yet,
    are named by the prompt that has ended last: they are over when another one has.
    """
    now = standing(state)
    if isinstance(now.prompt_id, str):
        return f"turn:{now.prompt_id}"
    if not now.busy:
        return ""
    kind = "work" if now.state == LiveState.WORKING else _BEGINS
    return f"{kind}:{_last(state)}"


def stopped_by(key: str, state: Json) -> Json | None:
    """Return the parameters of the `_acp_bridge/cancel` that a Stop asks for; None if it is late.

    `key`: what was shown, a `stop_key`; `state`: what is so now.
    """
    now = stop_key(state)
    kind, _, of = key.partition(":")
    began = kind == _BEGINS and now.startswith("turn:") and _last(state) == of
    if not now or (now != key and not began):
        return None
    kind, _, of = now.partition(":")
    if kind == _BEGINS:
        return {}
    return {PROMPT_ID: of if kind == "turn" else None}


def _last(state: Json) -> str:
    last = as_object(state.get("last")).get(PROMPT_ID)
    return last if isinstance(last, str) else ""


def question_key(params: Json, unnamed: str) -> str:
    """Return a digest of a permission and of all that is shown of it.

    `unnamed` names a question that the bridge gives no id: no other connection knows it.
    """
    call, named = as_object(params.get("toolCall")), own_meta(params).get(QUESTION)
    shown = [
        named if isinstance(named, str) else unnamed,
        call.get("toolCallId"),
        tool_calls.says(call),
        params.get("options"),
    ]
    return hashlib.sha256(json.dumps(shown, sort_keys=True).encode()).hexdigest()[:32]


def unsent_key(rows: Iterable[Row]) -> str:
    """Return a digest of the unsent prompts among the rows of a queue."""
    held = sorted(str(row.prompt_id) for row in rows if row.held)
    return hashlib.sha256(json.dumps(held).encode()).hexdigest()[:32]


def why_not_asked(decided: Json, login: str, kind: object, *, same_turn: bool) -> str | None:
    """Return why a question is no longer open; None if this login has answered it so itself.

    `decided`: the mark about it in the transcript, empty without one. `kind`: that of the option
    that was tapped. `same_turn`: the turn of the question still runs.
    """
    by = decided.get("by")
    if by == "client" and decided.get("name") == login:  # its confirmation was lost
        return None if decided.get("option") == kind else _SAME_LOGIN
    if decided:
        return _DECIDED_BY.get(str(by), _BY_RULE)
    return NOT_ASKED if same_turn else TURN_ENDED
