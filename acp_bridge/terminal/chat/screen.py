"""The chat's screen: finished blocks go into the scrollback; tail and input line are redrawn below.

Invariants:
- A finished block is printed in the same single write as the redrawn part below it.
- Nothing is drawn wider or higher than the terminal.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Final

import anyio
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import ThreadedCompleter
from prompt_toolkit.history import History
from prompt_toolkit.input import Input

from acp_bridge.terminal.chat.completion import ChatCompleter
from acp_bridge.terminal.chat.conversation import Conversation
from acp_bridge.terminal.chat.files import Files
from acp_bridge.terminal.chat.keys import bindings
from acp_bridge.terminal.chat.layout import STYLE, layout
from acp_bridge.terminal.chat.local_commands import refuse_unknown
from acp_bridge.terminal.chat.local_commands import run as run_local
from acp_bridge.terminal.chat.output import (
    BufferedOutput,
    ReflowingApplication,
    terminal_output,
)
from acp_bridge.terminal.view.blocks import Block
from acp_bridge.terminal.view.look import Look, reflows

if TYPE_CHECKING:
    from acp_bridge.terminal.view.lines import Renderer

#: seconds between two drawings of a message that streams.
_FRAME: Final = 0.05
#: seconds after which an Escape is a key of its own: neither the begin of a sequence nor Alt.
_ESCAPE: Final = 0.05


class Screen:
    """The screen of one conversation, on prompt_toolkit."""

    def __init__(
        self,
        conversation: Conversation,
        look: Look,
        history: History,
        *,
        output: BufferedOutput | None = None,
        keys: Input | None = None,
        reflow: bool | None = None,
    ) -> None:
        """`output`, `keys` and `reflow`: for tests; by default those of this process's terminal."""
        self._conversation, self._look = conversation, look
        self._output = output or terminal_output(look)
        self._news = anyio.Event()
        self._leaves = False
        #: set when the user's editor gives the terminal back; None: it was never given away.
        self._back: anyio.Event | None = None
        self._renderer: Renderer | None = None
        self._line = Buffer(
            multiline=True,
            history=history,
            completer=ThreadedCompleter(
                ChatCompleter(conversation, Files(conversation.folder, time.monotonic))
            ),
            complete_while_typing=True,
            on_text_changed=lambda _: self._on_typed(),
            on_cursor_position_changed=lambda _: conversation.questions.unmark(),
        )
        self._app = ReflowingApplication(
            layout=layout(conversation, look, self._line, self._tail_lines),
            key_bindings=bindings(
                conversation, self._line, self._enter, self._put, self._edit, self.leave
            ),
            style=STYLE,
            output=self._output,
            input=keys,
            reflows=reflows(os.environ) if reflow is None else reflow,
            erase_when_done=True,
            after_render=lambda _: self._drawn(),
        )
        self._app.ttimeoutlen = self._app.timeoutlen = _ESCAPE

    # -- running

    async def run(self) -> None:
        """Draw and read keys until the person leaves, or `leave` is called."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._draw_on)
            tasks.start_soon(self._tick)
            try:
                await self._app.run_async(
                    handle_sigint=False, set_exception_handler=False, pre_run=self._leave_early
                )
            except EOFError:
                pass  # the terminal was closed
            finally:
                tasks.cancel_scope.cancel()
                self._release()
                self._print_rest()

    def leave(self) -> None:
        """End `run`, even if it has not begun yet."""
        self._leaves = True
        if self._app.is_running and not self._app.is_done:
            self._app.exit()

    def _leave_early(self) -> None:
        if self._leaves:
            self._app.exit()

    def changed(self) -> None:
        """Redraw soon: something that is shown has changed."""
        self._news.set()

    def ring(self) -> None:
        """Ring the terminal's bell."""
        self._output.write_raw("\a")
        self._output.flush()

    # -- drawing

    async def _draw_on(self) -> None:
        while True:
            await self._news.wait()
            if self._back is not None:
                await self._back.wait()
            self._news = anyio.Event()
            self._print()
            self._app.invalidate()
            if self._conversation.unprinted.more:
                self.changed()
            await anyio.sleep(_FRAME)

    async def _tick(self) -> None:
        """Redraw once a second while something changes with time, and once after that."""
        changes = True
        while True:
            talk = self._conversation
            changed = changes
            changes = talk.running or talk.leaves_next or talk.questions.shown is not None
            if changes or changed:
                self.changed()
            await anyio.sleep(1)

    def _print(self) -> None:
        """Put finished blocks into the output above the drawn part.

        The next drawing writes both.
        """
        if text := self._finished():
            self._output.buffering = True
            self._output.hide_cursor()
            self._app.reflow()
            self._app.renderer.erase(leave_alternate_screen=False)
            self._output.write_raw(text)

    def _print_rest(self) -> None:
        self._conversation.transcript.end_turn()
        self._conversation.unprinted.collect()
        while self._conversation.unprinted.more:
            self._output.write_raw(self._finished())
        self._output.flush()

    def _finished(self) -> str:
        lines = self._lines(self._conversation.unprinted.pop_next())
        return "".join(f"{line}\r\n" for line in lines)

    def _tail_lines(self) -> list[str]:
        return self._lines(self._conversation.unprinted.tail())

    def _drawn(self) -> None:
        self._release()
        self._conversation.questions.drawn()

    def _release(self) -> None:
        self._output.buffering = False
        self._output.show_cursor()
        self._output.flush()

    def _lines(self, blocks: list[Block]) -> list[str]:
        if not blocks:
            return []
        if self._renderer is None:  # slow to import: by now the input line is on the screen
            from acp_bridge.terminal.view.lines import Renderer

            self._renderer = Renderer(self._look)
        return self._renderer.lines(blocks, self._output.get_size().columns)

    # -- input

    def _on_typed(self) -> None:
        self._conversation.questions.unmark()
        if self._line.text:
            self._conversation.queue.leave()

    def _put(self, text: str) -> None:
        """Put words into the input line, unless something was typed there meanwhile."""
        if not self._line.text:
            self._line.insert_text(text)

    def _edit(self) -> None:
        """Open the line in the editor that VISUAL or EDITOR names; nothing is printed meanwhile."""
        back = self._back = anyio.Event()
        self._release()  # else what is not written yet would erase what the editor shows
        self._line.open_in_editor().add_done_callback(lambda _: back.set())

    def _enter(self, text: str, *, steers: bool) -> None:
        talk = self._conversation
        if talk.queue.editing is not None:
            talk.changes.save(text, self._put)
        elif not run_local(talk, text, self.leave) and not refuse_unknown(talk, text):
            talk.enter(text, steers=steers)
