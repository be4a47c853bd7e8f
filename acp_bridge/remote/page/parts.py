"""The HTML around a session on the page: the list of sessions, the queue, questions. SANS-IO.

Buttons have the message that they send in `data-do` and further `data-` attributes. Texts that the
bridge did not write are escaped by `markup.text`, as in `view.html`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

from acp_bridge.core.protocol import Json, LiveState, as_object
from acp_bridge.core.updates import tool_calls
from acp_bridge.remote.page.taps import unsent_key
from acp_bridge.sharing.bridge_client.permission_options import options_of
from acp_bridge.terminal.view.block_text import one_line
from acp_bridge.terminal.view.html import asked
from acp_bridge.terminal.view.markup import link, text
from acp_bridge.terminal.view.queue_rows import Row, moved
from acp_bridge.terminal.view.settings_shown import KINDS, SettingsShown

#: the states of a session, in words for people.
_STATES: Final = {
    LiveState.IDLE: "ready",
    LiveState.RUNNING: "working",
    LiveState.WORKING: "working on its own",
    LiveState.PERMISSION: "asks",
    LiveState.PAUSED: "paused",
    LiveState.HELD: "on hold",
    LiveState.CANCELLING: "stopping",
    LiveState.STARTING: "starting",
    LiveState.ASLEEP: "asleep",
    LiveState.BLOCKED: "the agent is not ready",
    LiveState.CLOSED: "closed",
}
#: the CSS classes of an option's button: one that holds for longer stands out less.
_CLASSES: Final = {"allow_once": "allow", "allow_always": "always"}
_LONG: Final = 300
#: what is said of a session that is not there, or that this login may not know of.
UNKNOWN: Final = "there is no such session. Its id is unknown"


def more_sessions(shown: int) -> str:
    """Return the button that adds further sessions to the `shown` ones."""
    return f'<button data-do="more" data-rows="{shown}">Show more</button>'


def earlier(step: int, left: int, lost: int) -> str:
    """Return what stands before the first piece on the page.

    `step`: how many of the `left` earlier ones the button adds; `lost`: how many more there are
    that the page can't be given.
    """
    of = f" of {left}" if left > step else ""
    more = f'<button data-do="earlier">Show {step}{of} earlier</button>' if left else ""
    if not lost:
        return more
    how = "<code>acp-bridge show</code> on the machine of the server shows them"
    return f'{more}<p class="about">{lost} earlier ones are too many for this page: {how}.</p>'


def session(row: Json) -> str:
    """Return the row of a session in the list; its id is `l-` and the session's id."""
    session_id = str(row.get("sessionId"))
    state = str(row.get("state", ""))
    word = _STATES.get(LiveState(state), "") if state in set(LiveState) else ""
    waits = row.get("waiting")
    about = [
        word,
        f"{waits} waiting" if isinstance(waits, int) and waits > 0 else "",
        one_line(row.get("agent"), 40),
        one_line(row.get("cwd"), _LONG).rpartition("/")[2],
        "" if state else one_line(row.get("updatedAt"), 40)[:16].replace("T", " "),
    ]
    asks = one_line(row.get("asks"), _LONG)
    title = one_line(row.get("title"), _LONG) or "A session without a title"
    return (
        f'<li id="l-{escape(session_id)}" class="{escape(state or "kept")}">'
        f'<a id="s-{escape(session_id)}" href="#s={escape(session_id)}">'
        f'<span class="name">{text(title)}</span>'
        f'<span class="about">{text(" · ".join(filter(None, about)))}</span>'
        + (f'<span class="asks">Asks: {text(asks)}</span>' if asks else "")
        + "</a></li>"
    )


def state(told: Json) -> str:
    """Return a session's state in words, from the params of `_acp_bridge/state`."""
    word = str(told.get("state", ""))
    shown = _STATES.get(LiveState(word), "") if word in set(LiveState) else ""
    others = told.get("clients")
    with_others = f" · open in {others} places" if isinstance(others, int) and others > 1 else ""
    return text(shown + with_others)


def unopened(why: str, address: str | None, session_id: str) -> str:
    """Return the text that says why a session can't be opened.

    `address`: the origin of the server that has the session; if there is one, the text has a link
    to it on that server's page. The user has to log in there; nothing of this page goes with it.
    """
    told = text(f"can't be opened: {why}")
    if address is None:
        return told
    return f"{told} {link(f'{address}/#s={session_id}', text(f'Open it at {address}'))}"


def question(number: int, key: str, params: Json, *, may: bool) -> str:
    """Return a permission question, with a button for each option if the page `may` answer.

    `key` is what an answer names (`taps.question_key`).
    """
    call = as_object(params.get("toolCall"))
    about = escape(str(call.get("toolCallId", "")))
    buttons = "".join(
        f'<button id="q{number}-{at}" class="{_class(option)}" data-do="answer"'
        f' data-careful data-question="{key}" data-call="{about}" data-option="{at}"'
        f' data-kind="{escape(str(option.get("kind")))}">'
        f"{text(one_line(option.get('name'), _LONG) or one_line(option['optionId'], _LONG))}"
        "</button>"
        for at, option in enumerate(options_of(params))
    )
    return (
        f'<section class="question" id="q{number}" aria-label="The agent asks">'
        f'<p class="asks">The agent asks</p>{asked(tool_calls.shown(call))}'
        f'<div class="answers">{buttons if may else ""}</div></section>'
    )


def _class(option: Json) -> str:
    return _CLASSES.get(str(option.get("kind")), "deny")


def queue(rows: Iterable[Row], *, may: bool) -> str:
    """Return the list of waiting prompts, with buttons to move or drop them if the page `may`."""
    listed = list(rows)
    items = "".join(_waiting(row, listed, may=may) for row in listed)
    run = (
        f'<button id="run" data-do="run" data-careful data-prompts="{unsent_key(listed)}">'
        "Run unsent prompts</button>"
        if may and any(row.held for row in listed)
        else ""
    )
    return f"<h2>Waiting</h2><ol>{items}</ol>{run}" if listed else ""


def _waiting(row: Row, listed: Sequence[Row], *, may: bool) -> str:
    prompt = escape(str(row.prompt_id))
    left = ' <span class="about">(unsent)</span>' if row.held else ""
    wanted = (("move", -1, "Move up", "↑"), ("move", 1, "Move down", "↓"), ("drop", 0, "Drop", "✕"))
    buttons = ""
    for what, by, name, sign in wanted if may else ():
        before = ""
        if what == "move":
            to = moved(listed, row.prompt_id, by)
            # the place that the user sees: to go there twice is to go there once
            before = f' data-before="{escape(str(to["before"] or ""))}"' if to else " disabled"
        buttons += (
            f'<button id="w{row.number}-{what}-{by}" data-do="{what}" data-careful{before}'
            f' data-prompt="{prompt}" aria-label="{name} prompt {row.number}">{sign}</button>'
        )
    return f"<li><span>{text(row.text)}{left}</span>{buttons}</li>"


def settings(shown: SettingsShown) -> str:
    """Return select elements for the mode and for the model, where the session has them."""
    return "".join(filter(None, (_choices(shown, kind) for kind in KINDS)))


def _choices(shown: SettingsShown, kind: str) -> str:
    choices = shown.choices(kind)
    if choices is None:
        return ""
    options = "".join(
        f'<option value="{escape(each.id)}"{" selected" if each.id == choices.current else ""}>'
        f"{text(each.name)}</option>"
        for each in choices.values
    )
    return (
        f'<label><span>{kind.title()}</span> <select id="set-{kind}" data-set="{kind}"'
        f' data-was="{escape(choices.current)}" autocomplete="off">{options}</select></label>'
    )
