"""Kept sessions as text: a table of them, and the transcript of one as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path

from acp_bridge.core.agents import lease
from acp_bridge.core.journal import Journal, PromptRow, PromptState, SessionInfo
from acp_bridge.core.journal.reading import in_turns, transcript, waiting_prompts
from acp_bridge.core.protocol import Json, as_object, own_meta
from acp_bridge.core.updates.children import Children
from acp_bridge.core.updates.folded import Folded
from acp_bridge.core.updates.notices import summary
from acp_bridge.core.updates.open_cards import for_replay
from acp_bridge.terminal.cli.harmless import harmless, one_line
from acp_bridge.terminal.shared import known
from acp_bridge.terminal.shared.stored import Holder
from acp_bridge.terminal.shared.table import table
from acp_bridge.terminal.view.html import document
from acp_bridge.terminal.view.markdown import markdown
from acp_bridge.terminal.view.style import session_style

#: characters of a waiting prompt on a page.
_LONG_PROMPT = 500
_UNTITLED = "A session without a title"
_NOBODY: Mapping[str, Holder] = {}


def sessions_table(
    found: Sequence[SessionInfo],
    columns: int | None,
    *,
    short: bool = False,
    holders: Mapping[str, Holder] = _NOBODY,
) -> str:
    """Return a table of sessions, one line each; `columns`: cut lines to this width.

    `short`: without agent and folder. `holders`: which bridges have sessions of a database.
    """
    if not found:
        return "No sessions.\n"
    ids = known.short_ids(info.session_id for info in found)
    head = ["ID", "USED", *([] if short else ["AGENT", "FOLDER"])]
    head += [*(["HELD BY"] if holders else []), "TITLE"]
    rows = [
        [
            ids[info.session_id],
            local_time(info.updated_at),
            *([] if short else [info.agent, known.with_tilde(info.cwd)]),
            *([_held(holders.get(info.session_id))] if holders else []),
            info.title or "",
        ]
        for info in found
    ]
    return table(head, rows, columns)


def _held(holder: Holder | None) -> str:
    return f"{holder.machine} ({holder.lease}s)" if holder else ""


def transcript_of(home: Path, info: SessionInfo) -> list[Json]:
    """Return the recorded updates of a session as a load replays them. Raises JournalError."""
    folded = Folded(Children(), replays=True)
    shown = (each for params in transcript(home, info.session_id) for each in folded.fold(params))
    return [for_replay(each) for each in shown]


def updates_in_turns(home: Path, info: SessionInfo) -> Iterator[tuple[int, Json]]:
    """Give the recorded updates of a session without the words of prompts, each with its turn.

    The turn is 0 for what was said outside of any. Raises JournalError.
    """
    folded = Folded(Children(), replays=True)
    for turn, params in in_turns(home, info.session_id):
        for each in folded.fold(params):
            yield turn, for_replay(each)


def page(home: Path, info: SessionInfo) -> str:
    """Return a session's page as Markdown, for `acp-bridge show`. Raises JournalError."""
    queue = [f"- {each}" for each in _queue(home, info)]
    head = [
        f"# {one_line(info.title or _UNTITLED)}",
        f"Session `{one_line(info.session_id)}` of {one_line(info.agent)}"
        f" in `{one_line(info.cwd)}`, last used {local_time(info.updated_at)}.",
    ]
    said = markdown(transcript_of(home, info))
    parts = [*head, said, *(["## Waiting", "\n".join(queue)] if queue else [])]
    return "\n\n".join(filter(None, parts)) + "\n"


def html_page(home: Path, info: SessionInfo) -> str:
    """Return a session's page as one HTML file, for `show --html`. Raises JournalError."""
    queue = _queue(home, info)
    facts = [
        f"Session {one_line(info.session_id)} of {one_line(info.agent)} in {one_line(info.cwd)},"
        f" last used {local_time(info.updated_at)}."
    ]
    said = transcript_of(home, info)
    return document(info.title or _UNTITLED, facts, said, queue, session_style())


def decisions(home: Path, info: SessionInfo, columns: int | None) -> str:
    """Return a table of what was decided about calls, and by whom. Raises JournalError."""
    titles: dict[object, str] = {}
    rows = []
    for each in transcript_of(home, info):
        update = as_object(each.get("update"))
        card = update.get("toolCallId")
        if isinstance(title := update.get("title"), str):
            titles[card] = title
        decided = as_object(own_meta(each).get("decided"))
        if decided:
            rules = decided.get("rules")
            more = ", ".join(map(str, rules if isinstance(rules, list) else [])) or str(
                decided.get("option", "")
            )
            by = who(decided)
            rows.append([str(decided.get("decision")), by, titles.get(card, ""), more])
    if not rows:
        return "Nothing was decided in this session.\n"
    return table(["DECISION", "BY", "CALL", "RULE OR OPTION"], rows, columns)


def _queue(home: Path, info: SessionInfo) -> list[str]:
    """Return a line for each prompt that waits: its number, words and state."""
    waits = waiting_prompts(home, info.session_id)
    live = lease.is_held(Journal(home).lock_path(info.session_id))
    return [f"{row.seq}: {_waiting(row, live=live)}" for row in waits]


def who(decided: Json) -> str:
    """Return who has decided about a call, with the login of a client that has one."""
    by, name = str(decided.get("by")), decided.get("name")
    return f"{by} {one_line(name)}" if isinstance(name, str) else by


def _waiting(row: PromptRow, *, live: bool) -> str:
    """Return a waiting prompt with its state; `live`: a bridge has the session, and may run it."""
    prompt = row.params.get("prompt")
    text = summary(prompt if isinstance(prompt, list) else [], _LONG_PROMPT)
    waits = live and row.state is PromptState.WAITING
    return harmless(f"{text} ({'waiting' if waits else 'left over'})")


def local_time(updated_at: str) -> str:
    try:
        return datetime.fromisoformat(updated_at).astimezone().strftime("%Y-%m-%d %H:%M")
    except ValueError:
        return updated_at
