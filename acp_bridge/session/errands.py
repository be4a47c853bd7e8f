"""Requests of the client that are for the agent: passed on, now or when it is ready.

Settings and whatever else the bridge does not know go this way; the answers come back as the
agent gave them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from acp_bridge import errors
from acp_bridge import signals as sig
from acp_bridge.agents.link import Link
from acp_bridge.session import answers
from acp_bridge.turns import State
from acp_bridge.wire.jsonrpc import Answer, Ok
from acp_bridge.wire.peer import Call

if TYPE_CHECKING:
    from acp_bridge.session.session import Session

Json = dict[str, Any]
#: the states on the way to a process: what is passed on waits for it.
_COMING = frozenset({State.STARTING, State.RELOADING, State.KILLING})


def for_agent(link: Link, params: Any) -> Any:
    """Parameters with the agent's id of the session."""
    if isinstance(params, dict) and "sessionId" in params:
        return {**params, "sessionId": link.agent_session_id}
    return params


class Errands:
    """One session's requests to its agent."""

    def __init__(self, session: Session) -> None:
        #: those that came while the agent was not ready, in order.
        self.waiting: list[Call] = []
        self._session = session
        self._passed: dict[object, tuple[Link, int]] = {}

    def cancel(self, request_id: object) -> bool:
        """`$/cancel_request`; False when the request is not here."""
        for call in self.waiting:
            if call.id == request_id:
                self.waiting.remove(call)
                self._session.host.client.fail(call.id, errors.cancelled())
                return True
        if passed := self._passed.get(request_id):
            link, agent_request = passed
            link.peer.cancel(agent_request)
            return True
        return False

    def pass_on(self, call: Call) -> None:
        """A request for the agent: now, or when the process that comes is ready."""
        if link := self._session.link:
            request_id = link.request_for(
                call,
                call.method,
                for_agent(link, call.params),
                lambda answer: self.answer(call, answer),
            )
            self._passed[call.id] = (link, request_id)
            return
        match self._session.machine.state:
            case State.BLOCKED:
                self._session.choices.forget(call.method, call.params)
                what = "the agent is not running; send a prompt to try again"
                self._session.host.client.fail(call.id, errors.agent_trouble(what))
            case State.CLOSED:
                self._session.host.client.fail(call.id, errors.unknown_session())
            case _:
                self.waiting.append(call)
                self._session.feed(sig.Warm())

    def look_again(self) -> None:
        """No process is coming any more: say so; one is there: ask it."""
        if self.waiting and self._session.machine.state not in _COMING:
            calls, self.waiting = self.waiting, []
            for call in calls:
                self.pass_on(call)

    def pass_notification(self, method: str, params: Json) -> None:
        """A notification for the agent; without a process it has nobody to go to."""
        if link := self._session.link:
            link.peer.notify(method, for_agent(link, params))

    def answer(self, call: Call, answer: Answer) -> None:
        """The agent answered a request that was passed on."""
        self._passed.pop(call.id, None)
        self._session.outlet.flush()
        if isinstance(answer, Ok):
            result = answer.result
            if isinstance(result, dict):
                result = self._session.updates.settings(result)
            self._session.choices.note_choice(call.method, call.params, result)
            answer = Ok(result)
        self._session.outlet.then(lambda: answers.respond(self._session.host.client, call, answer))
