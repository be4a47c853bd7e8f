"""Clients that are cut off a session and come back at the cursor that they had."""

from dataclasses import dataclass, field
from typing import Any

from acp_bridge.core.protocol import ASSUMED, CURSOR, STATE, own_meta
from tests.core.sessions.agent import Json
from tests.core.sessions.bench import Bench, Served
from tests.core.sessions.world import SETUP

#: what one client alone is told when it is shown a session at work.
AT_WORK = "`/queue wait` waits until the turn ends"


def recorded(params: Json) -> bool:
    """Return True for an update of the transcript itself."""
    own, kind = own_meta(params), params["update"]["sessionUpdate"]
    aside = AT_WORK in str(params["update"].get("content"))
    return not (aside or kind in STATE or ASSUMED in own)


def flat(told: list[Json]) -> list[str]:
    """Return a transcript letter for letter, the same however its texts were cut."""
    found: list[str] = []
    for params in told:
        update = params["update"]
        of = [str(update.get(name)) for name in ("sessionUpdate", "messageId", "toolCallId")]
        text = (update.get("content") or {}).get("text")
        prefix = "/".join([str(params.get("sessionId")), *of])
        found += [prefix + letter for letter in text] if text is not None else [prefix]
    return found


def cursor_in(told: Json) -> Any:
    """Return the cursor of an update or a result, None if it has none."""
    return own_meta(told).get(CURSOR)


def updates(client: Served) -> list[Json]:
    """Return the params of all updates that a client got."""
    return [message["params"] for message in client.asked("session/update")]


@dataclass(slots=True)
class Follower:
    """Somebody who follows a session over one connection after the other."""

    it: Bench
    id: str
    client: Served
    asked: Any
    #: what it has of earlier connections, and its cursor of then.
    had: list[Json] = field(default_factory=list)
    cursor: Any = None

    @classmethod
    async def come(cls, it: Bench, session_id: str, **own: Any) -> "Follower":
        """Let one come that loads the session."""
        client = await it.joined(cursors=True, **own)
        asked = client.send("session/load", {**SETUP, "sessionId": session_id})
        return cls(it, session_id, client, asked)

    @property
    def seen(self) -> list[Json]:
        """All that it has of the transcript."""
        return [*self.had, *filter(cursor_in, updates(self.client))]

    async def cut_off(self, number: int) -> None:
        """Cut the connection: the last updates, so many of them, have not come; and come back."""
        seen = self.seen
        at = max(len(self.had), len(seen) - number)
        self.had = seen[:at]
        if self.had:
            self.cursor = cursor_in(self.had[-1])
        elif not seen:
            for answer in self.client.answers(self.asked):
                self.cursor = self.cursor or cursor_in(answer["result"])
        self.client.leaves()
        self.client = await self.it.joined(cursors=True)
        given = {**SETUP, "sessionId": self.id}
        if self.cursor is None:
            self.asked = self.client.send("session/load", given)
        else:
            given["_meta"] = {"acp_bridge": {"after": self.cursor}}
            self.asked = self.client.send("session/resume", given)


async def loaded(it: Bench, session_id: str) -> list[Json]:
    """Return the transcript as a client without cursors is shown it."""
    client = await it.joined()
    await client.ask("session/load", {**SETUP, "sessionId": session_id})
    return list(filter(recorded, updates(client)))
