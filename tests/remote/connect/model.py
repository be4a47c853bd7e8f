"""A model of the other end of a line, and a line that can be cut at each message."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from acp_bridge.core.protocol import Json, as_object, own_meta
from acp_bridge.remote.connect.machine import Machine
from acp_bridge.remote.connect.way_out import Action, HangUp, ToEditor, ToServer

#: a folder with which no session may be opened.
REFUSED = "/refused"
#: a folder with which each replay ends half-way, in an error.
BROKEN = "/broken"
CAPABILITIES = {"_meta": {"acp_bridge": {"promptKey": True, "cursors": True}}}


@dataclass(eq=False)
class Prompt:
    """A prompt that the server has taken."""

    key: str
    session: str
    words: str
    requests: list[Any] = field(default_factory=list)
    answer: Json | None = None


@dataclass(eq=False)
class Transcript:
    """A session: what was said, as (kind, text), and its prompts."""

    entries: list[tuple[str, str]] = field(default_factory=list)
    prompts: list[Prompt] = field(default_factory=list)
    running: Prompt | None = None
    #: the questions that are open, by their ids.
    questions: dict[str, Json] = field(default_factory=dict)

    @property
    def waiting(self) -> list[str]:
        """The words of the prompts that have no answer."""
        return [each.words for each in self.prompts if each.answer is None]


class Server:
    """Answers as a bridge does, at once; each connection is a new one."""

    def __init__(self) -> None:
        self.sessions: dict[str, Transcript] = {}
        self.runs: list[str] = []
        self.cancelled: list[str] = []
        self.answers: dict[str, Json] = {}
        self.asked = 0
        self.refuses_cursors = False
        #: a session may be resumed without a cursor.
        self.may_show_nothing = False
        #: the name under which the client comes back.
        self.client = ""
        self.connect()

    def connect(self) -> None:
        """Begin another connection, of which nothing is known."""
        self.out: list[Json] = []
        self.ready = False
        self.has: set[str] = set()
        self.requests: dict[int, tuple[str, str]] = {}
        self.next_id = 0
        for session in self.sessions.values():
            for prompt in session.prompts:
                prompt.requests = []

    # --- what the client sends

    def take(self, message: Json) -> None:
        if "method" not in message:
            self._answered(message)
            return
        params, id = message.get("params", {}), message.get("id")
        assert self.ready or message["method"] == "initialize", "it was not initialized"
        if message["method"] == "session/cancel":
            self._cancel(params)
            return
        match message["method"]:
            case "initialize":
                own = own_meta(params["clientCapabilities"])
                assert own["cursors"] is True
                assert len(own["client"]) >= 16
                assert own["client"] == (self.client or own["client"]), "another client"
                self.client = own["client"]
                self.ready = True
                self._reply(id, {"protocolVersion": 1, "agentCapabilities": CAPABILITIES})
            case "session/new":
                name = f"s{len(self.sessions)}"
                self.sessions[name] = Transcript()
                self.has.add(name)
                self._reply(id, {"sessionId": name})
            case "session/load" | "session/resume" | "_acp_bridge/queue/list":
                self._open(message["method"], id, params)
            case "session/prompt":
                self._prompt(id, params)
            case "session/close":
                self.has.discard(params["sessionId"])
                self._reply(id, {})
            case _:
                self._reply(id, {})

    def _reply(self, id: Any, result: Json) -> None:
        self.out.append({"jsonrpc": "2.0", "id": id, "result": result})

    def _open(self, method: str, id: Any, params: Json) -> None:
        name = params["sessionId"]
        session = self.sessions[name]
        if method == "_acp_bridge/queue/list":
            self._reply(id, {"prompts": []})
            return
        if params.get("cwd") == REFUSED:
            error = {"code": -32602, "message": "cwd: is refused"}
            self.out.append({"jsonrpc": "2.0", "id": id, "error": error})
            return
        place = (0, 0)
        if method == "session/resume":
            cursor = own_meta(params).get("after")
            assert cursor is not None or self.may_show_nothing
            cursor = cursor or self._end(session)
            if self.refuses_cursors and own_meta(params).get("after"):
                self.refuses_cursors = False
                error = {"code": -32602, "message": "no", "data": {"reason": "cursor"}}
                self.out.append({"jsonrpc": "2.0", "id": id, "error": error})
                return
            place = (int(cursor.split(":")[0]), int(cursor.split(":")[1]))
        is_broken = params.get("cwd") == BROKEN
        had, end = name in self.has, len(session.entries)
        self.has.add(name)
        index, offset = place
        for number in range(index, index + (end - index + 1) // 2 if is_broken else end):
            kind, text = session.entries[number]
            if rest := text[offset if number == index else 0 :]:
                self._show(name, kind, rest, f"{number}:{len(text)}")
        if is_broken:
            if not had:
                self.has.discard(name)
            error = {"code": -32603, "message": "it broke"}
            self.out.append({"jsonrpc": "2.0", "id": id, "error": error})
            return
        own = {"cursor": self._end(session)}
        self._reply(id, {"_meta": {"acp_bridge": own}})
        for question in session.questions:
            if (name, question) not in self.requests.values():
                self._ask(name, question)

    def _end(self, session: Transcript) -> str:
        if not session.entries:
            return "0:0"
        return f"{len(session.entries) - 1}:{len(session.entries[-1][1])}"

    def _prompt(self, id: Any, params: Json) -> None:
        session = self.sessions[params["sessionId"]]
        assert params["sessionId"] in self.has, "the client does not have it"
        key = own_meta(params)["promptKey"]
        known = next((each for each in session.prompts if each.key == key), None)
        if known is None:
            words = params["prompt"][0]["text"]
            known = Prompt(key, params["sessionId"], words)
            session.prompts.append(known)
        if known.answer is not None:
            self._reply(id, known.answer)
        else:
            known.requests.append(id)

    def _cancel(self, params: Json) -> None:
        session = self.sessions[params["sessionId"]]
        key = own_meta(params)["promptKey"]
        open_ones = [each for each in session.prompts if each.answer is None]
        if key in [each.key for each in open_ones]:
            oldest = session.running or open_ones[0]
            self.cancelled.append(oldest.words)
            self.end(session, oldest, "cancelled")

    def _answered(self, message: Json) -> None:
        name, question = self.requests.pop(message["id"])
        if question in self.sessions[name].questions:
            del self.sessions[name].questions[question]
            self.answers[question] = message["result"]

    # --- what happens there

    def _show(self, name: str, kind: str, text: str, cursor: str | None) -> None:
        if name in self.has:
            update = {"sessionUpdate": kind, "content": {"type": "text", "text": text}}
            params: Json = {"sessionId": name, "update": update}
            if cursor:
                params["_meta"] = {"acp_bridge": {"cursor": cursor}}
            self.out.append({"jsonrpc": "2.0", "method": "session/update", "params": params})

    def step(self, session: Transcript, what: int) -> None:
        """Let something happen in a session."""
        name = next(name for name, each in self.sessions.items() if each is session)
        waiting = [each for each in session.prompts if each.answer is None]
        if session.running is None:
            if waiting:
                session.running = waiting[0]
                self.runs.append(waiting[0].words)
                session.entries.append(("user_message_chunk", waiting[0].words))
                session.entries.append(("agent_message_chunk", ""))
        elif what < 3:
            said = f"<{len(session.entries)}.{len(session.entries[-1][1])}>"
            session.entries[-1] = ("agent_message_chunk", session.entries[-1][1] + said)
            self._show(name, "agent_message_chunk", said, self._end(session))
        elif what < 5 and len(session.questions) < 2:
            self.asked += 1
            question = f"q{self.asked}"
            session.questions[question] = {}
            if name in self.has:
                self._ask(name, question)
        elif what == 5 and session.questions:  # another client has answered it
            question = next(iter(session.questions))
            del session.questions[question]
            self._call_back(question)
        else:
            self.end(session, session.running, "end_turn")

    def _ask(self, name: str, question: str) -> None:
        self.next_id += 1
        self.requests[self.next_id] = (name, question)
        params = {"sessionId": name, "_meta": {"acp_bridge": {"question": question}}}
        asked = {"jsonrpc": "2.0", "id": self.next_id, "method": "session/request_permission"}
        self.out.append({**asked, "params": params})

    def _call_back(self, question: str) -> None:
        for id, (_, asked) in self.requests.items():
            if asked == question:
                params = {"requestId": id}
                told = {"jsonrpc": "2.0", "method": "$/cancel_request", "params": params}
                self.out.append(told)

    def end(self, session: Transcript, prompt: Prompt, reason: str) -> None:
        prompt.answer = {"stopReason": reason}
        if session.running is prompt:
            for question in list(session.questions):
                del session.questions[question]
                self._call_back(question)
            session.running = None
        for id in prompt.requests:
            self._reply(id, prompt.answer)


class World:
    """An editor, a machine, a line and a server."""

    def __init__(self) -> None:
        self.keys = 0
        self.machine = Machine("the name of this client", "host", self._new_key)
        self.server = Server()
        self.up = False
        self.to_server: deque[Json] = deque()
        self.to_machine: deque[Json] = deque()
        #: what the editor got, in order.
        self.got: list[Json] = []
        self.sent: dict[int, Json] = {}
        self.answered: dict[int, Json] = {}
        #: the dialogs that are open, by their ids; the answers by question.
        self.dialogs: dict[int, str] = {}
        self.given: dict[str, Json] = {}
        self.asked: set[str] = set()
        self.shown: dict[str, list[tuple[str, str]]] = {}
        #: what was shown before a load, which counts if that is refused.
        self.before: dict[int, list[tuple[str, str]]] = {}
        #: by the words of a prompt, that a Stop was said for it.
        self.stopped: set[str] = set()

    def _new_key(self) -> str:
        self.keys += 1
        return f"key {self.keys}"

    def _do(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case ToServer(message):
                    assert self.up, "there is no line"
                    self.to_server.append(message)
                case ToEditor(message):
                    self._editor_gets(message)
                case HangUp():
                    self.cut()

    def _editor_gets(self, message: Json) -> None:
        self.got.append(message)
        method = message.get("method")
        if method is None:
            assert message["id"] not in self.answered, "a second answer"
            self.answered[message["id"]] = message
            if "error" in message and message["id"] in self.before:
                name = self.sent[message["id"]]["params"]["sessionId"]
                self.shown[name] = self.before[message["id"]]
        elif method == "session/request_permission":
            assert message["id"] not in self.dialogs
            question = own_meta(message["params"])["question"]
            assert question not in self.asked, "a second dialog of one question"
            self.asked.add(question)
            self.dialogs[message["id"]] = question
        elif method == "$/cancel_request":
            self.dialogs.pop(message["params"]["requestId"], None)
        elif method == "session/update":
            params = message["params"]
            assert "cursor" not in own_meta(params)
            if own_meta(params).get("notice"):
                return
            kind, text = params["update"]["sessionUpdate"], params["update"]["content"]["text"]
            assert text, "an empty chunk"
            self.shown.setdefault(params["sessionId"], []).append((kind, text))

    # --- what the editor does

    def send(self, method: str, params: Json) -> int:
        id = len(self.sent)
        message = {"jsonrpc": "2.0", "id": id, "method": method, "params": params}
        self.sent[id] = message
        self._do(self.machine.from_editor(message))
        return id

    def load(self, name: str, cwd: str) -> int:
        """Load a session once more: what was shown before gives way, unless that is refused."""
        id = len(self.sent)
        self.before[id], self.shown[name] = self.shown.get(name, []), []
        return self.send("session/load", {"sessionId": name, "cwd": cwd, "mcpServers": []})

    def refused_load(self, name: str, how: str = "load") -> int:
        params = {"sessionId": name, "cwd": REFUSED, "mcpServers": []}
        return self.send(f"session/{how}", params)

    def notify(self, method: str, params: Json) -> None:
        message = {"jsonrpc": "2.0", "method": method, "params": params}
        self._do(self.machine.from_editor(message))

    def answer(self, dialog: int) -> None:
        question = self.dialogs.pop(dialog)
        self.given[question] = {"outcome": f"for {question}"}
        message = {"jsonrpc": "2.0", "id": dialog, "result": self.given[question]}
        self._do(self.machine.from_editor(message))

    def open_prompts(self, session: str) -> list[str]:
        return [
            message["params"]["prompt"][0]["text"]
            for id, message in self.sent.items()
            if message["method"] == "session/prompt"
            and message["params"]["sessionId"] == session
            and id not in self.answered
        ]

    # --- what the line does

    def connect(self) -> None:
        assert not self.up
        self.up = True
        self.server.connect()
        self._do(self.machine.line_up())

    def cut(self) -> None:
        self.up = False
        self.to_server.clear()
        self.to_machine.clear()
        self.server.has.clear()
        self._do(self.machine.line_down())

    def server_reads(self) -> None:
        if self.to_server:
            self.server.take(self.to_server.popleft())
        self.collect()

    def collect(self) -> None:
        out, self.server.out = self.server.out, []
        if self.up:
            self.to_machine.extend(out)

    def machine_reads(self) -> None:
        if self.to_machine:
            self._do(self.machine.from_server(self.to_machine.popleft()))

    def settle(self) -> None:
        """Deliver all that is on its way."""
        while self.to_server or self.to_machine:
            self.server_reads()
            self.machine_reads()

    def texts(self, session: str) -> str:
        chunks = self.shown.get(session, [])
        return "".join(text for kind, text in chunks if kind == "agent_message_chunk")


def sessions_of(world: World) -> list[str]:
    """Return the sessions that the editor knows."""
    answers = [as_object(each.get("result")) for each in world.answered.values()]
    return [each["sessionId"] for each in answers if "sessionId" in each]
