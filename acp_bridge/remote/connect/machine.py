"""Decides what is sent over a connection that drops, so that nothing is lost, doubled or reordered.

It takes messages of the editor and of the server, the remote bridge, and the news that a connection
is up or down, and returns the messages to be sent. Nothing here awaits, or knows a clock.

Invariants (N2)
- Each request of the editor's is answered once. One that may have been read, and that must not be
  done twice, is not sent again: its answer is an error that says so.
- A prompt is sent on each connection, under its key, until it is answered; prompts of a session
  are sent in the order in which they came.
- A Stop ends the prompt that it was meant for, or nothing: it carries that prompt's key.
- What runs elsewhere reads, writes and runs nothing on this machine: the editor is neither asked to
  nor offered to log in by a command.
- A session is opened again on each new connection and shown from where the editor was shown it;
  until that is done nothing is sent to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from typing import Any, Final, TypeAlias

from acp_bridge.core import errors
from acp_bridge.core.clients.handshake import for_remote
from acp_bridge.core.protocol import (
    ACCEPTED,
    CANCEL_REQUEST,
    CLIENT_NAME,
    HEARS_ACCEPTED,
    HEARS_STATE,
    INITIALIZE,
    LET_GO,
    ON_THE_MACHINE,
    PROMPT_KEY,
    QUEUE_LIST,
    SESSION_CANCEL,
    SESSION_CLOSE,
    SESSION_PROMPT,
    SESSION_STATE,
    SESSION_UPDATE,
    TAKES_CURSORS,
    WHOLE_CALLS,
    Json,
    as_object,
    own_meta,
    parted,
    speaks_v2,
    with_own_meta,
    without_cursor,
)
from acp_bridge.core.wire import jsonrpc
from acp_bridge.core.wire.jsonrpc import Message, RequestId, RpcError
from acp_bridge.remote.connect import rules
from acp_bridge.remote.connect.dialects import First, Second
from acp_bridge.remote.connect.dialogs import Dialogs
from acp_bridge.remote.connect.kept import Asked, Moving, Session
from acp_bridge.remote.connect.rules import Again
from acp_bridge.remote.connect.sessions import Sessions
from acp_bridge.remote.connect.way_out import Action, WayOut

#: takes the answer to a request that the machine itself has made.
Take: TypeAlias = Callable[[Message], None]

#: by ability that a client declares, the notification that it gets.
_NEEDED: Final = {HEARS_ACCEPTED: ACCEPTED, HEARS_STATE: SESSION_STATE}
_IN_FLIGHT: Final = "the id is in flight already"
#: the number of a connection to another bridge (`Asked.line`).
_ELSEWHERE: Final = -1


class Machine:
    """One editor's side of a connection to one remote bridge that may drop."""

    def __init__(
        self,
        name: str,
        where: str,
        new_key: Callable[[], str],
        questions: Iterator[int] | None = None,
    ) -> None:
        """`name`: this client's name, a secret; `where`: the name of the remote bridge for people.

        `new_key` makes a unique idempotency key for a prompt. `questions`: gives the ids of
        requests to the editor, if other machines make some, too.
        """
        self._name = name
        self._where = where
        self._new_key = new_key
        self._out = WayOut()
        self._dialect: First = First()
        #: the editor's `initialize` as it is sent, and its result as the editor was given it.
        self._hello: Message | None = None
        self._answer: Json | None = None
        #: the server has answered `initialize` on this connection.
        self._greeted = False
        self._takes_keys = False
        #: the methods of notifications that the server sends and the editor did not ask for.
        self._unasked: set[str] = set()
        #: the connection is down for so long that requests that are sent once don't wait for it.
        self._refuses = False
        self._numbers = count(1)
        self._asked: dict[RequestId, Asked] = {}
        self._own: dict[RequestId, Take] = {}
        self._dialogs = Dialogs(self._out, questions or count(1))
        self._sessions = Sessions(self._out, where)

    # --- what happens --------------------------------------------------------------------------

    def from_editor(self, message: Message) -> list[Action]:
        """Take a message of the editor; returns what to send for it."""
        if "method" not in message:
            self._dialogs.take_answer(message)
        elif "id" in message:
            self._request(message)
        elif message["method"] == SESSION_CANCEL:
            self._stop(message)
        elif message["method"] == CANCEL_REQUEST:
            self._give_up(message)
        else:
            self._notify(message)
        return self._out.taken()

    def from_server(self, message: Message) -> list[Action]:
        """Take a message of the server; returns what to send for it."""
        method = message.get("method")
        if method is None:
            self._answered(message)
        elif "id" in message and str(method).startswith(ON_THE_MACHINE):
            self._out.to_server(jsonrpc.error(message["id"], errors.unknown_method(str(method))))
        elif "id" in message:
            self._dialogs.ask(message)
        elif method == CANCEL_REQUEST:
            self._dialogs.call_back(as_object(message.get("params")).get("requestId"))
        elif method == SESSION_UPDATE:
            self._sessions.show(message)
        elif method in (ACCEPTED, SESSION_STATE):
            self._told(message)
        elif method != LET_GO:  # the connection ends, and another one is made
            self._out.to_editor(message)
        return self._out.taken()

    def line_up(self) -> list[Action]:
        """Begin a new connection: greet the server, open the sessions again, send what waits."""
        self._out.line += 1
        self._out.up = True
        self._refuses = False
        if self._hello and self._answer is not None:
            self._request_own(INITIALIZE, as_object(self._hello.get("params")), self._greeted_again)
        elif self._hello and (asked := self._asked.get(self._hello["id"])):
            self._send(asked)
        self._flush()
        return self._out.taken()

    def line_down(self) -> list[Action]:
        """Note that the connection is gone: answer the requests that are not to be sent again."""
        self._out.up = self._greeted = False
        self._own.clear()
        for id, asked in list(self._asked.items()):
            if not self._goes_on(asked):
                self._drop(id, asked, self._why_not(asked))
        self._dialogs.line_down(self._sessions.line_down())
        return self._out.taken()

    def _goes_on(self, asked: Asked) -> bool:
        """Return True for a request that may be sent on the next connection."""
        if asked.line in (0, _ELSEWHERE):
            return asked.again is not Again.NOW
        if asked.method == SESSION_PROMPT:  # one that is given up may have been read
            return asked.again is Again.ALWAYS and self._takes_keys
        return asked.again is Again.ALWAYS and not asked.given_up

    def is_down_for_long(self) -> list[Action]:
        """Tell the editor in each session that the connection has been down for some seconds."""
        if not self._out.up:
            self._sessions.say_down()
        return self._out.taken()

    def wait_no_more(self) -> list[Action]:
        """Answer the waiting requests that are sent once with an error, if there is no connection.

        New ones are refused at once until there is one.
        """
        self._refuses = not self._out.up
        for id, asked in list(self._asked.items()):
            waits = asked.again is Again.ONCE and not asked.line
            if self._refuses and (waits or asked.method == INITIALIZE):
                self._drop(id, asked, rules.no_line(self._where))
        return self._out.taken()

    def fail(self, id: RequestId, why: str) -> list[Action]:
        """Answer the open request of this id, if there is one, with an error that says `why`."""
        if asked := self._asked.get(id):
            self._drop(id, asked, rules.no_line(self._where, why))
        return self._out.taken()

    def end(self, why: str, told: str = "") -> list[Action]:
        """Answer all open requests with an error: there will be no connection any more.

        `told`: the notice for each session; empty: that the token was refused, and `why`.
        """
        self._sessions.end(told or rules.is_refused(self._where, why))
        for id, asked in list(self._asked.items()):
            self._drop(id, asked, rules.no_line(self._where, why))
        return self._out.taken()

    # --- sessions that move to another bridge --------------------------------------------------

    @property
    def has_line(self) -> bool:
        """True if there is a connection."""
        return self._out.up

    @property
    def idle(self) -> bool:
        """True if no request is open at this bridge, and the editor has no session of it."""
        return not self._asked and not self._own and self._sessions.none

    @property
    def was_greeted(self) -> bool:
        """True if the server has answered `initialize`, on this connection or an earlier one."""
        return self._answer is not None

    @property
    def has_any(self) -> bool:
        """True if the editor has a session of this bridge open."""
        return self._sessions.has_any

    def knows(self, session_id: object) -> bool:
        """Return True if the editor has a session open at this bridge, or is about to."""
        opens = any(
            each.method in rules.SHOWS and each.session_id == session_id
            for each in self._asked.values()
        )
        return opens or self._sessions.get(session_id) is not None

    def goes_nowhere(self, session_id: str, answer: Message) -> list[Action]:
        """Give up a session that `Elsewhere` reported and that can't be opened at its new bridge.

        `answer`: the server's error, as the editor is told it.
        """
        if session := self._sessions.get(session_id):
            self._has_answer(session, answer)
        return self._out.taken()

    def give_away(self, session_id: str, *, closes: bool) -> tuple[Moving, list[Action]]:
        """Remove a session that another bridge has now, and return it with its open requests.

        Requests that may not be sent again are answered with an error. `closes`: close the session
        at this bridge, too.
        """
        here = self._out.up and self._greeted
        moved = []
        for id, asked in list(self._asked.items()):
            if session_id not in (asked.session_id, parted(asked.session_id)[0]):
                continue
            if asked.line and not self._goes_on(asked):
                self._drop(id, asked, self._why_not(asked))
            else:
                moved.append(self._asked.pop(id))
        self._dialogs.leave(session_id)
        session = self._sessions.give_away(session_id)
        if closes and here and session:
            self._request_own(SESSION_CLOSE, {"sessionId": session_id}, lambda _: None)
        return Moving(session_id, session, moved), self._out.taken()

    def move_in(self, moving: Moving) -> list[Action]:
        """Take a session of another bridge, and open it here from where the editor was shown it."""
        if session := moving.session:
            self._sessions.move_in(session)
        self._adopt(moving.asked)
        if session and self._out.up and self._greeted:
            self._open_again(session)
        self._flush()
        return self._out.taken()

    def take_over(self, moving: Moving) -> list[Action]:
        """Take the open requests of a session that the editor has loaded from this bridge."""
        self._sessions.take_over(moving.session_id, moving.session, moving.asked)
        self._adopt(moving.asked)
        self._flush()
        return self._out.taken()

    def _adopt(self, moved: list[Asked]) -> None:
        for asked in moved:
            if asked.line:
                asked.line = _ELSEWHERE
            is_request = "id" in asked.message
            id = asked.id if is_request else f"notification {next(self._numbers)}"
            self._asked[id] = asked

    # --- requests of the editor ----------------------------------------------------------------

    def _request(self, message: Message) -> None:
        method, params = message["method"], as_object(message.get("params"))
        if message["id"] in self._asked:
            self._out.fail(message["id"], errors.refused(_IN_FLIGHT))
            return
        asked = Asked(message, method, params, rules.again(method, params))
        if isinstance(session_id := params.get("sessionId"), str):
            asked.session_id = session_id
        if method == INITIALIZE and self._answer is None:
            self._greet(asked)
        elif method == INITIALIZE:
            asked.again = Again.ONCE
        elif method == SESSION_PROMPT and asked.again is Again.ALWAYS:
            asked.key = self._dialect.key_of(params)
            if asked.key is None:
                asked.key = self._new_key()
                asked.message = {**message, "params": self._dialect.keyed(params, asked.key)}
        late = asked.again is not Again.ALWAYS or method == INITIALIZE
        if not self._out.up and (asked.again is Again.NOW or (late and self._refuses)):
            self._out.fail(message["id"], rules.no_line(self._where))
            return
        self._asked[message["id"]] = asked
        if method == INITIALIZE and self._out.up:
            self._send(asked)
        self._flush()

    def _greet(self, asked: Asked) -> None:
        """Add this client's abilities and name to the editor's `initialize`, to be sent."""
        self._dialect = Second() if speaks_v2(asked.params) else First()
        own = self._dialect.abilities(asked.params)
        self._sessions.dialect = self._dialect
        self._sessions.tells_cursors = own.get(TAKES_CURSORS) is True
        self._dialogs.whole_calls = own.get(WHOLE_CALLS) is True
        self._unasked = {told for name, told in _NEEDED.items() if own.get(name) is not True}
        needed = dict.fromkeys((TAKES_CURSORS, *self._dialect.needs), True)
        told = {CLIENT_NAME: self._name, **own, **needed}
        params = self._dialect.greeting(asked.params, told)
        self._hello = asked.message = {**asked.message, "params": params}

    def _notify(self, message: Message) -> None:
        """Send a notification of the editor, or let it wait for a connection."""
        params = as_object(message.get("params"))
        asked = Asked(message, message["method"], params, Again.ONCE)
        if isinstance(session_id := params.get("sessionId"), str):
            asked.session_id = session_id
        self._asked[f"notification {next(self._numbers)}"] = asked
        self._flush()

    def _flush(self) -> None:
        """Send the waiting messages, in their order, save those of sessions not open again yet."""
        if not self._out.up or (self._hello and not self._greeted):
            return  # without an `initialize` the other end says what is wrong
        for id, asked in list(self._asked.items()):
            if asked.line == self._out.line or not self._sessions.takes(asked.session_id):
                continue
            self._send(asked)
            if "id" not in asked.message:
                del self._asked[id]

    def _send(self, asked: Asked) -> None:
        asked.repeated, asked.line = bool(asked.line), self._out.line
        self._sessions.note_sent(asked)
        self._out.to_server(asked.message)
        if asked.stop is not None:
            self._send_stop(asked, asked.stop)
        if asked.given_up:
            told = {"requestId": asked.id}
            self._out.to_server(jsonrpc.notification(CANCEL_REQUEST, told))

    def _give_up(self, message: Message) -> None:
        """Pass on the editor's cancel of a request, or answer the request if it was not sent."""
        id = as_object(message.get("params")).get("requestId")
        asked = self._asked.get(id) if jsonrpc.is_id(id) else None
        if asked is None or "id" not in asked.message or type(asked.id) is not type(id):
            return
        if asked.line == self._out.line and self._out.up:
            asked.given_up = True
            self._out.to_server(message)
        elif asked.line and asked.method == SESSION_PROMPT:  # it may have been read
            asked.given_up = True
        elif session := self._sessions.reopened_for(asked):
            asked.given_up = True
            told = {"requestId": session.reopened_by}
            self._out.to_server(jsonrpc.notification(CANCEL_REQUEST, told))
        else:
            self._drop(asked.id, asked, errors.cancelled())

    def _why_not(self, asked: Asked) -> RpcError:
        """Return the error for a request that is not sent again."""
        if asked.given_up:
            return errors.cancelled()
        error = rules.lost_answer if asked.line else rules.no_line
        return error(self._where)

    def _drop(self, id: RequestId, asked: Asked, error: RpcError) -> None:
        """Forget a request that is not sent any more, and answer it with `error`."""
        del self._asked[id]
        self._sessions.note_failed(asked)
        if asked.method == INITIALIZE and self._answer is None:
            self._hello = None
        if "id" in asked.message:
            self._out.fail(asked.id, error)

    # --- a Stop --------------------------------------------------------------------------------

    def _stop(self, message: Message) -> None:
        """Take the editor's Stop, which is meant for the oldest prompt that has not ended.

        A prompt that was not sent is answered here. Without a prompt the Stop is passed on, if
        there is a connection.
        """
        params = as_object(message.get("params"))
        session_id = params.get("sessionId")
        session = self._sessions.get(session_id)
        prompts = [each for each in self._asked.values() if each.method == SESSION_PROMPT]
        own = [each for each in prompts if each.session_id == session_id]
        begun = session.begun if session else []
        here = self._out.up and self._greeted and self._sessions.takes(session_id)
        if not self._dialect.replays_own_words:
            self._withdraw(own)
        if not [*begun, *own]:
            if here:  # it is for what runs without a prompt of this client
                self._out.to_server(message)
            return
        target = [*begun, *own][0]
        if not target.line:
            if target.id in self._asked:
                self._answer_withdrawn(target)
        elif target.key is None:  # a command that stays open
            if here:
                self._out.to_server(message)
        else:
            target.stop = params
            if here:
                self._send_stop(target, params)

    def _withdraw(self, own: list[Asked]) -> None:
        """Withdraw those of the prompts `own` that have not begun, as a Stop of version 2 does."""
        for asked in own:
            if not asked.line:
                self._answer_withdrawn(asked)
            elif asked.line != self._out.line or not self._out.up:
                asked.given_up = True

    def _answer_withdrawn(self, asked: Asked) -> None:
        del self._asked[asked.id]
        self._out.to_editor(self._dialect.withdrawn(asked.id))

    def _send_stop(self, asked: Asked, params: Json) -> None:
        """Send a Stop with the key of a prompt, so that it stops that prompt alone."""
        bound = with_own_meta(params, {**own_meta(params), PROMPT_KEY: asked.key})
        self._out.to_server(jsonrpc.notification(SESSION_CANCEL, bound))

    # --- answers -------------------------------------------------------------------------------

    def _answered(self, message: Message) -> None:
        id = message.get("id")
        if isinstance(id, str) and (take := self._own.pop(id, None)):
            take(message)
            return
        asked = self._asked.get(id) if jsonrpc.is_id(id) else None
        if asked is None or asked.line != self._out.line or type(asked.id) is not type(id):
            return
        del self._asked[id]
        if asked.method == INITIALIZE:
            if isinstance(result := message.get("result"), dict):
                message = {**message, "result": for_remote(result)}
            self._greeted_first(asked, message)
        self._sessions.pass_answer(asked, message)
        self._flush()

    def _told(self, message: Message) -> None:
        """Take a notification of an accepted prompt or a state; pass it on if the editor asked."""
        params = as_object(message.get("params"))
        if message["method"] == ACCEPTED:
            is_new = self._accepted(params)
        else:
            is_new = True
            self._sessions.note_stands(params)
        if is_new and message["method"] not in self._unasked:
            self._out.to_editor(message)

    def _accepted(self, params: Json) -> bool:
        """Note the turn of an accepted prompt; returns False if it was told of before."""
        id = params.get("requestId")
        asked = self._asked.get(id) if jsonrpc.is_id(id) else None
        is_known = False
        if asked is not None and isinstance(turn := params.get("promptId"), str):
            is_known = asked.turn == turn
            asked.turn = turn
            asked.is_over = params.get("ended") is True and params.get("begun") is True
        return not is_known

    def _greeted_first(self, asked: Asked, message: Message) -> None:
        result = message.get("result")
        if self._answer is not None:
            return
        if not isinstance(result, dict):
            self._hello = None
            return
        if result.get("protocolVersion") == 1:
            self._dialect = self._sessions.dialect = First()
        self._answer = result
        self._is_greeted(result)
        for session in self._sessions.to_reopen():
            if session.moves:
                self._open_again(session)

    def _is_greeted(self, result: Json) -> None:
        self._greeted = True
        self._takes_keys = self._dialect.can(result, PROMPT_KEY)
        self._sessions.has_cursors = self._dialect.can(result, TAKES_CURSORS)

    def _greeted_again(self, message: Message) -> None:
        """Take the answer to an `initialize` that was repeated on a new connection.

        The editor does not see it, but is told if the server differs from before.
        """
        result, before = message.get("result"), self._answer
        if not isinstance(result, dict) or before is None:
            said = as_object(message.get("error")).get("message")
            self._out.hang_up(f"initialize was refused: {said}")
            return
        result = for_remote(result)
        self._is_greeted(result)
        if what := rules.changed(before, result, self._dialect.members):
            self._answer = result
            self._sessions.say_to_all(rules.is_another(self._where, what))
        for session in self._sessions.to_reopen():
            self._open_again(session)
        self._flush()

    def _open_again(self, session: Session) -> None:
        closes = session.opening is not None and self._closes_first(session)
        self._reopen(session, self._sessions.way_back(session, closes=closes))

    def _closes_first(self, session: Session) -> bool:
        """Return True if an unanswered request that closes the session is older than its load.

        Both are sent again, in this order.
        """
        for asked in self._asked.values():
            if asked is session.opening:
                break
            if asked.method in rules.LEAVES and asked.session_id == session.id:
                return True
        return False

    # --- sessions are opened again -------------------------------------------------------------

    def _reopen(self, session: Session, way: tuple[str, Json]) -> None:
        session.reopening = True
        session.reopened_by = self._request_own(*way, partial(self._reopened, session))

    def _reopened(self, session: Session, message: Message) -> None:
        """Take the answer to the request that opens a session again.

        After an error another request is tried, or the bridge that has the session now. An error
        for a request of the editor's own is its answer, and what it had is opened again. The answer
        is ignored if the session was removed or replaced meanwhile.
        """
        if self._sessions.get(session.id) is not session:
            self._flush()
            return
        error = as_object(message.get("error"))
        if error and (way := self._sessions.other_way(session, error)):
            self._reopen(session, way)
        elif errors.held_at(error.get("data")) and not session.moves:
            self._out.elsewhere(session.id, message)
        elif error and session.had and (opening := session.opening):
            self._asked.pop(opening.id, None)
            self._out.to_editor({**message, "id": opening.id})
            session.refuse(opening)
            self._open_again(session)
        else:
            self._has_answer(session, message)

    def _has_answer(self, session: Session, message: Message) -> None:
        """Finish the opening of a session with the server's answer, a result or an error.

        A load that waits is answered, Stops are repeated, dialogs whose questions have not come
        again are withdrawn, and waiting messages are sent.
        """
        opening = session.opening
        self._sessions.reopened(session, message)
        if opening:  # the editor waits for the answer itself
            self._asked.pop(opening.id, None)
            told = {**message, "id": opening.id}
            if isinstance(result := told.get("result"), dict):
                told["result"] = without_cursor(result)
            self._out.to_editor(told)
        for prompt in session.begun:
            if prompt.stop is not None:
                self._send_stop(prompt, prompt.stop)
        if self._dialogs.waits_for_word(session.id):
            # Questions come again right after the answer: they are there before the next answer.
            self._request_own(
                QUEUE_LIST, {"sessionId": session.id}, lambda _: self._dialogs.settle(session.id)
            )
        self._flush()

    def _request_own(self, method: str, params: Any, take: Take) -> str:
        id = f"acp-bridge connect {next(self._numbers)}"
        self._own[id] = take
        self._out.to_server(jsonrpc.request(id, method, params))
        return id
