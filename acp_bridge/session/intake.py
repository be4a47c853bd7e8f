"""What the session's agents say, and how it is to be taken just now (agents.link.Owner)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio

from acp_bridge import errors
from acp_bridge import signals as sig
from acp_bridge.agents.link import Link
from acp_bridge.agents.process import Exit
from acp_bridge.journal import JournalError
from acp_bridge.log import event
from acp_bridge.turns import State
from acp_bridge.updates import Leak, Phase, is_state
from acp_bridge.wire.peer import Call

if TYPE_CHECKING:
    from acp_bridge.session.session import Session

Json = dict[str, Any]
#: the states in which an agent is read only as fast as the client reads.
_PACED = frozenset({State.IDLE, State.RUNNING})


class Intake:
    """Updates, requests and the end of a session's processes."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._replaying = False
        self._pause: anyio.CancelScope | None = None
        # The phase of a process holds until the next event; a read brings hundreds of updates.
        self._phased: Link | None = None
        self._phase: Phase | None = None

    def expect_replay(self) -> None:
        """A process is given the session: what it replays is known, until the next prompt."""
        self._replaying = True
        self._phased = None
        self._session.updates.new_process()

    def begin_turn(self, prompt: list[Any]) -> None:
        """A prompt goes out: from now on the agent says something new."""
        self._replaying = False
        self._session.updates.new_turn(prompt)

    def phase(self, link: Link) -> Phase | None:
        """How to take what this process says now; None: not at all."""
        machine = self._session.machine
        if link.epoch != machine.epoch:
            return None
        match machine.state:
            case State.IDLE | State.RELOADING if self._replaying:
                return Phase.REPLAY
            case State.IDLE if machine.tainted:
                return Phase.TAINTED
            case State.IDLE | State.RUNNING | State.DRAINING:
                return Phase.LIVE
            case _:
                return None

    def _authenticates(self, link: Link) -> bool:
        """Whether this process may ask the user something before it has the session."""
        machine = self._session.machine
        return link.epoch == machine.epoch and machine.state in (State.STARTING, State.BLOCKED)

    # --- Owner ---------------------------------------------------------------------------------

    def on_update(self, link: Link, params: Json) -> None:
        if link is not self._phased:
            self._phased, self._phase = link, self.phase(link)
        phase, update = self._phase, params.get("update")
        if phase is None or not isinstance(update, dict):
            return
        if not isinstance(update.get("sessionUpdate"), str):
            event("agent.noise", agent=link.name, what="an update without a kind")
            return
        try:
            shown = self._session.updates.incoming(update, phase)
        except Leak:
            self._leaked(link)
            return
        if shown is None:
            return
        if is_state(shown):
            self._session.note_state(shown)
        if len(params) == 2:  # the usual: sessionId and update
            self._session.outlet.show({"update": shown})
        else:
            rest = {key: value for key, value in params.items() if key != "sessionId"}
            self._session.outlet.show({**rest, "update": shown})

    def on_agent_request(self, link: Link, call: Call) -> None:
        session = self._session
        session.outlet.flush()
        phase = self.phase(link)
        if phase is None and not self._authenticates(link):
            link.peer.fail(call.id, errors.cancelled())
            return
        tainted = phase is Phase.TAINTED
        try:
            stopped = tainted or session.machine.state is State.DRAINING
            refused = session.relay.forward(link, call, stopped=stopped)
        except Leak:
            link.peer.fail(call.id, errors.cancelled())
            refused = tainted = True
        if refused and tainted:
            self._leaked(link)

    def on_agent_notification(self, link: Link, method: str, params: Any) -> None:
        session = self._session
        if method == "$/cancel_request" and isinstance(params, dict):
            session.relay.cancel_request(link, params.get("requestId"))
        elif link.epoch == session.machine.epoch and session.machine.state is not State.KILLING:
            session.outlet.flush()
            if isinstance(params, dict) and "sessionId" in params:
                params = {**params, "sessionId": session.id}
            session.outlet.then(lambda: session.host.client.notify(method, params))

    def on_batch_end(self, link: Link) -> None:
        session = self._session
        if new := session.updates.take_new_ids():
            try:
                session.journal.add_ids(new)
            except JournalError as exc:
                event("journal.failed", session=session.id, what=exc)
        session.outlet.flush()

    async def room(self, link: Link) -> None:
        """Wait while the client doesn't read; while draining the agent is always read."""
        session, limit = self._session, self._session.host.settings.client_limit
        while session.host.writer.pending + session.outlet.held_bytes >= limit:
            if session.machine.state not in _PACED:
                return
            event("client.slow", session=session.id)
            with anyio.CancelScope() as self._pause:
                if session.outlet.held_bytes:
                    await session.outlet.loaded.wait()
                else:
                    await session.host.writer.drain_below(limit)
            self._pause = None

    def look_again(self) -> None:
        """The machine's state may have changed: who waits for the client need not any more."""
        self._phased = None
        if self._pause and self._session.machine.state not in _PACED:
            self._pause.cancel()

    def on_gone(self, link: Link, exit_: Exit | None) -> None:
        self._session.feed(sig.AgentExited(link.epoch, exit_))

    def on_dead(self, link: Link) -> None:
        self._session.feed(sig.TreeDead(link.epoch))

    def _leaked(self, link: Link) -> None:
        event("agent.unclean", session=self._session.id, agent=link.name)
        self._session.feed(sig.Unclean(link.epoch))
