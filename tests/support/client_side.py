"""How the recording client answers an agent's requests: permissions, files, terminals, forms."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from tests.support.recording import Message, RpcError

Handler = Callable[[Message], Message]


class NoAnswer(Exception):
    """Raised by a handler that leaves a request unanswered."""


def never_answers(params: Message) -> Message:
    raise NoAnswer


@dataclass(slots=True)
class ClientSide:
    """Settings and state; `handlers[method] = ...` replaces any of them."""

    #: The kind of option that is chosen, or what else happens.
    permission: Literal["allow", "reject", "cancel", "never"] = "reject"
    #: By path: what `fs/read_text_file` reads and `fs/write_text_file` writes.
    files: dict[str, str] = field(default_factory=dict)
    #: Those created and not yet released.
    terminals: list[str] = field(default_factory=list)
    handlers: dict[str, Handler] = field(default_factory=dict)
    _terminals_made: int = 0

    def answer(self, method: str, params: Message) -> Message:
        """The result; raises RpcError for an error, NoAnswer for silence."""
        if method in self.handlers:
            return self.handlers[method](params)
        match method:
            case "session/request_permission":
                return self._permit(params)
            case "fs/read_text_file":
                return self._read(params)
            case "fs/write_text_file":
                self.files[params["path"]] = params["content"]
                return {}
            case "elicitation/create":
                return {"action": "decline"}
            case _ if method.startswith("terminal/"):
                return self._terminal(method, params)
            case _:
                raise RpcError(-32601, f"no method {method}")

    def _permit(self, params: Message) -> Message:
        if self.permission == "never":
            raise NoAnswer
        for option in params["options"]:
            if option["kind"].startswith(self.permission):
                return {"outcome": {"outcome": "selected", "optionId": option["optionId"]}}
        return {"outcome": {"outcome": "cancelled"}}

    def _read(self, params: Message) -> Message:
        if params["path"] not in self.files:
            raise RpcError(-32002, "no such file")
        return {"content": self.files[params["path"]]}

    def _terminal(self, method: str, params: Message) -> Message:
        if method == "terminal/create":
            self._terminals_made += 1
            self.terminals.append(f"term-{self._terminals_made}")
            return {"terminalId": self.terminals[-1]}
        if params["terminalId"] not in self.terminals:
            raise RpcError(-32002, "no such terminal")
        match method:
            case "terminal/output":
                return {"output": "", "truncated": False}
            case "terminal/wait_for_exit":
                return {"exitCode": 0}
            case "terminal/release":
                self.terminals.remove(params["terminalId"])
                return {}
            case _:
                return {}
