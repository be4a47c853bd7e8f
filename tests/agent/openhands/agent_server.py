"""An agent-server on the loopback, inside the test's process: real HTTP and WebSocket, no agent.

    async with FakeServer() as server:
        server.on_message = my_run         # async def my_run(conversation): what its agent does
        server.deeds["POST events"] = [Cut.AFTER, 429]   # of the next requests, in this order
        ... server.url ...                 # for the adapter
        server.asked                       # every request, as "POST events", in order

It is as strict as the real one where that matters: the key is checked everywhere, an unknown
conversation is a 404 or a close with 4004, pages have at most 100 events, deltas are not stored, a
message on a conversation with actions that wait runs them.
"""

from __future__ import annotations

import contextlib
import json
import re
import uuid
from collections import defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import Enum
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

import anyio
from anyio.abc import SocketAttribute, SocketStream, TaskGroup

from acp_bridge.core.records import replace
from agent.openhands.events import Json
from tests.agent.openhands import events as told
from tests.agent.openhands.server_socket import ServerSocket
from tests.support.tasks import end_tasks

KEY = "the-key-of-the-fixture"
PROFILE = "11111111-1111-4111-8111-111111111111"
OTHER = "22222222-2222-4222-8222-222222222222"


#: what a connection may end with
_ENDS = (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError, OSError)


class Cut(Enum):
    """What happens to a request instead of its answer."""

    #: the connection ends, and nothing is done
    BEFORE = "before"
    #: it is done, and the connection ends
    AFTER = "after"
    #: it is done, and no answer comes
    NEVER = "never"


class _Refused(Exception):
    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status, self.detail = status, detail


@dataclass
class Conversation:
    """`emit` tells an event to all that are connected and stores it, unless it is a delta."""

    id: str
    folder: str
    policy: Json
    status: str = "idle"
    events: list[Json] = field(default_factory=list)
    sockets: list[ServerSocket] = field(default_factory=list)
    title: str | None = None
    last_message: str | None = None
    stream: bool = True
    profile: str = "model"
    #: the id of the agent profile that it was made with
    agent_profile: str = ""
    waiting: list[str] = field(default_factory=list)
    #: what was really run: the ids of actions
    ran: list[str] = field(default_factory=list)
    run: anyio.CancelScope | None = None
    interrupts: int = 0

    async def emit(self, *raws: Json) -> None:
        for raw in raws:
            if raw["kind"] != "StreamingDeltaEvent" and raw.get("key") != "full_state":
                self.events.append(raw)
            for socket in tuple(self.sockets):
                await socket.send(raw)

    async def set_status(self, status: str) -> None:
        if status != self.status:
            self.status = status
            await self.emit(told.status(status))

    def snapshot(self) -> Json:
        llm = {
            "model": "openai/model",
            "usage_id": f"profile:{self.profile}",
            "stream": self.stream,
        }
        state = {"confirmation_policy": self.policy, "agent": {"kind": "Agent", "llm": llm}}
        return told.snapshot(self.status, self.last_message, **state)

    async def publish(self) -> None:
        await self.emit(self.snapshot())

    async def wait_for_consent(self, *ids: str) -> None:
        """Lets these actions wait, which ends the run."""
        self.waiting = list(ids)
        await self.emit(*(told.action(each, command=each) for each in ids))
        await self.set_status("waiting_for_confirmation")

    def forked(self, new_id: str) -> Conversation:
        return replace(self, id=new_id, events=[*self.events], sockets=[], ran=[], run=None)

    def info(self) -> Json:
        snapshot = self.snapshot()["value"]
        place = {"kind": "LocalWorkspace", "working_dir": self.folder}
        return {**snapshot, "id": self.id, "workspace": place, "title": self.title}


Run = Callable[[Conversation], Awaitable[None]]


async def say_hello(conversation: Conversation) -> None:
    """What its agent does where a test wants nothing else."""
    await conversation.emit(told.delta("Hello"), told.delta(" there"))
    await conversation.emit(told.agent("Hello there."))


class FakeServer:
    def __init__(self) -> None:
        self.conversations: dict[str, Conversation] = {}
        self.on_message: Run = say_hello
        self.deeds: dict[str, list[Cut | int | anyio.Event]] = defaultdict(list)
        self.asked: list[str] = []
        self.heads: list[str] = []
        #: what connections are closed with after the first frame, one by one
        self.closes: list[tuple[int, str]] = []
        #: HTTP statuses that a WebSocket is refused with, one by one
        self.refusals: list[int] = []
        #: what the first snapshot of a feed waits for, as it does while a command runs
        self.first_snapshot: anyio.Event | None = None
        self.mcp_config: Json = {}
        self.conversation_settings: Json = {}
        self.folders: set[str] = set()
        self.port = 0
        self._tasks: TaskGroup
        self._connections: set[SocketStream] = set()
        self._news = anyio.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def only(self) -> Conversation:
        (conversation,) = self.conversations.values()
        return conversation

    def messages(self) -> list[str]:
        """What users have said in the one conversation."""
        return [
            raw["llm_message"]["content"][0]["text"]
            for raw in self.only.events
            if raw["kind"] == "MessageEvent" and raw["source"] == "user"
        ]

    def add(self, folder: str, *events: Json, status: str = "finished") -> Conversation:
        """A conversation that there was before."""
        made = Conversation(str(uuid.uuid4()), folder, {"kind": "NeverConfirm"}, status)
        made.events += events
        self.conversations[made.id] = made
        return made

    async def until(self, is_so: Callable[[], object]) -> None:
        with anyio.fail_after(5):
            while not is_so():
                await self._news.wait()

    async def cut(self) -> None:
        """Ends every connection."""
        for stream in tuple(self._connections):
            await stream.aclose()

    def deafen(self) -> None:
        """Tells nothing more to those that are connected, without a cut."""
        for socket in self.only.sockets:
            socket.deaf = True

    async def __aenter__(self) -> Self:
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=self.port)
        self.port = listener.extra(SocketAttribute.local_port)
        self._tasks.start_soon(self._listen, listener)
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await end_tasks(self._tasks, exc)

    async def _listen(self, listener: Any) -> None:
        async with listener:
            await listener.serve(self._serve)

    # one connection

    async def _serve(self, stream: SocketStream) -> None:
        self._connections.add(stream)
        try:
            async with stream:
                with contextlib.suppress(*_ENDS):
                    await self._answer(stream)
        finally:
            self._connections.discard(stream)

    async def _answer(self, stream: SocketStream) -> None:
        data = b""
        while b"\r\n\r\n" not in data:
            data += await stream.receive()
        head, _, body = data.partition(b"\r\n\r\n")
        self.heads.append(head.decode())
        headers = {
            name.lower(): value.strip()
            for name, _, value in (line.partition(":") for line in head.decode().split("\r\n")[1:])
        }
        method, target, _ = head.decode().split("\r\n")[0].split(" ")
        if headers.get("upgrade") == "websocket":
            await self._follow(stream, target, data)
            return
        while len(body) < int(headers.get("content-length", 0)):
            body += await stream.receive()
        name = _name(method, urlsplit(target).path)
        deed = self.deeds[name].pop(0) if self.deeds[name] else None
        self.asked.append(name)
        self._tell()
        if deed is Cut.BEFORE:
            return
        if isinstance(deed, anyio.Event):
            await deed.wait()
        status, told_back = await self._do(method, target, headers, body, deed)
        self._tell()
        if deed is Cut.AFTER:
            return
        if deed is Cut.NEVER:
            await stream.receive()
        text = json.dumps(told_back).encode()
        length = f"Content-Length: {len(text)}\r\nConnection: close\r\n\r\n"
        await stream.send(f"HTTP/1.1 {status} X\r\n{length}".encode() + text)

    async def _do(
        self, method: str, target: str, headers: dict[str, str], body: bytes, deed: object
    ) -> tuple[int, Any]:
        parts = urlsplit(target)
        if parts.path != "/health" and headers.get("x-session-api-key") != KEY:
            return 401, {"detail": "Unauthorized"}
        if isinstance(deed, int) and deed not in (200, 429):
            return deed, {"detail": f"it is {deed}"}
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        try:
            given = json.loads(body) if body else {}
            busy = deed == 429
            return 200, await self._route(f"{method} {parts.path}", query, given, busy)
        except _Refused as refused:
            return refused.status, {"detail": refused.detail}

    async def _route(self, route: str, query: Json, given: Json, busy: bool) -> Any:
        match route.split("/")[1:]:
            case ["health"]:
                return {"status": "ok"}
            case ["api", "agent-profiles"]:
                listed = [
                    {"id": PROFILE, "name": "bench", "llm_profile_ref": "model"},
                    {"id": OTHER, "name": "other", "llm_profile_ref": "second"},
                ]
                return {"profiles": listed, "active_agent_profile_id": PROFILE}
            case ["api", "profiles"]:
                models = [{"name": "model", "model": "openai/model"}, {"name": "second"}]
                return {"profiles": models, "active_profile": None}
            case ["api", "settings"]:
                mine = {"agent_settings": {"mcp_config": self.mcp_config}}
                return {**mine, "conversation_settings": self.conversation_settings}
            case ["api", "file", "search_subdirs"]:
                if query["path"] not in self.folders:
                    raise _Refused(404, "Directory not found")
                return {"items": []}
            case ["api", "conversations"]:
                return self._create(given)
            case ["api", "conversations", "search"]:
                return {"items": [each.info() for each in self.conversations.values()]}
            case ["api", "conversations", conversation_id, *rest]:
                conversation = self.conversations.get(conversation_id)
                if conversation is None:
                    raise _Refused(404, "Not Found")
                action = f"{route.split(' ')[0]} {'/'.join(rest)}".strip()
                return await self._conversation(conversation, action, query, given, busy)
        raise _Refused(404, f"no route {route}")

    def _create(self, given: Json) -> Json:
        if given["agent_profile_id"] not in (PROFILE, OTHER):
            raise _Refused(404, "no such profile")
        place = given["workspace"]["working_dir"]
        made = Conversation(given["conversation_id"], place, given["confirmation_policy"])
        made.agent_profile = given["agent_profile_id"]
        return self.conversations.setdefault(made.id, made).info()

    async def _conversation(
        self, it: Conversation, action: str, query: Json, given: Json, busy: bool
    ) -> Any:
        match action:
            case "GET":
                return it.info()
            case "DELETE":
                del self.conversations[it.id]
            case "GET events/search":
                return _page(it.events, query)
            case "POST events":
                await self._message(it, given["content"])
                await self._begin(it, busy, "saved", wanted=given["run"])
            case "POST fork":
                self.conversations[given["id"]] = it.forked(given["id"])
            case "POST run":
                await self._begin(it, busy, "no room")
            case "POST interrupt":
                it.interrupts += 1
                await self._interrupt(it)
            case "POST pause":
                await it.set_status("paused")
                await it.publish()
            case "POST events/respond_to_confirmation":
                await self._respond(it, given, busy)
            case "POST confirmation_policy":
                it.policy = given["policy"]
                await it.emit(told.field("confirmation_policy", it.policy))
            case "POST switch_profile":
                it.profile = given["profile_name"]
                await it.emit(told.field("agent", it.snapshot()["value"]["agent"]))
            case "POST condense":
                await it.emit(told.raw("Condensation", forgotten_event_ids=[]))
            case "POST ask_agent":
                return {"response": f"You asked: {given['question']}"}
            case _:
                raise _Refused(404, f"no route {action}")
        return {"success": True}

    # runs

    async def _message(self, it: Conversation, content: list[Json]) -> None:
        message = told.raw("MessageEvent", source="user")
        message["llm_message"] = {"role": "user", "content": content}
        if it.status in ("finished", "stuck"):
            await it.set_status("idle")
        await it.emit(message)
        it.last_message = message["id"]
        await it.emit(told.field("last_user_message_id", message["id"]))

    async def _begin(
        self, it: Conversation, busy: bool, refusal: str, *, wanted: bool = True
    ) -> None:
        if not wanted:
            return
        if busy:
            raise _Refused(429, refusal)
        if it.run is not None:
            if refusal == "saved":
                return
            raise _Refused(409, "Conversation already running.")
        it.run = anyio.CancelScope()
        self._tasks.start_soon(self._run, it)

    async def _run(self, it: Conversation) -> None:
        with it.run or anyio.CancelScope():
            await it.set_status("running")
            for action in it.waiting:  # the real server takes a run for consent
                it.ran.append(action)
                await it.emit(told.result(action, "done"))
            it.waiting = []
            await self.on_message(it)
            if it.status == "running":
                await it.set_status("finished")
        it.run = None
        await it.publish()
        self._tell()

    async def _interrupt(self, it: Conversation) -> None:
        if it.run is None:
            return
        it.run.cancel()
        await self.until(lambda: it.run is None)
        await it.set_status("paused")
        await it.emit(told.raw("InterruptEvent", source="user"))
        await it.publish()

    async def _respond(self, it: Conversation, given: Json, busy: bool) -> None:
        if given["accept"]:
            await self._begin(it, busy, "no room")
            return
        if it.status == "waiting_for_confirmation":
            await it.set_status("idle")
        await it.emit(*(told.refusal(each, given["reason"]) for each in it.waiting))
        it.waiting = []

    # the live feed

    async def _follow(self, stream: SocketStream, target: str, data: bytes) -> None:
        self.asked.append("socket")
        self._tell()
        if self.refusals:
            status = self.refusals.pop(0)
            await stream.send(f"HTTP/1.1 {status} X\r\nContent-Length: 0\r\n\r\n".encode())
            return
        socket = ServerSocket(stream)
        await socket.open(data)
        frame = json.loads(await socket.receive())
        if frame != {"type": "auth", "session_api_key": KEY}:
            await socket.close(4001, "Authentication failed")
            return
        it = self.conversations.get(target.rpartition("/")[2])
        if self.closes:
            await socket.close(*self.closes.pop(0))
            return
        if it is None:
            await socket.close(4004, "Conversation not found")
            return
        it.sockets.append(socket)
        try:
            self._tell()
            if self.first_snapshot is not None:
                await self.first_snapshot.wait()
            await socket.send(it.snapshot())
            while True:
                await socket.receive()
        finally:
            it.sockets.remove(socket)
            self._tell()

    def _tell(self) -> None:
        self._news.set()
        self._news = anyio.Event()


def _page(events: list[Json], query: Json) -> Json:
    assert 0 < int(query["limit"]) <= 100
    ids = [raw["id"] for raw in events]
    start = ids.index(query["page_id"]) if query.get("page_id") in ids else 0
    items = events[start : start + int(query["limit"])]
    rest = ids[start + len(items) :]
    return {"items": items, "next_page_id": rest[0] if rest else None}


def _name(method: str, path: str) -> str:
    """A request without its conversation: "POST events"."""
    path = re.sub(r"^/api/conversations/[0-9a-f-]{36}/?", "", path)
    return f"{method} {path.removeprefix('/api/').removeprefix('/')}".strip()
