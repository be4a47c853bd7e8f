"""The questions of a session's agent to people: every client that can answer is asked.

- An offered option that was chosen settles a permission, a form that was accepted or declined an
  elicitation; the other clients are told that nobody waits for them any more (invariant V3).
- Any other answer withdraws the question from that client alone, and so does its leave. When it is
  withdrawn from all, it is rejected; if only one client was asked, its own answer is passed on.
- A client that joins is asked when it has been shown the session, but not what was open before if
  it has asked for no history.
- A client that wants it is asked with all that is known of the tool call, and asked anew when that
  changes: its answer to what it was shown before counts no more (invariant V9). Other clients see
  the call's card as it changes; one that can't have seen the card is told all of the call, too.
- In a bridge that is kept without a client, a question that nobody can answer now waits for the
  next one: a connection that ends is no answer.
- Nor is it for a client with a name, in any bridge: the question waits until that one comes back,
  or somebody else answers. It does not wait for one that has closed the session.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from typing import Any, Final
from uuid import uuid4

from msgspec import Struct

from acp_bridge.core.agents.link import Link
from acp_bridge.core.clients.client import Client, ClientRequest
from acp_bridge.core.clients.rights import Right
from acp_bridge.core.protocol import (
    CANCELLED_PERMISSION,
    QUESTION,
    REQUEST_PERMISSION,
    WHOLE_CALLS,
    ErrorCode,
    Json,
    as_object,
    names_terminal,
    objects,
    own_meta,
    with_own_meta,
    without,
    without_said,
    without_terminals,
)
from acp_bridge.core.session.clients.open_request import OpenRequest
from acp_bridge.core.session.clients.permissions import asks, decision_of, option_for
from acp_bridge.core.session.core import Asked, Core
from acp_bridge.core.session.feature import Decision
from acp_bridge.core.session.prompts.prompts import Prompts
from acp_bridge.core.session.transcript.transcript_out import TranscriptOut
from acp_bridge.core.updates import agent_trouble
from acp_bridge.core.updates.children import Child, Children, linked
from acp_bridge.core.updates.folded import in_name_of
from acp_bridge.core.updates.odd_answers import options_of_v1, permission_answer
from acp_bridge.core.updates.tool_calls import shows_alike, updated
from acp_bridge.core.wire.jsonrpc import Answer, Err, Ok, is_id
from acp_bridge.core.wire.peer import Call

#: clients that are gone for which one question waits, at most.
_AWAITED: Final = 32


class _AtClient(Struct, eq=False):
    """The last request to one client about a question; an answer to an earlier one is dropped."""

    request_id: int = 0


@dataclass(slots=True, eq=False)
class _Question(OpenRequest):
    """A question of an agent that is not settled yet."""

    #: the parameters with the ids that clients know.
    params: Any
    #: all that is known of the tool call that it is about, if it is about one.
    about: Json | None
    #: only a person may allow it, and no client by a rule of its own.
    guarded: bool
    #: the subagent that asks; None: the session's agent itself.
    child: Child | None
    #: the clients that are asked, each with its last request.
    asked: dict[Client, _AtClient] = field(default_factory=dict)
    #: how many clients were asked until now.
    count: int = 0
    #: the id by which clients with names know it; a new one once the agent changes the call.
    id: str = field(default_factory=lambda: uuid4().hex)
    #: clients with names that are gone, by `Client.identity`: it waits for them.
    awaited: list[object] = field(default_factory=list)
    #: clients that came after it was asked, and want nothing that was open then.
    passed_over: set[Client] = field(default_factory=set)

    #: the updates of its call since `Questions.ask_anew` that it was asked with.
    changes: int = 0
    #: is called once it is settled.
    forget: Callable[[], None] = lambda: None
    #: is called with the answer that ends the question, and with who has given that.
    note: Callable[[object, str], None] = lambda result, by: None
    #: the subject of the question in one line, and what that was made of.
    _subject: tuple[Json | None, str] | None = None

    @property
    def summary(self) -> str:
        """The subject of the question, in one line; it is made once, as it is told often."""
        if self._subject is None or self._subject[0] is not self.about:
            said = asks(self.call, self.about)
            said = f"[{self.child.title}] {said}" if self.child else said
            self._subject = self.about, said
        return self._subject[1]

    @property
    def card(self) -> object:
        """The clients' id of the tool call that it is about; None if it is about none."""
        card = (self.about or {}).get("toolCallId")
        return card if isinstance(card, str) else None

    def settled(self) -> None:
        """Leave the open questions."""
        self.forget()

    def awaits(self, client: Client) -> None:
        """Let the question wait for a client that is gone; of many for the last `_AWAITED`."""
        if client.identity not in self.awaited:
            self.awaited = [*self.awaited[1 - _AWAITED :], client.identity]

    def awaits_no_more(self, client: Client) -> bool:
        """Let the question wait for this client no more; False if it has not waited for it."""
        waited = client.identity in self.awaited
        self.awaited = [each for each in self.awaited if each != client.identity]
        return waited

    def call_back(self) -> None:
        """Tell the clients that nobody waits for their answers any more."""
        for client, at_client in self.asked.items():
            client.peer.cancel(at_client.request_id)

    def take_back(self) -> None:
        """Answer the agent that has cancelled its question, and note that."""
        self.note(None, "agent")
        super(_Question, self).take_back()

    def end(self) -> None:
        """Answer the question as cancelled, as every open request is ended, and note that."""
        self.note(None, "stop")
        super(_Question, self).end()


class Questions:
    """The questions of one session's agent to the people at its clients."""

    def __init__(
        self,
        core: Core,
        transcript: TranscriptOut,
        prompts: Prompts,
        children: Children,
        note: Callable[[Call, object, Decision], None],
        *,
        kept: bool,
    ) -> None:
        """Nothing is asked yet. `note` takes a permission, the clients' id of its call, and what
        has become of it. `kept`: another client may come when none is there.
        """
        self._note = note
        self._children = children
        self._kept = kept
        self._core = core
        self._prompts = prompts
        self._transcript = transcript
        self._open: dict[_Question, None] = {}
        #: the same by the call that they are about, as clients know its id.
        self._about: dict[object, dict[_Question, None]] = {}
        #: by such a call, its updates since `ask_anew`.
        self._changes: dict[object, list[Json]] = {}

    @property
    def open(self) -> list[_Question]:
        """The questions that are not settled, in the order of asking."""
        return list(self._open)

    @property
    def asked(self) -> Asked | None:
        """The oldest question that is not settled, and how many there are; None without any."""
        oldest = next(iter(self._open), None)
        return Asked(oldest.summary, len(self._open)) if oldest else None

    def clients(self, link: Link, call: Call, *, guarded: bool = False) -> list[Client]:
        """Return the clients that can answer a request of an agent, also those still loading.

        A question about a client's own request goes to that client alone. `guarded`: only clients
        that ask a person; one that is asked only about its own turns answers by a rule.
        """
        params = call.params if isinstance(call.params, dict) else {}
        if "sessionId" not in params and (of := _origin(link, params)):
            return [of.client] if of.client.abilities.allows(call.method, params) else []
        clients = [view.client for view in self._transcript.views]
        return [each for each in clients if self._may_ask(each, call, guarded)]

    def _able(self, question: _Question) -> list[Client]:
        able = self.clients(question.link, question.call, guarded=question.guarded)
        return [each for each in able if each not in question.passed_over]

    def may_wait(self, link: Link, call: Call, *, guarded: bool = False) -> bool:
        """Return True if the question may stay open until a client comes that can answer it.

        It may in a bridge that is kept, but for a question about a client's own request, which no
        other client may answer, and for a form while clients have the session: they would see the
        turn stand still, and not why. It may in any bridge if the client whose turn runs has a
        name, and can come back.
        """
        seen = call.method == REQUEST_PERMISSION or not self._transcript.views
        away = self._away(call, guarded)
        return _is_of_session(link, call) and ((self._kept and seen) or bool(away))

    def _away(self, call: Call, guarded: bool) -> list[Client]:
        """Return the ended connections of clients whose turn runs, and that could be asked.

        One that has come back is not away, also if it may not be asked any more.
        """
        here = [view.client.identity for view in self._transcript.views]
        clients = self._prompts.away(*self._core.now.unanswered[:1])
        clients = [each for each in clients if each.identity not in here]
        return [each for each in clients if self._may_ask(each, call, guarded)]

    def _may_ask(self, client: Client, call: Call, guarded: bool) -> bool:
        unanswered = self._core.now.unanswered
        own_turn = unanswered and client.identity in self._prompts.askers(unanswered[0])
        not_its_own = client.own_turns_only and (guarded or not own_turn)
        if not_its_own or not client.may(Right.ANSWER):
            return False
        return client.abilities.allows(call.method, call.params)

    def shown(self, clients: list[Client]) -> list[Client]:
        """Return those of the clients that can be asked now, since no load of theirs runs."""
        views = {view.client: view for view in self._transcript.views}
        return [each for each in clients if each not in views or not views[each].replaying]

    def show_card(self, card: Json) -> None:
        """Show every client the card of a call: some refuse a question about one without a card."""
        for view in self._transcript.views:
            self._transcript.show_to(view.client, card)

    def say_no_options(self, call: Call, about: Json | None) -> None:
        """Say that a permission can't be asked, as no client can show one of its options."""
        self._transcript.notice(agent_trouble.no_options(asks(call, about)))

    def ask(
        self,
        link: Link,
        call: Call,
        params: Any,
        about: Json | None,
        clients: list[Client],
        *,
        guarded: bool = False,
    ) -> None:
        """Ask these clients; `params` are those of the request as clients know its ids.

        `about`: all that is known of the tool call, if it is about one.
        """
        self._transcript.flush()  # that it is asked is on disk before anybody can answer
        child = self._children.of(link.children, call.params)
        question = _Question(link, call, params, about, guarded, child)
        question.note = partial(self._note_end, question)
        question.changes = len(self._changes.get(question.card, ()))
        question.forget = partial(self._forget, question)
        self._open[question] = None
        self._about.setdefault(question.card, {})[question] = None
        link.at_clients.add(question)
        for client in self._away(call, guarded) if _is_of_session(link, call) else []:
            question.awaits(client)
        try:
            question.asked = {client: _AtClient() for client in clients}
            question.count = len(clients) + len(question.awaited)
            for client in clients:
                self._ask(question, client)
        except Exception:
            link.at_clients.remove(question)
            raise
        self._core.settle()

    def pass_over(self, client: Client, passes: bool) -> None:
        """Note whether a client that is about to be shown the session wants the open questions.

        `passes`: it wants none but those that it is asked already, or that wait for its return.
        """
        for question in self.open:
            question.passed_over.discard(client)
            if passes and client.identity not in question.awaited:
                question.passed_over.add(client)

    def ask_too(self, client: Client) -> None:
        """Send the open questions to a client that has just loaded the session."""
        for question in self.open:
            able = client in self._able(question)
            back = question.awaits_no_more(client)
            if able and client not in question.asked:
                question.count += not back
                self._ask(question, client)
            elif back:
                self._withdraw(question, client, None)

    def _forget(self, question: _Question) -> None:
        del self._open[question]
        of_card = self._about[question.card]
        del of_card[question]
        if not of_card:
            del self._about[question.card]

    def note_card(self, update: Json) -> None:
        """Note an update of a tool call that a question may be about, for `ask_anew`."""
        card = update.get("toolCallId")
        if isinstance(card, str) and card in self._about:
            self._changes.setdefault(card, []).append(update)

    def ask_anew(self) -> None:
        """Ask clients again whose question has changed since the last call.

        It is called before any client's answer can be read, and asks once, however many updates
        there were: their number times that of the questions would be too much.
        """
        changes, self._changes = self._changes, {}
        for card, updates in changes.items():
            # What all updates from one on say together: a question has seen those before it.
            together = [*accumulate(reversed(updates), lambda later, said: updated(said, later))]
            for question in list(self._about.get(card, ())):
                seen, question.changes = question.changes, 0
                if question.about is not None and seen < len(updates):
                    self._change(question, updated(question.about, together[-1 - seen]))

    def _change(self, question: _Question, about: Json) -> None:
        """Note what is known of a question's call by now, and ask anew if that shows more."""
        before, question.about = question.about or {}, about
        if shows_alike(before, about):
            return
        question.id = uuid4().hex
        self._transcript.flush()
        for client in [each for each in question.asked if WHOLE_CALLS in each.abilities.own]:
            client.peer.cancel(question.asked[client].request_id)
            self._ask(question, client)

    def _ask(self, question: _Question, client: Client) -> None:
        params = self._linked(self._for_client(question, client), client)
        if client.abilities.name and isinstance(params, dict):
            params = with_own_meta(params, {**own_meta(params), QUESTION: question.id})
        at_client = question.asked[client] = _AtClient()
        at_client.request_id = client.peer.request(  # one that is gone answers at once
            question.call.method,
            params,
            lambda answer: self._answered(question, client, at_client, answer),
        )

    def _for_client(self, question: _Question, client: Client) -> Any:
        """Return the parameters for a client, with the whole call if it can't know its card."""
        as_said = _with_origin(question, client)
        params = without_said(as_said) if isinstance(as_said, dict) else as_said
        permits = question.call.method == REQUEST_PERMISSION and isinstance(params, dict)
        if permits and not client.abilities.shows_said:
            params = {**params, "options": options_of_v1(params.get("options"))}
        if question.child and client.abilities.shows_subagents:
            return {**params, "sessionId": f"{self._core.id}{question.child.key}"}
        if question.child:
            return self._folded(question, question.child, client, params)
        view = self._transcript.view_of(client)
        whole = WHOLE_CALLS in client.abilities.own or (view is not None and view.missed_some)
        if question.about is None or not whole:
            return as_said if client.abilities.shows_said else params
        about = question.about
        if client.on_socket and names_terminal(about):
            about = without_terminals(about)
        return {**params, "toolCall": about}

    def _linked(self, params: Any, client: Client) -> Any:
        """Return a question's parameters, in whose call all is as the client can read it.

        Links to sessions have our ids, or are titles if it can't show subagents.
        """
        call = params.get("toolCall") if isinstance(params, dict) else None
        if not isinstance(call, dict):
            return params
        told = client.abilities.fit_call(call)
        if self._children:
            shows = client.abilities.shows_subagents
            told = linked(told, self._core.id) if shows else self._children.unlinked(told)
        return {**params, "toolCall": told}

    def _folded(self, question: _Question, child: Child, client: Client, params: Json) -> Json:
        """Return a child's question as the session's own, for a client that can't show subagents.

        It has not been shown the call's card, so it is told all of the call (invariant V9).
        """
        if (about := question.about) is None:
            said = without(params, "toolCallId")
            return {**said, "message": f"[{child.title}] {params.get('message', '')}"}
        self._children.asked.add(str(about.get("toolCallId")))
        if client.on_socket and names_terminal(about):
            about = without_terminals(about)
        return {**params, "toolCall": in_name_of(child, {"title": "", **about})}

    def withdraw(self, client: Client, *, closes: bool, returns: bool) -> None:
        """Withdraw all open questions from a client that does not have the session any more.

        `closes`: it has left on purpose. `returns`: the questions wait for it, if it has a name.
        """
        for question in self.open:
            if (at_client := question.asked.get(client)) is not None:
                client.peer.cancel(at_client.request_id)
            if closes:
                question.awaits_no_more(client)
            self._withdraw(question, client, None, returns=returns)

    # --- answers -------------------------------------------------------------------------------

    def _answered(
        self, question: _Question, client: Client, at_client: _AtClient, answer: Answer
    ) -> None:
        if not question.is_open or question.asked.get(client) is not at_client:
            return
        if isinstance(answer, Ok) and question.call.method == REQUEST_PERMISSION:
            answer = Ok(permission_answer(answer.result, _offered(question.call)))
        if isinstance(answer, Ok) and _settles(question.call, answer.result):
            del question.asked[client]
            question.link.at_clients.remove(question)
            question.call_back()
            self._answer(question, answer.result, "client", client)
            self._core.settle()
        else:
            self._withdraw(question, client, answer)

    def _withdraw(
        self,
        question: _Question,
        client: Client,
        answer: Answer | None,
        *,
        returns: bool = False,
    ) -> None:
        """Withdraw a question from a client; with the last client the question ends.

        `returns`: the client has left the session, and may come back.
        """
        of_session = _is_of_session(question.link, question.call)
        returns |= answer is not None and client.gone  # that is how a connection's end answers
        may_return = client.abilities.name and returns and of_session
        if may_return and self._may_ask(client, question.call, question.guarded):
            question.awaits(client)
        question.asked.pop(client, None)
        others = self._able(question)
        later = [each for each in others if each is not client and each not in self.shown(others)]
        left = answer is None or client.gone
        waits = left and self.may_wait(question.link, question.call, guarded=question.guarded)
        if question.asked or question.awaited or later or waits:
            return
        question.link.at_clients.remove(question)
        match answer if question.count == 1 else None:
            case Ok(result) if result is not None:
                self._answer(question, result, "client", client)
            case Err(error):
                self._tell_unanswered(question, client, error.message, error.code)
                question.note(None, "withdrawn")
                question.link.peer.fail(question.call.id, error)
            case _:
                if isinstance(answer, Ok):
                    self._tell_unanswered(question, client, "")
                self._answer(question, _rejection(question.call), "withdrawn")
        self._core.settle()

    def _tell_unanswered(
        self, question: _Question, client: Client, said: str, code: int = 0
    ) -> None:
        """Say that the last client's answer to a permission was none: no person has refused it.

        Nothing is said of a client that is gone, or whose person has closed the question.
        """
        is_answer = question.call.method == REQUEST_PERMISSION and not client.gone
        if is_answer and code != ErrorCode.REQUEST_CANCELLED:
            self._transcript.notice(agent_trouble.not_answered(question.summary, said))

    def _answer(
        self, question: _Question, result: object, by: str, client: Client | None = None
    ) -> None:
        self._note_end(question, result, by, client.login if client else "")
        question.link.peer.answer(question.call.id, result)

    def _note_end(self, question: _Question, result: object, by: str, name: str = "") -> None:
        if decision := decision_of(question.call, result, by, name):
            self._note(question.call, question.params["toolCall"].get("toolCallId"), decision)


def _is_of_session(link: Link, call: Call) -> bool:
    """Return True for a question that is not about a request of one client's."""
    params = as_object(call.params)
    return "sessionId" in params or _origin(link, params) is None


def _origin(link: Link, params: Json) -> ClientRequest | None:
    """Return the request of a client that an agent's request is about, if there is one."""
    on_behalf = params.get("requestId")
    origin = link.on_behalf.get(on_behalf) if is_id(on_behalf) else None
    return origin if isinstance(origin, ClientRequest) else None


def _with_origin(question: _Question, client: Client) -> Any:
    params = question.params
    if not isinstance(params, dict) or (origin := _origin(question.link, params)) is None:
        return params
    if origin.client is client:
        return {**params, "requestId": origin.call.id}
    return without(params, "requestId")


def _settles(call: Call, result: object) -> bool:
    """Return True for an answer that decides: an offered option, a form accepted or declined."""
    if call.method != REQUEST_PERMISSION:
        return isinstance(result, dict) and result.get("action") in ("accept", "decline")
    return as_object(as_object(result).get("outcome")).get("outcome") == "selected"


def _offered(call: Call) -> list[object]:
    """Return the ids of the options of a permission."""
    options = objects(as_object(call.params).get("options"))
    return [each["optionId"] for each in options if "optionId" in each]


def _rejection(call: Call) -> Json:
    """Return the answer that rejects a question, for when every client has withdrawn."""
    if call.method != REQUEST_PERMISSION:
        return {"action": "cancel"}
    options = call.params.get("options") if isinstance(call.params, dict) else None
    option = option_for("deny", options)
    if option is None:
        return CANCELLED_PERMISSION
    return {"outcome": {"outcome": "selected", "optionId": option}}
