"""One run: the operations of its script, performed; then every session is loaded and compared."""

from __future__ import annotations

import json
import os
import random
import signal
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import anyio

from tests.crash.__main__ import why
from tests.crash.rounds import steps
from tests.crash.told import Lost
from tests.fuzz import script
from tests.fuzz.caller import Caller
from tests.fuzz.ledger import Prompt, key
from tests.fuzz.life import Life, Place
from tests.fuzz.script import SLOTS, Operation
from tests.support.processes import kill_marked, marked
from tests.support.recording import Message

#: A client's line that is no message; each is answered with an error of id null, or of its own id.
GARBAGE = (
    b"{not json}\n",
    b"[]\n",
    b'[{"jsonrpc":"2.0","id":"batch","method":"session/list"}]\n',
    b"\xff\xfe\n",
    b"42\n",
    b'{"jsonrpc":"2.0","id":"neither"}\n',
    b"\n",
    b'{"jsonrpc":"2.0","method":"no/such/notification","params":[1]}\n',
    b'{"jsonrpc":"2.0","id":987654321,"result":{}}\n',
)


#: How a client that joins comes to the sessions, or not to one of them.
_WAYS = (*["session/load"] * 4, *["_acp_bridge/attach"] * 3, "session/resume", "")


class Run:
    """Performs a script. `play` raises Lost, or what shows a bug of the fuzzer itself."""

    def __init__(self, seed: int, folder: Path) -> None:
        """Nothing is started before `play`."""
        self._place = Place(folder, script.behaviours(seed), script.options(seed))
        self._ledger = self._place.ledger
        self._ledger.reuses_ids = "reuses-ids" in self._place.behaviours
        self._ledger.replays_late = "late-replay" in self._place.behaviours
        self._seed = seed
        self._sessions: list[str | None] = [None] * SLOTS
        #: `session/new` without an answer yet, by slot: bridge and id.
        self._opening: dict[int, tuple[Caller, Any]] = {}
        self._listed: list[str] = []
        self._lives = self._guests = 0
        self._stack = AsyncExitStack()
        self._life: Life
        #: the client that performs the operation.
        self._caller: Caller
        self._perform: dict[str, Callable[[Operation], Awaitable[None] | None]] = {
            name: getattr(self, f"_do_{name}") for name in script.WEIGHTS
        }

    async def play(self, count: int) -> Counter[str]:
        """What happened how often."""
        self._place.folder.joinpath("project").mkdir()
        home = self._place.folder / "bridge"
        home.mkdir(mode=0o700)
        (home / "hooks.toml").write_text(script.hooks(self._seed))
        try:
            await self._operate(count)
            await self._check()
        finally:
            kill_marked(self._place.mark)
        return self._ledger.counts

    def show(self) -> None:
        """Print what each client sent and got, and what the agents logged."""
        for number, recording in enumerate(self._place.recordings):
            for record in recording:
                print(number, f"{record.time:.3f}", record.direction, record.raw[:400])
        for event in self._place.log.events():
            print("agent", json.dumps(event)[:400])

    async def _operate(self, count: int) -> None:
        async with self._stack:
            await self._start()
            for operation in script.operations(self._seed, count):
                self._note_new_sessions()
                self._caller = self._life.here[-1] if operation.second else self._life.first
                done = self._perform[operation.kind](operation)
                if done is not None:
                    await done
                await self._pause(operation.rng)
                self._ledger.counts["operations"] += 1
            await self._end("EOF", random.Random(f"{self._seed}.end"), settled=True)

    # --- bridges -------------------------------------------------------------------------------

    async def _start(self) -> None:
        self._life = await self._stack.enter_async_context(self._place.bridge(self._lives))
        self._lives += 1
        await self._life.begin()
        if "needs-auth" in self._place.behaviours:
            self._authenticate(self._life.first)

    async def _end(self, how: str, rng: random.Random, *, settled: bool) -> None:
        if settled:
            await self._life.settle()
            for caller in self._life.here:
                for session_id in filter(None, self._sessions):
                    self._load(caller, session_id)
            await self._life.settle()
        await self._life.end(how, rng)
        self._note_new_sessions()
        self._ledger.counts[f"bridge: {how}"] += 1
        # Left here, so that it is judged before the next one begins.
        await self._stack.pop_all().aclose()

    async def _do_restart(self, operation: Operation) -> None:
        rng = operation.rng
        how = rng.choice(["EOF", "EOF", "SIGTERM", "SIGHUP", "SIGKILL", "SIGKILL", "SIGKILL"])
        await self._end(how, rng, settled=rng.random() < 0.3)
        self._opening.clear()
        await self._start()
        for session_id in filter(None, self._sessions):
            if (way := rng.choice(["load", "load", "resume", ""])) == "load":
                self._load(self._life.first, session_id)
            elif way:
                self._life.first.ask("session/resume", self._workspace(sessionId=session_id))
        if rng.random() < 0.4:
            await self._join(rng)

    async def _check(self) -> None:
        """A bridge with a good agent shows every session as it was, and each can be used."""
        self._place.options = ()
        (self._place.folder / "bridge" / "hooks.toml").write_text("")
        async with self._place.bridge(self._lives, plain=True) as life:
            await life.begin()
            known = set(self._ledger.transcripts) - self._ledger.gone
            mine = [s for s in known if not self._ledger.transcripts[s].unknown]
            listed = await life.first.client.request("session/list", {}, within=10)
            for session_id in sorted(mine):
                await self._check_session(life, session_id)
            rows = {row["sessionId"] for row in listed["sessions"]}
            if back := rows & self._ledger.deleted:
                raise Lost(f"deleted, and listed again: {back}")
            used = {p.session_id for p in self._ledger.prompts if p.stopped == "end_turn"}
            if gone := (used & set(mine)) - rows:
                raise Lost(f"not listed any more: {gone}")
            life.first.quiet = True
            await life.end("EOF", random.Random(0))
        self._ledger.judge_agents(self._place.log)

    async def _check_session(self, life: Life, session_id: str) -> None:
        client = life.first.client
        mark = client.mark()
        result = await client.load_session(session_id, self._cwd)
        users = [
            update["content"]["text"]
            for update in client.updates(session_id, mark)
            if update["sessionUpdate"] == "user_message_chunk"
        ]
        own = result["_meta"]["acp_bridge"]
        held = [block["text"] for prompt in own.get("held", []) for block in prompt]
        for prompt in self._ledger.prompts:
            # What is replayed later than a load's first turn comes twice.
            if prompt.session_id == session_id and not self._ledger.replays_late:
                self._check_prompt(prompt, users.count(prompt.text), held.count(prompt.text))
        again = await client.load_session(session_id, self._cwd)
        if again["_meta"]["acp_bridge"].get("held", []) != own.get("held", []):
            raise Lost(f"a second load holds something else: {held}")
        answer = await client.prompt(f"say after {session_id}", session_id, within=15)
        if answer != {"stopReason": "end_turn"}:
            raise Lost(f"the session is of no use any more: {answer}")
        self._ledger.counts["session: checked"] += 1

    def _check_prompt(self, prompt: Prompt, said: int, held: int) -> None:
        where = f"prompt {prompt.number} ({prompt.answer}): {said} times said, {held} times held"
        if said + held > 1 or (held and prompt.answer):
            raise Lost(where)
        # An answer that the kill swallowed may have been `cancelled`: nothing of it is shown then.
        waits = prompt.accepted and not prompt.answer and not prompt.stoppable
        if said + held < 1 and prompt.stopped == "end_turn":
            raise Lost(where)
        if said + held < 1 and waits and prompt.session_id not in self._ledger.dropped:
            raise Lost(where)

    # --- between two operations ----------------------------------------------------------------

    async def _pause(self, rng: random.Random) -> None:
        """Mostly nothing: what is sent together is read together."""
        first, kind = self._life.first, rng.random()
        if kind < 0.45 or not first.listening:
            return
        if kind < 0.65:
            await steps(rng.randrange(200))
        elif kind < 0.85:
            mark, wanted = first.client.mark(), rng.randrange(1, 12)
            with anyio.move_on_after(0.1):
                await first.client.until_recorded(lambda: first.client.mark() > mark + wanted)
        elif first.ids:
            await first.answered(first.ids[-1], within=0.5)

    def _note_new_sessions(self) -> None:
        for slot, (caller, request) in list(self._opening.items()):
            for answer in caller.client.recording.answers(request):
                del self._opening[slot]
                if "result" in answer:
                    self._sessions[slot] = answer["result"]["sessionId"]
                break

    # --- a second client -----------------------------------------------------------------------

    async def _do_join(self, operation: Operation) -> None:
        await self._join(operation.rng)

    async def _join(self, rng: random.Random) -> None:
        """It takes the place of one that is there."""
        self._guests += 1
        if not await self._life.join(self._guests, rng.choice(script.DECLARED)):
            return
        self._ledger.counts["client: joined"] += 1
        self._caller = self._life.here[-1]
        for session_id in filter(None, self._sessions):
            way = rng.choice(_WAYS)
            replay = {"replay": rng.random() < 0.7} if way == "_acp_bridge/attach" else {}
            if way:
                self._caller.ask(way, self._workspace(sessionId=session_id, **replay))

    async def _do_leave(self, operation: Operation) -> None:
        """At once, or a moment after something that it has asked."""
        await steps(operation.rng.choice([0, 0, 50]))
        await self._life.leave()

    # --- sessions ------------------------------------------------------------------------------

    @property
    def _cwd(self) -> str:
        return str(self._place.folder / "project")

    def _workspace(self, **more: Any) -> Message:
        return {"cwd": self._cwd, "mcpServers": [], **more}

    def _session(self, operation: Operation) -> str:
        """The session of the slot, or another one if it has none; now and then one of nobody."""
        known = list(filter(None, self._sessions))
        if not known or operation.rng.random() < 0.02:
            return "nobody's"
        return self._sessions[operation.slot] or known[0]

    async def _do_new(self, operation: Operation) -> None:
        request = self._caller.ask("session/new", self._workspace())
        self._opening[operation.slot] = (self._caller, request)
        if operation.rng.random() < 0.85:
            await self._caller.answered(request, within=2)

    def _load(self, caller: Caller, session_id: str, **more: Any) -> None:
        caller.ask("session/load", self._workspace(sessionId=session_id, **more))

    def _do_load(self, operation: Operation) -> None:
        more: Message = {"cwd": "/"} if operation.rng.random() < 0.05 else {}
        if operation.rng.random() < 0.1:
            more["additionalDirectories"] = ["/tmp"]
        self._load(self._caller, self._session(operation), **more)

    def _do_resume(self, operation: Operation) -> None:
        workspace = self._workspace(sessionId=self._session(operation))
        self._caller.ask("session/resume", workspace)

    def _do_adopt(self, operation: Operation) -> None:
        """Load a session that was listed; the agent's own are among them."""
        if self._listed:
            session_id = operation.rng.choice(self._listed)
            self._load(self._caller, session_id)
            if session_id not in self._ledger.gone:
                self._sessions[operation.slot] = session_id

    def _do_close(self, operation: Operation) -> None:
        session_id = self._session(operation)
        self._caller.stop(session_id)
        self._caller.ask("session/close", {"sessionId": session_id})
        if operation.rng.random() < 0.8:
            self._load(self._caller, session_id)

    def _do_close_for_all(self, operation: Operation) -> None:
        session_id = self._session(operation)
        self._caller.stop(session_id)
        self._caller.ask("_acp_bridge/close", {"sessionId": session_id})
        self._load(self._caller, session_id)

    def _do_delete(self, operation: Operation) -> None:
        session_id = self._session(operation)
        self._caller.stop(session_id)
        self._caller.ask("session/delete", {"sessionId": session_id})
        self._ledger.gone.add(session_id)
        self._sessions = [None if s == session_id else s for s in self._sessions]

    async def _do_list(self, operation: Operation) -> None:
        request = self._caller.ask("session/list", {})
        if await self._caller.answered(request, within=1.5):
            for answer in self._caller.client.recording.answers(request):
                self._listed = [
                    s["sessionId"] for s in answer.get("result", {}).get("sessions", [])
                ]

    # --- prompts -------------------------------------------------------------------------------

    def _prompt(self, operation: Operation, *, urgent: bool = False, **extra: Any) -> None:
        number, session_id = len(self._ledger.prompts), self._session(operation)
        text, words = script.prompt_text(operation.rng, number)
        if urgent or "interrupt" in self._place.options:
            self._caller.stop(session_id)
            urgent = True
        life, by = self._life.number, self._caller.number
        prompt = Prompt(number, session_id, life, text, words, urgent, by)
        self._ledger.prompts.append(prompt)
        self._caller.prompt(prompt, script.request_id(operation.rng, number), **extra)

    def _do_prompt(self, operation: Operation) -> None:
        self._prompt(operation)

    def _do_interrupt(self, operation: Operation) -> None:
        meta = {"acp_bridge": {"delivery": "interrupt"}}
        self._prompt(operation, urgent=True, _meta=meta)

    def _do_cancel(self, operation: Operation) -> None:
        session_id = self._session(operation)
        self._caller.stop(session_id, own=True)
        self._caller.notify("session/cancel", {"sessionId": session_id})

    def _do_cancel_turn(self, operation: Operation) -> None:
        session_id = self._session(operation)
        self._caller.stop(session_id)
        self._caller.ask("_acp_bridge/cancel", {"sessionId": session_id})

    def _do_cancel_request(self, operation: Operation) -> None:
        """Of something recent, of anything, also of another client's, of nothing."""
        ids = self._caller.ids or [None]
        odd: list[Any] = [None, [1], {}, True, "never sent", 10**30]
        kind = operation.rng.random()
        others = [each for caller in self._life.here for each in caller.ids[-4:]] or odd
        some = ids[-4:] if kind < 0.5 else ids if kind < 0.65 else others if kind < 0.9 else odd
        found = operation.rng.choice(some)
        if prompt := self._caller.prompts.get(key(found)):
            self._caller.stop(prompt.session_id, own=True)
        self._caller.notify("$/cancel_request", {"requestId": found})

    def _queue(self, operation: Operation, words: str) -> None:
        blocks = [{"type": "text", "text": f"/queue{words}"}]
        params = {"sessionId": self._session(operation), "prompt": blocks}
        self._caller.ask("session/prompt", params)

    def _do_queue(self, operation: Operation) -> None:
        self._queue(operation, operation.rng.choice(["", "", " nonsense"]))

    def _do_queue_run(self, operation: Operation) -> None:
        self._queue(operation, " run")

    def _do_queue_drop(self, operation: Operation) -> None:
        self._ledger.dropped.add(self._session(operation))
        self._queue(operation, operation.rng.choice([" drop", " drop 1", " drop 0", " drop x"]))

    def _say_or_call(self, operation: Operation, name: str, words: str = "", **more: str) -> None:
        """By its method or by its word, which mean the same."""
        if operation.rng.random() < 0.3:
            self._queue(operation, f" {name}{words}")
        else:
            params = {"sessionId": self._session(operation), **more}
            self._caller.ask(f"_acp_bridge/{name}", params)

    def _do_pause(self, operation: Operation) -> None:
        self._say_or_call(operation, "pause")

    def _do_hold(self, operation: Operation) -> None:
        self._say_or_call(operation, "hold")

    def _do_go(self, operation: Operation) -> None:
        self._say_or_call(operation, "go")

    def _do_ask(self, operation: Operation) -> None:
        self._say_or_call(operation, "ask", " why?", question="why?")

    # --- other requests ------------------------------------------------------------------------

    def _do_set_mode(self, operation: Operation) -> None:
        mode = operation.rng.choice(["plan", "edit", "edit", "none"])
        params = {"sessionId": self._session(operation), "modeId": mode}
        self._caller.ask("session/set_mode", params)

    def _do_set_option(self, operation: Operation) -> None:
        name = operation.rng.choice(["effort", "effort", "none"])
        value = operation.rng.choice(["low", "high"])
        params = {"sessionId": self._session(operation), "configId": name, "value": value}
        self._caller.ask("session/set_config_option", params)

    def _do_pass_on(self, operation: Operation) -> None:
        method = operation.rng.choice(["_ext/echo", "session/fork", "no/such", "session/no_such"])
        params: Message = {"value": 1}
        if operation.rng.random() < 0.7:
            params["sessionId"] = self._session(operation)
        self._caller.ask(method, params)

    def _authenticate(self, caller: Caller, token: str = "secret-token") -> None:
        caller.ask("authenticate", {"methodId": "token", "_meta": {"token": token}})

    def _do_authenticate(self, operation: Operation) -> None:
        token = operation.rng.choice(["secret-token", "wrong"])
        self._authenticate(self._caller, token)

    def _do_garbage(self, operation: Operation) -> None:
        """A line that is no message, or an id that is in flight."""
        if self._caller.ids and operation.rng.random() < 0.3:
            self._caller.ask("session/list", {}, self._caller.ids[-1])
            return
        try:
            self._caller.client.send_raw(operation.rng.choice(GARBAGE))
        except BrokenPipeError:
            return

    # --- the world around ----------------------------------------------------------------------

    def _do_open_gate(self, operation: Operation) -> None:
        names = ["g"] * 6 + ["cancel", "load", "initialize", "late-replay", "die"]
        names += [f"leak-{kind}" for kind in ("message", "tool", "write")]
        self._life.gates.open(operation.rng.choice(names))

    def _do_permission(self, operation: Operation) -> None:
        self._caller.permit(operation.rng.choice(["allow", "reject", "cancel", "never"]))

    def _do_kill_agent(self, operation: Operation) -> None:
        """The newest one mostly; its guard is left alone."""
        living = set(marked(self._place.mark))
        agents = [pid for pid in self._place.log.pids() if pid in living]
        if not agents:
            return
        pid = agents[-1] if operation.rng.random() < 0.6 else operation.rng.choice(agents)
        try:
            os.kill(pid, operation.rng.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM]))
        except ProcessLookupError:
            return
        self._ledger.counts["agent: killed"] += 1

    def _do_stop_reading(self, operation: Operation) -> None:
        self._caller.turn_away()

    def _do_go_on_reading(self, operation: Operation) -> None:
        self._caller.listen()


def attempt(seed: int, count: int, show: bool) -> tuple[Counter[str], str]:
    """One run, in a process of its own: what happened, and why it failed, if it did.

    `show`: print every line that went over the wire if it failed.
    """
    with tempfile.TemporaryDirectory(prefix="fuzz-", ignore_cleanup_errors=True) as folder:
        run = Run(seed, Path(folder))
        try:
            return anyio.run(run.play, count), ""
        except Exception as exc:
            if show:
                run.show()
            return Counter(), why(exc)
