"""An editor, the router, and several servers of which each has some of the sessions."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

from acp_bridge.core.protocol import Json
from acp_bridge.remote.connect.machine import Machine
from acp_bridge.remote.connect.router import At, Leave, Open, Place, Router
from acp_bridge.remote.connect.way_out import HangUp, ToEditor, ToServer
from tests.remote.connect.model import Server, World


class Far(Server):
    """A server that says of sessions which it does not have where they are."""

    def __init__(self, address: str) -> None:
        super().__init__()
        self.address = address
        #: which server it says to have what it has not.
        self.refers: Far | None = None
        self.loads = 0
        self.keys: list[str] = []

    def _open(self, method: str, id: Any, params: Json) -> None:
        self.loads += method != "_acp_bridge/queue/list"
        if params["sessionId"] in self.sessions:
            super()._open(method, id, params)
            return
        data = {"details": "it is open there", "reason": "elsewhere", "machine": "there"}
        if self.refers is not None:
            data["address"] = self.refers.address
        error = {"code": -32600, "message": "it is open there", "data": data}
        self.out.append({"jsonrpc": "2.0", "id": id, "error": error})

    def _cancel(self, params: Json) -> None:
        if params["sessionId"] in self.sessions:
            super()._cancel(params)

    def _prompt(self, id: Any, params: Json) -> None:
        if params["sessionId"] not in self.has:
            error = {"code": -32002, "message": "unknown session"}
            self.out.append({"jsonrpc": "2.0", "id": id, "error": error})
            return
        self.keys.append(params["_meta"]["acp_bridge"]["promptKey"])
        super()._prompt(id, params)


def place(server: Far) -> Place:
    return Place(server.address, server.address.removeprefix("https://"))


class Places(World):
    """Two servers that say of each other that they have a session; lines are there at once."""

    def __init__(self, *logins: str) -> None:
        super().__init__()
        self.a, self.b = Far("https://a.example"), Far("https://b.example")
        self.a.refers, self.b.refers = self.b, self.a
        self.b.asked = 1000
        self.logins = logins or ("https://a.example", "https://b.example")
        self.servers = {place(each): each for each in (self.a, self.b)}
        self.lines: dict[Place, deque[Json]] = {}
        self.steps: list[str] = []
        #: a place whose line is not there when it is wanted.
        self.away = False
        self.router = Router(place(self.a), self._make, self._way)
        self.machine: Any = self.router
        self.line_up(self.a)

    def _make(self, name: str, questions: Iterator[int]) -> Machine:
        return Machine("the name of this client", name, self._new_key, questions)

    def _way(self, address: str) -> Place | str:
        found = {each.address: each for each in self.servers.values()}.get(address)
        if found is None or address not in self.logins:
            return f"log in at {address}"
        return place(found)

    def _do(self, steps: list[Any]) -> None:
        for step in steps:
            match step:
                case ToEditor(message):
                    self._editor_gets(message)
                case At(there, ToServer(message)):
                    assert there in self.lines, "there is no line"
                    self.lines[there].append(message)
                case At(there, HangUp()):
                    self.line_down(self.servers[there])
                case Open(there):
                    self.steps.append(f"open {there.name}")
                case Leave(there):
                    self.steps.append(f"leave {there.name}")
                    self.lines.pop(there, None)

    def line_up(self, server: Far) -> None:
        server.connect()
        self.lines[place(server)] = deque()
        self._do(self.router.line_up(place(server)))

    def line_down(self, server: Far) -> None:
        self.lines.pop(place(server), None)
        server.has.clear()
        self._do(self.router.line_down(place(server)))

    def reads(self, server: Far) -> bool:
        """Let a server read one message, and the router what it says; False if there is none."""
        there = place(server)
        if not self.lines.get(there):
            return False
        server.take(self.lines[there].popleft())
        self.hears(server)
        return True

    def hears(self, server: Far) -> None:
        out, server.out = server.out, []
        for message in out:
            if place(server) in self.lines:
                self._do(self.router.from_server(place(server), message))

    def wanted(self) -> list[Far]:
        """The servers to which a line is wanted and not there."""
        last: dict[str, str] = {}
        for step in self.steps:
            what, name = step.split()
            last[name] = what
        return [
            each
            for there, each in self.servers.items()
            if last.get(there.name) == "open" and there not in self.lines
        ]

    def settle(self) -> None:
        for _ in range(1000):
            for each in self.wanted() if not self.away else []:
                self.line_up(each)
            read = [self.reads(each) for each in self.servers.values()]
            if not any(read):
                return
        raise AssertionError("it never ends")

    def is_moving(self, name: str) -> bool:
        """Whether a session was followed, and is not open yet where it was followed to."""
        sessions = [each._sessions.get(name) for each in self.router._machines.values()]
        return any(each.moves for each in sessions if each)

    def moves(self, name: str, there: Far) -> None:
        """Another machine has taken a session up; what was asked in it is asked no more."""
        here = self.a if there is self.b else self.b
        there.sessions[name] = here.sessions.pop(name)
        here.has.discard(name)
        there.sessions[name].questions.clear()
        for prompt in there.sessions[name].prompts:
            prompt.requests = []


def greeted(*logins: str) -> Places:
    world = Places(*logins)
    world.send("initialize", {"protocolVersion": 1, "clientCapabilities": {}})
    world.settle()
    return world
