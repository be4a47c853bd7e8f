"""The key bindings of the chat."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from prompt_toolkit.buffer import Buffer
from prompt_toolkit.filters import Condition, has_completions, is_searching
from prompt_toolkit.key_binding import (
    KeyBindings,
    KeyBindingsBase,
    KeyPressEvent,
    merge_key_bindings,
)
from prompt_toolkit.keys import Keys
from prompt_toolkit.search import accept_search

from acp_bridge.terminal.chat.conversation import Conversation
from acp_bridge.terminal.chat.questions import Taken

#: all keys that can mark an answer to a question.
_MARKING: Final = "123456789yand"
_TABS: Final = (Keys.Tab, Keys.BackTab)

#: the keys of each action; some terminals send neither Alt nor Shift with an arrow.
_UP: Final = (("up",), ("k",), ("c-p",))
_DOWN: Final = (("down",), ("j",), ("c-n",))
_MOVES_UP: Final = (("K",), ("escape", "up"), ("s-up",))
_MOVES_DOWN: Final = (("J",), ("escape", "down"), ("s-down",))
_DROPS: Final = (("d",), ("delete",))
_RUN: Final = "/queue run"


class Enter(Protocol):
    """Takes what was typed; `steers`: its words are to join the turn that runs."""

    def __call__(self, text: str, *, steers: bool) -> None:
        """Run or send the text."""


def bindings(
    conversation: Conversation,
    line: Buffer,
    enter: Enter,
    put: Callable[[str], None],
    edit: Callable[[], None],
    leave: Callable[[], None],
) -> KeyBindingsBase:
    """Return the key bindings; `leave` ends the program.

    `enter` gets the text that was typed, `put` puts words into the input line, and `edit` opens the
    line in the user's editor.
    """
    keys = KeyBindings()
    _editing(keys, conversation, line, enter)
    _rows(keys, line)
    _questions(keys, conversation, line)
    _stopping(keys, conversation, line, leave)

    @keys.add("c-o")
    def _open(_: KeyPressEvent) -> None:
        conversation.open_call()

    @keys.add("c-x", "c-e")
    def _edit(_: KeyPressEvent) -> None:
        edit()

    @keys.add("c-z")
    def _suspend(event: KeyPressEvent) -> None:
        event.app.suspend_to_background()

    @keys.add("s-tab", filter=Condition(lambda: not line.complete_state))
    def _cycle(_: KeyPressEvent) -> None:
        conversation.cycle_mode()

    # Last, so that a key of the list of what waits counts there before any other.
    return merge_key_bindings([keys, queue_bindings(conversation, line, put)])


def _stopping(
    keys: KeyBindings, conversation: Conversation, line: Buffer, leave: Callable[[], None]
) -> None:
    @keys.add("c-c", filter=~is_searching)
    def _interrupt(_: KeyPressEvent) -> None:
        _take_mark_away(conversation, line)
        if line.text and not conversation.running:
            conversation.queue.editing = None
            line.reset()
        elif conversation.interrupt():
            leave()

    @keys.add("escape", filter=Condition(lambda: not line.complete_state) & ~is_searching)
    def _stop(_: KeyPressEvent) -> None:
        if conversation.running:
            conversation.stop()

    editing = Condition(lambda: conversation.queue.editing is not None)

    @keys.add("escape", filter=editing & ~is_searching & ~has_completions)
    def _give_up(_: KeyPressEvent) -> None:
        conversation.queue.editing = None
        line.reset()

    marked = Condition(lambda: conversation.questions.mark is not None)

    @keys.add("escape", filter=marked & ~is_searching)
    def _unmark(_: KeyPressEvent) -> None:
        _take_mark_away(conversation, line)

    @keys.add("c-d", filter=Condition(lambda: not line.text))
    def _leave(_: KeyPressEvent) -> None:
        leave()


def _editing(keys: KeyBindings, conversation: Conversation, line: Buffer, enter: Enter) -> None:
    chosen = Condition(lambda: bool(line.complete_state and line.complete_state.current_completion))

    @keys.add("enter", filter=~is_searching)
    def _enter(_: KeyPressEvent) -> None:
        match conversation.press_enter():
            case Taken(typed=True):
                line.reset()
            case None:
                _send(line, enter, steers=False)

    @keys.add("escape", "enter")
    def _steer(_: KeyPressEvent) -> None:
        _send(line, enter, steers=True)

    @keys.add("enter", filter=is_searching)
    def _take_found(_: KeyPressEvent) -> None:
        accept_search()
        line.cursor_position = len(line.text)

    waits = Condition(
        lambda: not (line.text or conversation.queue.editing) and bool(conversation.prompts.waiting)
    )

    @keys.add("up", filter=waits & ~is_searching)
    def _take_back(_: KeyPressEvent) -> None:
        if (text := conversation.take_back()) is not None:
            line.insert_text(text)

    @keys.add("enter", filter=chosen)
    def _take_completion(event: KeyPressEvent) -> None:
        line.complete_state = None
        if any(each.key in _TABS for each in event.previous_key_sequence[-1:]):  # as in a shell
            _send(line, enter, steers=False)

    @keys.add("escape", filter=Condition(lambda: line.complete_state is not None))
    def _no_completion(_: KeyPressEvent) -> None:
        line.cancel_completion()


def _rows(keys: KeyBindings, line: Buffer) -> None:
    """Add the keys for a text of several rows."""

    @keys.add("c-j")
    def _new_line(_: KeyPressEvent) -> None:
        line.insert_text("\n")

    @keys.add("c-u")
    def _empty(event: KeyPressEvent) -> None:
        event.app.clipboard.set_text(line.delete_before_cursor(line.cursor_position))


def _send(line: Buffer, enter: Enter, *, steers: bool) -> None:
    """Give `enter` what was typed, and empty the line; nothing happens if it is blank."""
    text = line.text
    if text.strip():
        line.reset(append_to_history=True)
        enter(text, steers=steers)


def _take_mark_away(conversation: Conversation, line: Buffer) -> None:
    """Remove the mark, if there is one, and its key from the line."""
    mark = conversation.questions.mark
    conversation.questions.unmark()
    if mark is not None and mark.typed:
        line.reset()


def _questions(keys: KeyBindings, conversation: Conversation, line: Buffer) -> None:
    asked = Condition(lambda: conversation.questions.shown is not None)
    free = Condition(lambda: conversation.keys_mark(line.text))

    @keys.add(Keys.Any, filter=free & ~is_searching)
    def _mark(event: KeyPressEvent) -> None:
        before = line.text
        line.insert_text(event.data)
        conversation.questions.press(event.data, before)

    for key in _MARKING:

        @keys.add("escape", key, filter=asked & ~is_searching)
        def _mark_beside_the_text(event: KeyPressEvent) -> None:
            conversation.queue.leave()  # else Enter would be for the list
            conversation.questions.press_alt(event.data)


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
