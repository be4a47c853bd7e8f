"""The layout at the bottom of the terminal: tail, waiting prompts, question, input line, status.

Invariant: the input line always has room; where the terminal is too low, the rest is cut, the tail
first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from prompt_toolkit.application import get_app
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import ANSI, StyleAndTextTuples
from prompt_toolkit.layout import ConditionalContainer, Container, HSplit, Layout, Window
from prompt_toolkit.layout.controls import BufferControl, FormattedTextControl
from prompt_toolkit.layout.dimension import Dimension
from prompt_toolkit.styles import Style
from prompt_toolkit.widgets import SearchToolbar

from acp_bridge.terminal.chat import bottom
from acp_bridge.terminal.chat.conversation import Conversation
from acp_bridge.terminal.shared.table import cut
from acp_bridge.terminal.view.look import Look

STYLE: Final = Style.from_dict(
    {"quiet": "ansibrightblack", "asked": "bold", "chosen": "reverse", "mark": "bold"}
)
_MOST_TYPED: Final = 8
_MOST_COMPLETIONS: Final = 6


def layout(
    conversation: Conversation, look: Look, line: Buffer, tail: Callable[[], list[str]]
) -> Layout:
    """Return the layout; `tail` returns the lines to draw above everything else."""
    search = _search(conversation)
    typed = Window(
        BufferControl(line, search_buffer_control=search.control, preview_search=True),
        height=lambda: Dimension(min=1, max=_MOST_TYPED),
        wrap_lines=True,
        dont_extend_height=True,
        get_line_prefix=lambda number, wrapped: _prefix(look, number, wrapped),
    )
    rest = HSplit(
        [
            _lines("class:quiet", lambda: _cut(bottom.waiting(conversation, look)), bottom.CHOSEN),
            _lines(
                "class:asked",
                lambda: bottom.asked(conversation, look, get_app().output.get_size(), line.text),
                bottom.CHOSEN,
            ),
            _lines("", lambda: [""]),
            typed,
            ConditionalContainer(
                Window(
                    FormattedTextControl(lambda: _completions(line, look)), dont_extend_height=True
                ),
                filter=Condition(lambda: bool(line.complete_state)),
            ),
            search,
            _lines("class:quiet", lambda: _cut([bottom.status(conversation, look, line.text)])),
        ]
    )
    above = ConditionalContainer(
        Window(FormattedTextControl(lambda: _last(tail(), rest)), dont_extend_height=True),
        filter=Condition(lambda: bool(conversation.unprinted.tail())),
    )
    return Layout(HSplit([above, rest]), focused_element=typed)


def _search(conversation: Conversation) -> SearchToolbar:
    """Return the line in which the user types what to search for in the prompts entered before."""
    return SearchToolbar(
        Buffer(on_text_changed=lambda _: conversation.questions.unmark()),
        forward_search_prompt="search forward: ",
        backward_search_prompt="search: ",
        ignore_case=True,
    )


def _last(lines: list[str], rest: Container) -> ANSI:
    """Return the last of `lines` that fit above `rest`, and one more, which scrolls off."""
    size = get_app().output.get_size()
    taken = rest.preferred_height(size.columns, size.rows).preferred
    room = max(0, size.rows - taken - 1)
    return ANSI("\n".join(lines[max(0, len(lines) - room) :]))


def _columns() -> int:
    return get_app().output.get_size().columns


def _cut(lines: list[str]) -> list[str]:
    return [cut(line, _columns()) for line in lines]


def _lines(style: str, lines: Callable[[], list[str]], mark: str = "") -> ConditionalContainer:
    """Return a window as high as its lines, or lower where there is no room.

    The window is hidden if there are none. A line that begins with `mark` is the chosen one.
    """

    def styled() -> StyleAndTextTuples:
        out: StyleAndTextTuples = []
        for number, line in enumerate(lines()):
            chosen = mark and line.startswith(mark)
            out += [("", "\n")] if number else []
            out += [("[SetCursorPosition]", "")] if chosen else []  # it is what scrolling keeps
            out.append(("class:chosen" if chosen else style, line))
        return out

    text = FormattedTextControl(styled)
    window = Window(text, dont_extend_height=True, wrap_lines=True)
    return ConditionalContainer(window, filter=Condition(lambda: bool(lines())))


def _prefix(look: Look, number: int, wrapped: int) -> StyleAndTextTuples:
    return [("class:mark", f"{look.marks.user} " if number == wrapped == 0 else "  ")]


def _completions(line: Buffer, look: Look) -> StyleAndTextTuples:
    """Return up to `_MOST_COMPLETIONS` completions as styled rows, the chosen one among them."""
    state = line.complete_state
    if state is None:
        return []
    chosen = state.complete_index
    first = max(0, min((chosen or 0) - _MOST_COMPLETIONS + 1, len(state.completions)))
    rows: StyleAndTextTuples = []
    for number, each in enumerate(state.completions[first : first + _MOST_COMPLETIONS], first):
        style = "class:chosen" if number == chosen else "class:quiet"
        meta = f"  {each.display_meta_text}" if each.display_meta_text else ""
        end = "" if number == first + _MOST_COMPLETIONS - 1 else "\n"
        shown = cut(look.plain(each.display_text + meta), _columns() - 2)
        rows += [("", "  "), (style, shown), ("", end)]
    return rows
