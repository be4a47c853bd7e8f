"""A client in memory, and the parts of a turn put together around it."""

import os
from pathlib import Path
from typing import Any

import anyio

from agent.dialogue import parse_dialogue
from agent.history import Update
from agent.loop import Turn
from agent.model import Model, OnToken, Part, Token
from agent.permissions import Permissions
from agent.scripted_model import ScriptedModel
from agent.tools import Toolbox, ToolContext, standard_tools
from agent.transcript import Transcript

#: what a user's choice stands for: an option's id, None for a cancelled prompt, or an error
Choice = str | None | Exception


class MemoryClient:
    """Records updates; answers a permission request with `choice`, or never."""

    def __init__(self, choice: Choice = "reject_once") -> None:
        self.reads_files = False
        self.files: dict[str, str] = {}
        self.updates: list[Update] = []
        self.asked: list[dict[str, Any]] = []
        self.was_asked = anyio.Event()
        self.choice: Choice = choice
        self.answers_permission = True

    async def update(self, update: Update) -> None:
        self.updates.append(update)

    async def ask(self, tool_call: dict[str, Any], options: list[dict[str, Any]]) -> str | None:
        self.asked.append(tool_call)
        self.was_asked.set()
        if not self.answers_permission:
            await anyio.sleep_forever()
        if isinstance(self.choice, Exception):
            raise self.choice
        return self.choice

    async def read_file(self, path: str, line: int | None, limit: int | None) -> str:
        return self.files[path]

    def texts(self, kind: str = "agent_message_chunk") -> list[str]:
        return [u["content"]["text"] for u in self.updates if u["sessionUpdate"] == kind]

    def card_states(self) -> list[tuple[str, str]]:
        """(card, status), in order, from its opening on."""
        return [(u["toolCallId"], u["status"]) for u in self.updates if "toolCallId" in u]


class Tokens:
    """An `on_token` callback that keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[Token] = []

    async def __call__(self, token: Token) -> None:
        self.told.append(token)

    @property
    def texts(self) -> list[str]:
        return [token.text for token in self.told if isinstance(token, Part)]


class Fifo:
    """Tells the test that a command has come to a place: it writes a line into the file."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self.path = path
        self._fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)

    async def lines(self, count: int = 1) -> None:
        """Wait until so many were written."""
        seen = b""
        with anyio.fail_after(5):
            while seen.count(b"\n") < count:
                await anyio.wait_readable(self._fd)
                seen += os.read(self._fd, 100)

    def close(self) -> None:
        os.close(self._fd)


def scripted(text: str) -> ScriptedModel:
    return ScriptedModel(parse_dialogue(text))


class Bench:
    """One session's parts, in a folder of the test's."""

    def __init__(self, folder: Path, model: Model | str, client: MemoryClient | None = None):
        self.client = client or MemoryClient()
        self.model = scripted(model) if isinstance(model, str) else model
        self.folder = folder / "sessions"
        self.cwd = folder / "cwd"
        self.cwd.mkdir()
        self.transcript = Transcript.create(self.folder, "s1", str(self.cwd))
        self.permissions = Permissions()

    def turn(self, *on_token: OnToken, tools: Toolbox | None = None) -> Turn:
        return Turn(
            model=self.model,
            tools=tools or standard_tools(),
            transcript=self.transcript,
            permissions=self.permissions,
            context=ToolContext(self.cwd, self.client),
            on_token=on_token,
        )

    def reloaded(self) -> Transcript:
        return Transcript.load(self.folder, "s1")


def user(text: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": text}]
