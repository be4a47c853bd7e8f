"""A page without a browser: the places of a document, and what its user does."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
from anyio.abc import TaskGroup

from acp_bridge.core.clients.rights import May, Rights
from acp_bridge.core.protocol import Json
from acp_bridge.core.wire.streams import Streams
from acp_bridge.remote.page.client import Login, come_in
from acp_bridge.remote.serve.pair import OneWay, pair
from tests.core.bridge.remote import RemoteBench
from tests.support.waiting import until

CODE, SECRET = "code", "secret"


class KnownLogins:
    """One login, and one code that is changed for it."""

    def __init__(self, it: RemoteBench, may: str = "all") -> None:
        rights = Rights(May(may), "phone", (str(it.root),), "token of phone")

        async def join(incoming: Any, outgoing: Any) -> None:
            await it.bridge.join_remote(incoming, outgoing, rights)

        self.login = Login("phone", may, join)
        self.codes, self.left = [CODE], list[str]()

    async def enter(self, secret: str) -> Login | None:
        return self.login if secret == SECRET and secret not in self.left else None

    async def exchange(self, code: str) -> str | None:
        if code not in self.codes:
            return None
        self.codes.remove(code)
        return SECRET

    async def leave(self, secret: str) -> None:
        self.left.append(secret)


class Page:
    """The other end of a page's WebSocket."""

    def __init__(self, streams: Streams) -> None:
        self._incoming, self._outgoing = streams
        #: every message, in order.
        self.told: list[Json] = []
        #: by the id of a place, the HTML that was put there, and what was added to it since.
        self.places: dict[str, str] = {}
        #: the ids of the rows of the list, as they were put in order last.
        self.order = list[str]()
        self.ended = anyio.Event()
        #: nothing is read before this is set.
        self.may_read = anyio.Event()
        self.may_read.set()

    async def read(self) -> None:
        rest = b""
        while data := await self._incoming.read():
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                self._take(json.loads(line))
            await self.may_read.wait()

    def _take(self, message: Json) -> None:
        self.told.append(message)
        match message:
            case {"put": place, "html": html}:
                self.places[place] = html
            case {"add": place, "html": html} | {"append": place, "html": html}:
                self.places[place] = self.places.get(place, "") + html
            case {"order": _, "ids": ids}:
                self.order = ids
            case {"remove": place}:
                self.places["questions"] = self.places["questions"].partition(f'id="{place}"')[0]

    @property
    def pending(self) -> int:
        """The bytes that were sent to the page, and that it has not read."""
        assert isinstance(self._incoming, OneWay)
        return self._incoming.pending

    def sends(self, **message: Any) -> None:
        self.sends_bytes(json.dumps(message).encode() + b"\n")

    def sends_bytes(self, data: bytes) -> None:
        self._outgoing.write(data)

    def leaves(self) -> None:
        self._incoming.close()
        self._outgoing.close()

    async def has(self, text: str, place: str | None = None) -> None:
        """Wait until a text stands there, or anywhere."""
        await until(
            lambda: text in (self.places.get(place, "") if place else "".join(self.places.values()))
        )

    async def told_of(self, name: str) -> Any:
        """Wait for a message with this member; returns its value in the last one."""
        found = await until(lambda: [each[name] for each in self.told if name in each])
        return found[-1]


@asynccontextmanager
async def page(
    it: RemoteBench, logins: KnownLogins, tasks: TaskGroup | None = None, **first: Any
) -> AsyncIterator[Page]:
    """Give a page that has sent its first message."""
    mine, theirs = pair()
    made = Page(mine)

    async def serve() -> None:
        if (visit := await come_in(*theirs, logins)) is not None:
            await visit.serve()
        made.ended.set()
        theirs[1].close()

    async with anyio.create_task_group() as own:
        own.start_soon(made.read)
        own.start_soon(serve)
        made.sends(**({"login": SECRET} | first))
        yield made
        made.leaves()
        await made.ended.wait()
        own.cancel_scope.cancel()
