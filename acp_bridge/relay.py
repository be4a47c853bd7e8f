"""What an agent asks of the client in a session: permissions, files, terminals, questions.

- Ids are mapped both ways; the client never sees two requests of one id (HAZARDS P13).
- After a cancel the agent changes nothing through the client (C19), and what it waits for is
  answered at once (C15).
- What the client did not say it can do never reaches it.
- When a process is dead, its terminals are released and its requests are called back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from acp_bridge import errors
from acp_bridge.agents.link import Link
from acp_bridge.updates import Updates
from acp_bridge.wire.jsonrpc import Answer, Err, Ok
from acp_bridge.wire.peer import Call, Peer

PERMISSION = "session/request_permission"
_CREATE_TERMINAL = "terminal/create"
_RELEASE_TERMINAL = "terminal/release"
#: what changes something for the user: refused once the turn was cancelled.
_CHANGES = frozenset({"fs/write_text_file", _CREATE_TERMINAL, "elicitation/create"})
_CANCELLED = {"outcome": {"outcome": "cancelled"}}


@dataclass(slots=True)
class _Open:
    """A request that the client has not answered yet."""

    link: Link
    call: Call
    client_id: int = 0


class ClientAbilities:
    """What the client said in `initialize` that it can do."""

    def __init__(self, capabilities: object) -> None:
        self._capabilities = capabilities if isinstance(capabilities, dict) else {}

    def has(self, *path: str) -> bool:
        """Whether this is there: a true flag or an object."""
        at: Any = self._capabilities
        for key in path:
            at = at.get(key) if isinstance(at, dict) else None
        return at is not None and at is not False

    def allows(self, method: str, params: object) -> bool:
        """Whether the client takes this request of an agent (spec: client capabilities)."""
        match method:
            case "fs/read_text_file":
                return self.has("fs", "readTextFile")
            case "fs/write_text_file":
                return self.has("fs", "writeTextFile")
            case "elicitation/create":
                mode = params.get("mode") if isinstance(params, dict) else None
                return isinstance(mode, str) and self.has("elicitation", mode)
            case _:
                return not method.startswith("terminal/") or self.has("terminal")


class Relay:
    """One session's requests from its agents to the client; `session_id` None: of no session."""

    def __init__(
        self, session_id: str | None, client: Peer, abilities: ClientAbilities, updates: Updates
    ) -> None:
        self._session_id = session_id
        self._client = client
        self._abilities = abilities
        self._updates = updates
        self._open: dict[int, _Open] = {}
        self._terminals: dict[str, Link] = {}
        self._last = 0

    def forward(self, link: Link, call: Call, *, stopped: bool) -> bool:
        """Pass a request to the client; `stopped`: the turn was cancelled. True when it was
        refused for that."""
        if stopped and call.method == PERMISSION:
            link.peer.answer(call.id, _CANCELLED)
            return True
        if stopped and call.method in _CHANGES:
            link.peer.fail(call.id, errors.cancelled())
            return True
        if self._abilities.allows(call.method, call.params):
            self._ask_client(link, call)
        else:
            link.peer.fail(call.id, errors.unknown_method(call.method))
        return False

    def cancel_questions(self) -> None:
        """The turn was cancelled: permissions and elicitations end now, whatever the client
        does with them."""
        for key, asked in list(self._open.items()):
            if asked.call.method == PERMISSION:
                self._call_back(key)
                asked.link.peer.answer(asked.call.id, _CANCELLED)
            elif asked.call.method == "elicitation/create":
                self._call_back(key)
                asked.link.peer.fail(asked.call.id, errors.cancelled())

    def cancel_request(self, link: Link, request_id: object) -> None:
        """`$/cancel_request` of the agent for one of its own requests."""
        for asked in self._open.values():
            if asked.link is link and asked.call.id == request_id:
                self._client.cancel(asked.client_id)
                return

    def release(self, link: Link) -> None:
        """The process is dead: release its terminals, call back its requests."""
        for key, asked in list(self._open.items()):
            if asked.link is link:
                self._call_back(key)
        for terminal, owner in list(self._terminals.items()):
            if owner is link:
                del self._terminals[terminal]
                params = {"sessionId": self._session_id, "terminalId": terminal}
                self._client.request(_RELEASE_TERMINAL, params, lambda answer: None)

    def _call_back(self, key: int) -> None:
        self._client.cancel(self._open.pop(key).client_id)

    def _ask_client(self, link: Link, call: Call) -> None:
        self._last += 1
        key, asked = self._last, _Open(link, call)
        self._open[key] = asked
        asked.client_id = self._client.request(
            call.method,
            self._for_client(link, call.params),
            lambda answer: self._answered(key, answer),
        )

    def _answered(self, key: int, answer: Answer) -> None:
        asked = self._open.pop(key, None)
        if asked is None:
            self._late_terminal(answer)
            return
        link, call = asked.link, asked.call
        match answer:
            case Ok(result):
                self._note_terminal(link, call, result)
                link.peer.answer(call.id, result)
            case Err(error):
                link.peer.fail(call.id, error)

    def _note_terminal(self, link: Link, call: Call, result: object) -> None:
        if call.method == _CREATE_TERMINAL and isinstance(result, dict):
            terminal = result.get("terminalId")
            if isinstance(terminal, str):
                self._terminals[terminal] = link
        elif call.method == _RELEASE_TERMINAL and isinstance(call.params, dict):
            self._terminals.pop(str(call.params.get("terminalId")), None)

    def _late_terminal(self, answer: Answer) -> None:
        """A terminal that the client made after its agent was dead: nobody else releases it."""
        if isinstance(answer, Ok) and isinstance(answer.result, dict):
            terminal = answer.result.get("terminalId")
            if isinstance(terminal, str):
                params = {"sessionId": self._session_id, "terminalId": terminal}
                self._client.request(_RELEASE_TERMINAL, params, lambda answer: None)

    def _for_client(self, link: Link, params: Any) -> Any:
        if not isinstance(params, dict):
            return params
        changed = dict(params)
        if "sessionId" in changed and self._session_id is not None:
            changed["sessionId"] = self._session_id
        on_behalf = changed.get("requestId")
        if isinstance(on_behalf, int) and on_behalf in link.on_behalf:
            changed["requestId"] = link.on_behalf[on_behalf]
        tool_call = changed.get("toolCall")
        if isinstance(tool_call, dict):
            changed["toolCall"] = self._updates.card(tool_call)
        tool_call_id = changed.get("toolCallId")
        if isinstance(tool_call_id, str):
            changed["toolCallId"] = self._updates.client_card_id(tool_call_id)
        return changed
