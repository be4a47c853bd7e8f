"""Which requests may be sent again after the connection dropped, and what the user is told of it.

Sans-IO. A request is sent again only if it may be done twice without harm. A prompt may: it has a
key (docs/extension.md, "A prompt's key").
"""

from __future__ import annotations

from enum import Enum
from typing import Any, Final

from acp_bridge.core.protocol import (
    ATTACH,
    INITIALIZE,
    LIVE,
    OWN_PREFIX,
    QUEUE_LIST,
    SESSION_CLOSE,
    SESSION_DELETE,
    SESSION_FORK,
    SESSION_LIST,
    SESSION_LOAD,
    SESSION_NEW,
    SESSION_PROMPT,
    SESSION_RESUME,
    SET_CONFIG_OPTION,
    SET_MODE,
    SET_MODEL,
    STEERING,
    TITLE,
    ErrorCode,
    Json,
    as_object,
    queue_words,
    without,
)
from acp_bridge.core.runtime.own_commands import OWN_COMMANDS
from acp_bridge.core.updates.wording import words
from acp_bridge.core.wire.jsonrpc import RpcError

#: requests that open a session that exists.
SHOWS: Final = frozenset({SESSION_LOAD, SESSION_RESUME, ATTACH})
#: requests that make a new session, which the answer names.
MAKES: Final = frozenset({SESSION_NEW, SESSION_FORK})
#: requests that close or delete a session, which the editor then has no more.
LEAVES: Final = frozenset({SESSION_CLOSE, SESSION_DELETE})
_AGAIN: Final = (
    *(INITIALIZE, SESSION_LIST, *SHOWS, *LEAVES, SET_MODE, SET_MODEL, SET_CONFIG_OPTION),
    *(LIVE, QUEUE_LIST, TITLE),
)


class Again(Enum):
    """What becomes of a request when the connection drops."""

    #: it is sent on each connection until it is answered.
    ALWAYS = "always"
    #: it waits for a connection, and is sent once.
    ONCE = "once"
    #: it is about what runs at this moment: without a connection it is refused at once.
    NOW = "now"


def again(method: str, params: Json) -> Again:
    """Return whether a request may be sent again, or may wait for a connection."""
    prompts = method == SESSION_PROMPT
    if method in _AGAIN or (prompts and not is_command(params)):
        return Again.ALWAYS
    now = prompts or method == STEERING or method.startswith(OWN_PREFIX)
    return Again.NOW if now else Again.ONCE


def is_command(params: Json) -> bool:
    """Return True for the params of a prompt that is a `/queue` command; it is never repeated."""
    prompt = params.get("prompt")
    return isinstance(prompt, list) and queue_words(prompt) is not None


def lost_answer(where: str) -> RpcError:
    """Return the error for a request that was sent, and whose answer was lost with the line."""
    return _error(
        f"the line to {where} dropped before the answer: this may have been done, and is not sent"
        " again. The list of sessions shows what there is"
    )


#: what the editor is to do about a session that could not be opened.
LOAD_AGAIN: Final = "load it again"


def no_line(where: str, why: str = "") -> RpcError:
    """Return the error for a request that can't be sent, as there is no connection."""
    return _error(f"there is no line to {where}{f': {why}' if why else ''}")


def elsewhere(error: Json, what_to_do: str) -> Json:
    """Return the error of a load that names another bridge, with `what_to_do` in its text."""
    text = f"{error.get('message')}. To open it from here: {what_to_do}"
    return {**error, "message": text, "data": {**as_object(error.get("data")), "details": text}}


def _error(text: str) -> RpcError:
    return RpcError(ErrorCode.INTERNAL_ERROR, text)


def line_is_down(where: str) -> str:
    """Return the notice that the line to `where` has been down for some seconds."""
    return (
        f"[acp-bridge] The line to {where} is down. What runs there goes on. It is tried again and"
        " again; prompts wait for it."
    )


def line_is_back(where: str) -> str:
    """Return the notice that the line to `where`, which was down, is up again."""
    return f"[acp-bridge] The line to {where} is back."


def is_refused(where: str, why: str) -> str:
    """Return the notice that the remote bridge lets this user in no more."""
    return (
        f"[acp-bridge] {where} has refused the token: {words(why)}."
        f" `{OWN_COMMANDS.line('connect', '--login')}` keeps another one."
    )


def is_unreached(where: str, why: str) -> str:
    """Return the notice that the bridge that has a session now can't be reached."""
    return (
        f"[acp-bridge] {where}, which has this session now, can't be reached: {words(why)}. Load it"
        " again."
    )


def goes_on(where: str) -> str:
    """Return the notice that a session goes on at another bridge."""
    return f"[acp-bridge] This session goes on at {where}, which has it now."


def is_another(where: str, what: list[str]) -> str:
    """Return the notice that the remote bridge differs from before the line dropped.

    `what`: the members of its `initialize` that differ.
    """
    return (
        f"[acp-bridge] What answers at {where} is not what it was: {words(', '.join(what))} differ."
        " An editor that is started again knows it as it is."
    )


def not_reopened(where: str, error: object) -> str:
    """Return the notice that a session could not be opened again, with the server's `error`."""
    message = error.get("message") if isinstance(error, dict) else None
    why = words(str(message))
    return f"[acp-bridge] {where} does not show this session any more: {why}. Load it again."


UNSEEN: Final = (
    "[acp-bridge] What was said while the line was down can't be told from what was said before:"
    " load this session again to see all of it."
)
DOES_NOT_FIT: Final = (
    "[acp-bridge] What was shown here before the line dropped is not what the session holds now:"
    " load this session again to see it as it is."
)


def changed(before: Json, after: Json, members: tuple[str, ...]) -> list[str]:
    """Return those of `members` that differ between two results of `initialize`."""
    return [name for name in members if _plain(before.get(name)) != _plain(after.get(name))]


def _plain(value: Any) -> Any:
    """Return an object without its own `_meta`; any other value as it is."""
    if not isinstance(value, dict):
        return value
    return without(value, "_meta")
