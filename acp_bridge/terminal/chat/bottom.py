"""The lines at the bottom of the chat's screen, above and below the input line. No I/O."""

from __future__ import annotations

import textwrap
from typing import Final

from prompt_toolkit.data_structures import Size

from acp_bridge.terminal.chat.conversation import Conversation
from acp_bridge.terminal.chat.queue_shown import QueueShown
from acp_bridge.terminal.view.look import Look

_MOST_WAITING: Final = 5
#: empty rows, the input line and the status line, around a question and its answers.
_ROWS_AROUND: Final = 5
#: what stands before the chosen row, and before the others.
CHOSEN: Final = "* "
_OTHER: Final = "  "
#: what stands for the middle of an answer that is too long.
_CUT: Final = " ... "


def waiting(conversation: Conversation, look: Look) -> list[str]:
    """Return the lines that list the prompts in the queue, the chosen one among them.

    They are the prompts of all clients that the bridge has told, and then those of this terminal
    that it has not told yet.
    """
    queue = conversation.queue
    chosen, listed = queue.chosen, queue.rows
    lines = [f"{CHOSEN if row is chosen else _OTHER}{row.line}" for row in listed]
    ids = [row.prompt_id for row in listed]
    new = [prompt for prompt in conversation.queued if prompt.prompt_id not in ids]
    lines += [f"{_OTHER}waits: {prompt.summary}" for prompt in new]
    first = 0 if chosen is None else max(0, listed.index(chosen) - _MOST_WAITING + 1)
    shown = lines[first : first + _MOST_WAITING]
    if (more := len(lines) - len(shown)) > 0:
        shown.append(f"{_OTHER}{look.marks.more} {more} more")
    return ["", *map(look.plain, shown)] if shown else []


def asked(conversation: Conversation, look: Look, size: Size, line: str) -> list[str]:
    """Return the lines with the answers to the shown question and the keys that mark them.

    Each answer is whole, since its end may say what it holds for. If there is no room for all of
    them, each is a row from which the middle is cut. `size`: the terminal's. `line`: the text in
    the input line. While that takes the keys, or the list of waiting prompts does, an answer needs
    Alt.
    """
    question, mark = conversation.questions.shown, conversation.questions.mark
    if question is None:
        return []
    alt = "" if conversation.keys_mark(line) or (mark and mark.typed) else "Alt-"
    rows, short = list[str](), list[str]()
    for option in question.options:
        keys = " or ".join(alt + key for key in option.keys)
        marked = mark is not None and mark.option is option
        name = look.plain(f"{keys}: {option.name}")
        rows += _wrapped(name, size.columns, CHOSEN if marked else _OTHER)
        short.append((CHOSEN if marked else _OTHER) + _without_middle(name, size.columns))
    if len(rows) > size.rows - _ROWS_AROUND:
        rows = short
    about = []
    if said := question.about.shown(size.columns, size.rows - len(rows) - _ROWS_AROUND):
        most = max(1, size.rows // 4)
        about = _wrapped(look.plain(f"about {said}"), size.columns, _OTHER, most)
    return ["", *about, *rows]


def status(conversation: Conversation, look: Look, line: str) -> str:
    """Return the status line: what the session does, its mode and model, tokens, cost and title.

    While the user is in the list of waiting prompts, or edits one, it names the keys for that.
    `line`: the text in the input line.
    """
    if (keys := _queue_keys(conversation.queue)) and not conversation.leaves_next:
        return keys
    shown, standing = conversation.shown, conversation.standing
    parts = [_doing(conversation, look, line), _way_in(conversation)]
    if standing is not None and conversation.queue.order is None:
        others = standing.waiting - len(conversation.queued)
        parts += [f"{others} of others wait"] if others > 0 else []
    if standing is not None:
        parts += [f"{standing.clients} clients"] if standing.clients > 1 else []
    parts += ["read-only"] if conversation.read_only else []
    for kind in ("mode", "model"):
        if choices := shown.choices(kind):
            parts.append(choices.name)
    if shown.used:
        used, size = shown.used
        parts.append(f"{100 * used // size} % of {_thousands(size)}")
    parts += [shown.cost, shown.title]
    return look.plain(f" {look.marks.dot} ".join(filter(None, parts)))


def _without_middle(line: str, columns: int) -> str:
    """Return a line for a row of this width; what is too long has ` ... ` for its middle."""
    most = max(columns - 1, 20) - len(_OTHER)
    half = (most - len(_CUT)) // 2
    return line if len(line) <= most else f"{line[:half]}{_CUT}{line[-half:]}"


def _wrapped(line: str, columns: int, indent: str, most: int | None = None) -> list[str]:
    return textwrap.wrap(
        line,
        max(columns - 1, 20),
        initial_indent=indent,
        subsequent_indent="    ",
        break_on_hyphens=False,
        max_lines=most,
        placeholder=" ...",
    )


def _doing(conversation: Conversation, look: Look, line: str) -> str:
    """Return what the session is doing, or what the next Ctrl-C does; "" if it is idle."""
    if conversation.leaves_next:
        return "Ctrl-C again leaves"
    if conversation.session_id is None:
        return f"starting{look.marks.more}"
    if (mark := conversation.questions.mark) is not None:
        return f"Enter answers: {mark.option.name}"
    if conversation.questions.shown is not None:
        keys = "a key marks" if conversation.keys_mark(line) else "Alt and a key mark"
        return f"a permission is asked: {keys}, Enter answers"
    if conversation.standing is not None and (word := conversation.standing.word):
        return word
    if conversation.running:
        return f"working {conversation.prompts.seconds:.0f} s, Esc stops"
    return ""


def _way_in(conversation: Conversation) -> str:
    """Return the words on the key that enters the list of waiting prompts; "" if none does."""
    return "Tab: queue" if conversation.queue.rows and not conversation.read_only else ""


def _queue_keys(queue: QueueShown) -> str:
    """Return the words on the keys in the list of waiting prompts, or in an edit; "" elsewhere."""
    if (row := queue.chosen) is not None:
        return (
            "e edits, d drops, r runs, K/J move, Esc"
            if row.held
            else "e edits, d drops, K/J move, Esc leaves"
        )
    if queue.editing is not None:
        return f"prompt {queue.editing.row.number}: Enter saves, Esc gives up"
    return ""


def _thousands(tokens: int) -> str:
    return f"{tokens / 1000:.0f}k" if tokens >= 1000 else str(tokens)
