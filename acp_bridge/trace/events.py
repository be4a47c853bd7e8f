"""Turns the lines of one connection into events of a trace, a line of JSON each. Sans-IO.

The format is that of the conductor of the protocol's Rust SDK (`agent-client-protocol-conductor`
2.2): requests, responses and notifications between named components. docs/trace.md has it.

- Of a login or a provider's settings there is no event, neither for the request nor for its answer;
  of MCP servers, and of commands in a client's terminal, there are no environments and no headers;
  of a system prompt there is no content.
- Ids are made unique in the trace, since several connections meet at the bridge.
- A line that is no message, or that answers nothing, makes no event.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Any, Final

from acp_bridge.core.protocol import (
    AUTHENTICATE,
    CANCEL_REQUEST,
    CREATE_TERMINAL,
    SESSION_UPDATE,
    SYSTEM_PROMPT,
    Json,
    as_object,
    without,
)
from acp_bridge.core.wire.jsonrpc import (
    DEFAULT_LIMIT,
    Malformed,
    Message,
    RequestId,
    encode,
    is_id,
    read_object,
)
from acp_bridge.core.wire.plain_json import plain_loads
from acp_bridge.versions.v2 import AUTH_LOGIN

#: the component that a bridge is.
BRIDGE: Final = "Proxy(0)"
_SERVERS: Final = "mcpServers"
#: a line with one of these may have a secret.
_IN_LINE: Final = _SERVERS.encode()
_PROMPT: Final = SYSTEM_PROMPT.encode()
_KEPT_BACK: Final = frozenset({"env", "headers"})
_PROVIDERS: Final = "providers/"
#: how nearly every line begins. The rest of such a line is the end of its event, too.
_UPDATE: Final = f'{{"jsonrpc":"2.0","method":"{SESSION_UPDATE}","params":'.encode()
_BEGUN: Final = len(_UPDATE)
#: how many members a message has that is an update and nothing more.
_MEMBERS: Final = 3
_PARAMS: Final = b'"params"'
#: begins the escape of a letter that may be one of a member's name.
_ESCAPED: Final = b"\\u00"
#: stands for the parsed messages where no decoder has parsed the lines.
_UNREAD: Final = repeat(None)


class Direction:
    """Makes events of the lines from `sender` to `receiver`, one of which is the bridge."""

    def __init__(self, sender: str, receiver: str, *, trusted: bool) -> None:
        """`trusted`: the lines are the bridge's own, so each of them is JSON."""
        self._sender, self._receiver, self._trusted = sender, receiver, trusted
        #: the ids of the unanswered requests among the lines, and whether each has an event.
        self._asked: dict[RequestId, bool] = {}
        self._partial = bytearray()
        update = {"protocol": "acp", "from": sender, "to": receiver, "method": SESSION_UPDATE}
        self._update = encode(update)[1:-2] + b',"params":'
        #: how the event of an update begins, and the time in seconds for which that holds.
        self._head, self._at = b"", -1.0
        #: the other direction of the connection, in which the answers go.
        self.back: Direction = self

    def feed(self, data: bytes, seconds: float) -> list[bytes]:
        """Return the events of the lines that end in `data`; the rest is kept for the next call.

        `seconds`: the time since the trace began. A line that is too long makes no event.
        """
        *lines, rest = data.split(b"\n")
        if lines and self._partial:
            lines[0] = bytes(self._partial) + lines[0]
            self._partial = bytearray()
        if rest:
            self._partial += rest[: DEFAULT_LIMIT - len(self._partial)]
        return self.events(lines, seconds)

    def events(
        self,
        lines: Iterable[bytes],
        seconds: float,
        messages: Sequence[Message | Malformed] | None = None,
    ) -> list[bytes]:
        """Return the events of whole lines, which are given without their newlines.

        `seconds`: the time since the trace began; `messages`: what a `Decoder` has made of each
        line; without it the lines are parsed here.
        """
        if seconds != self._at:
            self._head = b'{"type":"notification","ts":%.6f,%b' % (seconds, self._update)
            self._at = seconds
        events: list[bytes] = []
        head = self._head
        for line, message in zip(lines, _UNREAD if messages is None else messages, strict=False):
            if (
                line.startswith(_UPDATE)
                and _IN_LINE not in line
                and _PROMPT not in line
                and (self._trusted or _is_update(line, message))
            ):
                events.append(head + line[_BEGUN:] + b"\n")
            elif line and (event := self._event(line, seconds)):
                events.append(event)
        return events

    def _event(self, line: bytes, seconds: float) -> bytes | None:
        message = read_object(line)
        if message is None or not is_id(message.get("id")):
            return None
        try:
            event = self._of(message, round(seconds, 6))
            return encode(event) if event else None
        except (ValueError, TypeError, RecursionError):  # deeper than JSON is written
            return None

    def _of(self, message: Json, seconds: float) -> Json | None:
        method = message.get("method")
        if not isinstance(method, str):
            return self._answer(message, seconds)
        told = not _is_secret(method)
        request = "id" in message
        if request:  # of two requests with one id it isn't known which is answered
            self._asked[message["id"]] = told and self._asked.get(message["id"], True)
        if not told:
            return None
        event: Json = {"type": "request" if request else "notification", "ts": seconds}
        event |= {"protocol": "acp", "from": self._sender, "to": self._receiver}
        if request:
            event["id"] = _unique(self._sender, message["id"])
        return event | {"method": method, "params": self._params(method, message.get("params"))}

    def _answer(self, message: Json, seconds: float) -> Json | None:
        request_id = message.get("id")
        if "id" not in message or not self.back._asked.pop(request_id, False):
            return None
        failed = message.get("error") is not None
        payload = message["error"] if failed else message.get("result")
        event: Json = {"type": "response", "ts": seconds, "from": self._sender}
        event |= {"to": self._receiver, "id": _unique(self._receiver, request_id)}
        return event | {"is_error": failed, "payload": _without_secrets(payload)}

    def _params(self, method: str, params: Any) -> Any:
        shown = _without_secrets(params, among_servers=method == CREATE_TERMINAL)
        if method == CANCEL_REQUEST and isinstance(shown, dict) and "requestId" in shown:
            shown["requestId"] = _unique(self._sender, shown["requestId"])
        return shown


def _is_update(line: bytes, message: Message | Malformed | None) -> bool:
    """Return True if a line that begins like a `session/update` is one without further members.

    `message`: the parsed line; None: it is parsed here.
    """
    if message is None:
        try:
            message = plain_loads(line)
        except ValueError:
            return False
    return (
        type(message) is dict
        and len(message) == _MEMBERS
        and message["method"] == SESSION_UPDATE
        # The parameters are last: another member that is said again ends with a quote.
        and message["jsonrpc"] == "2.0"
        and line.endswith(b"}}")
        and _ESCAPED not in line
        and _PARAMS not in line[_BEGUN:]
    )


def _is_secret(method: str) -> bool:
    return method in (AUTHENTICATE, AUTH_LOGIN) or method.startswith(_PROVIDERS)


def _unique(sender: str, request_id: Any) -> str:
    """Return the id of a request in the trace: its sender and `request_id`, the sender's own id."""
    return f"{sender}:{json.dumps(request_id)}"


def _without_secrets(value: Any, *, among_servers: bool = False) -> Any:
    """Return a copy of a JSON value without the environments and headers of MCP servers.

    `among_servers`: leave `env` and `headers` out wherever they stand in `value`.
    """
    if isinstance(value, dict):
        told = {
            key: _without_secrets(each, among_servers=among_servers or key == _SERVERS)
            for key, each in value.items()
            if not (among_servers and key in _KEPT_BACK)
        }
        if SYSTEM_PROMPT in told:
            told[SYSTEM_PROMPT] = without(as_object(told[SYSTEM_PROMPT]), "content")
        return told
    if isinstance(value, list):
        return [_without_secrets(each, among_servers=among_servers) for each in value]
    return value


def both_ways(other: str) -> tuple[Direction, Direction]:
    """Return the directions of a connection of the bridge: from the component `other`, to it."""
    coming, going = Direction(other, BRIDGE, trusted=False), Direction(BRIDGE, other, trusted=True)
    coming.back, going.back = going, coming
    return coming, going
