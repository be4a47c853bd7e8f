"""The sessions of one editor, and how each is opened again on another connection. Sans-IO.

- Updates carry a cursor, the place up to which a session was shown, from which it is resumed. If
  that is refused the whole session is replayed, and only what is new is shown.
- Words that the editor has sent are not shown to it by a replay.
- A load of a session that the editor has open is sent again, unless its replay has begun, by the
  first prompt (or any, if that is unknown): earlier updates may be older than the load.
- While a session is opened again, a notice that no transcript has is not shown a second time.
- The end of a turn that was missed is told (version 2, in which no answer tells it).
"""

from __future__ import annotations

from collections.abc import Iterable

from acp_bridge.core.protocol import (
    CURSOR,
    NOTICE,
    PROMPT_ID,
    REASON,
    SESSION_NEW,
    SESSION_PROMPT,
    USER_MESSAGE,
    ErrorCode,
    Json,
    as_object,
    cursor_of,
    own_meta,
    parted,
    without_cursor,
)
from acp_bridge.core.wire.jsonrpc import Message
from acp_bridge.remote.connect import rules
from acp_bridge.remote.connect.dialects import First
from acp_bridge.remote.connect.kept import Asked, Seen, Session
from acp_bridge.remote.connect.shown import Replayed
from acp_bridge.remote.connect.way_out import WayOut


class Sessions:
    """All sessions that the editor has open, or is about to open, at one bridge."""

    def __init__(self, out: WayOut, where: str) -> None:
        """`out` collects what is sent; `where`: the name of the remote bridge for people."""
        self.dialect = First()
        #: the editor has asked for cursors itself.
        self.tells_cursors = False
        #: the server puts cursors into its updates.
        self.has_cursors = False
        self._out = out
        self._where = where
        self._sessions: dict[str, Session] = {}
        #: sessions and requests of another bridge, kept until the load at this bridge is answered.
        self._left: dict[str, tuple[Session | None, list[Asked]]] = {}

    def get(self, session_id: object) -> Session | None:
        """Return a session by its id, or the one above a subagent's; None if it is unknown."""
        if not isinstance(session_id, str):
            return None
        return self._sessions.get(session_id) or self._sessions.get(parted(session_id)[0])

    @property
    def none(self) -> bool:
        """True if the editor has no session open, and is about to open none."""
        return not self._sessions

    @property
    def has_any(self) -> bool:
        """True if the editor has a session open."""
        return any(each.had for each in self._sessions.values())

    def takes(self, session_id: object) -> bool:
        """Return True if messages of a session may be sent now, False while it is opened again."""
        session = self.get(session_id)
        return session is None or not session.reopening

    def reopened_for(self, asked: Asked) -> Session | None:
        """Return the session that is opened again for this request of the editor's, or None."""
        session = self.get(asked.session_id)
        return session if session and session.reopening and session.opening is asked else None

    # --- requests and answers ------------------------------------------------------------------

    def note_sent(self, asked: Asked) -> None:
        """Note that a request is sent now: a load or a close that begins, the words of a prompt."""
        if asked.method in rules.SHOWS and asked.session_id is not None:
            self._note_opening(asked, asked.session_id)
            return
        session = self.get(asked.session_id)
        if session and asked.method in rules.LEAVES and session.id == asked.session_id:
            session.leaving = asked
        elif session and asked.method == SESSION_PROMPT and not asked.repeated:
            for seen in session.all_seen:
                seen.words.add(asked.params.get("prompt"))

    def _note_opening(self, asked: Asked, session_id: str) -> None:
        session = self._sessions.setdefault(session_id, Session(session_id, asked.params))
        session.openings = [*(each for each in session.openings if each is not asked), asked]
        replays = self.dialect.replays(asked.method, asked.params)
        if session.had and replays:
            session.before, session.in_replay = session.before or session.seen, False
        if not session.had:
            session.opened = asked.params
        if replays or not session.had:
            session.seen = Seen(self.dialect.cursor_in(asked.method, asked.params), whole=replays)

    def note_failed(self, asked: Asked) -> None:
        """Note that a request was answered with an error here, not by the server."""
        session = self.get(asked.session_id)
        if session and asked in session.openings:
            self._refuse(session, asked)
        if session and session.leaving is asked:
            session.leaving = None
        if asked.method in rules.SHOWS and not (session and session.openings):
            self._take_left(asked.session_id)

    def _refuse(self, session: Session, asked: Asked | None) -> None:
        session.refuse(asked)
        if not (session.had or session.openings):
            self._sessions.pop(session.id, None)

    def pass_answer(self, asked: Asked, message: Message) -> None:
        """Send the editor the answer to a request, and note what it says of the session."""
        result = message.get("result")
        if asked.method in rules.MAKES and isinstance(result, dict):
            self._make(asked, result)
        elif asked.method in rules.SHOWS and (session := self.get(asked.session_id)):
            self._note_opened(session, asked, message)
        elif asked.method in rules.LEAVES:
            message = self._leave(asked, message)
        elif asked.method == SESSION_PROMPT and (session := self.get(asked.session_id)):
            for seen in session.all_seen:
                seen.words.end(asked.params.get("prompt"))
        if isinstance(result := message.get("result"), dict) and not self.tells_cursors:
            message = {**message, "result": without_cursor(result)}
        self._out.to_editor(message)
        if asked.method in rules.SHOWS:
            self._take_left(asked.session_id)
        turn = self.dialect.begins(message) if asked.method == SESSION_PROMPT else None
        if turn is not None and (session := self.get(asked.session_id)):
            self._begin(session, asked, turn)

    def _make(self, asked: Asked, result: Json) -> None:
        session_id = result.get("sessionId")
        if isinstance(session_id, str):
            session = self._sessions[session_id] = Session(session_id, asked.params, had=True)
            session.seen = Seen(cursor_of(result), whole=asked.method == SESSION_NEW)

    def _note_opened(self, session: Session, asked: Asked | None, message: Message) -> None:
        """Note the answer to a request that opens a session; `asked`: the editor's, if it is one.

        After an error the session is as it was before the request. One that is still to be answered
        is a load of a session that the editor has.
        """
        result = message.get("result")
        if not isinstance(result, dict):
            self._refuse(session, asked)
            return
        openings = [each for each in session.openings if each is not asked]
        session.openings, session.before, session.had = [], None, True
        if asked:
            session.opened = asked.params
        self._note_place(session, session.seen, cursor_of(result))
        session.stands = as_object(own_meta(result).get("state"))
        for each in openings:
            self._note_opening(each, session.id)

    def note_stands(self, params: Json) -> None:
        """Note a session's state: which turn runs, and how the last one ended."""
        if session := self.get(params.get("sessionId")):
            session.stands = params

    def _leave(self, asked: Asked, message: Message) -> Message:
        gone = as_object(message.get("error")).get("code") == ErrorCode.RESOURCE_NOT_FOUND
        if gone and asked.repeated:  # it was done the first time
            message = {"jsonrpc": "2.0", "id": asked.id, "result": {}}
        if "result" in message or gone:
            session = self._sessions.pop(str(asked.session_id), None)
            if session and session.openings:  # loads that were sent behind it are still to come
                for each in session.openings:
                    self._note_opening(each, session.id)
                self._sessions[session.id].seen.words = session.seen.words
        elif session := self._sessions.get(str(asked.session_id)):
            session.leaving = None
        return message

    def _begin(self, session: Session, asked: Asked, turn: str) -> None:
        """Note the turn that a prompt's answer begins; tell its end if it has ended already."""
        asked.turn = asked.turn or turn
        session.begun.append(asked)
        if asked.turn in session.ended:
            session.begun.remove(asked)
        elif asked.is_over:
            self._end_turn(session, asked, {**session.stands, "turn": None})
            if session.runs:  # another one does
                self._out.show(session.id, {"update": self.dialect.running()})

    def _end_turn(self, session: Session, asked: Asked, stands: Json) -> None:
        end = self.dialect.end_of(asked.turn, stands)
        if end is not None:
            session.begun.remove(asked)
            session.ended.append(asked.turn)
            self._out.show(session.id, {"update": end})

    def _end_turns(self, session: Session) -> None:
        """Tell the end of all turns of a session that the editor has no more."""
        for asked in list(session.begun):
            self._end_turn(session, asked, {})

    # --- sessions that move --------------------------------------------------------------------

    def give_away(self, session_id: str) -> Session | None:
        """Forget a session that moves to another bridge, and return it; None if it is unknown."""
        session = self._sessions.pop(session_id, None)
        before, _ = self._left.pop(session_id, (None, []))
        if session and before:
            session.begun += before.begun
        return session or before

    def move_in(self, session: Session) -> None:
        """Add a session of another bridge, which is to be opened at this one."""
        session.moves, session.reopening, session.replayed = True, False, None
        self._sessions[session.id] = session

    def take_over(self, session_id: str, before: Session | None, asked: list[Asked]) -> None:
        """Take the record and the open requests that another bridge had of a session.

        They are used at once if the session is open here, else as soon as its load is answered.
        """
        session = self._sessions.get(session_id)
        self._left[session_id] = before, asked
        if session and not session.opening:
            self._take_left(session_id)

    def _take_left(self, session_id: str | None) -> None:
        before, asked = self._left.pop(str(session_id), (None, []))
        session = self.get(session_id)
        if session is None and before:
            self._end_turns(before)
        if session is None or not (before or asked):
            return
        for each in asked:
            if each.method == SESSION_PROMPT:
                session.seen.words.add(each.params.get("prompt"))
        session.begun += before.begun if before else []
        for each in list(session.begun):
            self._end_turn(session, each, session.stands)

    # --- updates -------------------------------------------------------------------------------

    def show(self, message: Message) -> None:
        """Send the editor a `session/update`, or the part of it that it was not shown yet."""
        params = as_object(message.get("params"))
        session = self.get(params.get("sessionId"))
        cursor = cursor_of(params)
        told = params if self.tells_cursors or cursor is None else without_cursor(params)
        if told is not params:
            message = {**message, "params": told}
        if session is None:
            self._out.to_editor(message)
            return
        update = as_object(params.get("update"))
        if session.reopening:
            session.in_replay = True  # on this connection all of it is
            self._show_again(session, message, params, update)
        else:
            self._note_state(session, update)
            self._out.to_editor(message)
            self._note_notice(session, params, update)
        seen = self._seen_by(session, params, update)
        # Where there are cursors, what has none is not recorded; a holder may know of none.
        if session.replayed is None and (cursor is not None or seen.cursor is None):
            seen.shown.note(params)
        self._note_place(session, seen, cursor)

    def _seen_by(self, session: Session, params: Json, update: Json) -> Seen:
        """Return what an update is to be added to: it may be older than a load not answered yet."""
        prompt = self.dialect.whole_words(update)
        is_words = prompt is not None or update.get("sessionUpdate") == USER_MESSAGE
        prompt = prompt or own_meta(params).get(PROMPT_ID)
        if is_words and session.opening and not session.had:
            session.first = session.first or prompt
        if is_words and session.first in (None, prompt):
            session.in_replay = True
        return session.seen if session.in_replay else session.before or session.seen

    def _note_place(self, session: Session, seen: Seen, cursor: object) -> None:
        # A whole replay begins before the place up to which the session was shown.
        if cursor is not None and session.replayed is None:
            seen.cursor = cursor
            if not session.reopening:
                seen.words.pass_by()

    def _show_again(self, session: Session, message: Message, params: Json, update: Json) -> None:
        if self.dialect.is_state(update) and not self.dialect.ends(update):
            session.states.append(message)
        elif self.dialect.ends_replay(update) and not self._replays(session):
            pass
        elif session.replayed is not None:
            for each in session.replayed.take(as_object(message.get("params"))):
                self._out.to_editor({**message, "params": each})
        elif not self._is_known(session, params, update):
            self._note_state(session, update)
            self._out.to_editor(message)

    def _replays(self, session: Session) -> bool:
        """Return True if the editor itself has asked for a whole replay of the session."""
        opening = session.opening
        return opening is not None and self.dialect.replays(opening.method, opening.params)

    def _is_known(self, session: Session, params: Json, update: Json) -> bool:
        if update.get("sessionUpdate") == USER_MESSAGE:
            seen = session.seen
            own = self.dialect.replays_own_words and seen.words.take(update.get("content"))
            if own or update.get("messageId") in seen.whole_words:
                return True
        return self._note_notice(session, params, update)

    def _note_notice(self, session: Session, params: Json, update: Json) -> bool:
        """Note a notice that no transcript has; returns True if it was shown before."""
        own = own_meta(params)
        if not own.get(NOTICE) or CURSOR in own:
            return False
        text = as_object(update.get("content")).get("text")
        if text in session.notices:
            return True
        session.notices.append(text)
        return False

    def _note_state(self, session: Session, update: Json) -> None:
        if (words := self.dialect.whole_words(update)) is not None:
            for seen in session.all_seen:
                seen.whole_words.append(words)
        if self.dialect.is_state(update):
            session.runs = self.dialect.runs(update)
        if self.dialect.ends(update):
            turn = as_object(session.stands.get("turn")).get("promptId")
            begun = [each for each in session.begun if each.turn == turn] or session.begun[:1]
            session.begun = [each for each in session.begun if each not in begun]
            session.ended.extend([each.turn for each in begun] or [turn])

    # --- the line ------------------------------------------------------------------------------

    def line_down(self) -> set[str]:
        """End all replays, and return the ids of the sessions that will be opened again."""
        for session in self._sessions.values():
            session.reopening, session.replayed, session.states = False, None, []
        return {each.id for each in self._sessions.values()}

    def say_down(self) -> None:
        """Show in each session, once, a notice that the line is down."""
        for session in self._sessions.values():
            if session.had and not session.told_down:
                session.told_down = True
                self._out.say(session.id, rules.line_is_down(self._where))

    def say_to_all(self, text: str) -> None:
        """Show a notice in each session that the editor has open."""
        for session in self._sessions.values():
            if session.had:
                self._out.say(session.id, text)

    def end(self, text: str) -> None:
        """Show a notice in each session, and tell the end of its turns: there is no line more."""
        self.say_to_all(text)
        for session in self._sessions.values():
            self._end_turns(session)

    def to_reopen(self) -> Iterable[Session]:
        """Return the sessions that are to be opened again on a new connection."""
        return list(self._sessions.values())

    def way_back(self, session: Session, *, closes: bool) -> tuple[str, Json]:
        """Return the request that opens a session again: from its cursor, or else as a whole.

        `closes`: a close and a load of it are sent next, so nothing is replayed.
        """
        opening = session.opening
        session.replayed, session.states = None, []
        if closes:
            session.refuse(None)
            return self.dialect.after(session.id, session.opened, None)
        if session.before and opening and not session.in_replay:
            return opening.method, opening.params
        if session.seen.cursor is not None and self.has_cursors:
            return self.dialect.after(session.id, session.setup, session.seen.cursor)
        return self._whole(session)

    def _whole(self, session: Session) -> tuple[str, Json]:
        whole = self.dialect.whole(session.id, session.setup) if session.seen.whole else None
        if whole is not None:
            session.replayed = Replayed(session.seen.shown, session.seen.words)
            session.seen.shown = session.replayed.now
            return whole
        if (opening := session.opening) and self._replays(session):
            return opening.method, opening.params
        session.unseen = session.had
        return self.dialect.after(session.id, session.setup, None)

    def other_way(self, session: Session, error: Json) -> tuple[str, Json] | None:
        """Return another request that opens a session, if `error` refuses its cursor; else None."""
        if as_object(error.get("data")).get(REASON) != CURSOR or session.seen.cursor is None:
            return None
        if not (session.had or session.seen.whole):  # the editor has named a cursor itself
            return None
        session.seen.cursor = None
        return self._whole(session)

    def reopened(self, session: Session, message: Message) -> None:
        """Take the answer to the request that opens a session again: show what was held back.

        After an error the session is forgotten, and the editor is told unless it was leaving it.
        """
        session.reopening = False
        result = message.get("result")
        if replayed := session.replayed:
            session.replayed = None
            for each in replayed.end() if isinstance(result, dict) else []:
                self._out.show(session.id, {**each, "sessionId": session.id})
            session.fits = replayed.fits
        states, session.states = session.states, []
        had = session.had
        if not isinstance(result, dict):
            session.had, session.openings = False, []
            self._sessions.pop(session.id, None)
            if had and not session.leaving:
                self._out.say(session.id, rules.not_reopened(self._where, message.get("error")))
            self._end_turns(session)
            return
        self._note_opened(session, session.opening, message)
        self._take_left(session.id)
        for asked in list(session.begun):
            self._end_turn(session, asked, session.stands)
        for each in states:
            self._note_state(session, as_object(as_object(each.get("params")).get("update")))
            self._out.to_editor(each)
        self._say_how(session)

    def _say_how(self, session: Session) -> None:
        """Show the notices about a session that was opened again, and note that they are shown."""
        if not session.fits:
            self._out.say(session.id, rules.DOES_NOT_FIT)
        if session.unseen:
            self._out.say(session.id, rules.UNSEEN)
        if session.moves:
            self._out.say(session.id, rules.goes_on(self._where))
        elif session.told_down:
            self._out.say(session.id, rules.line_is_back(self._where))
        session.fits, session.unseen, session.told_down = True, False, False
        session.moves = False
