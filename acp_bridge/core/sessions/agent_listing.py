"""Asks the agent for its list of sessions (`session/list`): a page, a search, folder by folder.

Every request is bounded, in time and in bytes. If sessions are missing because of a bound, or
because the agent fails, the result says so (invariants Q10, P15).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import anyio
from msgspec import Struct, field

from acp_bridge.core.agents.link import Link
from acp_bridge.core.protocol import SESSION_LIST, ErrorCode, Json
from acp_bridge.core.records import replace
from acp_bridge.core.runtime import waits
from acp_bridge.core.runtime.log import event
from acp_bridge.core.session.opening import in_words
from acp_bridge.core.wire.jsonrpc import RpcError, encode

Rows = list[Json]
#: the most pages that are searched for one session.
_SEARCHED_PAGES: Final = 20
#: the most bytes of rows that are taken of one page.
_PAGE_BYTES: Final = 8 * 1024 * 1024
#: the most characters of an agent's refusal that are told.
_WORDS: Final = 1000
#: error codes that the agent would answer for each folder alike.
_FOR_ALL: Final = (ErrorCode.METHOD_NOT_FOUND, ErrorCode.AUTH_REQUIRED)


class AgentPage(Struct, frozen=True):
    """One page of an agent's listing, and the cursor of the next one."""

    rows: Rows = field(default_factory=list)
    cursor: str | None = None
    #: a sentence that says what is missing; None if nothing is.
    missing: str | None = None
    #: the agent gave no list.
    failed: bool = False
    #: the agent may give a list when it is asked for one folder's sessions.
    by_folder: bool = False


async def page(link: Link, cwd: str | None = None, cursor: str | None = None) -> AgentPage:
    """Return one page of the agent's listing; a refusal or a timeout is told in the page.

    `cwd`: list only sessions of this folder. `cursor`: of the page, None for the first one.
    """
    asked = {k: v for k, v in (("cwd", cwd), ("cursor", cursor)) if v is not None}
    try:
        with anyio.fail_after(waits.AGENT_PATIENCE):
            result = await link.ask(SESSION_LIST, asked)
    except TimeoutError:
        return _failed("the agent did not list its own sessions in time")
    except RpcError as exc:
        why = f"the agent would not list its own sessions: {in_words(exc)[:_WORDS]}"
        return _failed(why, by_folder=cwd is None and exc.code not in _FOR_ALL)
    found = _read(result, cursor)
    nothing = cwd is None and not found.rows and found.cursor is None
    return replace(found, by_folder=nothing and not found.failed)


def _read(result: object, cursor: str | None) -> AgentPage:
    listed: Any = result.get("sessions") if isinstance(result, dict) else None
    if not isinstance(result, dict) or not isinstance(listed, list):
        return _failed("the agent's list of its own sessions can't be read")
    rows, size = dict[str, Json](), 0
    unread = left_out = 0
    for row in listed:
        if not isinstance(row, dict) or not isinstance(row.get("sessionId"), str):
            unread += 1
        elif (size := size + _size(row)) > _PAGE_BYTES:
            left_out += 1
        else:
            rows.setdefault(row["sessionId"], row)
    after, missing = result.get("nextCursor"), list[str]()
    if left_out:
        missing.append(f"the agent's list is too long: {left_out} sessions are left out")
    if unread:
        missing.append(f"{unread} entries of the agent's list can't be read")
    if after is not None and (not isinstance(after, str) or after == cursor):
        missing.append("the agent does not say how its list goes on")
        after = None
    return AgentPage([*rows.values()], after, _said(missing))


def _size(row: Json) -> int:
    try:
        return len(encode(row))
    except (ValueError, RecursionError):  # nobody could be sent it
        return _PAGE_BYTES + 1


def _failed(why: str, *, by_folder: bool = False) -> AgentPage:
    return AgentPage(missing=_said([why]), failed=True, by_folder=by_folder)


def _said(missing: list[str]) -> str | None:
    """Log the sentences about what is missing, and return them as one; None if there are none."""
    if not missing:
        return None
    what = "; ".join(missing)
    event("agent.list_incomplete", what=what)
    return what


async def of_folders(link: Link, folders: Iterable[str], without: AgentPage) -> AgentPage:
    """Return the agent's first pages of these folders as one page, for an agent that needs a `cwd`.

    `without`: the agent's page when it was asked without a folder, returned if no folder gets a
    list. The requests for all folders together have one bound of time.
    """
    rows, missing, answered = dict[str, Json](), list[str](), False
    with anyio.move_on_after(waits.AGENT_PATIENCE) as patience:
        for folder in folders:
            found = await page(link, folder)
            answered |= not found.failed
            rows |= {row["sessionId"]: row for row in found.rows}
            if found.missing:
                missing.append(found.missing)
            if found.cursor is not None:
                missing.append(f"of {folder} the agent has more: list it with this cwd")
    if not answered:
        return without
    if patience.cancelled_caught:
        missing.append("the agent did not list all known folders in time")
    if rows:
        missing.append("the agent lists one folder at a time: these are of those known here")
    return AgentPage([*rows.values()], None, "; ".join(dict.fromkeys(missing)) or None)


async def is_listed(link: Link, cwd: str | None, session_id: str) -> bool | None:
    """Return True if the agent lists the session, False if not, None if it gives no list.

    The search ends after `_SEARCHED_PAGES` pages. `cwd`: list only sessions of this folder.
    """
    cursor: str | None = None
    for _ in range(_SEARCHED_PAGES):
        found = await page(link, cwd, cursor)
        if found.failed:
            return None
        if any(row["sessionId"] == session_id for row in found.rows):
            return True
        if (cursor := found.cursor) is None:
            return False
    event("agent.list_incomplete", what=f"searched {_SEARCHED_PAGES} pages for a session")
    return False
