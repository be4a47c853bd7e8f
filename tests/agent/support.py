"""A client in memory, and the parts of a turn put together around it."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
from pydantic import BaseModel

from agent.client import ClientError, Update
from agent.conversation.compaction import Compactor
from agent.conversation.transcript import Transcript
from agent.model import Model, ModelChoice, OnToken, Part, Token
from agent.scripted.dialogue import parse_dialogue
from agent.scripted.scripted_model import ScriptedModel
from agent.secrets import Secrets
from agent.tools import (
    Access,
    Action,
    Grant,
    Show,
    Toolbox,
    ToolContext,
    ToolResult,
)
from agent.tools.standard import standard_tools
from agent.turn.loop import StopReason, Turn
from agent.turn.pause import Pause
from agent.turn.permissions import Permissions
from agent.turn.steering import Steering

_ENDS = ("completed", "failed")

#: what a user's choice stands for: an option's id, None for a cancelled prompt, or an error
Choice = str | None | Exception


class MemoryTerminal:
    """A terminal of the client's; a command in it ends when the test says so, or is killed."""

    def __init__(self, command: str, args: Sequence[str], cwd: str, limit: int) -> None:
        self.command = command
        self.args = list(args)
        self.cwd = cwd
        self.limit = limit
        self.output = ""
        self.truncated = False
        #: `{"exitCode", "signal"}` once it has ended
        self.status: dict[str, Any] | None = None
        self.ended = anyio.Event()
        self.killed = False
        self.released = False

    def end(self, exit_code: int | None = 0, signal: str | None = None) -> None:
        if self.status is None:
            self.status = {"exitCode": exit_code, "signal": signal}
            self.ended.set()


class MemoryClient:
    """Records updates; answers a permission request with `choice`, or never.

    It offers neither files nor terminals unless the test sets the flags: `files` are the editor's
    buffers, path -> text; `terminals` those that were created, `t1` first.
    """

    def __init__(self, choice: Choice = "reject_once") -> None:
        self.reads_files = False
        self.writes_files = False
        self.has_terminals = False
        self.files: dict[str, str] = {}
        self.terminals: dict[str, MemoryTerminal] = {}
        #: called with each new terminal: a test may let its command end there
        self.on_terminal: Callable[[MemoryTerminal], None] = lambda terminal: None
        self.updates: list[Update] = []
        self.asked: list[dict[str, Any]] = []
        #: the options of each request
        self.offered: list[list[dict[str, Any]]] = []
        self.was_asked = anyio.Event()
        self.choice: Choice = choice
        #: by the title of the call, before `choice`
        self.choices: dict[str, Choice] = {}
        self.answers_permission = True

    async def update(self, update: Update) -> None:
        self.updates.append(update)

    async def ask(self, tool_call: dict[str, Any], options: list[dict[str, Any]]) -> str | None:
        self.asked.append(tool_call)
        self.offered.append(options)
        self.was_asked.set()
        if not self.answers_permission:
            await anyio.sleep_forever()
        choice = self.choices.get(tool_call["title"], self.choice)
        if isinstance(choice, Exception):
            raise choice
        return choice

    async def read_file(self, path: str, line: int | None, limit: int | None) -> str:
        if path not in self.files:
            raise ClientError("fs/read_text_file failed")
        lines = self.files[path].splitlines(keepends=True)[(line or 1) - 1 :]
        return "".join(lines if limit is None else lines[:limit])

    async def write_file(self, path: str, content: str) -> None:
        self.files[path] = content

    async def create_terminal(self, command: str, args: Sequence[str], cwd: str, limit: int) -> str:
        terminal = MemoryTerminal(command, args, cwd, limit)
        terminal_id = f"t{len(self.terminals) + 1}"
        self.terminals[terminal_id] = terminal
        self.on_terminal(terminal)
        return terminal_id

    async def terminal_output(self, terminal_id: str) -> dict[str, Any]:
        terminal = self._terminal(terminal_id)
        found = {"output": terminal.output, "truncated": terminal.truncated}
        return found if terminal.status is None else {**found, "exitStatus": terminal.status}

    async def wait_for_terminal(self, terminal_id: str) -> dict[str, Any]:
        terminal = self._terminal(terminal_id)
        await terminal.ended.wait()
        assert terminal.status is not None
        return terminal.status

    async def kill_terminal(self, terminal_id: str) -> None:
        terminal = self._terminal(terminal_id)
        terminal.killed = True
        terminal.end(None, "SIGKILL")

    async def release_terminal(self, terminal_id: str) -> None:
        self._terminal(terminal_id).released = True

    def _terminal(self, terminal_id: str) -> MemoryTerminal:
        terminal = self.terminals.get(terminal_id)
        if terminal is None or terminal.released:
            raise ClientError("there is no such terminal")
        return terminal

    def texts(self, kind: str = "agent_message_chunk") -> list[str]:
        return [u["content"]["text"] for u in self.updates if u["sessionUpdate"] == kind]

    def card_states(self) -> list[tuple[str, str]]:
        """(card, status), in order, from its opening on."""
        return [(u["toolCallId"], u["status"]) for u in self.updates if "status" in u]

    def of_kind(self, kind: str) -> list[Update]:
        return [u for u in self.updates if u["sessionUpdate"] == kind]


class Tokens:
    """An `on_token` callback that keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[Token] = []

    async def __call__(self, token: Token) -> None:
        self.told.append(token)

    @property
    def texts(self) -> list[str]:
        """What was said, tool calls left out."""
        said = (token for token in self.told if isinstance(token, Part))
        return [token.text for token in said if token.kind != "tool_call"]


class NoteArgs(BaseModel):
    text: str


class Note:
    """A tool of the test's: keeps notes, or fails, or waits, as the test says."""

    name = "note"
    description = "Keep a note."
    kind = "other"
    Args = NoteArgs

    def __init__(self, access: Access = "execute") -> None:
        self.access: Access = access
        self.prepared: list[str] = []
        self.notes: list[str] = []
        self.started = anyio.Event()
        #: how many run now, and the most there were
        self.running = self.most = 0
        #: every run waits for it
        self.gate = anyio.Event()
        self.gate.set()
        self.outside = False
        self.content: tuple[dict[str, Any], ...] = ()
        self.result: ToolResult | None = None
        self.refusal: Exception | None = None
        self.problem: Exception | None = None
        #: shown while it runs
        self.shows: tuple[dict[str, Any], ...] = ()

    def title(self, args: NoteArgs) -> str:
        return f"Note {args.text}"

    def locations(self, args: NoteArgs, cwd: Path) -> list[dict[str, Any]]:
        return [{"path": str(cwd / args.text)}]

    async def prepare(self, args: NoteArgs, context: ToolContext) -> Action:
        self.prepared.append(args.text)
        if self.refusal:
            raise self.refusal

        async def run(show: Show) -> ToolResult:
            return await self._run(args.text, show)

        grant = Grant(("note", args.text), f"notes of {args.text}")
        return Action(run, grant, outside=self.outside, content=self.content)

    async def _run(self, text: str, show: Show) -> ToolResult:
        self.started.set()
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            if self.shows:
                await show(self.shows)
            await self.gate.wait()
        finally:
            self.running -= 1
        if self.problem:
            raise self.problem
        self.notes.append(text)
        return self.result or ToolResult(f"kept {text}", {"n": len(self.notes)})


#: a dialogue: two calls of it, then a word
NOTES = 'when: note\ncall: note {"text": "a"}\ncall: note {"text": "b"}\n---\ntext: Kept.\n'


class Fifo:
    """Tells the test that a command has come to a place: it writes a line into the file."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self.path = path
        # For writing too: it would be at its end, and readable, between one writer and the next.
        self._fd = os.open(path, os.O_RDWR | os.O_NONBLOCK)

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


class OneModel:
    """`Models` with one model, the same whichever is opened."""

    def __init__(self, model: Model) -> None:
        self.default = model.id
        self._model = model

    def offered(self) -> Sequence[ModelChoice]:
        return [ModelChoice(self.default, self.default)]

    def takes(self, model_id: str) -> bool:
        return False

    async def warm(self) -> None:
        pass

    def open(self, model_id: str, thought_level: str | None = None) -> Model:
        return self._model


class Bench:
    """One session's parts, in a folder of the test's. `model` may be replaced during a turn."""

    def __init__(self, folder: Path, model: Model | str, client: MemoryClient | None = None):
        self.client = client or MemoryClient()
        self.model = scripted(model) if isinstance(model, str) else model
        self.folder = folder / "sessions"
        self.cwd = folder / "cwd"
        self.cwd.mkdir(exist_ok=True)
        self.transcript = Transcript.create(self.folder, "s1", str(self.cwd))
        self.history = self.transcript.history
        self.permissions = Permissions()
        self.context = ToolContext(self.cwd, self.client)
        self.secrets = Secrets([])
        self.compactor: Compactor | None = None
        self.pause = Pause()
        self.steering = Steering()
        self.steering.open()
        self.max_calls = 100
        self.watch = True

    def turn(self, *on_token: OnToken, tools: Toolbox | None = None) -> Turn:
        return Turn(
            model=lambda: self.model,
            tools=tools or Toolbox(standard_tools()),
            transcript=self.transcript,
            permissions=self.permissions,
            context=self.context,
            secrets=self.secrets,
            compactor=self.compactor,
            pause=self.pause,
            steering=self.steering,
            max_calls=self.max_calls,
            watch=self.watch,
            on_token=on_token,
        )

    def says(self, text: str) -> bool:
        """The user's words for the turn that runs; False if it takes none."""
        return self.steering.add(user(text))

    def told(self) -> list[str]:
        """What the model was told of its calls, in their order."""
        return [str(m["content"]) for m in self.history.messages() if m["role"] == "tool"]

    def reloaded(self) -> Transcript:
        return Transcript.load(self.folder, "s1")


async def run(bench: Bench, text: str, *on_token: OnToken, tool: Note | None = None) -> StopReason:
    """A turn with that tool alone."""
    tools = Toolbox([tool] if tool else [])
    with anyio.fail_after(5):
        return await bench.turn(*on_token, tools=tools).run(user(text))


async def cancelled(bench: Bench, when: anyio.Event, tool: Note | None = None) -> None:
    """A turn that is cancelled `when`, and what has to hold after any such turn."""
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(bench.turn(tools=Toolbox([tool] if tool else [])).run, user("note"))
            await when.wait()
            tasks.cancel_scope.cancel()
    shown = len(bench.client.updates)
    ends = [card for card, status in bench.client.card_states() if status in _ENDS]
    opened = [card for card, status in bench.client.card_states() if status == "pending"]
    assert sorted(ends) == sorted(opened)
    assert bench.reloaded().history.messages() == bench.history.messages()
    assert bench.reloaded().history.replay() == bench.history.replay()
    for _ in range(3):
        await anyio.lowlevel.checkpoint()
    assert len(bench.client.updates) == shown
    assert tool is None or tool.running == 0


def user(text: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": text}]
