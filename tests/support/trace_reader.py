"""Reads a trace as the conductor's own viewer does, strictly: it shares no code with the writer.

The members of each event are those of `trace.rs` of agent-client-protocol-conductor 2.2, and
nothing else; requests and responses are matched by who answers and the id, as in its viewer.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Event = dict[str, Any]

_OF_MESSAGE = {"type": str, "ts": float, "protocol": str, "from": str, "to": str, "method": str}
_MEMBERS: dict[str, dict[str, type]] = {
    "request": {**_OF_MESSAGE, "id": object, "params": object},
    "notification": {**_OF_MESSAGE, "params": object},
    "response": {
        "type": str,
        "ts": float,
        "from": str,
        "to": str,
        "id": object,
        "is_error": bool,
        "payload": object,
    },
}


@dataclass
class TraceRead:
    """The events of a file, and what belongs together."""

    events: list[Event] = field(default_factory=list)
    #: each request with its response, in the order of the responses.
    pairs: list[tuple[Event, Event]] = field(default_factory=list)

    def between(self, sender: str, receiver: str) -> list[Event]:
        """What one component has sent to another."""
        return [
            event for event in self.events if (event["from"], event["to"]) == (sender, receiver)
        ]

    def methods(self, sender: str, receiver: str) -> list[str]:
        """The methods of that, without responses."""
        return [each["method"] for each in self.between(sender, receiver) if "method" in each]

    def answers(self, method: str, receiver: str) -> list[Any]:
        """What a component has answered to a method."""
        return [
            response["payload"]
            for request, response in self.pairs
            if request["method"] == method and request["to"] == receiver
        ]


def read_trace(path: Path) -> TraceRead:
    """Raises AssertionError for a line that is no event, also for one that is not whole."""
    found, open_requests = TraceRead(), dict[str, Event]()
    text = path.read_bytes()
    assert text.endswith(b"\n") or not text
    last = 0.0
    for line in text.split(b"\n")[:-1]:
        event = json.loads(line)
        members = _MEMBERS[event["type"]]
        assert event.keys() == members.keys(), line
        for name, kind in members.items():
            assert isinstance(event[name], kind), line
        assert event.get("protocol", "acp") == "acp"
        assert event["ts"] >= last, line
        last = event["ts"]
        if event["type"] == "request":
            key = f"{event['to']}:{json.dumps(event['id'])}"
            assert key not in open_requests, "an id is used again before it was answered"
            open_requests[key] = event
        elif event["type"] == "response":
            key = f"{event['from']}:{json.dumps(event['id'])}"
            found.pairs.append((open_requests.pop(key), event))
        found.events.append(event)
    return found
