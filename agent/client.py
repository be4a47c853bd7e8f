"""The client of one session, as turns and tools see it.

`agent.session.session_client` is the real one, over the wire.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeAlias

#: the content of a `session/update` notification, in wire form
Update: TypeAlias = dict[str, Any]


class Marked(dict[str, Any]):
    """An update with marks for the bridge, which stand beside the update on the wire.

    `marks`: the `_meta.acp_bridge` of the `session/update`; docs/extension.md has them.
    """

    def __init__(self, update: Update, marks: Mapping[str, Any]) -> None:
        super().__init__(update)
        self.marks = dict(marks)


class ClientError(Exception):
    """The client refused a request, sent a malformed answer, or has left.

    `reason`: the client's own words on one line, for the model and the user; empty if it gave none.
    """

    def __init__(self, text: str = "", reason: str = "") -> None:
        super().__init__(text)
        self.reason = reason

    def explain(self, sentence: str) -> str:
        """Returns a sentence (given without its full stop) with the client's reason after it."""
        return f"{sentence}: {self.reason}" if self.reason else f"{sentence}."


class NotOffered(ClientError):
    """The client has no such method, whatever it announced in `initialize` (-32601).

    This is not a refusal: the work may be done without the client.
    """


class Client(Protocol):
    """The client of a session, with flags for what it offers.

    Every method but `update` may raise ClientError.
    """

    #: `fs/read_text_file`
    reads_files: bool
    #: `fs/write_text_file`
    writes_files: bool
    #: `terminal/*`
    has_terminals: bool

    async def update(self, update: Update) -> None: ...

    async def ask(self, tool_call: dict[str, Any], options: list[dict[str, Any]]) -> str | None:
        """Asks the user for permission and returns the id of the chosen option.

        Returns None if the prompt was cancelled instead.
        """
        ...

    async def read_file(self, path: str, line: int | None, limit: int | None) -> str: ...

    async def write_file(self, path: str, content: str) -> None: ...

    async def create_terminal(self, command: str, args: Sequence[str], cwd: str, limit: int) -> str:
        """Returns the terminal's id. `limit`: bytes of output to keep."""
        ...

    async def terminal_output(self, terminal_id: str) -> dict[str, Any]:
        """Returns `{"output": str, "truncated": bool, "exitStatus"?: {...}}`."""
        ...

    async def wait_for_terminal(self, terminal_id: str) -> dict[str, Any]:
        """Returns `{"exitCode": int | None, "signal": str | None}` once the command has ended."""
        ...

    async def kill_terminal(self, terminal_id: str) -> None: ...

    async def release_terminal(self, terminal_id: str) -> None: ...
