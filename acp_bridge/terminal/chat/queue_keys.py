"""The keys by which waiting prompts are chosen, edited, moved and dropped."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from prompt_toolkit.buffer import Buffer
from prompt_toolkit.filters import Condition, is_searching
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys

from acp_bridge.terminal.chat.conversation import Conversation

#: the keys of each action; some terminals send neither Alt nor Shift with an arrow.
_UP: Final = (("up",), ("k",), ("c-p",))
_DOWN: Final = (("down",), ("j",), ("c-n",))
_MOVES_UP: Final = (("K",), ("escape", "up"), ("s-up",))
_MOVES_DOWN: Final = (("J",), ("escape", "down"), ("s-down",))
_DROPS: Final = (("d",), ("delete",))
_RUN: Final = "/queue run"


def queue_bindings(
    conversation: Conversation, line: Buffer, put: Callable[[str], None]
) -> KeyBindings:
    """Return the key bindings of the list of waiting prompts; `put` fills the input line."""
    keys, queue, changes = KeyBindings(), conversation.queue, conversation.changes
    in_list = Condition(lambda: queue.chosen is not None) & ~is_searching
    opens = Condition(lambda: not (line.text or queue.chosen or conversation.read_only))

    @keys.add("tab", filter=opens & ~is_searching)
    def _enter(_: KeyPressEvent) -> None:
        queue.enter()

    def on(sequences: tuple[tuple[str, ...], ...], act: Callable[[], None]) -> None:
        for sequence in sequences:

            @keys.add(*sequence, filter=in_list)
            def _act(_: KeyPressEvent) -> None:
                conversation.questions.unmark()
                act()

    def run() -> None:
        if (chosen := queue.chosen) is not None and chosen.held:
            queue.leave()
            conversation.enter(_RUN)

    # What is no key of the list does nothing: it was meant for it, or typed by mistake.
    on(((Keys.Any,), ("escape", Keys.Any), ("c-j",)), lambda: None)
    on(_UP, lambda: queue.step(-1))
    on(_DOWN, lambda: queue.step(1))
    on(_MOVES_UP, lambda: changes.move(-1))
    on(_MOVES_DOWN, lambda: changes.move(1))
    on((("e",), ("enter",)), lambda: changes.edit(put))
    on(_DROPS, changes.drop)
    on((("r",),), run)
    on((("escape",), ("tab",)), queue.leave)
    return keys
