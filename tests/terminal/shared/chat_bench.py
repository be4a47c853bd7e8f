"""A chat in memory: real keys, a real connection, a bridge that tests play, a terminal model."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
from prompt_toolkit.data_structures import Size
from prompt_toolkit.history import InMemoryHistory
from prompt_toolkit.input import PipeInput, create_pipe_input

from acp_bridge.core.protocol import Json
from acp_bridge.terminal.chat.conversation import Conversation
from acp_bridge.terminal.chat.output import BufferedOutput
from acp_bridge.terminal.chat.screen import Screen
from acp_bridge.terminal.view.look import Look
from tests.sharing.bridge_client.fake_bridge import FakeBridge, connection_to
from tests.terminal.shared.terminal_model import TerminalModel

SESSION = "s1"
OPTIONS = [
    {"optionId": "once", "name": "Allow", "kind": "allow_once"},
    {"optionId": "always", "name": "Always", "kind": "allow_always"},
    {"optionId": "no", "name": "Reject", "kind": "reject_once"},
]


class Chat:
    """One that runs; its clock stands still unless a test moves it."""

    def __init__(self, bridge: FakeBridge, keys: PipeInput, terminal: TerminalModel) -> None:
        self.bridge, self.keys, self.terminal = bridge, keys, terminal
        self.now = 1000.0
        self.options = OPTIONS
        self.left = anyio.Event()

    def type(self, text: str) -> None:
        self.keys.send_text(text)

    def say(self, text: str) -> None:
        self.bridge.say(SESSION, text)

    async def prompt(self, text: str) -> Any:
        """Enter a prompt; returns its request once the bridge has it."""
        self.type(f"{text}\r")
        return await self.prompted(text)

    async def prompted(self, text: str) -> Any:
        def sent() -> Any:
            calls = [call for call in self.bridge.calls if call.method == "session/prompt"]
            return next((c for c in calls if c.params["prompt"][0].get("text") == text), None)

        with anyio.fail_after(5):
            return await self.bridge.until(sent)

    def end_turn(self, call: Any, reason: str = "end_turn") -> None:
        self.bridge.peer.answer(call.id, {"stopReason": reason})

    def ask(self, title: str = "rm -r /", call_id: str = "t1", **call: Any) -> int:
        call = {"toolCallId": call_id, "title": title, **call}
        params = {"sessionId": SESSION, "toolCall": call, "options": self.options}
        return self.bridge.ask("session/request_permission", params)


@asynccontextmanager
async def chat(
    folder: Path,
    *,
    columns: int = 60,
    rows: int = 20,
    look: Look | None = None,
    opened: Json | None = None,
    read_only: bool = False,
    **answers: Any,
) -> AsyncGenerator[Chat]:
    """Let a chat run for the block, with its session open."""
    bridge, terminal = FakeBridge(**answers), TerminalModel(columns, rows)
    with create_pipe_input() as keys:
        running = Chat(bridge, keys, terminal)
        conversation, screen = parts(running, folder, look or Look(), read_only=read_only)

        async def run() -> None:
            await screen.run()
            running.left.set()

        async with connection_to(bridge, conversation) as connection:
            conversation.use(connection)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(run)
                conversation.opened(SESSION, opened or {})
                yield running
                screen.leave()
                with anyio.fail_after(5):
                    await running.left.wait()


def parts(
    running: Chat, folder: Path, look: Look, *, read_only: bool = False
) -> tuple[Conversation, Screen]:
    """The conversation and the screen of a chat, which don't run yet."""
    screens: list[Screen] = []

    def changed() -> None:
        for each in screens:
            each.changed()

    terminal = running.terminal
    conversation = Conversation(folder, changed, lambda: running.now, read_only=read_only)
    output = BufferedOutput(terminal, lambda: Size(terminal.rows, terminal.columns))
    history = InMemoryHistory()
    screen = Screen(conversation, look, history, output=output, keys=running.keys, reflow=True)
    screens.append(screen)
    return conversation, screen
