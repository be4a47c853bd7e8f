"""The requests of a session's agent to clients: files, terminals, and questions to a person.

Files and terminals are those of the client that the agent was told of. Permissions and other
questions to people go to all who can answer (`questions.py`).

- Ids are mapped both ways; a client never sees two requests of one id (invariant P13).
- After a cancel the agent changes nothing through the client (C19), and what it waits for is
  answered at once (invariant C15).
- What the client did not say it can do never reaches it.
- A process with too many open requests has its further ones refused. Requests that ask a person
  wait in its pipe (`agents.requests.MOST_OPEN`).
- When a process is dead, its terminals are released and its requests are called back.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from acp_bridge.core import errors, protocol
from acp_bridge.core.agents.link import Link
from acp_bridge.core.agents.requests import MOST_OPEN
from acp_bridge.core.clients.client import Client, ClientRequest
from acp_bridge.core.protocol import ASKS_A_PERSON, REQUEST_PERMISSION, Json, as_object
from acp_bridge.core.session.clients.open_request import (
    OpenRequest,
    answer_cancelled,
    names_session,
)
from acp_bridge.core.session.clients.permissions import Permissions, is_for_person, new_card
from acp_bridge.core.session.clients.questions import Questions
from acp_bridge.core.updates.odd_answers import options_of_v1
from acp_bridge.core.updates.updates import Updates
from acp_bridge.core.wire.jsonrpc import Answer, Err, Ok, is_id
from acp_bridge.core.wire.peer import Call

#: requests that are answered as cancelled once the turn was: they change something for the user, or
#: ask a person.
_REFUSED_AFTER_CANCEL = frozenset(
    {protocol.WRITE_TEXT_FILE, protocol.CREATE_TERMINAL, *ASKS_A_PERSON}
)


#: the members of such requests that have to be texts.
_TEXTS = {
    protocol.READ_TEXT_FILE: ("path",),
    protocol.WRITE_TEXT_FILE: ("path", "content"),
    protocol.CREATE_TERMINAL: ("command",),
}


@dataclass(slots=True, eq=False)
class _AtOneClient(OpenRequest):
    """A request that went to one client: for files or terminals, or before there is a session."""

    client: Client
    client_id: int = 0

    def call_back(self) -> None:
        """Tell the client that nobody waits for its answer any more."""
        self.client.peer.cancel(self.client_id)

    def take_back(self) -> None:
        """Pass the cancel on; for files and terminals the client's answer says what was done."""
        if self.asks_a_person:
            super(_AtOneClient, self).take_back()
        else:
            self.call_back()


class ToClient:
    """The requests to a client that agents make for one session, or for none.

    What is open is kept with the process that waits for it, `link.at_clients`.
    """

    def __init__(
        self,
        session_id: str | None,
        client: Callable[[], Client | None],
        updates: Updates,
        record: Callable[[Json], None] = lambda params: None,
        permissions: Permissions | None = None,
        questions: Questions | None = None,
    ) -> None:
        """`session_id`: None while there is no session. `client`: who is asked now, if anybody.

        `record` takes the card of a call that only a question has named. With
        `permissions`, hooks decide first. With `questions`, permissions and forms go to every
        client of the session; without, the one client is asked them, too.
        """
        self._questions = questions
        self._permissions = permissions
        self._session_id = session_id
        self._record = record
        self._client = client
        self._updates = updates

    def forward(self, link: Link, call: Call, *, stopped: bool) -> bool:
        """Pass an agent's request on; returns True when it was refused because of `stopped`.

        `stopped`: the turn was cancelled.
        """
        if stopped and call.method in _REFUSED_AFTER_CANCEL:
            answer_cancelled(link, call)
            return True
        if link.at_clients.full and call.method not in ASKS_A_PERSON:
            link.peer.fail(call.id, errors.too_many_requests(MOST_OPEN))
            return False
        if self._permissions and self._permissions.takes(call):
            self._permissions.decide(link, call, self._pass)
        else:
            self._pass(link, call, guarded=is_for_person(call))
        return False

    def note_card(self, update: Json) -> None:
        """Note an update of a tool call that an open question may be about."""
        if self._questions:
            self._questions.note_card(update)

    def ask_anew(self) -> None:
        """Ask open questions anew, where needed, after the updates of their tool calls."""
        if self._questions:
            self._questions.ask_anew()

    def _pass(self, link: Link, call: Call, guarded: bool) -> None:
        """Pass a request to the client or the people that it is for, or refuse it.

        `guarded`: only a person may allow the call.
        """
        client = self._client()
        if self._session_id is None and names_session(call.params):
            link.peer.fail(call.id, errors.unknown_session())
        elif self._questions and call.method in ASKS_A_PERSON:
            self._ask_people(self._questions, link, call, guarded=guarded)
        elif not (client and client.abilities.allows(call.method, call.params)):
            link.peer.fail(call.id, errors.unknown_method(call.method))
        elif lacks := _lacks_a_text(call):
            link.peer.fail(call.id, errors.invalid("must be a string", lacks))
        else:
            self._ask(client, link, call)

    def _ask(self, client: Client, link: Link, call: Call) -> None:
        params, about = self._for_client(client, link, call)
        asked = _AtOneClient(link, call, client)
        link.at_clients.add(asked)
        try:
            asked.client_id = client.peer.request(
                call.method, params, lambda answer: self._answered(asked, answer)
            )
        except Exception:  # nothing was sent
            link.at_clients.remove(asked)
            raise
        if self._permissions:
            self._permissions.tell_that_it_waits(call, about)

    def _ask_people(self, questions: Questions, link: Link, call: Call, *, guarded: bool) -> None:
        """Ask every client that can answer; show the call's card first, if that is new."""
        able = questions.clients(link, call, guarded=guarded)
        permissions = self._permissions
        if not able and permissions and permissions.denies_unattended(call, guarded=guarded):
            permissions.deny(link, call)
            return
        if not able and not questions.may_wait(link, call, guarded=guarded):
            link.peer.fail(call.id, errors.unknown_method(call.method))
            return
        asked = questions.shown(able)
        params, card, about = self._named(call)
        params = permissions.marked(call, params) if permissions else params
        if card:
            questions.show_card(card)
        if _lacks_options(call) and not any(each.abilities.shows_said for each in able):
            questions.say_no_options(call, about)
            answer_cancelled(link, call)
            return
        questions.ask(link, call, params, about, asked, guarded=guarded)
        if self._permissions:
            self._permissions.tell_that_it_waits(call, about)

    def _answered(self, asked: _AtOneClient, answer: Answer) -> None:
        if not asked.is_open:
            self._late_terminal(asked, answer)
            return
        asked.link.at_clients.remove(asked)
        match answer:
            case Ok(result):
                self._note_terminal(asked, result)
                asked.link.peer.answer(asked.call.id, result)
            case Err(error):
                asked.link.peer.fail(asked.call.id, error)

    def _note_terminal(self, asked: _AtOneClient, result: object) -> None:
        params, terminals = asked.call.params, asked.link.at_clients.terminals
        if asked.call.method == protocol.CREATE_TERMINAL:
            if terminal := _terminal_of(result):
                terminals[terminal] = partial(self._release_terminal, asked.client, terminal)
        elif asked.call.method == protocol.RELEASE_TERMINAL:
            terminals.pop(_terminal_of(params) or "", None)

    def _late_terminal(self, asked: _AtOneClient, answer: Answer) -> None:
        """Release a terminal that a client made after its agent's death; nobody else would."""
        if asked.call.method != protocol.CREATE_TERMINAL or isinstance(answer, Err):
            return
        if terminal := _terminal_of(answer.result):
            self._release_terminal(asked.client, terminal)

    def _release_terminal(self, client: Client, terminal: str) -> None:
        params = {"sessionId": self._session_id, "terminalId": terminal}
        client.peer.request(protocol.RELEASE_TERMINAL, params, lambda answer: None)

    def _for_client(self, client: Client, link: Link, call: Call) -> tuple[Any, Json | None]:
        params, _, about = self._named(call)
        on_behalf = params.get("requestId") if isinstance(params, dict) else None
        if is_id(on_behalf):
            origin = link.on_behalf.get(on_behalf)
            if isinstance(origin, ClientRequest) and origin.client is client:
                return {**params, "requestId": origin.call.id}, about
        return params, about

    def _named(self, call: Call) -> tuple[Any, Json | None, Json | None]:
        """Return the parameters with the ids that clients know.

        The second value is the update that opens the card of a call which nothing has shown
        before. It is recorded: without the record a later load would show updates of an unknown
        call. The third value is all that
        is known of the call, if there is one.
        """
        if not isinstance(call.params, dict):
            return call.params, None, None
        changed, card, about = dict(call.params), None, None
        if "sessionId" in changed and self._session_id is not None:
            changed["sessionId"] = self._session_id
        tool_call = changed.get("toolCall")
        if isinstance(tool_call, dict):
            changed["toolCall"], about, new = self._updates.asked_about(tool_call)
            if new and isinstance(changed["toolCall"].get("toolCallId"), str):
                card = new_card(changed["toolCall"])
                self._record(card)
        changed = self._updates.question_named(changed)
        tool_call_id = changed.get("toolCallId")
        if isinstance(tool_call_id, str):
            changed["toolCallId"] = self._updates.client_card_id(tool_call_id)
        return changed, card, about


def _lacks_a_text(call: Call) -> str | None:
    """Return the member of a request about a client's machine that has to be a text, and is not.

    A client may take null for the word or for an empty file.
    """
    given: Json = {"path": "", "command": "", **as_object(call.params)}
    needed = _TEXTS.get(call.method, ())
    return next((name for name in needed if not isinstance(given.get(name), str)), None)


def _lacks_options(call: Call) -> bool:
    """Return True for a permission with options of which version 1 has none."""
    options = as_object(call.params).get("options")
    return call.method == REQUEST_PERMISSION and bool(options) and not options_of_v1(options)


def _terminal_of(result: object) -> str | None:
    terminal = result.get("terminalId") if isinstance(result, dict) else None
    return terminal if isinstance(terminal, str) else None
