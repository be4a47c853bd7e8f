"""Judges the messages of one ACP connection by the JSON schema that the TypeScript SDK ships.

The schema annotates each definition with its method (`x-method`), the side that serves it
(`x-side`), and says by its name whether it is the request, the response or the notification.
Invariants: a message that the schema doesn't know is refused, but for extensions (`_...`), and so
is a member that it doesn't name, however deep; a response is judged by the request it answers.
"""

import json
from dataclasses import dataclass, field
from typing import Any, Literal

from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match

Side = Literal["client", "agent"]
Kind = Literal["Request", "Response", "Notification"]
Json = dict[str, Any]

_KINDS: tuple[Kind, ...] = ("Request", "Response", "Notification")
#: characters of a value that is remembered as a good one.
_REMEMBERED = 10_000
_MEMBERS = {"jsonrpc", "id", "method", "params", "result", "error"}


class Refused(Exception):
    """Why a message breaks the protocol."""


class Schema:
    def __init__(self, schema: Json) -> None:
        #: (method, kind) -> (the definition's name, the side that serves the method)
        self.definitions: dict[tuple[str, Kind], tuple[str, str]] = {
            (definition["x-method"], kind): (name, definition["x-side"])
            for name, definition in schema["$defs"].items()
            if "x-method" in definition
            for kind in _KINDS
            if name.endswith(kind)
        }
        self._open: Json = schema["$defs"]
        self._closed = {name: _with_closed_parts(each) for name, each in self._open.items()}
        self._validators: dict[tuple[str, bool], Draft202012Validator] = {}
        #: what has passed, but for its words: a value takes milliseconds, and most come again.
        self._good: set[str] = set()

    def find(self, method: str, kind: Kind, sender: Side) -> str:
        """The definition of what this side may say; raises Refused."""
        name, serves = self.definitions.get((method, kind), (None, None))
        if name is None:
            raise Refused(f"no {kind.lower()} has the method {method!r}")
        asked = "agent" if sender == "client" else "client"
        if serves != "protocol" and serves != (sender if kind == "Response" else asked):
            raise Refused(f"{name} does not come from the {sender}")
        return name

    def check(self, name: str, value: Any) -> None:
        """Raises Refused if the value is not what the definition says."""
        if name == "InitializeResponse":
            value = _without_drafts(value)
        shape = f"{name} {json.dumps(_without_words(value))}"
        if shape in self._good:
            return
        if not self._validator(name, closed=True).is_valid(value):
            errors = [
                best_match(self._validator(name, closed=closed).iter_errors(value))
                for closed in (False, True)  # what is wrong with what is known, says more
            ]
            error = errors[0] or errors[1]
            raise Refused(f"not a {name}: {error.message} at {error.json_path}")
        if len(shape) <= _REMEMBERED:
            self._good.add(shape)

    def _validator(self, name: str, *, closed: bool) -> Draft202012Validator:
        """`closed`: refuses members that the definition doesn't name."""
        if (name, closed) not in self._validators:
            top = {"$ref": f"#/$defs/{name}"}
            schema = (
                {**_closed(top), "$defs": self._closed} if closed else {**top, "$defs": self._open}
            )
            self._validators[name, closed] = Draft202012Validator(schema)
        return self._validators[name, closed]


def _closed(schema: Json) -> Json:
    """The schema of a value, which may not have members that nothing in it names."""
    says_something = {"$ref", "allOf", "anyOf", "oneOf", "properties"} & schema.keys()
    return {**schema, "unevaluatedProperties": False} if says_something else schema


def _with_closed_parts(schema: Json) -> Json:
    """Its members and items closed, not itself: it may be a part of what a value has to be."""
    parts = dict(schema)
    for word in schema.keys() & {"allOf", "anyOf", "oneOf"}:
        parts[word] = [_with_closed_parts(each) for each in schema[word]]
    if "properties" in schema:
        members = schema["properties"].items()
        parts["properties"] = {name: _closed(_with_closed_parts(m)) for name, m in members}
    if "items" in schema:
        parts["items"] = _closed(_with_closed_parts(schema["items"]))
    return parts


@dataclass
class Connection:
    """One client and one agent from their first message on."""

    schema: Schema
    #: the methods of all messages that passed, extensions included.
    methods: set[str] = field(default_factory=set)
    #: (who asked, id) -> method, of the requests without an answer.
    waiting: dict[tuple[Side, str], str] = field(default_factory=dict)

    def judge(self, sender: Side, line: str) -> None:
        """The next line; raises Refused."""
        message = _parsed(line)
        if "method" in message:
            self._judge_call(sender, message)
        else:
            self._judge_response(sender, message)

    def _judge_call(self, sender: Side, message: Json) -> None:
        method = message["method"]
        if not isinstance(method, str) or {"result", "error"} & message.keys():
            raise Refused("neither a request nor a notification")
        kind: Kind = "Request" if "id" in message else "Notification"
        if not method.startswith("_"):
            self.schema.check(self.schema.find(method, kind, sender), message.get("params", {}))
        if kind == "Request":
            key = (sender, _id(message))
            if key in self.waiting:
                raise Refused("the id of a request that waits for its answer is used again")
            self.waiting[key] = method
        self.methods.add(method)

    def _judge_response(self, sender: Side, message: Json) -> None:
        asker: Side = "agent" if sender == "client" else "client"
        method = self.waiting.pop((asker, _id(message)), None)
        if method is None:
            raise Refused("an answer to nothing that waits for one")
        if "params" in message or ("result" in message) == ("error" in message):
            raise Refused("a response has a result or an error")
        if "error" in message:
            self.schema.check("Error", message["error"])
        elif not method.startswith("_"):
            self.schema.check(self.schema.find(method, "Response", sender), message["result"])


def _without_words(value: Any) -> Any:
    """The value with each text, and each id that is one, as an empty one.

    A schema asks no more of them than that they are texts.
    """
    match value:
        case {"type": "text", "text": str()}:
            return {**value, "text": ""}
        case dict():
            return {
                name: "" if name.endswith("Id") and isinstance(each, str) else _without_words(each)
                for name, each in value.items()
            }
        case list():
            return [_without_words(each) for each in value]
    return value


#: abilities of an agent, and of sessions, that the published schema counts as unstable.
_DRAFTS = ("fork", "title", "systemPrompt", "status", "archive", "providers")


def _without_drafts(initialized: Any) -> Any:
    """The answer without the abilities that the published schema counts as unstable."""
    match initialized:
        case {"agentCapabilities": {"sessionCapabilities": {**session}, **rest}}:
            known = {name: session[name] for name in session if name not in _DRAFTS}
            return {**initialized, "agentCapabilities": {**rest, "sessionCapabilities": known}}
        case {"capabilities": {"session": {**session}, **rest}}:
            known = {name: session[name] for name in session if name not in _DRAFTS}
            can = {name: rest[name] for name in rest if name not in _DRAFTS}
            return {**initialized, "capabilities": {**can, "session": known}}
    return initialized


def _parsed(line: str) -> Json:
    try:
        message = json.loads(line)
    except ValueError as error:
        raise Refused(f"not JSON: {error}") from None
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
        raise Refused("not a JSON-RPC 2.0 object")
    if unknown := message.keys() - _MEMBERS:
        raise Refused(f"JSON-RPC has no member {sorted(unknown)}")
    return message


def _id(message: Json) -> str:
    """1 and "1" are different ids; raises Refused for none at all."""
    value = message.get("id")
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise Refused(f"{value!r} is no id")
    return json.dumps(value)
