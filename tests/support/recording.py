"""What a client saw: every line both ways, and questions to ask of them."""

from dataclasses import dataclass
from typing import Any, Literal

Message = dict[str, Any]


class RpcError(Exception):
    """An error answer: as raised by `request`, and to be raised by a handler."""

    def __init__(self, code: int, message: str = "", data: Any = None) -> None:
        super().__init__(f"{code} {message}")
        self.code = code
        self.message = message
        self.data = data


@dataclass(frozen=True, slots=True)
class Record:
    """One line. `in` came from the agent, `out` went to it."""

    direction: Literal["in", "out"]
    #: Monotonic seconds: when it was read whole, or given to the pipe.
    time: float
    #: None if the line is not a JSON object.
    message: Message | None
    #: The line with its newline.
    raw: bytes


class Recording(list[Record]):
    """The records in order. `since` in every question is an earlier `len(recording)`."""

    def incoming(self, since: int = 0) -> list[Message]:
        """The messages from the agent."""
        return [r.message for r in self[since:] if r.direction == "in" and r.message is not None]

    def updates(self, session_id: str | None = None, since: int = 0) -> list[Message]:
        """The `update` objects of every `session/update`, of one session or of all."""
        return [
            message["params"]["update"]
            for message in self.incoming(since)
            if message.get("method") == "session/update"
            and session_id in (None, message["params"]["sessionId"])
        ]

    def texts(self, session_id: str | None = None, since: int = 0) -> list[str]:
        """The agent's text, chunk by chunk."""
        return [
            update["content"]["text"]
            for update in self.updates(session_id, since)
            if update["sessionUpdate"] == "agent_message_chunk"
            and update["content"]["type"] == "text"
        ]

    def requests(self, method: str, since: int = 0) -> list[Message]:
        """The agent's requests and notifications with this method."""
        return [message for message in self.incoming(since) if message.get("method") == method]

    def answers(self, request_id: int | str) -> list[Message]:
        """The responses to one request of the client: there should be one."""
        return [message for message in self.incoming() if is_answer(request_id, message)]


def is_answer(request_id: int | str, message: Message) -> bool:
    """True and "1" are not the id 1."""
    found = message.get("id")
    return "method" not in message and type(found) is type(request_id) and found == request_id
