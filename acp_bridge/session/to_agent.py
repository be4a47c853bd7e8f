"""Requests of the clients that are for the agent: passed on now, or when it is ready.

Settings and whatever else the bridge does not know go this way; the answers come back as the
agent gave them.
"""

from __future__ import annotations

from typing import Any, Protocol, assert_never

import anyio

from acp_bridge import errors, protocol
from acp_bridge.agents.link import Link
from acp_bridge.clients.client import Client, ClientRequest
from acp_bridge.machine.states import Passing
from acp_bridge.protocol import Json, user_chunk
from acp_bridge.session.transcript_out import TranscriptOut
from acp_bridge.session.user_settings import UserSettings
from acp_bridge.wire.jsonrpc import Answer, Ok


class ToAgentPort(Protocol):
    """What is needed of the session: its process, and what its state permits."""

    @property
    def link(self) -> Link | None:
        """The process that has the session open and takes requests, or None."""

    @property
    def passing(self) -> Passing:
        """What becomes of a request now."""

    def wake(self) -> None:
        """Have a process started if there is none."""


def for_agent(link: Link, params: Any) -> Any:
    """Return parameters with the agent's id of the session in the place of ours."""
    if isinstance(params, dict) and "sessionId" in params:
        return {**params, "sessionId": link.agent_session_id}
    return params


class ToAgent:
    """One session's requests to its agent."""

    def __init__(
        self, port: ToAgentPort, transcript: TranscriptOut, user_settings: UserSettings
    ) -> None:
        """No request is here yet."""
        self._port = port
        self._transcript = transcript
        self._user_settings = user_settings
        #: requests that came while the agent was not ready, in order.
        self._deferred: list[ClientRequest] = []
        #: requests that the agent has, with the process and their id there.
        self._passed: dict[ClientRequest, tuple[Link, int]] = {}

    @property
    def busy(self) -> bool:
        """True while the agent has a request that is not answered yet."""
        return bool(self._passed)

    def cancel(self, client: Client, request_id: object) -> bool:
        """Take a client's `$/cancel_request`; False when the request is not here."""
        for request in self._deferred:
            if request.is_of(client, request_id):
                self._deferred.remove(request)
                request.fail(errors.cancelled())
                return True
        for request, (link, agent_request) in self._passed.items():
            if request.is_of(client, request_id):
                link.peer.cancel(agent_request)
                return True
        return False

    def pass_on(self, request: ClientRequest) -> None:
        """Send a request to the agent, now or when the process that comes is ready."""
        self._transcript.wake(request.client)
        match self._port.passing:
            case Passing.NOW:
                if (link := self._port.link) is None:
                    raise RuntimeError("a request may pass, and there is no process")
                self._send(link, request)
            case Passing.STARTS | Passing.WAITS:
                self._deferred.append(request)
                self._port.wake()
            case Passing.REFUSED:
                self._user_settings.forget(request.method, request.params)
                what = "the agent is not running; send a prompt to try again"
                request.fail(errors.agent_trouble(what))
            case Passing.GONE:
                request.fail(errors.unknown_session())
            case never:
                assert_never(never)

    def _send(self, link: Link, request: ClientRequest) -> anyio.Event:
        """Send a request; returns the event of its answer."""
        answered = anyio.Event()

        def on_answer(answer: Answer) -> None:
            answered.set()
            self._answered(request, answer)

        params = for_agent(link, request.params)
        request_id = link.request_for(request, request.method, params, on_answer)
        if request_id in link.on_behalf:  # else it was answered at once
            self._passed[request] = (link, request_id)
        return answered

    def look_again(self) -> None:
        """Take what was deferred again, unless a process is on its way still."""
        if self._deferred and self._port.passing is not Passing.WAITS:
            requests, self._deferred = self._deferred, []
            for request in requests:
                self.pass_on(request)

    def deferred_settings(self) -> list[tuple[str, Any]]:
        """Return method and parameters of what waits, in order."""
        return [(request.method, request.params) for request in self._deferred]

    async def send_deferred(self, link: Link) -> None:
        """Send what waits to a process that is being given the session, one after the other.

        What a process was not asked before its end waits for the next one. Ends without a step
        between the last answer and the return, so that none is overtaken by the next prompt.
        """
        while self._deferred and not link.gone:
            await self._send(link, self._deferred.pop(0)).wait()

    def _note_steering(self, request: ClientRequest, result: object) -> None:
        """Record what the user said into the running turn, if the agent took it there."""
        match request.method, request.params, result:
            case protocol.STEERING, {"prompt": list(blocks)}, {"outcome": outcome}:
                if outcome != "promptRequired":
                    for block in blocks:
                        self._transcript.record_only({"update": user_chunk(block)})

    def pass_notification(self, method: str, params: Json) -> None:
        """Send a notification to the agent; without a process it goes to nobody."""
        if link := self._port.link:
            link.peer.notify(method, for_agent(link, params))

    def _answered(self, request: ClientRequest, answer: Answer) -> None:
        self._passed.pop(request, None)
        if isinstance(answer, Ok):
            result = answer.result
            self._note_steering(request, result)
            self._user_settings.note_choice(request.method, request.params, result)
            if isinstance(result, dict):
                answer = Ok(request.client.abilities.fit(result))
        self._transcript.then(request.client, lambda: request.respond(answer))
