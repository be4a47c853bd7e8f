"""JSON-RPC 2.0, one message a line: turns bytes into messages and back. Sans-IO.

Invariants:
- A line yields a message or a `Malformed`; a blank line yields nothing. A line that the quick
  reader refuses is read as far as it can be understood (`wire.slow_json`). A bad line never affects
  its neighbours, and it makes no difference how the bytes were cut into chunks.
- Lines that together are one object are one message (`wire.spread`). A message that has a line of
  its own ends the lines before it, so it never waits.
- A decoded message can be encoded again and is equal as a JSON value: big integers, lone
  surrogates and unknown fields included. A number beyond a double (1e400) comes out as 1e999, and
  so stays a number for every reader; `null` would be another value.
- Memory is bounded by the limit of a line: what is beyond it is thrown away as it comes in.
- `encode` gives one line, without a raw newline inside, and without the other characters at which
  some readers end a line: U+0085, U+2028 and U+2029 are escaped.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Container, Iterator, Sequence
from enum import Enum
from typing import Any, Final, Self, TypeAlias, TypeGuard

from msgspec import Struct

from acp_bridge.core.protocol import CANCEL_REQUESTS, SESSION_CANCEL, ErrorCode, as_object, without
from acp_bridge.core.records import replace
from acp_bridge.core.wire.long_line import read_ends
from acp_bridge.core.wire.plain_json import SHALLOW, plain_loads, read_plain, write_any, write_plain
from acp_bridge.core.wire.slow_json import is_object, says_twice, slow_loads, without_depths
from acp_bridge.core.wire.spread import Spread, begins_message, begins_object

Message: TypeAlias = dict[str, Any]
#: An id is echoed exactly as it came: a string, a number (a float is rare but legal) or null.
RequestId: TypeAlias = int | float | str | None

#: Bytes of one line, without its newline. Prompts with images are megabytes; a gigabyte is a fault.
DEFAULT_LIMIT: Final = 64 * 1024 * 1024


#: how many lines are tried as the beginning of a message behind others.
_PLACES: Final = 8
#: what the other side says to have something ended; it counts also with an id.
CANCELS: Final = frozenset({SESSION_CANCEL, *CANCEL_REQUESTS})
_REFUSAL: Final = "Invalid request: "


class _Unset(Enum):
    UNSET = "unset"

    def __bool__(self) -> bool:
        return False

    def __repr__(self) -> str:
        return "UNSET"


#: Stands for a key that was absent, which is not the same as null. It is falsy.
UNSET: Final = _Unset.UNSET


class RpcError(Exception):
    """An error as it goes over the wire; it holds only what the other side may read.

    An error of the bridge's own has its message in `data.details` too, and nothing else in `data`:
    clients show a person that text (invariant P16).
    """

    def __init__(self, code: int, message: str) -> None:
        self.code = int(code)
        self.message = message
        self.data: Any = {"details": message}

    @classmethod
    def received(cls, code: int, message: str, data: Any = UNSET) -> Self:
        """Return the error that the other side sent, with its `data` as it is.

        Only where that is null, `{"details": message}` takes its place: some clients die of a null
        (P16).
        """
        error = cls(code, message)
        if data is not None:
            error.data = data
        return error

    def __str__(self) -> str:
        return f"{self.message} ({self.code})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RpcError) and self.to_wire() == other.to_wire()

    def __hash__(self) -> int:
        return hash((self.code, self.message))

    def to_wire(self) -> dict[str, Any]:
        """Return the `error` object, without `data` if the other side gave none."""
        wire: dict[str, Any] = {"code": self.code, "message": self.message}
        if self.data is not UNSET:
            wire["data"] = self.data
        return wire


class Malformed(Struct, frozen=True):
    """A line that is no message.

    `id` is the id to answer to, None if none can be read. `answer`: the line had an id and no
    method, so it is probably a spoiled answer. `asks`: it is a request.
    """

    id: RequestId
    error: RpcError
    answer: bool = False
    asks: bool = False

    @property
    def reason(self) -> str:
        """What is wrong with the line, without the words that begin every refusal."""
        return self.error.message.removeprefix(_REFUSAL)


class Ok(Struct, frozen=True):
    """A request was answered with a result (any JSON value)."""

    result: Any


class Err(Struct, frozen=True):
    """A request was answered with an error; code, message and data are the other side's own."""

    error: RpcError


Answer: TypeAlias = Ok | Err


def request(id: RequestId, method: str, params: Any = UNSET) -> Message:
    """Return a request; without `params` the key is left out."""
    message: Message = {"jsonrpc": "2.0", "id": id, "method": method}
    if params is not UNSET:
        message["params"] = params
    return message


def notification(method: str, params: Any = UNSET) -> Message:
    """Return a notification; without `params` the key is left out."""
    message: Message = {"jsonrpc": "2.0", "method": method}
    if params is not UNSET:
        message["params"] = params
    return message


def response(id: RequestId, result: Any) -> Message:
    """Return the answer to the request `id` that has a result."""
    return {"jsonrpc": "2.0", "id": id, "result": result}


def error(id: RequestId, error: RpcError) -> Message:
    """Return the answer to the request `id` that has an error."""
    return {"jsonrpc": "2.0", "id": id, "error": error.to_wire()}


def says_nothing(line: Malformed) -> RpcError:
    """Return -32603 for an answer of which nothing can be understood."""
    return RpcError(ErrorCode.INTERNAL_ERROR, "The answer was malformed")


def read_answer(
    message: Message, spoiled: Callable[[Malformed], RpcError] = says_nothing
) -> Answer:
    """Return the outcome in a response; an error wins over a result beside it, unless it is null.

    An error without a number of 32 bits for its code becomes -32603, and keeps what it says, in
    whatever form; for one that says nothing `spoiled` returns the error. So nobody waits for ever.
    An error that is an empty text or false, beside a result, is none.
    """
    wire = message.get("error")
    if wire is None and "result" in message:
        return Ok(message["result"])
    if wire in ("", False) and message.get("result") is not None:
        return Ok(message["result"])
    told = as_object(wire)
    code = whole_number(told.get("code"))
    code = code if code is not None and -_CODES <= code < _CODES else ErrorCode.INTERNAL_ERROR
    if type(text := told.get("message")) is str:
        return Err(RpcError.received(code, text, told.get("data", UNSET)))
    if text := _words(wire):
        return Err(RpcError(code, text))
    return Err(spoiled(_invalid(message.get("id"), "its error says nothing", answer=True)))


def whole_number(value: object) -> int | None:
    """Return a whole number, also one that came as 5.0 or "5"; None for any other value."""
    if type(value) is float and value.is_integer():
        return int(value)
    if type(value) is str and re.fullmatch(r"-?[0-9]{1,18}", value):
        return int(value)
    return value if type(value) is int else None


#: the code of an error is a number of 32 bits for many readers.
_CODES: Final = 2**31
#: members of an error in which words may stand, the likeliest first.
_OF_ERRORS: Final = ("message", "error", "details", "detail", "reason", "description", "data")


def _words(error: object) -> str:
    """Return what an error says that is no object with a `message`; empty if it says nothing."""
    if isinstance(error, str):
        return error.strip()
    if isinstance(error, dict):
        said = [_words(error[name]) for name in _OF_ERRORS if isinstance(error.get(name), str)]
        said += [_words(each) for each in map(error.get, _OF_ERRORS) if isinstance(each, dict)]
        if found := next(filter(None, said), ""):
            return found
    if isinstance(error, list):
        return "; ".join(filter(None, map(_words, error)))
    return ""


# Strings are matched first, so that a constant inside one is left alone.
_CONSTANT: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|-?Infinity|NaN')
#: characters at which some readers end a line, though JSON may have them inside a text.
_ENDS_OF_LINES: Final = [(end.encode(), rb"\u%04x" % ord(end)) for end in "\x85\u2028\u2029"]
_FINITE: Final = {b"Infinity": b"1e999", b"-Infinity": b"-1e999", b"NaN": b"null"}


def encode(message: Message) -> bytes:
    """Return the message as one line with its newline.

    Raises ValueError, TypeError or RecursionError if the message holds what JSON cannot.
    """
    try:
        line = write_plain(message)
        # It makes nulls of infinities and NaN.
        plain = b"null" not in line or read_plain(line) == message
    except (ValueError, TypeError, RecursionError):
        plain = False
    if not plain:
        line = _CONSTANT.sub(lambda match: _FINITE.get(match[0], match[0]), write_any(message))
    if not line.isascii() and (0xE2 in line or 0xC2 in line):  # to look for one byte is quick
        for raw, escaped in _ENDS_OF_LINES:
            if raw in line:
                line = line.replace(raw, escaped)
    return line + b"\n"


def dumps(value: Any) -> bytes:
    """Return a value as JSON on one line, without the newline; lone surrogates survive, too."""
    return encode(value)[:-1]


def loads(text: bytes | str) -> Any:
    """Return the value of a JSON text that `dumps` or an agent wrote, None if it is damaged."""
    try:
        return read_plain(text)
    except (ValueError, RecursionError):
        try:
            return json.loads(text)  # lone surrogates, infinities
        except (ValueError, RecursionError):
            return None


def read_object(text: bytes | str) -> dict[str, Any] | None:
    """Return the JSON object that a text holds, None if it holds none."""
    value = loads(text)
    return value if isinstance(value, dict) else None


#: A listener; it gets lines and the message of each, or None if one of them was not plain JSON.
Heard: TypeAlias = Callable[[list[bytes], Sequence[Message | Malformed] | None], None]


class Decoder:
    """Takes bytes and returns messages. `limit`: bytes of the longest line, without its newline.

    `strict`: an answer that says something twice, and not the same, is spoiled: it may be a
    person's consent. `joins`: a message may be spread over lines; who reads the stream bounds the
    wait for them (`streams.next_bytes`).
    """

    def __init__(
        self, limit: int = DEFAULT_LIMIT, *, strict: bool = False, joins: bool = False
    ) -> None:
        self._limit, self._strict, self._joins = limit, strict, joins
        #: is called with whole lines and the messages in them, before `feed` returns these.
        self.heard: Heard | None = None
        #: bytes that are kept of each end of a line that is too long.
        self._ends = min(limit, 4096)
        #: the bytes that are kept of a line whose end has not come; empty when none is begun.
        self.partial = bytearray()
        #: the last bytes of a line that is discarded, where its id may stand; None if none is.
        self._end: bytes | None = None
        self._reported = False
        self._spread = Spread(limit)

    @property
    def unfinished(self) -> int:
        """The number of bytes that are kept of a message whose end has not come."""
        return len(self.partial) + self._spread.size

    @property
    def waits(self) -> bool:
        """True while the rest of a message is waited for; `feed(b"")` may end that."""
        return self._spread.begun or (bool(self.partial) and self._end is None)

    def feed(self, data: bytes) -> list[Message | Malformed]:
        """Return the messages that these bytes complete, in order.

        No bytes mean that nothing comes for now: a message that lacks only its newline is read,
        and further lines of one are waited for no more. Each line counts by itself then.
        """
        found: list[Message | Malformed] = []
        if not data:
            text = b"\n".join([*self._spread.lines, self.partial])
            if self._end is None and self.partial and is_object(text):
                self._finish(b"", found)
            return [*found, *self.give_up()]
        lines = data.split(b"\n")
        tail = lines.pop()
        if lines:
            if self.partial:
                self._finish(lines.pop(0), found)
            self._decode(lines, found)
        if tail:
            self._keep(tail, found)
        return found

    def eof(self) -> list[Message | Malformed]:
        """Return the message in an unterminated last line, if there is one."""
        found: list[Message | Malformed] = []
        self._finish(b"", found)
        return [*found, *self.give_up()]

    def give_up(self) -> list[Message | Malformed]:
        """Return what the waiting lines say, each by itself; nothing without such lines."""
        if not self._spread.begun:
            return []
        lines = self._spread.take()
        at = _message_behind(lines)
        found: list[Message | Malformed] = [self._unreadable(b"\n".join(lines[:at]))]
        for line in lines[1:at]:
            self._take_odd(line, found, alone=True)
        if at < len(lines):
            self._take_odd(b"\n".join(lines[at:]).strip(), found, alone=True)
        return found

    def _keep(self, tail: bytes, found: list[Message | Malformed]) -> None:
        if self._end is not None:
            self._end = (self._end + tail)[-self._ends :]
        elif len(self.partial) + len(tail) > self._limit:
            found += self.give_up()
            line = bytes(self.partial) + tail
            self.partial, self._end = bytearray(line[: self._ends]), line[-self._ends :]
            self._report(found, end=b"")
        else:
            self.partial += tail

    def _finish(self, end: bytes, found: list[Message | Malformed]) -> None:
        """End the unfinished line with `end`, and add its message, or a `Malformed`, to `found`."""
        self._keep(end, found)
        if self._end is None:
            self._decode([bytes(self.partial)], found)
        else:
            self._report(found, end=self._end)
        self.partial, self._end, self._reported = bytearray(), None, False

    def _report(self, found: list[Message | Malformed], *, end: bytes) -> None:
        """Add the `Malformed` of a line that is too long to `found`, once.

        An answer whose id was not read yet waits until the line's `end` is known.
        """
        if not self._reported:
            line = _too_long(bytes(self.partial), end, self._limit)
            if end or not line.answer or line.id is not None:
                self._reported = True
                found.append(line)

    def _decode(self, lines: list[bytes], found: list[Message | Malformed]) -> None:
        before, begun = len(found), self._spread.begun
        plain = self._read(iter(lines), found) and not begun
        if self.heard is not None:
            self.heard(lines, found[before:] if plain else None)

    def _read(self, lines: Iterator[bytes], found: list[Message | Malformed]) -> bool:
        """Add the messages of these lines to `found`; returns False if one is not plain JSON."""
        plain, strict = True, self._strict
        if self._spread.begun:
            self._go_on(lines, found)
        for line in lines:
            if len(line) > self._limit:
                plain = False
                found.append(_too_long(line[: self._ends], line[-self._ends :], self._limit))
                continue
            try:
                value = read_plain(line) if len(line) <= SHALLOW else plain_loads(line)
            except ValueError:
                plain = False
                self._take_odd(line, found)
                self._go_on(lines, found)
                continue
            if strict or type(value) is list:
                found += self._messages(value, line)
            else:
                found.append(_checked(value))
        return plain

    def _messages(self, value: Any, text: bytes) -> Iterator[Message | Malformed]:
        """Yield the messages that a value is, which stands in `text`.

        Of several that came together each counts but requests, which never do so (ACP).
        """
        if not _is_batch(value):
            yield self._strictly(value, text)
            return
        for message in (self._strictly(each, text) for each in value):
            if _is_request(message):
                refusal = _invalid(message["id"], "requests do not come together")
                yield replace(refusal, asks=True)
            else:
                yield message

    def _strictly(self, value: Any, text: bytes) -> Message | Malformed:
        """Return a value that stands in `text` as a message, or why it is none."""
        message = _checked(value)
        if not self._strict or isinstance(message, Malformed) or "method" in message:
            return message
        if type(value) is str or says_twice(text):
            return _invalid(message.get("id"), "it may say something twice", answer=True)
        return message

    def _take_odd(
        self, text: bytes, found: list[Message | Malformed], *, alone: bool = False
    ) -> None:
        """Read what is not plain JSON. If it only begins a message, it waits for further lines.

        `alone`: no further line belongs to it.
        """
        values, spoiled = slow_loads(text)
        if spoiled and not values and (cut := self._without_depths(text)):
            values, spoiled = cut, b""
        alone |= not self._joins or bool(values) or not spoiled
        if alone or not self._spread.begin(text):
            for value in values:
                found += self._messages(value, text)
            if spoiled:
                found.append(self._unreadable(spoiled))

    def _without_depths(self, text: bytes) -> list[Any]:
        """Return the message in a text that is nested too deep, without what is too deep in it.

        A request comes to nothing, lest something else is done than was asked for. So does an
        answer that may be a person's consent.
        """
        value = without_depths(text)
        if type(value) is not dict or isinstance(_checked(value), Malformed):
            return []
        return [] if "id" in value and (self._strict or "method" in value) else [value]

    def _go_on(self, lines: Iterator[bytes], found: list[Message | Malformed]) -> None:
        """Take further lines of a message that has begun, until it ends."""
        while self._spread.begun and (line := next(lines, None)) is not None:
            if len(line) > self._limit or begins_message(line) or _is_alone(line):
                found += self.give_up()
                self._read(iter([line]), found)
            elif self._spread.add(line):
                self._take_odd(b"\n".join(self._spread.take()), found, alone=True)
            elif self._spread.full:
                found += self.give_up()

    def _unreadable(self, line: bytes) -> Malformed:
        """Return the `Malformed` for a line that is no JSON, with its id if that can be read."""
        id, answer, asks = read_ends(line[: self._ends], line[-self._ends :])
        answer = answer and (
            id is not None or b"jsonrpc" in line[: self._ends]
        )  # else a log's line
        error = RpcError(ErrorCode.PARSE_ERROR, "Parse error")
        return Malformed(id if answer or asks else None, error, answer, asks)


def _too_long(head: bytes, end: bytes, limit: int) -> Malformed:
    id, answer, asks = read_ends(head, end)
    refusal = _invalid(id, f"the line is longer than {limit} bytes", answer=answer)
    return replace(refusal, asks=asks)


def _is_request(message: Message | Malformed) -> TypeGuard[Message]:
    """Return True for a request; a cancel is none, also if it has an id."""
    if isinstance(message, Malformed) or not ("id" in message and "method" in message):
        return False
    return message["method"] not in CANCELS


def _is_batch(value: Any) -> bool:
    """Return True for messages that came together."""
    return type(value) is list and any(type(each) is dict for each in value)


def _is_alone(line: bytes) -> bool:
    """Return True for a line that is a message, or several, and nothing else."""
    values, spoiled = slow_loads(line)
    if len(values) == 1 and _is_batch(values[0]):
        values = values[0]
    good = not any(isinstance(_checked(value), Malformed) for value in values)
    return bool(values) and good and not spoiled


def _message_behind(lines: list[bytes]) -> int:
    """Return where the lines begin that are a message together, at the end of others.

    The number of lines if there is none. Only the last places are looked at where one may begin.
    """
    places = [at for at in range(1, len(lines)) if begins_object(lines[at])]
    for at in reversed(places[-_PLACES:]):
        if _is_alone(b"\n".join(lines[at:]).strip()):
            return at
    return len(lines)


def _checked(value: Any) -> Message | Malformed:
    """Return the value if it is a message, else a `Malformed` that says why it is none."""
    if type(value) is str and (told := read_object(value)) is not None:
        value = told  # JSON in a text of JSON
    if type(value) is not dict:
        return _invalid(None, "not an object")
    id = value.get("id")
    if type(id) not in _ID_TYPES:
        if type(value.get("method")) is str and value["method"] in CANCELS:  # it needs no id
            return without(value, "id")
        answers = "method" not in value and ("result" in value or "error" in value)
        meant = id[0] if answers and type(id) is list and len(id) == 1 else None
        reason = "the id is neither a string nor a number"
        return _invalid(meant if is_id(meant) else None, reason, answer=answers)
    if "method" in value:
        if type(value["method"]) is not str:
            if value["method"] is None and _answers(value):
                return without(value, "method")
            return _invalid(id, "the method is not a string")
    elif "result" not in value and "error" not in value:
        return _invalid(id, "no method", answer="id" in value)
    return value


def _answers(value: Message) -> bool:
    """Return True for an object that has a result or an error, which is not null."""
    return value.get("result") is not None or value.get("error") is not None


def repeats_method(message: Message, asked: str, *, strict: bool) -> bool:
    """Return True for an answer that has the method of its request, too, which was `asked`.

    If it is not read strictly, it may have another one in its place, but no parameters then.
    """
    same = message["method"] == asked
    return _answers(message) and (same or (not strict and message.get("params") is None))


def known_id(id: RequestId, known: Container[RequestId]) -> RequestId:
    """Return the id among those that are `known` which is meant by `id`; `id` itself if none is.

    A number may come back as the text of its digits, and such a text as a number.
    """
    if id in known:
        return id
    other: RequestId = str(id) if type(id) is int else None
    if type(id) is str and len(id) < 20 and id.isdecimal() and str(number := int(id)) == id:
        other = number
    return other if other is not None and other in known else id


#: The types of an id, and no subclass of them: a bool is no number, though True == 1, and would
#: find the request of id 1.
_ID_TYPES: Final = frozenset({int, str, float, type(None)})


def is_id(value: object) -> TypeGuard[RequestId]:
    """Return True for a value that may be the id of a request."""
    return type(value) in _ID_TYPES


#: members under which a request is named.
_OF_REQUESTS: Final = ("requestId", "request_id", "id")


def withdrawn(params: object) -> object:
    """Return the id of the request that a `$/cancel_request` names, UNSET if it names none."""
    named = as_object(params)
    return next((named[name] for name in _OF_REQUESTS if name in named), UNSET)


def without_id(meant: RequestId = None) -> Malformed:
    """Return what an answer without an id is; `meant`: the request that it can only be for."""
    return _invalid(meant, "it has no id", answer=True)


def _invalid(id: RequestId, reason: str, *, answer: bool = False) -> Malformed:
    return Malformed(id, RpcError(ErrorCode.INVALID_REQUEST, f"{_REFUSAL}{reason}"), answer)
