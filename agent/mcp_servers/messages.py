"""Reads the JSON-RPC messages of an MCP server, whatever form they have.

Invariants
- An answer whose id can be read ends its request, however spoiled the rest is: it becomes an error,
  unless it has a result.
- An error wins over a result beside it.
- What comes from here is JSON-RPC as the SDK's models want it, but for an id that is not there,
  which is None. A result that is no object is under `VALUE`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from acp_bridge.core.protocol import ErrorCode
from acp_bridge.core.wire.long_line import read_ends
from agent.loose import arguments, members, number, read_json, words

Message = dict[str, Any]

#: the member of a result for the value that came in the place of an object
VALUE = "acp_bridge/value"
_UNREADABLE = "The answer can't be read"
#: matches spoiled JSON that was a request or a notification
_ASKS = re.compile(r'\{[^{\[]*"method"\s*:')
#: matches the id at the end of a message that lacks its own end
_LAST_ID = re.compile(r',\s*"id"\s*:\s*("[^"\\]*"|\d{1,18})[\s,]*$')
#: members of an error that say what it is
_SAID = ("message", "detail", "details", "msg", "error", "reason", "data")


def read_messages(data: bytes | str, asked: Any = None) -> list[Message]:
    """Returns the messages in a line, a body or an event's data; none if it has none.

    `asked`: the id of the request whose answer it must be, if it is an answer.
    """
    text = data if isinstance(data, str) else data.decode("utf-8", "replace")
    values = list(_values(text.strip().lstrip("\ufeff")))
    found = [_message(each, asked) for value in values for each in _objects(value)]
    messages = [message for message in found if message is not None]
    if not messages and text.strip():
        return _spoiled(text.strip(), asked)
    return messages


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
        at = end + len(text[end:]) - len(text[end:].lstrip())


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    for each in value if isinstance(value, list) else [value]:
        if isinstance(each, dict):
            yield each


def _message(value: dict[str, Any], asked: Any) -> Message | None:
    id, method = _id(value.get("id")), value.get("method")
    is_answer = "result" in value or value.get("error") is not None
    if isinstance(method, str) and not is_answer:
        message: Message = {"jsonrpc": "2.0", "method": method}
        if id is not None:
            message["id"] = id
        if isinstance(params := value.get("params"), dict):
            message["params"] = params
        return message
    if asked is not None and (is_answer or id is not None):
        id = asked
    if id is None and not is_answer:
        return None
    answer: Message = {"jsonrpc": "2.0", "id": id}
    error = value.get("error")
    if error or "result" not in value:
        return {**answer, "error": _error(error)}
    result = value["result"]
    return {**answer, "result": result if isinstance(result, dict) else {VALUE: result}}


def _id(value: Any) -> int | str | None:
    """Returns the id in a value, as it was sent; None if there is none."""
    if isinstance(value, str):
        return value
    found = number(value)
    return found if found is None or found == value else arguments(value)


def _error(error: Any) -> dict[str, Any]:
    """Returns an error of any form as JSON-RPC has it, with what it says."""
    parts = members(error)
    said = error if isinstance(error, str) else ""
    for name in _SAID:
        said = said or words(parts.get(name)) or words(members(parts.get(name)).get("message"))
    code = number(parts.get("code"))
    told = said.strip() or (arguments(error) if error else _UNREADABLE)
    found = {"code": int(ErrorCode.INTERNAL_ERROR) if code is None else code, "message": told}
    return {**found, "data": parts["data"]} if "data" in parts else found


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
    if id is None:
        return []
    error = {"code": int(ErrorCode.PARSE_ERROR), "message": _UNREADABLE}
    return [{"jsonrpc": "2.0", "id": id, "error": error}]
