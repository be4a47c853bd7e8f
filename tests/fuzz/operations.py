"""What one client does: each operation of a script that goes over the wire."""

from __future__ import annotations

import random
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from acp_bridge.core.protocol import ACCEPTED
from tests.fuzz import script
from tests.fuzz.caller import Caller
from tests.fuzz.ledger import Ledger
from tests.fuzz.place import Place
from tests.fuzz.prompts import Prompt, key
from tests.fuzz.script import SLOTS, Operation
from tests.support.recording import Message

#: A client's line that is no message; each is answered with an error of id null, or of its own id.
GARBAGE = (
    b"{not json}\n",
    b"[]\n",
    b'[{"jsonrpc":"2.0","id":null,"method":"session/list"}]\n',
    b"\xff\xfe\n",
    b"42\n",
    b'{"jsonrpc":"2.0","id":"neither"}\n',
    b"\n",
    b'{"jsonrpc":"2.0","method":"no/such/notification","params":[1]}\n',
    b'{"jsonrpc":"2.0","id":987654321,"result":{}}\n',
)


@dataclass
class Operations:
    """Performs them for the client whose turn it is."""

    place: Place
    #: the session in each slot.
    sessions: list[str | None] = field(default_factory=lambda: [None] * SLOTS)
    #: `session/new` without an answer yet, by slot: client and id.
    opening: dict[int, tuple[Caller, Any]] = field(default_factory=dict)
    #: all clients that there are, and the one that does it.
    callers: list[Caller] = field(default_factory=list)
    caller: Caller = field(init=False)
    _listed: list[str] = field(default_factory=list)

    @property
    def ledger(self) -> Ledger:
        return self.place.ledger

    @property
    def known(self) -> list[str]:
        """The sessions that there are."""
        return list(filter(None, self.sessions))

    def note_new_sessions(self) -> None:
        for slot, (caller, request) in list(self.opening.items()):
            for answer in caller.client.recording.answers(request):
                del self.opening[slot]
                if "result" in answer:
                    self.sessions[slot] = answer["result"]["sessionId"]
                    caller.opened.add(answer["result"]["sessionId"])
                break

    def do_permission(self, operation: Operation) -> None:
        self.caller.permit(operation.rng.choice(["allow", "reject", "cancel", "never"]))

    def do_stop_reading(self, operation: Operation) -> None:
        self.caller.turn_away()

    def do_go_on_reading(self, operation: Operation) -> None:
        self.caller.listen()

    # --- sessions ------------------------------------------------------------------------------

    def workspace(self, **more: Any) -> Message:
        return {"cwd": self.place.cwd, "mcpServers": [], **more}

    def _session(self, operation: Operation) -> str:
        """The session of the slot, or another one if it has none; now and then one of nobody."""
        known = list(filter(None, self.sessions))
        if not known or operation.rng.random() < 0.02:
            return "nobody's"
        return self.sessions[operation.slot] or known[0]

    async def do_new(self, operation: Operation) -> None:
        request = self.caller.ask("session/new", self.workspace())
        self.opening[operation.slot] = (self.caller, request)
        if operation.rng.random() < 0.85:
            await self.caller.answered(request, within=2)

    def load(self, caller: Caller, session_id: str, **more: Any) -> Any:
        return caller.ask("session/load", self.workspace(sessionId=session_id, **more))

    def do_load(self, operation: Operation) -> None:
        more: Message = {"cwd": "/"} if operation.rng.random() < 0.05 else {}
        if operation.rng.random() < 0.1:
            more["additionalDirectories"] = ["/tmp"]
        self.load(self.caller, self._session(operation), **more)

    def do_resume(self, operation: Operation) -> None:
        workspace = self.workspace(sessionId=self._session(operation))
        self.caller.ask("session/resume", workspace)

    def do_adopt(self, operation: Operation) -> None:
        """Load a session that was listed; the agent's own are among them."""
        if self._listed:
            session_id = operation.rng.choice(self._listed)
            self.load(self.caller, session_id)
            if session_id not in self.ledger.gone:
                self.sessions[operation.slot] = session_id

    def do_close(self, operation: Operation) -> None:
        session_id = self._session(operation)
        self._close(session_id)
        if operation.rng.random() < 0.6:
            self.load(self.caller, session_id)

    def _close(self, session_id: str) -> None:
        self.caller.stop(session_id)
        self.caller.ask("session/close", {"sessionId": session_id})
        self.caller.opened.discard(session_id)

    def do_close_for_all(self, operation: Operation) -> None:
        session_id = self._session(operation)
        self.caller.stop(session_id)
        self.caller.ask("_acp_bridge/close", {"sessionId": session_id})
        self.load(self.caller, session_id)

    def do_delete(self, operation: Operation) -> None:
        session_id = self._session(operation)
        self.caller.stop(session_id)
        self.caller.ask("session/delete", {"sessionId": session_id})
        self.ledger.gone.add(session_id)
        self.sessions = [None if s == session_id else s for s in self.sessions]

    async def do_list(self, operation: Operation) -> None:
        request = self.caller.ask("session/list", {})
        if await self.caller.answered(request, within=1.5):
            for answer in self.caller.client.recording.answers(request):
                self._listed = [
                    s["sessionId"] for s in answer.get("result", {}).get("sessions", [])
                ]

    # --- prompts -------------------------------------------------------------------------------

    async def _come_to(self, session_id: str, operation: Operation) -> None:
        """Mostly the client has the session before it prompts."""
        if session_id in self.caller.opened or operation.rng.random() < 0.2:
            return
        request = self.load(self.caller, session_id)
        await self.caller.answered(request, within=2)

    async def _prompt(self, operation: Operation, *, urgent: bool = False, **extra: Any) -> None:
        session_id = self._session(operation)
        await self._come_to(session_id, operation)
        number = len(self.ledger.prompts)
        text, words = script.prompt_text(operation.rng, number)
        if urgent or "interrupt" in self.place.options:
            self.caller.stop(session_id)
            urgent = True
        life, by, era = self.caller.life, self.caller.number, len(self.ledger.turns)
        steers = not urgent and script.steers(text)
        prompt = Prompt(number, session_id, life, text, words, urgent or steers, by, era)
        if steers:
            prompt.steers, extra = True, {"_meta": {"acp_bridge": {"delivery": "steer"}}, **extra}
        self.ledger.prompts.append(prompt)
        self.caller.prompt(prompt, script.request_id(operation.rng, number), **extra)

    async def do_talk(self, operation: Operation) -> None:
        """Several clients have one session, and each prompts in it, while the others look on."""
        session_id, rng = self._session(operation), operation.rng
        chosen = rng.sample(self.callers, min(len(self.callers), rng.choice([2, 2, 3])))
        for self.caller in chosen:
            await self._come_to(session_id, operation)
            self.caller.permit(rng.choice(["allow", "reject", "cancel", "never"]))
        asked = []
        for self.caller in chosen:
            await self._prompt(operation)
            asked.append((self.caller, self.caller.ids[-1:]))
        if rng.random() < 0.3:  # the others go on
            self.caller = chosen[0]
            self._close(session_id)
        for caller, request in asked:
            for life in self.place.living:
                life.gates.open("g")
            if request:
                await caller.answered(request[0], within=0.5)

    async def leave_work(self, caller: Caller, rng: random.Random) -> None:
        """A client prompts, and sees that it is on disk: it will end now."""
        slots = [slot for slot, session in enumerate(self.sessions) if session in caller.opened]
        if not slots or not caller.listening:
            return
        self.caller, told = caller, len(caller.client.recording.requests(ACCEPTED))
        for _ in range(rng.choice([1, 2])):
            await self._prompt(Operation("prompt", slots[0], rng))
        with suppress(TimeoutError, ConnectionError):
            await caller.client.until_request(ACCEPTED, told + 1, within=1)

    async def do_prompt(self, operation: Operation) -> None:
        await self._prompt(operation)

    async def do_interrupt(self, operation: Operation) -> None:
        meta = {"acp_bridge": {"delivery": "interrupt"}}
        await self._prompt(operation, urgent=True, _meta=meta)

    def do_cancel(self, operation: Operation) -> None:
        session_id = self._session(operation)
        self.caller.stop(session_id, own=True)
        self.caller.notify("session/cancel", {"sessionId": session_id})

    def do_cancel_turn(self, operation: Operation) -> None:
        session_id = self._session(operation)
        self.caller.stop(session_id)
        self.caller.ask("_acp_bridge/cancel", {"sessionId": session_id})

    def do_cancel_request(self, operation: Operation) -> None:
        """Of something recent, of anything, also of another client's, of nothing."""
        ids = self.caller.ids or [None]
        odd: list[Any] = [None, [1], {}, True, "never sent", 10**30]
        kind = operation.rng.random()
        others = [each for caller in self.callers for each in caller.ids[-4:]] or odd
        some = ids[-4:] if kind < 0.5 else ids if kind < 0.65 else others if kind < 0.9 else odd
        found = operation.rng.choice(some)
        if prompt := self.caller.prompts.get(key(found)):
            self.caller.stop(prompt.session_id, own=True)
        self.caller.notify("$/cancel_request", {"requestId": found})

    def _queue(self, operation: Operation, words: str) -> None:
        blocks = [{"type": "text", "text": f"/queue{words}"}]
        params = {"sessionId": self._session(operation), "prompt": blocks}
        self.caller.ask("session/prompt", params)

    def do_queue(self, operation: Operation) -> None:
        words = operation.rng.choice(["", "", " nonsense", " move", " move"])
        if words == " move":
            self.ledger.moved.add(self._session(operation))
            before = operation.rng.choice(["last", f"before {_number(operation)}"])
            words += f" {_number(operation)} {before}"
        self._queue(operation, words)

    def do_queue_run(self, operation: Operation) -> None:
        self._queue(operation, " run")

    def do_queue_drop(self, operation: Operation) -> None:
        session_id = self._session(operation)
        self.ledger.dropped.add(session_id)
        words = operation.rng.choice([" drop", " drop 1", " drop 0", " drop x", " drop N"])
        if words.endswith("N"):
            words = f" drop {_number(operation)}"
        if words != " drop":  # it may wait
            self.caller.stop(session_id)
        self._queue(operation, words)

    def _say_or_call(self, operation: Operation, name: str, words: str = "", **more: str) -> None:
        """By its method or by its word, which mean the same."""
        if operation.rng.random() < 0.3:
            self._queue(operation, f" {name}{words}")
        else:
            params = {"sessionId": self._session(operation), **more}
            self.caller.ask(f"_acp_bridge/{name}", params)

    def do_pause(self, operation: Operation) -> None:
        self._say_or_call(operation, "pause")

    def do_hold(self, operation: Operation) -> None:
        self._say_or_call(operation, "hold")

    def do_go(self, operation: Operation) -> None:
        self._say_or_call(operation, "go")

    def do_ask(self, operation: Operation) -> None:
        self._say_or_call(operation, "ask", " why?", question="why?")

    # --- other requests ------------------------------------------------------------------------

    def do_set_mode(self, operation: Operation) -> None:
        mode = operation.rng.choice(["plan", "edit", "edit", "none"])
        params = {"sessionId": self._session(operation), "modeId": mode}
        self.caller.ask("session/set_mode", params)

    def do_set_option(self, operation: Operation) -> None:
        name = operation.rng.choice(["effort", "effort", "none"])
        value = operation.rng.choice(["low", "high"])
        params = {"sessionId": self._session(operation), "configId": name, "value": value}
        self.caller.ask("session/set_config_option", params)

    def do_pass_on(self, operation: Operation) -> None:
        method = operation.rng.choice(["_ext/echo", "session/fork", "no/such", "session/no_such"])
        params: Message = {"value": 1}
        if operation.rng.random() < 0.7:
            params["sessionId"] = self._session(operation)
        self.caller.ask(method, params)

    def authenticate(self, caller: Caller, token: str = "secret-token") -> None:
        caller.ask("authenticate", {"methodId": "token", "_meta": {"token": token}})

    def do_authenticate(self, operation: Operation) -> None:
        token = operation.rng.choice(["secret-token", "wrong"])
        self.authenticate(self.caller, token)

    def do_garbage(self, operation: Operation) -> None:
        """A line that is no message, or an id that is in flight."""
        if self.caller.ids and operation.rng.random() < 0.3:
            self.caller.ask("session/list", {}, self.caller.ids[-1])
            return
        try:
            self.caller.client.send_raw(operation.rng.choice(GARBAGE))
        except BrokenPipeError:
            return


def _number(operation: Operation) -> int:
    """A number that a prompt of the session has, perhaps."""
    return operation.rng.randrange(1, 20)
