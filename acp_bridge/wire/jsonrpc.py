"""JSON-RPC 2.0, one message a line: bytes <-> messages, and the error codes. Sans-IO.

Invariants:
- A line yields exactly one message or one `Malformed`; a blank line yields nothing. A bad line
  never hurts its neighbours, and how the bytes were cut into chunks changes nothing.
- What was decoded can be encoded again and is equal as a JSON value: big integers, lone
  surrogates and unknown fields included. A number beyond a double (1e400) comes out as 1e999, and
  so stays a number for every reader; `null` would be another value.
- Memory is bounded by the limit of a line: what is beyond it is thrown away as it comes in.
- `encode` gives one line: no raw newline inside.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Any, Final, NoReturn, TypeAlias, TypeGuard

from pydantic_core import from_json, to_json

Message: TypeAlias = dict[str, Any]
#: Echoed exactly as it came: JSON-RPC allows strings, numbers and null (a float is rare but legal).
RequestId: TypeAlias = int | float | str | None

#: Bytes of one line, without its newline. Prompts with images are megabytes; a gigabyte is a fault.
DEFAULT_LIMIT: Final = 64 * 1024 * 1024
#: Containers inside each other: pydantic_core stops there too, and `encode` reaches deeper.
MAX_DEPTH: Final = 200


class _Unset(Enum):
    UNSET = "unset"

    def __bool__(self) -> bool:
        return False

    def __repr__(self) -> str:
        return "UNSET"


#: "The key was not there", which JSON tells from null. Falsy.
UNSET: Final = _Unset.UNSET


class ErrorCode(IntEnum):
    """Codes of JSON-RPC 2.0 and of ACP."""

    PARSE_ERROR = -32700
    INVALID_REQUEST = -32600
    METHOD_NOT_FOUND = -32601
    INVALID_PARAMS = -32602
    INTERNAL_ERROR = -32603
    AUTH_REQUIRED = -32000
    RESOURCE_NOT_FOUND = -32002
    REQUEST_CANCELLED = -32800


class RpcError(Exception):
    """An error as it goes over the wire: nothing in it but what the other side may read."""

    def __init__(self, code: int, message: str, data: Any = UNSET) -> None:
        self.code = int(code)
        self.message = message
        self.data = data

    def __str__(self) -> str:
        return f"{self.message} ({self.code})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RpcError) and self.to_wire() == other.to_wire()

    def __hash__(self) -> int:
        return hash((self.code, self.message))

    def to_wire(self) -> dict[str, Any]:
        """The `error` object: `data` only if it was given, an explicit null included."""
        wire: dict[str, Any] = {"code": self.code, "message": self.message}
        if self.data is not UNSET:
            wire["data"] = self.data
        return wire


@dataclass(frozen=True, slots=True)
class Malformed:
    """A line that is no message.

    `id` is the one to answer to, None if none can be read. `answer` says that it had an id and no
    method: the nearest thing to it is a spoiled answer.
    """

    id: RequestId
    error: RpcError
    answer: bool = False


@dataclass(frozen=True, slots=True)
class Ok:
    """A request was answered with a result (any JSON value)."""

    result: Any


@dataclass(frozen=True, slots=True)
class Err:
    """A request was answered with an error; code, message and data are the other side's own."""

    error: RpcError


Answer: TypeAlias = Ok | Err


def request(id: RequestId, method: str, params: Any = UNSET) -> Message:
    """A request; without `params` the key is left out."""
    message: Message = {"jsonrpc": "2.0", "id": id, "method": method}
    if params is not UNSET:
        message["params"] = params
    return message


def notification(method: str, params: Any = UNSET) -> Message:
    """A notification; without `params` the key is left out."""
    message: Message = {"jsonrpc": "2.0", "method": method}
    if params is not UNSET:
        message["params"] = params
    return message


def response(id: RequestId, result: Any) -> Message:
    """A successful answer."""
    return {"jsonrpc": "2.0", "id": id, "result": result}


def error(id: RequestId, error: RpcError) -> Message:
    """A failed answer."""
    return {"jsonrpc": "2.0", "id": id, "error": error.to_wire()}


def read_answer(message: Message) -> Answer:
    """The outcome in a response. An error wins over a result beside it; `"error": null` is none.

    An error object that is not well formed becomes -32603, so that nobody waits for ever.
    """
    wire = message.get("error")
    if wire is None and "result" in message:
        return Ok(message["result"])
    if isinstance(wire, dict):
        code, text = wire.get("code"), wire.get("message")
        if type(code) is int and type(text) is str:
            return Err(RpcError(code, text, wire.get("data", UNSET)))
    return Err(RpcError(ErrorCode.INTERNAL_ERROR, "The answer was malformed"))


# Strings are matched first, so that a constant inside one is passed over.
_CONSTANT: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|-?Infinity|NaN')
_FINITE: Final = {b"Infinity": b"1e999", b"-Infinity": b"-1e999", b"NaN": b"null"}


def encode(message: Message) -> bytes:
    """One line with its newline.

    Raises ValueError, TypeError or RecursionError if the message holds what JSON cannot.
    """
    try:
        line = to_json(message, inf_nan_mode="constants")
    except ValueError:  # lone surrogates, or deeper than pydantic_core goes
        line = json.dumps(message, separators=(",", ":")).encode("ascii")
    if b"Infinity" in line or b"NaN" in line:
        line = _CONSTANT.sub(lambda match: _FINITE.get(match[0], match[0]), line)
    return line + b"\n"


class Decoder:
    """Bytes in, messages out. `limit` is the longest line accepted, in bytes, newline excluded."""

    def __init__(self, limit: int = DEFAULT_LIMIT) -> None:
        self._limit = limit
        self._partial = bytearray()
        self._discarding = False

    def feed(self, data: bytes) -> list[Message | Malformed]:
        """The messages that these bytes complete, in order."""
        found: list[Message | Malformed] = []
        lines = data.split(b"\n")
        tail = lines.pop()
        if lines:
            if self._partial or self._discarding:
                self._finish(lines.pop(0), found)
            self._decode(lines, found)
        self._keep(tail, found)
        return found

    def eof(self) -> list[Message | Malformed]:
        """What an unterminated last line holds."""
        found: list[Message | Malformed] = []
        self._finish(b"", found)
        return found

    def _keep(self, tail: bytes, found: list[Message | Malformed]) -> None:
        if self._discarding:
            return
        if len(self._partial) + len(tail) > self._limit:
            self._partial = bytearray()
            self._discarding = True
            found.append(self._too_long())
        else:
            self._partial += tail

    def _finish(self, end: bytes, found: list[Message | Malformed]) -> None:
        """The line that was being kept is complete; one being discarded was reported already."""
        self._keep(end, found)
        line, self._partial = self._partial, bytearray()
        if not self._discarding:
            self._decode([bytes(line)], found)
        self._discarding = False

    def _decode(self, lines: list[bytes], found: list[Message | Malformed]) -> None:
        for line in lines:
            if len(line) > self._limit:
                found.append(self._too_long())
                continue
            try:
                value = from_json(line, allow_inf_nan=False, cache_strings="keys")
            except ValueError:
                if not line.strip(b" \t\r"):
                    continue
                try:
                    value = _slow_loads(line)
                except (ValueError, RecursionError):
                    found.append(Malformed(None, RpcError(ErrorCode.PARSE_ERROR, "Parse error")))
                    continue
            found.append(_checked(value))

    def _too_long(self) -> Malformed:
        return _invalid(None, f"the line is longer than {self._limit} bytes")


def _checked(value: Any) -> Message | Malformed:
    """The value if it is a message, else why it is none."""
    if type(value) is not dict:
        return _invalid(None, "not an object")
    id = value.get("id")
    if not is_id(id):
        return _invalid(None, "the id is neither a string nor a number")
    if "method" in value:
        if type(value["method"]) is not str:
            return _invalid(id, "the method is not a string")
    elif "result" not in value and "error" not in value:
        return _invalid(id, "no method", answer="id" in value)
    return value


_ID_TYPES: Final = frozenset({int, str, float, type(None)})


def is_id(value: object) -> TypeGuard[RequestId]:
    """Return True for what may be the id of a request."""
    # type(), not isinstance: a bool is no number here, and True == 1 would find another's request.
    return type(value) in _ID_TYPES


def _invalid(id: RequestId, reason: str, *, answer: bool = False) -> Malformed:
    text = f"Invalid request: {reason}"
    return Malformed(id, RpcError(ErrorCode.INVALID_REQUEST, text), answer)


def _slow_loads(line: bytes) -> Any:
    """What pydantic_core refuses and JSON allows: lone surrogates.

    Raises ValueError for what JSON doesn't allow, and for what is nested too deep.
    """
    value = json.loads(line.decode("utf-8"), parse_constant=_refuse_constant)
    level = _containers([value])
    for _ in range(MAX_DEPTH):
        level = [inner for outer in level for inner in _containers(outer)]
    if level:
        raise ValueError("nested too deep")
    return value


def _containers(outer: Any) -> list[Any]:
    values = outer.values() if type(outer) is dict else outer
    return [value for value in values if type(value) is dict or type(value) is list]


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)
