"""Reads the JSON-RPC messages of an MCP server, whatever form they have.

Invariants
- An answer whose id can be read ends its request, however spoiled the rest is: it becomes an error,
  unless it has a result.
- An answer without a readable id ends the request that is open, if there is one only; it becomes an
  error, because it may belong to another one.
- An error wins over a result beside it.
- What comes from here is JSON-RPC as the SDK's models want it, but for an id that is not there,
  which is None. A result that is no object is under `VALUE`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from acp_bridge.core.protocol import ErrorCode
from acp_bridge.core.wire.long_line import read_ends
from agent.loose import arguments, members, number, read_json, text_of, words

Message = dict[str, Any]

#: the member of a result for the value that came in the place of an object
VALUE = "acp_bridge/value"
#: the member of an error's data that says that the error is the server's own: the SDK makes errors,
#: too, with codes that servers use
SAID = "acp_bridge/said"
_UNREADABLE = "The answer can't be read"
#: matches spoiled JSON that was a request or a notification
_ASKS = re.compile(r"""\{[^{\[]*["']?\bmethod["']?\s*:""")
#: matches spoiled JSON that was an answer
_ANSWERS = re.compile(r"""[{,]\s*["']?(?:jsonrpc|result|error)["']?\s*:""")
#: matches a message behind other words
_BEHIND = re.compile(r"""\{\s*"(?:jsonrpc|id|result|error|method)"\s*:""")
#: matches the id in what is nearly JSON, at its beginning and at its end
_NEARLY = re.compile(
    r"""\A\[?\s*\{(?:\s*["']?jsonrpc["']?\s*:\s*["']?[\d.]+["']?\s*,)?\s*["']?id["']?\s*:\s*["']?(\d{1,18})\b"""
    r"""|[,{]\s*["']?id["']?\s*:\s*["']?(\d{1,18})["']?[\s,}\]]*\Z"""
)
#: matches the id at the end of a message that lacks its own end
_LAST_ID = re.compile(r',\s*"id"\s*:\s*("[^"\\]*"|\d{1,18})[\s,]*$')
_NO_SPACE = re.compile(r"\S")
#: members of an error that say what it is
_WORDS = ("message", "detail", "details", "msg", "error", "reason", "data")


def read_messages(
    data: bytes | str, asked: Any = None, others: Collection[Any] = ()
) -> list[Message]:
    """Returns the messages in a line, a body or an event's data; none if it has none.

    `asked`: the id of the request whose answer it must be, if it is an answer, unless one of them
    has that id. `others`: the ids of other requests, which are never taken for that one.
    """
    text = data if isinstance(data, str) else text_of(data)
    values = list(_values(text.strip().lstrip("\ufeff")))
    objects = [each for value in values for each in _objects(value)]
    has_id = asked is not None and any(_id(each.get("id")) == asked for each in objects)
    found = [_message(each, None if has_id else asked, others) for each in objects]
    messages = [message for message in found if message is not None]
    if messages or not text.strip() or (values and asked is None):
        return messages
    if (behind := _BEHIND.search(text)) and text[: behind.start()].strip(" \t\r\n\ufeff["):
        return read_messages(text[behind.start() :], asked, others)
    return _spoiled(text.strip(), asked)


def _values(text: str) -> Iterator[Any]:
    """Yields the JSON values that stand one behind the other in a text, up to what is none."""
    try:
        yield read_json(text)
        return
    except ValueError:
        decoder, at = json.JSONDecoder(strict=False), 0
    while at < len(text):
        try:
            _, end = decoder.raw_decode(text, at)
            yield read_json(text[at:end])
        except (ValueError, RecursionError):
            return
        behind = _NO_SPACE.search(text, end)
        at = behind.start() if behind else len(text)


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    for each in value if isinstance(value, list) else [value]:
        if isinstance(each, dict):
            yield each


def _message(value: dict[str, Any], asked: Any, others: Collection[Any]) -> Message | None:
    id, method = _id(value.get("id")), value.get("method")
    is_answer = "result" in value or value.get("error") is not None
    if isinstance(method, str) and not is_answer:
        message: Message = {"jsonrpc": "2.0", "method": method}
        if id is not None and not isinstance(value["id"], list | dict):
            message["id"] = id
        if isinstance(params := value.get("params"), dict):
            message["params"] = params
        return message
    if asked is not None and (is_answer or id is not None) and id not in others:
        id = asked
    if asked is None and (id is None or not is_answer) and not _is_rpc(value):
        return None  # such as a line of a log
    if not is_answer and id is None:
        return None
    answer: Message = {"jsonrpc": "2.0", "id": id}
    error = value.get("error")
    if error or "result" not in value:
        return {**answer, "error": _error(error)}
    result = value["result"]
    return {**answer, "result": result if isinstance(result, dict) else {VALUE: result}}


def _is_rpc(value: dict[str, Any]) -> bool:
    return "jsonrpc" in value or value.keys() <= {"id", "result", "error"}


def _id(value: Any) -> int | str | None:
    """Returns the id in a value, as it was sent; None if there is none."""
    if isinstance(value, str) or value is None:
        return value
    found = number(value)
    return found if found == value and found is not None else arguments(value)


def _error(error: Any) -> dict[str, Any]:
    """Returns an error of any form as JSON-RPC has it, with what it says."""
    parts = members(error)
    said = error if isinstance(error, str) else ""
    for name in _WORDS:
        said = said or words(parts.get(name)) or words(members(parts.get(name)).get("message"))
    code = number(parts.get("code"))
    told = said.strip() or (arguments(error) if error else _UNREADABLE)
    found = {"code": int(ErrorCode.INTERNAL_ERROR) if code is None else code, "message": told}
    return {**found, "data": {SAID: True}} if error else found


def _spoiled(text: str, asked: Any) -> list[Message]:
    """Returns the error for an answer that is no JSON; none if it is no answer."""
    if not text.startswith(("{", "[")) and asked is None:
        return []
    if _ASKS.match(text):
        return []
    whole = text.encode()
    id = asked if asked is not None else _id(read_ends(whole, whole)[0])
    if id is None and (last := _LAST_ID.search(text)):
        id = _id(read_json(last[1]))
    if id is None and not _ANSWERS.search(text):
        return []
    if id is None and (nearly := _NEARLY.search(text)):
        id = int(nearly[1] or nearly[2])
    return [unreadable(id)]


#: matches the text of an id that is a number in another form, such as `"3"`, `3.0` or `[3]`
_NUMBER = re.compile(r"\D*(\d{1,18})(?:\.0+)?\D*")


class OpenRequests:
    """The requests to a server that have no answer yet."""

    def __init__(self) -> None:
        self._open = set[Any]()
        self._ended = set[Any]()
        #: notifications at the beginning that some servers answer with an error
        self._notified = 0

    def ask(self, message: Mapping[str, Any]) -> None:
        """Takes note of a message to the server."""
        if (id := message.get("id")) is not None and message.get("method"):
            self._open.add(id)
        self._notified += message.get("method") == "notifications/initialized"
        if message.get("method") == "notifications/cancelled":
            self._end(members(message.get("params")).get("requestId"))

    def matched(self, message: Message) -> Message | None:
        """Returns an answer with the id of the request that it ends; None if it is nobody's."""
        if "method" in message:
            return message
        id = message["id"]
        if isinstance(id, str) and id not in self._open and (found := _NUMBER.fullmatch(id)):
            id = int(found[1])
        if id in self._open or id in self._ended:
            self._notified = 0
            self._end(id)
            return {**message, "id": id}
        if id is None and "error" in message and self._notified:
            self._notified -= 1
            return None
        if len(self._open) != 1:
            return None
        (id,) = self._open
        self._end(id)
        error = {name: value for name, value in message.items() if name == "error"}
        return {**unreadable(id), **error}

    def others(self, asked: Any) -> set[Any]:
        return (self._open | self._ended) - {asked}

    def _end(self, id: Any) -> None:
        self._open.discard(id)
        self._ended.add(id)


def unreadable(id: Any) -> Message:
    """Returns the error for an answer that can't be read."""
    error = {"code": int(ErrorCode.PARSE_ERROR), "message": _UNREADABLE}
    return {"jsonrpc": "2.0", "id": id, "error": error}
