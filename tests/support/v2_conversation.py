"""What a client of version 2 has asked and was told, read from its lines: begun, ended, withdrawn.

It knows version 2 from its text and nothing of the bridge. Broken is raised where a turn has no
end or two, where the end of a replay is not said once, or where a prompt begins in a session at
rest (invariant X3).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.clients_not_ours.judge import Refused
from tests.support.recording import Message, Record
from tests.support.v2_schema import V2Connection

ACCEPTED = "_acp_bridge/accepted"
WITHDRAWN = -32800


class Broken(AssertionError):
    """What the client was told breaks version 2."""


@dataclass(slots=True)
class Attempt:
    """One request with a prompt."""

    session: str
    text: str
    #: it is on disk.
    accepted: bool = False
    #: it was sent before, and had its outcome then.
    is_over: bool = False
    #: a Stop that was sent behind it was read before it had begun.
    is_stopped: bool = False
    #: its client has given it up while it had no answer.
    given_up: bool = False
    #: the id of its message: its turn has begun.
    message: str = ""
    #: the error that it was answered with, in place of the id.
    error: Message | None = None
    #: the state that ended its turn.
    end: Message | None = None

    @property
    def is_answered(self) -> bool:
        return bool(self.message) or self.error is not None

    @property
    def outcome(self) -> Message | None:
        """Return the answer that version 1 would have for it; None while there is none."""
        if self.error:
            withdrawn = self.error["code"] == WITHDRAWN
            cancelled: Message = {"result": {"stopReason": "cancelled"}}
            return cancelled if withdrawn else {"error": self.error}
        if self.end is None:
            return None
        reason = self.end["stopReason"]
        if reason == "error":
            return {"error": self.end.get("error", {"code": 0, "message": ""})}
        return {"result": {"stopReason": reason}}


@dataclass(slots=True)
class _Session:
    """What the client was told of one session."""

    state: str = "idle"
    #: the attempts whose turn runs.
    turn: list[Attempt] = field(default_factory=list)
    #: ends of replays that were said since the last answer to a request for one.
    complete: int = 0
    #: a state was said since then, or since the end of the replay.
    stands: bool = False
    #: the prompts that had no answer when the last Stop was sent.
    stopped: list[Attempt] = field(default_factory=list)


@dataclass(slots=True)
class Conversation:
    """One connection, from its first line on."""

    #: the prompts by the keys of their requests' ids.
    attempts: dict[str, Attempt] = field(default_factory=dict)
    #: how many turns it saw end.
    ends: int = 0
    _schema: V2Connection = field(default_factory=V2Connection)
    _sessions: dict[str, _Session] = field(default_factory=dict)
    #: by the keys of requests that were sent behind a Stop: the prompts that it withdraws if they
    #: have not begun when the request is answered, which shows that the Stop was read.
    _behind: dict[str, list[Attempt]] = field(default_factory=dict)
    #: other requests, by the keys of their ids: method and parameters.
    _asked: dict[str, tuple[str, Message]] = field(default_factory=dict)

    def take_all(self, records: Iterable[Record]) -> None:
        """Take the next lines of the connection. Raises Broken."""
        for record in records:
            if record.message is None:
                if record.raw.endswith(b"\n"):
                    raise Broken(f"no message: {record.raw[:300]!r}")
                continue  # a line that a kill has cut off
            self.take(record.direction == "out", record.message)

    def take(self, is_mine: bool, message: Message) -> None:
        """Take the next message; `is_mine`: the client has sent it. Raises Broken."""
        try:
            self._schema.judge("client" if is_mine else "agent", message)
        except Refused as refused:
            raise Broken(f"{refused}: {json.dumps(message)[:500]}") from None
        params = message.get("params") or {}
        if is_mine:
            self._sent(message, params)
        elif message.get("method") == "session/update":
            self._updated(self._session(params["sessionId"]), params["update"])
        elif message.get("method") == ACCEPTED:
            attempt = self.attempts.get(json.dumps(params["requestId"]))
            if attempt:  # else it is a command's
                attempt.accepted, attempt.is_over = True, params.get("ended") is True
        elif "method" not in message:
            self._answered(json.dumps(message.get("id")), message)

    def _session(self, session_id: str) -> _Session:
        return self._sessions.setdefault(session_id, _Session())

    def _sent(self, message: Message, params: Message) -> None:
        if message.get("method") == "$/cancel_request":
            wanted = self.attempts.get(json.dumps(params["requestId"]))
            if wanted and not wanted.is_answered:
                wanted.given_up = True
        if message.get("method") == "session/cancel":
            self._session(params["sessionId"]).stopped = [
                each
                for each in self.attempts.values()
                if each.session == params["sessionId"] and not each.is_answered
            ]
        if "method" not in message or "id" not in message:
            return
        key = json.dumps(message["id"])
        self.attempts.pop(key, None)
        if stopped := self._session(str(params.get("sessionId"))).stopped:
            self._behind[key] = stopped
        if message["method"] == "session/prompt":
            text = "".join(block.get("text", "") for block in params["prompt"])
            self.attempts[key] = Attempt(params["sessionId"], text)
        else:
            self._asked[key] = message["method"], params

    def _answered(self, key: str, message: Message) -> None:
        for each in self._behind.pop(key, ()):
            each.is_stopped |= not each.is_answered
        if attempt := self.attempts.get(key):
            self._prompt_answered(attempt, message)
            return
        method, params = self._asked.pop(key, ("", {}))
        if "result" not in message:
            return
        if method == "session/resume":
            session = self._session(params["sessionId"])
            if session.complete != ("replayFrom" in params):
                raise Broken(f"{session.complete} ends of one replay were told: {params}")
            if not session.stands:
                raise Broken(f"the state was not told before the answer: {params}")
            session.complete, session.stands = 0, False
        elif method in ("session/close", "session/delete"):
            left = self._session(params["sessionId"])
            del self._sessions[params["sessionId"]]
            if left.turn:
                raise Broken(f"the session is closed, and its turn has no end: {left.turn}")

    def _prompt_answered(self, attempt: Attempt, message: Message) -> None:
        if attempt.is_answered:
            raise Broken(f"a prompt is answered twice: {attempt.text}, {message}")
        if "error" in message:
            attempt.error = message["error"]
            return
        attempt.message = message["result"]["messageId"]
        session = self._session(attempt.session)
        if attempt.is_over:
            return
        if attempt.is_stopped:
            raise Broken(f"a turn begins that a Stop has withdrawn: {attempt.text}")
        if session.state == "idle":
            raise Broken(f"a turn begins in a session at rest: {attempt.text}")
        if session.turn and session.turn[0].message != attempt.message:
            raise Broken(f"two prompts in one turn: {attempt.text}, {session.turn[0].text}")
        session.turn.append(attempt)

    def _updated(self, session: _Session, update: Message) -> None:
        if update["sessionUpdate"] == "replay_complete":
            session.complete += 1
            session.stands = False
        if update["sessionUpdate"] != "state_update":
            return
        before, session.state, session.stands = session.state, update["state"], True
        if update.get("stopReason") is None:
            if session.state == "idle" and session.turn:
                raise Broken(f"a turn is over without its end: {session.turn[0].text}")
            return
        if before == "idle":
            raise Broken(f"a turn ends in a session at rest: {update}")
        self.ends += 1
        for attempt in session.turn:
            attempt.end = update
        session.turn = []
