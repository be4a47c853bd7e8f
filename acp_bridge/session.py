"""One session's shell: takes what client and agents say, performs what the machine asks for.

Every decision about prompts is in turns.py; here is what it takes to carry them out. An event
is taken to its end before the next (`feed`), and what the agent showed before it is on its way
to the client by then.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol
from uuid import uuid4

import anyio
from anyio.abc import TaskGroup

from acp_bridge import errors, queue_command
from acp_bridge import signals as sig
from acp_bridge.agents.link import AgentCommand, Link
from acp_bridge.agents.process import Exit, StartFailed
from acp_bridge.choices import Choices
from acp_bridge.journal import Journal, JournalError, SessionJournal
from acp_bridge.lobby import Lobby
from acp_bridge.log import event
from acp_bridge.opening import AuthNeeded, Refused, Reopening, Setup
from acp_bridge.outlet import Outlet
from acp_bridge.relay import ClientAbilities, Relay
from acp_bridge.settings import Delivery, OnCancel, ReloadAfterCancel, Settings
from acp_bridge.turns import State, Turns
from acp_bridge.updates import Leak, Phase, Updates, is_transcript
from acp_bridge.wire.jsonrpc import Answer, Err, Ok, RpcError
from acp_bridge.wire.peer import Call, Peer
from acp_bridge.wire.stdio import Writer

Json = dict[str, Any]
#: returned by work that has answered its request itself.
ANSWERED: Final = object()
#: the states in which the process takes what is passed on to it.
_LIVE = frozenset({State.IDLE, State.RUNNING, State.DRAINING})
#: the states that a process is on its way through: what is passed on waits.
_COMING = frozenset({State.STARTING, State.RELOADING, State.KILLING})


class Host(Protocol):
    """What a session needs of its bridge."""

    settings: Settings
    command: AgentCommand
    client: Peer
    writer: Writer
    abilities: ClientAbilities
    journal: Journal
    tasks: TaskGroup
    lobby: Lobby
    #: parameters of `authenticate` that may be repeated to a later process.
    credentials: Json | None
    #: the client asked to be told when a prompt is accepted.
    tells_accepted: bool


@dataclass(slots=True)
class _Prompt:
    params: Json
    #: the request of the client that waits for the answer; None for one held since a restart.
    call: Call | None
    #: its number in the journal; 0 until it is written there.
    seq: int = 0
    prompt_id: str = ""


@dataclass(slots=True)
class _Process:
    link: Link
    starting: anyio.CancelScope
    started: anyio.Event


class Session:
    """A session of the bridge. `link`: the process that has it open, if one has."""

    def __init__(
        self, host: Host, journal: SessionJournal, lease: int, setup: Setup, link: Link | None
    ) -> None:
        self.id = journal.info.session_id
        self.journal = journal
        self.setup = setup
        #: set when nothing of the session is left.
        self.closed = anyio.Event()
        self.outlet = Outlet(self.id, journal, host.writer.write)
        self.updates = Updates(
            set(journal.used_ids()),
            booleans=host.abilities.has("session", "configOptions", "boolean"),
        )
        self.relay = Relay(self.id, host.client, host.abilities, self.updates)
        self.choices = Choices(journal)
        self.machine = Turns(
            epoch=1 if link else 0,
            clear_on_cancel=host.settings.on_cancel is OnCancel.CLEAR,
            always_reload=host.settings.reload_after_cancel is ReloadAfterCancel.ALWAYS,
        )
        #: prompts held since a restart, by key: run or dropped on the user's word only.
        self.held: dict[int, Json] = {}
        self._host = host
        self._lease = lease
        self._prompts: dict[int, _Prompt] = {}
        self._keys = 0
        self._processes: dict[int, _Process] = {}
        self._timers: dict[sig.Timer, anyio.CancelScope] = {}
        self._events: deque[sig.Event] = deque()
        self._stepping = False
        self._replaying = False
        self._passed: dict[object, tuple[Link, int]] = {}
        self._waiting_calls: list[Call] = []
        self._room: anyio.CancelScope | None = None
        if link:
            link.epoch = 1
            self._processes[1] = _Process(link, anyio.CancelScope(), anyio.Event())
            self._processes[1].started.set()

    @property
    def link(self) -> Link | None:
        """The process that has the session open and takes requests, or None."""
        if self.machine.state in _LIVE:
            return self._processes[self.machine.epoch].link
        return None

    @property
    def link_wanting_auth(self) -> Link | None:
        """The process that waits for `authenticate`, or None."""
        process = self._processes.get(self.machine.epoch)
        return process.link if process and self.machine.state is State.BLOCKED else None

    # --- events and effects --------------------------------------------------------------------

    def feed(self, event_: sig.Event) -> None:
        """Give the machine an event and perform what it asks for, and so on to the end."""
        self._events.append(event_)
        if self._stepping:
            return
        self._stepping = True
        try:
            while self._events:
                self.outlet.flush()
                for effect in self.machine.step(self._events.popleft()):
                    self._perform(effect)
            self._after_events()
        finally:
            self._stepping = False

    def _perform(self, effect: sig.Effect) -> None:
        match effect:
            case sig.Commit(key):
                self._commit(key)
            case sig.SendPrompt(_, turn, key):
                self._send_prompt(turn, key)
            case sig.SendCancel(epoch, turn):
                self._send_cancel(epoch, turn)
            case sig.Answer(key, outcome):
                self._answer(key, outcome)
            case sig.Start(epoch):
                self._spawn(self._start, epoch)
            case sig.Open(epoch):
                self._spawn(self._open, epoch)
            case sig.Kill(epoch):
                self._spawn(self._kill, epoch)
            case sig.CloseAgent(epoch):
                self._spawn(self._close_agent, epoch)
            case sig.Arm(timer, token):
                self._arm(timer, token)
            case sig.Disarm(timer):
                if scope := self._timers.pop(timer, None):
                    scope.cancel()
            case sig.CloseCards():
                self._close_cards()
            case sig.Release(epoch):
                if process := self._processes.pop(epoch, None):
                    self.relay.release(process.link)
            case sig.NoteOutcome(key, answer):
                self._record_end(self._prompts[key].seq, {"stopReason": "cancelled"}, answer)
            case sig.Interrupted(key):
                self._record_end(self._prompts.pop(key).seq, {"interrupted": True}, None)
            case sig.Hold(keys):
                self._hold(keys)
            case sig.Closed():
                self._spawn(self._finish)

    def _spawn(self, work: Callable[..., Awaitable[None]], *args: object) -> None:
        """Run a piece of work in the bridge's task group; its failure is this session's only."""

        async def contained() -> None:
            try:
                await work(*args)
            except Exception as exc:
                errors.internal(exc, f"session work {getattr(work, '__name__', '?')} failed")

        self._host.tasks.start_soon(contained)

    def _after_events(self) -> None:
        """What waits for a process is passed on, or told that none will come."""
        if self._room and self.machine.state not in (State.IDLE, State.RUNNING):
            self._room.cancel()
        if self._waiting_calls and self.machine.state not in _COMING:
            calls, self._waiting_calls = self._waiting_calls, []
            for call in calls:
                self.pass_on(call)

    def _arm(self, timer: sig.Timer, token: int) -> None:
        settings = self._host.settings
        seconds = {
            sig.Timer.SPARE: settings.drain_timeout / 2,
            sig.Timer.DRAIN: settings.drain_timeout,
            sig.Timer.KILL: settings.kill_timeout,
            sig.Timer.RESTART: settings.restart_timeout,
        }[timer]
        if old := self._timers.pop(timer, None):
            old.cancel()
        scope = self._timers[timer] = anyio.CancelScope()

        async def wait() -> None:
            with scope:
                await anyio.sleep(seconds)
                self._timers.pop(timer, None)
                event("deadline", session=self.id, what=timer.name.lower())
                self.feed(sig.Deadline(timer, token))

        self._spawn(wait)

    # --- prompts -------------------------------------------------------------------------------

    def on_prompt(self, call: Call, params: Json) -> None:
        """`session/prompt`: queued in the order of reading; `params` has been checked."""
        if not self.updates.own_queue and (words := queue_command.parse(params["prompt"])):
            queue_command.run(self, call, params, words)
            return
        asked = _own_meta(params).get("delivery", self._host.settings.delivery)
        key = self.new_prompt(call, params)
        self.feed(sig.PromptReceived(key, interrupt=asked == Delivery.INTERRUPT))

    def new_prompt(self, call: Call | None, params: Json, seq: int = 0) -> int:
        """A key for a prompt."""
        self._keys += 1
        self._prompts[self._keys] = _Prompt(params, call, seq, uuid4().hex)
        return self._keys

    def seq(self, key: int) -> int:
        """The journal's number of a prompt."""
        return self._prompts[key].seq

    def forget_held(self, key: int) -> None:
        """A held prompt was dropped."""
        del self.held[key], self._prompts[key]

    def next_id(self) -> str:
        """An id for a message of the bridge's own."""
        return uuid4().hex[:12]

    def answer_now(self, call: Call) -> None:
        """The bridge itself has answered a prompt."""
        done = Ok({"stopReason": "end_turn"})
        self.outlet.then(lambda: respond(self._host.client, call, done))

    def prompt_params(self, key: int) -> Json:
        """The parameters of a prompt that has no answer yet."""
        return self._prompts[key].params

    def _commit(self, key: int) -> None:
        prompt = self._prompts[key]
        try:
            prompt.seq = self.journal.accept(prompt.prompt_id, prompt.params)
        except JournalError as exc:
            self.feed(sig.CommitFailed(key, str(exc)))
            return
        self._spawn(self._sync, key, prompt)

    async def _sync(self, key: int, prompt: _Prompt) -> None:
        try:
            await self.journal.sync()
        except JournalError as exc:
            self.feed(sig.CommitFailed(key, str(exc)))
            return
        event("prompt.accepted", session=self.id, prompt=prompt.seq)
        if self._host.tells_accepted and prompt.call:
            told = {"sessionId": self.id, "requestId": prompt.call.id, "promptId": prompt.prompt_id}
            self._host.client.notify("_acp_bridge/accepted", told)
        self.feed(sig.Committed(key))
        self._title(prompt.params)

    def _send_prompt(self, turn: int, key: int) -> None:
        prompt, link = self._prompts[key], self._processes[self.machine.epoch].link
        epoch = self.machine.epoch
        self._replaying = False
        self.updates.new_turn()
        self.outlet.turn = prompt.seq
        said = [_user_chunk(block) for block in prompt.params["prompt"]]
        try:
            self.journal.start_turn(prompt.seq, said)
        except JournalError as exc:
            event("journal.failed", session=self.id, what=exc)
        if prompt.call is None:
            for chunk in said:
                self.outlet.replay(chunk)
        event("turn.started", session=self.id, turn=prompt.seq, agent=link.name)
        link.request_for(
            prompt.call,
            "session/prompt",
            {**_without_own_meta(prompt.params), "sessionId": link.agent_session_id},
            lambda answer: self.feed(sig.AgentAnswered(epoch, turn, answer)),
        )

    def _send_cancel(self, epoch: int, turn: int) -> None:
        link = self._processes[epoch].link
        event("turn.cancel", session=self.id, turn=self.outlet.turn, agent=link.name)
        link.peer.notify("session/cancel", {"sessionId": link.agent_session_id})
        self.relay.cancel_questions()

    def _answer(self, key: int, outcome: sig.Outcome) -> None:
        prompt = self._prompts.pop(key)
        answer = _as_answer(outcome)
        own = outcome.answer if isinstance(outcome, sig.Replied) else None
        told = answer.result if isinstance(answer, Ok) else {"error": answer.error.to_wire()}
        self._record_end(prompt.seq, told, own)
        event("turn.ended", session=self.id, turn=prompt.seq, how=_short(answer))
        if prompt.call:
            self.outlet.flush()
            call = prompt.call
            self.outlet.then(lambda: respond(self._host.client, call, answer))

    def _record_end(self, seq: int, told: object, own: object) -> None:
        """An outcome, into the journal; the answer doesn't wait for the disk."""
        if seq == self.outlet.turn:
            self.outlet.flush()
            self.outlet.turn = 0
        if not seq:
            return
        try:
            outcome = told if isinstance(told, dict) else {"result": told}
            self.journal.end_prompt(seq, outcome, _as_json(own))
        except JournalError as exc:
            event("journal.failed", session=self.id, what=exc)
        self._spawn(self._tidy, seq)

    async def _tidy(self, seq: int) -> None:
        """After a turn: durable, compact, listed with its time."""
        try:
            await self.journal.sync()
            await self.journal.compact(seq)
            await self.journal.checkpoint()
            await self._host.journal.touch(self.id)
        except JournalError as exc:
            event("journal.failed", session=self.id, what=exc)

    def _hold(self, keys: tuple[int, ...]) -> None:
        for key in keys:
            prompt = self._prompts[key]
            prompt.call = None
            self.held[key] = prompt.params
            try:
                if prompt.seq:
                    self.journal.hold(prompt.seq)
            except JournalError as exc:
                event("journal.failed", session=self.id, what=exc)

    def _title(self, params: Json) -> None:
        if self.journal.info.title is None:
            text = queue_command.summary(params["prompt"], 80)
            if text:
                self._spawn(self._retitle, text)

    async def _retitle(self, title: str | None) -> None:
        await self._host.journal.touch(self.id, title=title)

    # --- the agent's processes -----------------------------------------------------------------

    async def _start(self, epoch: int) -> None:
        if waiting := self._host.lobby.take_ready():
            self._take_over(waiting, epoch)
            return
        link = Link(self._host.command, self, f"{self.id[:8]}#{epoch}")
        link.epoch = epoch
        process = _Process(link, anyio.CancelScope(), anyio.Event())
        self._processes[epoch] = process
        outcome: sig.Event | None = None
        try:
            with process.starting:
                try:
                    await link.start(self._host.tasks, lock_fd=self._lease)
                    outcome = sig.Started(epoch)
                except StartFailed as exc:
                    outcome = sig.StartFailed(epoch, exc.permanent, str(exc))
                except RpcError as exc:
                    outcome = sig.StartFailed(epoch, False, exc.message)
        finally:
            process.started.set()
        if outcome:
            self.feed(outcome)

    def _take_over(self, link: Link, epoch: int) -> None:
        """A process that waited in the lobby becomes this session's."""
        link.epoch = epoch
        link.hold_lock(self._lease)
        link.adopt(self)
        process = self._processes[epoch] = _Process(link, anyio.CancelScope(), anyio.Event())
        process.started.set()
        self.feed(sig.Started(epoch))

    async def _open(self, epoch: int) -> None:
        link = self._processes[epoch].link
        self._replaying = True
        self.updates.new_process()
        opening = Reopening(
            link,
            self.setup,
            self.journal.info.agent_session_id,
            self.journal.turns_finished(),
            self._host.credentials,
            self.outlet.notice,
        )
        try:
            result = await opening.run()
            await self._adopt(link, result)
        except AuthNeeded as exc:
            self.feed(sig.NeedsAuth(epoch, exc.error))
        except Refused as exc:
            self.feed(sig.LoadRefused(epoch, exc.permanent, str(exc)))
        except RpcError as exc:
            self.feed(sig.LoadRefused(epoch, False, exc.message))
        else:
            self.feed(sig.Loaded(epoch))

    async def _adopt(self, link: Link, result: Json) -> None:
        """The process has the session: note its id, bring its settings up to the user's."""
        if link.agent_session_id != self.journal.info.agent_session_id:
            await self._host.journal.touch(self.id, agent_session_id=link.agent_session_id)
        link.adopt(self)
        known = self.choices.shown
        self.choices.note_result(self.updates.settings(result))
        calls, self._waiting_calls = self._waiting_calls, []
        try:
            await self.choices.restore(link, [(call.method, call.params) for call in calls])
            while calls:
                call = calls[0]
                answer = await self._ask_passed(link, call)
                calls.pop(0)
                self._passed_answer(call, answer)
                calls += self._waiting_calls
                self._waiting_calls.clear()
        finally:
            self._waiting_calls[:0] = calls
        for update in self.choices.news(known):
            self.outlet.show({"update": update})
        self.outlet.flush()

    async def _ask_passed(self, link: Link, call: Call) -> Answer:
        try:
            return Ok(await link.ask(call.method, self._for_agent(link, call.params)))
        except RpcError as exc:
            return Err(exc)

    async def _kill(self, epoch: int) -> None:
        process = self._processes.get(epoch)
        if process:
            process.starting.cancel()
            await process.started.wait()
            if not await process.link.kill():
                return
        self.feed(sig.TreeDead(epoch))

    async def _close_agent(self, epoch: int) -> None:
        link, grace = self._processes[epoch].link, self._host.settings.close_grace
        if link.can("sessionCapabilities", "close"):
            with anyio.move_on_after(grace):
                try:
                    await link.ask("session/close", {"sessionId": link.agent_session_id})
                except RpcError as exc:
                    event("agent.close_refused", session=self.id, what=exc.message)
        await link.close(grace)
        await self._kill(epoch)

    async def _finish(self) -> None:
        for process in list(self._processes.values()):
            process.starting.cancel()
            await process.link.kill()
        for call in self._waiting_calls:
            self._host.client.fail(call.id, errors.unknown_session())
        await self.journal.close()
        os.close(self._lease)
        self.closed.set()

    # --- what the agent says (agents.link.Owner) -----------------------------------------------

    def _phase(self, link: Link) -> Phase | None:
        """How to take what this process says now; None: not at all."""
        if link.epoch != self.machine.epoch:
            return None
        match self.machine.state:
            case State.IDLE | State.RUNNING | State.RELOADING if self._replaying:
                return Phase.REPLAY
            case State.IDLE if self.machine.tainted:
                return Phase.TAINTED
            case State.IDLE | State.RUNNING | State.DRAINING:
                return Phase.LIVE
            case _:
                return None

    def on_update(self, link: Link, params: Json) -> None:
        phase, update = self._phase(link), params.get("update")
        if phase is None or not isinstance(update, dict):
            return
        try:
            shown = self.updates.incoming(update, phase)
        except Leak:
            self._leaked(link)
            return
        if shown is None:
            return
        if not is_transcript(shown):
            self._note_state(shown)
        told = {key: value for key, value in params.items() if key != "sessionId"}
        told["update"] = shown
        self.outlet.show(told)

    def _note_state(self, update: Json) -> None:
        self.choices.note_update(update)
        if update.get("sessionUpdate") == "session_info_update" and "title" in update:
            title = update["title"]
            self._spawn(self._retitle, title if isinstance(title, str) else None)

    def _leaked(self, link: Link) -> None:
        event("agent.unclean", session=self.id, agent=link.name)
        self.feed(sig.Unclean(link.epoch))

    def on_agent_request(self, link: Link, call: Call) -> None:
        self.outlet.flush()
        phase = self._phase(link)
        if phase is None and self.machine.state is not State.STARTING:
            link.peer.fail(call.id, errors.cancelled())
            return
        tainted = phase is Phase.TAINTED
        stopped = tainted or self.machine.state is State.DRAINING
        try:
            changes = self.relay.forward(link, call, stopped=stopped)
        except Leak:
            link.peer.fail(call.id, errors.cancelled())
            changes = tainted = True
        if changes and tainted:
            self._leaked(link)

    def on_agent_notification(self, link: Link, method: str, params: Any) -> None:
        if method == "$/cancel_request" and isinstance(params, dict):
            self.relay.cancel_request(link, params.get("requestId"))
        elif link.epoch == self.machine.epoch and self.machine.state is not State.KILLING:
            self.outlet.flush()
            if isinstance(params, dict) and "sessionId" in params:
                params = {**params, "sessionId": self.id}
            self.outlet.then(lambda: self._host.client.notify(method, params))

    def on_batch_end(self, link: Link) -> None:
        if new := self.updates.take_new_ids():
            try:
                self.journal.add_ids(new)
            except JournalError as exc:
                event("journal.failed", session=self.id, what=exc)
        self.outlet.flush()

    async def room(self, link: Link) -> None:
        """Wait while the client doesn't read; while draining the agent is always read."""
        limit = self._host.settings.client_limit
        while self._host.writer.pending + self.outlet.held_bytes >= limit:
            if self.machine.state not in (State.IDLE, State.RUNNING):
                return
            with anyio.CancelScope() as self._room:
                if self.outlet.held_bytes:
                    await self.outlet.loaded.wait()
                else:
                    await self._host.writer.drain_below(limit)
            self._room = None

    def on_gone(self, link: Link, exit_: Exit | None) -> None:
        self.feed(sig.AgentExited(link.epoch, exit_))

    def on_dead(self, link: Link) -> None:
        self.feed(sig.TreeDead(link.epoch))

    def _close_cards(self) -> None:
        for update in self.updates.close_cards():
            self.outlet.show({"update": update})

    # --- what the client asks ------------------------------------------------------------------

    def on_cancel(self) -> None:
        """`session/cancel`."""
        self.feed(sig.Cancel())

    def on_cancel_request(self, request_id: object) -> bool:
        """`$/cancel_request`; False when the request is not of this session."""
        for key, prompt in self._prompts.items():
            if prompt.call and _same_id(prompt.call.id, request_id):
                self.feed(sig.CancelPrompt(key))
                return True
        if passed := self._passed.get(request_id):
            link, agent_request = passed
            link.peer.cancel(agent_request)
            return True
        return False

    def pass_on(self, call: Call) -> None:
        """A request for the agent: now, or when the process that comes is ready."""
        link = self.link
        if link is None:
            self._wait_for_agent(call)
            return
        request_id = link.request_for(
            call,
            call.method,
            self._for_agent(link, call.params),
            lambda answer: self._passed_answer(call, answer),
        )
        self._passed[call.id] = (link, request_id)

    def _wait_for_agent(self, call: Call) -> None:
        match self.machine.state:
            case State.COLD:
                self._waiting_calls.append(call)
                self.feed(sig.Warm())
            case State.BLOCKED:
                self.choices.forget(call.method, call.params)
                what = "the agent is not running; send a prompt to try again"
                self._host.client.fail(call.id, errors.agent_trouble(what))
            case State.CLOSED:
                self._host.client.fail(call.id, errors.unknown_session())
            case _:
                self._waiting_calls.append(call)

    def pass_notification(self, method: str, params: Json) -> None:
        """A notification for the agent; without a process it has nobody to go to."""
        if link := self.link:
            link.peer.notify(method, self._for_agent(link, params))

    def _for_agent(self, link: Link, params: Any) -> Any:
        if isinstance(params, dict) and "sessionId" in params:
            return {**params, "sessionId": link.agent_session_id}
        return params

    def _passed_answer(self, call: Call, answer: Answer) -> None:
        self._passed.pop(call.id, None)
        self.outlet.flush()
        if isinstance(answer, Ok):
            result = answer.result
            if isinstance(result, dict):
                result = self.updates.settings(result)
            self.choices.note_choice(call.method, call.params, result)
            answer = Ok(result)
        self.outlet.then(lambda: respond(self._host.client, call, answer))


def respond(client: Peer, call: Call, answer: Answer) -> None:
    """Answer a request of the client."""
    match answer:
        case Ok(result):
            client.answer(call.id, result)
        case Err(error):
            client.fail(call.id, error)


def _as_answer(outcome: sig.Outcome) -> Ok | Err:
    match outcome:
        case sig.Replied(answer) if isinstance(answer, Ok | Err):
            return answer
        case sig.Cancelled():
            return Ok({"stopReason": "cancelled"})
        case sig.Failed(why, detail):
            return Err(_failure(why, detail))
        case _:
            return Ok({"stopReason": "end_turn"})


def _failure(why: sig.Failure, detail: object) -> RpcError:
    match why:
        case sig.Failure.JOURNAL:
            return errors.agent_trouble("the prompt could not be written to the journal: not taken")
        case sig.Failure.AGENT_DIED:
            how = detail.describe() if isinstance(detail, Exit) else "it is gone"
            return errors.agent_trouble(
                f"the agent ended during the turn ({how}); the session goes on, the prompt is not"
                " sent again"
            )
        case sig.Failure.NEEDS_AUTH:
            return detail if isinstance(detail, RpcError) else errors.auth_required()
        case sig.Failure.CLOSED:
            return errors.unknown_session()
        case sig.Failure.NO_AGENT:
            why_not = detail.describe() if isinstance(detail, Exit) else detail
            told = f": {why_not}" if why_not else " in time"
            return errors.agent_trouble(f"the agent could not be made ready{told}")


def _as_json(answer: object) -> Json | None:
    match answer:
        case Ok(result):
            return result if isinstance(result, dict) else {"result": result}
        case Err(error):
            return {"error": error.to_wire()}
        case _:
            return None


def _short(answer: Ok | Err) -> object:
    if isinstance(answer, Err):
        return f"error {answer.error.code}"
    return answer.result.get("stopReason") if isinstance(answer.result, dict) else "?"


def _user_chunk(block: object) -> Json:
    return {"update": {"sessionUpdate": "user_message_chunk", "content": block}}


def _own_meta(params: Json) -> Json:
    meta = params.get("_meta")
    own = meta.get("acp_bridge") if isinstance(meta, dict) else None
    return own if isinstance(own, dict) else {}


def _without_own_meta(params: Json) -> Json:
    meta = params.get("_meta")
    if not isinstance(meta, dict) or "acp_bridge" not in meta:
        return params
    kept = {key: value for key, value in meta.items() if key != "acp_bridge"}
    rest = {key: value for key, value in params.items() if key != "_meta"}
    return {**rest, "_meta": kept} if kept else rest


def _same_id(one: object, other: object) -> bool:
    return type(one) is type(other) and one == other
