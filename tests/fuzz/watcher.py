"""A client of version 2 that joins a bridge and looks on; what it is told is judged."""

from __future__ import annotations

import random
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from tests.clients_not_ours.judge import Refused
from tests.crash.told import Lost
from tests.fuzz.fleet import Fleet
from tests.fuzz.owned import Owned
from tests.support.client import RecordingClient
from tests.support.joined import joined, listening
from tests.support.recording import Message
from tests.support.v2_schema import V2Connection

_HELLO: Final[Message] = {
    "protocolVersion": 2,
    "info": {"name": "watcher", "version": "1"},
    "capabilities": {"_meta": {"acp_bridge": {"observer": True}}},
}
#: watchers that there are at the same time.
_MOST: Final = 2


@dataclass
class _Told:
    """What a watcher was told of one session."""

    state: str = ""
    #: replays of which the end was said and the answer has not come.
    complete: int = 0
    #: a state was said since the end of the replay.
    stands: bool = False


@dataclass
class Watcher:
    """Resumes sessions, and is shown what others do in them."""

    connection: Owned[RecordingClient]
    #: the requests that it has made, by id: method and parameters.
    asked: dict[object, tuple[str, Message]] = field(default_factory=dict)

    @property
    def client(self) -> RecordingClient:
        return self.connection.value

    def ask(self, method: str, params: Message) -> None:
        with suppress(BrokenPipeError):
            self.asked[self.client.send_request(method, params)] = method, params

    def resume(self, session_id: str, cwd: str, rng: random.Random) -> None:
        """Come to a session, mostly with a replay from its start."""
        params: Message = {"sessionId": session_id, "cwd": cwd}
        if rng.random() < 0.7:
            params["replayFrom"] = {"type": "start"}
        self.ask("session/resume", params)

    def judge(self) -> int:
        """Raise Lost if it was told what breaks version 2; returns how many turns it saw end."""
        connection, told, ends = V2Connection(), defaultdict[str, _Told](_Told), 0
        for record in self.client.recording:
            message = record.message
            if message is None and not record.raw.endswith(b"\n"):
                break  # its bridge was killed in the middle of a line
            if message is None:
                raise Lost(f"a watcher was told what is no message: {record.raw[:500]!r}")
            sender = "client" if record.direction == "out" else "agent"
            try:
                connection.judge("client" if sender == "client" else "agent", message)
            except Refused as refused:
                raise Lost(
                    f"a watcher of version 2: {refused}; it was {str(message)[:1000]}"
                ) from None
            if sender == "agent":
                ends += self._take(message, told)
        return ends

    def _take(self, message: Message, told: defaultdict[str, _Told]) -> bool:
        """Take the next message to it; returns True for the end of a turn."""
        match message:
            case {"params": {"sessionId": str(session), "update": dict(update)}}:
                return _update(told[session], update)
            case {"id": request, "result": _} if request in self.asked:
                method, params = self.asked[request]
                if method == "session/resume":
                    _resumed(told[params["sessionId"]], replayed="replayFrom" in params)
        return False


def _update(session: _Told, update: Message) -> bool:
    kind = update["sessionUpdate"]
    if kind == "replay_complete":
        session.complete += 1
        session.stands = False
    if kind != "state_update":
        return False
    before, session.state, session.stands = session.state, update["state"], True
    ended = update.get("stopReason") is not None
    if ended and before not in ("running", "requires_action"):
        raise Lost(f"a watcher is told the end of a turn in the state {before!r}: {update}")
    return ended


def _resumed(session: _Told, *, replayed: bool) -> None:
    if session.complete != replayed:
        raise Lost(f"a watcher was told {session.complete} ends of one replay ({replayed})")
    if not session.stands:
        raise Lost("a watcher was not told how the session stands, before the answer")
    session.complete, session.stands = 0, False


@dataclass
class Watchers:
    """Come and go while a run goes on."""

    fleet: Fleet
    here: list[Watcher] = field(default_factory=list)

    async def step(self, rng: random.Random) -> None:
        """One comes, one goes, or one asks for a session."""
        if not self.here or (rng.random() < 0.3 and len(self.here) < _MOST):
            await self._join(rng)
        elif rng.random() < 0.2:
            await self._leave(rng.choice(self.here))
        known = self.fleet.operations.known
        if self.here and known:
            chosen = rng.choice(self.here)
            chosen.resume(rng.choice(sorted(known)), self.fleet.place.cwd, rng)

    async def _join(self, rng: random.Random) -> None:
        life, place = rng.choice(self.fleet.all), self.fleet.place
        if (pid := life.pid()) is None:
            return
        with suppress(TimeoutError, OSError):  # it does not listen yet, or has ended
            bridge = await listening(place.home, pid, within=1)
            watcher = Watcher(await Owned.open(place.tasks, joined(bridge.socket)))
            watcher.ask("initialize", _HELLO)
            self.here.append(watcher)
            place.recordings.append(watcher.client.recording)
            place.ledger.counts["watcher of version 2"] += 1

    async def _leave(self, watcher: Watcher) -> None:
        self.here.remove(watcher)
        self.fleet.place.ledger.counts["watcher: ends of turns"] += watcher.judge()
        await watcher.connection.close()

    async def leave(self) -> None:
        """All go. Raises Lost."""
        for watcher in list(self.here):
            await self._leave(watcher)
