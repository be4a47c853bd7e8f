"""Requests of the clients that are for the agent: passed on now, or when it is ready.

Settings and whatever the bridge does not know go this way; answers come back as they were given.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from functools import partial
from typing import Any, Final, assert_never

import anyio
from msgspec import Struct, field

from acp_bridge.core import errors, protocol
from acp_bridge.core.agents.link import Link
from acp_bridge.core.clients.client import Client, ClientRequest
from acp_bridge.core.machine import events as ev
from acp_bridge.core.machine.states import Passing
from acp_bridge.core.protocol import Json
from acp_bridge.core.runtime import waits
from acp_bridge.core.runtime.log import event
from acp_bridge.core.session.core import Core, SessionState
from acp_bridge.core.session.requests.user_settings import UserSettings
from acp_bridge.core.session.transcript.transcript_out import TranscriptOut
from acp_bridge.core.updates.updates import Updates
from acp_bridge.core.wire.jsonrpc import Answer, Err, Ok, RpcError

_SETTINGS: Final = (protocol.SET_MODE, protocol.SET_MODEL, protocol.SET_CONFIG_OPTION)
#: what an agent answers quickly, if at all. Other requests may last as long as a turn.
_BOUNDED: Final = (*_SETTINGS, protocol.SESSION_FORK)


class Asked(Struct, eq=False):
    """A request on its way to the agent, and the function that gets its one answer."""

    request: ClientRequest
    tell: Callable[[Answer], None]
    method: str
    params: Any
    #: it is asked beside the session: nothing of the session depends on it, or waits for it.
    beside: bool = False
    #: gets the agent's answer if it comes after the request was given up.
    tell_late: Callable[[Link, Answer], None] | None = None
    #: the process that has it, and its id there.
    link: Link | None = None
    agent_request: int = 0
    #: which request of the session it is, in the order in which they came.
    number: int = 0
    #: the process was told that nobody waits for the answer.
    called_back: bool = False
    #: set when it is answered, by the agent or in its place.
    settled: anyio.Event = field(default_factory=anyio.Event)

    @property
    def waits_for_next(self) -> bool:
        """True if the next process is to have it, as its session has left the one that has it."""
        open_here = self.agent_request and not (self.beside or self.called_back)
        return bool(open_here) and self.method in _BOUNDED


def for_agent(link: Link, params: Any) -> Any:
    """Return parameters with the agent's id of the session in the place of ours."""
    if isinstance(params, dict) and "sessionId" in params:
        return {**params, "sessionId": link.agent_session_id}
    return params


class ToAgent:
    """One session's requests to its agent."""

    def __init__(
        self,
        core: Core,
        transcript: TranscriptOut,
        user_settings: UserSettings,
        updates: Updates,
        wake: Callable[[], None],
        patience: float = waits.REQUEST,
    ) -> None:
        """`wake` has a process started if there is none, or a provisional one replaced.

        `patience`: seconds for the agent to take a setting, or to fork the session.
        """
        self._core = core
        self._wake = wake
        self._transcript = transcript
        self._user_settings = user_settings
        self._updates = updates
        self._patience = patience
        self._came = 0
        #: requests that came while the agent was not ready, in order.
        self.deferred: list[Asked] = []
        #: requests that the agent has.
        self.passed: list[Asked] = []

    @property
    def busy(self) -> bool:
        """True while the agent has a request about the session that is not answered yet."""
        return any(not each.beside for each in self.passed)

    @property
    def has_long_request(self) -> bool:
        """True while the agent has a request that may last as long as a turn."""
        return bool(self.passed) and any(each.method not in _BOUNDED for each in self.passed)

    def cancel(self, client: Client, request_id: object) -> bool:
        """Carry out a client's `$/cancel_request`; False when the request is not here.

        An agent that has the request may answer it itself; it is not waited for long.
        """
        for asked in (*self.deferred, *self.passed):
            if asked.request.is_of(client, request_id):
                self._cancel(asked)
                return True
        return False

    def _cancel(self, asked: Asked) -> None:
        if not asked.link:
            self._settle(asked, Err(errors.cancelled()))
        else:
            self._call_back(asked)
            patience = anyio.move_on_after(waits.AGENT_PATIENCE)
            self._core.spawn(self._limit, asked, patience, errors.cancelled())

    def pass_on(self, request: ClientRequest) -> None:
        """Send a request to the agent, now or when the process that comes is ready."""
        self._transcript.end_quiet(request.client)
        self._begin(Asked(request, partial(self._answer, request), request.method, request.params))

    async def ask(self, request: ClientRequest) -> Any:
        """Return the agent's result for a request of the client for a fork; raises RpcError.

        A caller that is cancelled gives the request up, and the agent is told so; a fork that is
        made all the same is closed.
        """
        answers: list[Answer] = []
        tell, late = answers.append, Link.close_late
        asked = Asked(request, tell, request.method, request.params, tell_late=late)
        return await self._result(asked, answers)

    async def ask_beside(
        self,
        request: ClientRequest,
        method: str,
        params: Json,
        tell_late: Callable[[Link, Answer], None] | None = None,
    ) -> tuple[Link, Any]:
        """Return the process that answered a client's request, and its result, as `ask` does.

        Nothing in the session waits for it. `tell_late` takes an answer to a request given up.
        """
        answers: list[Answer] = []
        asked = Asked(request, answers.append, method, params, beside=True, tell_late=tell_late)
        result = await self._result(asked, answers)
        assert asked.link is not None  # it gave the result
        return asked.link, result

    async def _result(self, asked: Asked, answers: list[Answer]) -> Any:
        self._begin(asked)
        try:
            await asked.settled.wait()
        finally:
            if not answers:
                self._give_up(asked, errors.cancelled())
        match answers[0]:
            case Ok(result):
                return result
            case Err(error):
                raise error

    def _begin(self, asked: Asked) -> None:
        self._came += 1
        asked.number = self._came
        self._take(asked)

    def _take(self, asked: Asked) -> None:
        match self._core.now.permits.requests:
            case Passing.SETTINGS if asked.method not in _SETTINGS:
                self.deferred.append(asked)
                self._wake()
            case Passing.NOW | Passing.SETTINGS:
                link = self._core.link
                assert link is not None  # or no request may pass
                self._send(link, asked)
            case Passing.STARTS | Passing.WAITS:
                self.deferred.append(asked)
                self._wake()
            case Passing.REFUSED:
                self._user_settings.forget(asked.method, asked.params)
                what = "the agent is not running; send a prompt to try again"
                if self._core.now.taken:
                    what = "another machine has this session, so no agent runs for it here"
                self._settle(asked, Err(errors.agent_trouble(what)))
            case Passing.GONE:
                self._settle(asked, Err(errors.unknown_session()))
            case never:
                assert_never(never)

    def _send(self, link: Link, asked: Asked) -> None:
        """Send a request to a process; the next one has it, too, if the session leaves this one."""
        asked.link, params = link, for_agent(link, asked.params)
        if not asked.beside and asked.method not in _BOUNDED:
            self._begin_work(params)
        try:
            answered = partial(self._answered, asked)
            request_id = link.request_for(asked.request, asked.method, params, answered)
        except Exception as exc:  # nothing was sent (invariant Q9)
            self._settle(asked, Err(errors.internal(exc, f"{asked.method} could not be passed on")))
            return
        if asked.settled.is_set():  # a process that is gone answers at once
            return
        asked.agent_request = request_id
        self.passed.append(asked)
        self._core.settle()
        if asked.method in _BOUNDED:
            silence = link.at_clients.limit(self._patience)
            error = errors.silent(asked.method, self._patience)
            self._core.spawn(self._limit, asked, silence, error)

    def _answered(self, asked: Asked, answer: Answer) -> None:
        ended = isinstance(answer, Err) and isinstance(answer.error, errors.AgentEnded)
        left = ended and asked.link is not None and asked.link.has_left
        if left and asked.waits_for_next:
            self.passed.remove(asked)
            asked.link = None
            before = sum(each.number < asked.number for each in self.deferred)
            self.deferred.insert(before, asked)
            self._core.settle()
        else:
            self._settle(asked, answer)

    def _begin_work(self, params: Any) -> None:
        """Note that a request may start work at the agent: the updates that follow are no leak."""
        if self._core.now.running is None:
            prompt = params.get("prompt") if isinstance(params, dict) else None
            self._updates.new_work(prompt if isinstance(prompt, list) else ())
            self._transcript.end_quiet_of_all()
        self._core.feed(ev.WorkAsked())

    async def _limit(
        self, asked: Asked, patience: AbstractContextManager[object], error: RpcError
    ) -> None:
        """Answer a request with this error if the agent does not answer it in time."""
        link = asked.link
        with suppress(TimeoutError), patience:
            await asked.settled.wait()
        if not asked.settled.is_set() and asked.link is link:
            event("agent.silent", method=asked.method)
            self._give_up(asked, error)

    def _give_up(self, asked: Asked, error: RpcError) -> None:
        self._call_back(asked)
        self._settle(asked, Err(error))

    def _call_back(self, asked: Asked) -> None:
        if asked.link and not asked.called_back:
            asked.called_back = True
            asked.link.peer.cancel(asked.agent_request)

    def _settle(self, asked: Asked, answer: Answer) -> None:
        """Give the request its one answer; of a later one only note what the agent has set."""
        if asked.settled.is_set():
            if asked.tell_late and asked.link:
                asked.tell_late(asked.link, answer)
            elif not asked.beside:
                self._take_late(asked.request, answer)
            return
        asked.settled.set()
        for waiting in (self.deferred, self.passed):
            if asked in waiting:
                waiting.remove(asked)
        asked.tell(answer)
        self._core.settle()

    def _take_late(self, request: ClientRequest, answer: Answer) -> None:
        if isinstance(answer, Ok):
            for update in self._set(request, answer.result):
                self._transcript.show({"update": update})
            self._transcript.flush()

    def _set(self, request: ClientRequest, result: object) -> list[Json]:
        """Note the setting that a client has made; returns the updates that tell the others."""
        settings, known = self._user_settings, self._user_settings.shown
        settings.note_choice(request.method, request.params, result)
        return settings.news(known)

    def follow(self, before: SessionState, after: SessionState) -> None:
        """Send or refuse the deferred requests, since no process is on its way any more."""
        deferred, self.deferred = self.deferred, []
        for asked in deferred:
            self._take(asked)

    async def send_deferred(self, link: Link) -> None:
        """Send the deferred requests to a process that is being given the session, one by one.

        Requests that the process was not sent before its end wait for the next one. Ends without
        a step between the last answer and the return, so that none is overtaken by the next prompt.
        """
        while self.deferred and not link.gone:
            asked = self.deferred.pop(0)
            self._send(link, asked)
            if not asked.beside:
                await asked.settled.wait()

    def pass_notification(self, method: str, params: Json) -> None:
        """Send a notification to the agent; without a process it goes to nobody."""
        if link := self._core.link:
            self.notify(link, method, params)

    def notify(self, link: Link, method: str, params: Json) -> None:
        """Send a notification to a process that has the session, or is being given it."""
        if method.startswith("_"):  # the agent's own may start work, as requests may
            self._begin_work(params)
        link.peer.notify(method, for_agent(link, params))

    def _answer(self, request: ClientRequest, answer: Answer) -> None:
        told = answer
        try:
            if isinstance(answer, Ok):
                for update in self._set(request, answer.result):
                    self._transcript.tell_others(request.client, {"update": update})
                if isinstance(answer.result, dict):
                    told = Ok(request.client.abilities.fit(answer.result))
        finally:  # whatever breaks, the request is answered (invariant Q9)
            sets = request.method in _BOUNDED
            self._transcript.then(request.client, lambda: request.respond(told), sets_state=sets)
