"""The HTML around a session on the page: the list of sessions, the queue, questions. SANS-IO.

Buttons have the message that they send in `data-do` and further `data-` attributes. Texts that the
bridge did not write are escaped by `element`, as in `view.html`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from acp_bridge.core.protocol import Json, LiveState, as_object
from acp_bridge.core.updates import tool_calls
from acp_bridge.remote.page.taps import unsent_key
from acp_bridge.sharing.bridge_client.permission_options import options_of
from acp_bridge.terminal.view.block_text import one_line
from acp_bridge.terminal.view.element import Markup, element, joined, text
from acp_bridge.terminal.view.html import asked
from acp_bridge.terminal.view.markup import link
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


def more_sessions(shown: int) -> Markup:
    """Return the button that adds further sessions to the `shown` ones."""
    return element("button", "Show more", data_do="more", data_rows=shown)


def earlier(step: int, left: int, lost: int) -> Markup:
    """Return what stands before the first piece on the page.

    `step`: how many of the `left` earlier ones the button adds; `lost`: how many more there are
    that the page can't be given.
    """
    of = f" of {left}" if left > step else ""
    more = element("button", f"Show {step}{of} earlier", data_do="earlier") if left else Markup()
    if not lost:
        return more
    why = f"{lost} earlier ones are too many for this page: "
    how = [element("code", "acp-bridge show"), " on the machine of the server shows them."]
    return joined([more, element("p", why, *how, class_="about")])


def session(row: Json) -> Markup:
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
    inside = [
        element("span", title, class_="name"),
        element("span", " · ".join(filter(None, about)), class_="about"),
        element("span", f"Asks: {asks}", class_="asks") if asks else "",
    ]
    shown = element("a", *inside, id=f"s-{session_id}", href=f"#s={session_id}")
    return element("li", shown, id=f"l-{session_id}", class_=state or "kept")


def state(told: Json) -> Markup:
    """Return a session's state in words, from the params of `_acp_bridge/state`."""
    word = str(told.get("state", ""))
    shown = _STATES.get(LiveState(word), "") if word in set(LiveState) else ""
    others = told.get("clients")
    with_others = f" · open in {others} places" if isinstance(others, int) and others > 1 else ""
    return text(shown + with_others)


def unopened(why: str, address: str | None, session_id: str) -> Markup:
    """Return the text that says why a session can't be opened.

    `address`: the origin of the server that has the session; if there is one, the text has a link
    to it on that server's page. The user has to log in there; nothing of this page goes with it.
    """
    told = text(f"can't be opened: {why}")
    if address is None:
        return told
    return joined([told, " ", link(f"{address}/#s={session_id}", f"Open it at {address}")])


def question(number: int, key: str, params: Json, *, may: bool) -> Markup:
    """Return a permission question, with a button for each option if the page `may` answer.

    `key` is what an answer names (`taps.question_key`).
    """
    call = as_object(params.get("toolCall"))
    about = str(call.get("toolCallId", ""))
    buttons = [
        element(
            "button",
            one_line(option.get("name"), _LONG) or one_line(option["optionId"], _LONG),
            id=f"q{number}-{at}",
            class_=_class(option),
            data_do="answer",
            data_careful=True,
            data_question=key,
            data_call=about,
            data_option=at,
            data_kind=str(option.get("kind")),
        )
        for at, option in enumerate(options_of(params))
    ]
    inside = [
        element("p", "The agent asks", class_="asks"),
        asked(tool_calls.shown(call)),
        element("div", *(buttons if may else ()), class_="answers"),
    ]
    whose = {"class": "question", "id": f"q{number}", "aria-label": "The agent asks"}
    return element("section", *inside, **whose)


def _class(option: Json) -> str:
    return _CLASSES.get(str(option.get("kind")), "deny")


def queue(rows: Iterable[Row], *, may: bool) -> Markup:
    """Return the list of waiting prompts, with buttons to move or drop them if the page `may`."""
    listed = list(rows)
    if not listed:
        return Markup()
    shown = [element("h2", "Waiting"), element("ol", *(_waiting(r, listed, may) for r in listed))]
    if may and any(row.held for row in listed):
        key, run = unsent_key(listed), "Run unsent prompts"
        shown.append(
            element("button", run, id="run", data_do="run", data_careful=True, data_prompts=key)
        )
    return joined(shown)


def _waiting(row: Row, listed: Sequence[Row], may: bool) -> Markup:
    left = [" ", element("span", "(unsent)", class_="about")] if row.held else []
    wanted = (("move", -1, "Move up", "↑"), ("move", 1, "Move down", "↓"), ("drop", 0, "Drop", "✕"))
    buttons = []
    for what, by, name, sign in wanted if may else ():
        to = moved(listed, row.prompt_id, by) if what == "move" else None
        buttons.append(
            element(
                "button",
                sign,
                id=f"w{row.number}-{what}-{by}",
                data_do=what,
                data_careful=True,
                # the place that the user sees: to go there twice is to go there once
                data_before=str(to["before"] or "") if to else None,
                disabled=what == "move" and not to,
                data_prompt=str(row.prompt_id),
                aria_label=f"{name} prompt {row.number}",
            )
        )
    return element("li", element("span", row.text, *left), *buttons)


def settings(shown: SettingsShown) -> Markup:
    """Return select elements for the mode and for the model, where the session has them."""
    return joined(_choices(shown, kind) for kind in KINDS)


def _choices(shown: SettingsShown, kind: str) -> Markup:
    choices = shown.choices(kind)
    if choices is None:
        return Markup()
    options = [
        element("option", each.name, value=each.id, selected=each.id == choices.current)
        for each in choices.values
    ]
    about = {"data-set": kind, "data-was": choices.current, "autocomplete": "off"}
    select = element("select", *options, id=f"set-{kind}", **about)
    return element("label", element("span", kind.title()), " ", select)
