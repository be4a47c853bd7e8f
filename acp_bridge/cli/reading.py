"""`acp-bridge sessions` and `acp-bridge show`: what is kept, read beside bridges that live."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from acp_bridge import log
from acp_bridge.cli.options import data_folder
from acp_bridge.cli.own_bridge import Parser
from acp_bridge.journal import JournalError, PromptRow, SessionInfo
from acp_bridge.journal.reading import transcript, waiting_prompts
from acp_bridge.notices import summary
from acp_bridge.protocol import CONTEXT, Json, own_meta
from acp_bridge.terminal import known
from acp_bridge.terminal.harmless import harmless, one_line
from acp_bridge.terminal.printing import columns, fail, print_json, print_text
from acp_bridge.terminal.table import table
from acp_bridge.terminal.view.markdown import markdown
from acp_bridge.updates import for_replay

SESSIONS_HELP: Final = """\
usage: acp-bridge sessions [--cwd FOLDER] [--search TEXT] [--json]

List the sessions that are kept, the one that was used last first. Nothing is started, and nothing
is changed.

  acp-bridge sessions --cwd .
  acp-bridge sessions --search parser

  --cwd FOLDER     only sessions that work in this folder
  --search TEXT    only sessions whose title, folder, agent or id has this text; capitals don't
                   matter
  --json           one line of JSON for each session, whole
  --home FOLDER    where sessions are kept (ACP_BRIDGE_HOME)
  --help           show this

exit code: 0 done, 1 the list can't be read, 2 wrong usage.
"""
SHOW_HELP: Final = """\
usage: acp-bridge show [ID] [--json]

Write the transcript of a session as Markdown: what was said, tool calls with their changes, and
the prompts that wait. It may be a session that runs now. Nothing is started or changed. ID may be
shortened; without one, it is the session that was used last in this folder.

  acp-bridge show 3f2a | less
  acp-bridge show --json 3f2a > session.jsonl

  --json           each update as one line of JSON, as an editor would get it
  --home FOLDER    where sessions are kept (ACP_BRIDGE_HOME)
  --help           show this

exit code: 0 done, 1 no such session, or it can't be read, 2 wrong usage.
"""


def sessions(arguments: Sequence[str]) -> int:
    """Run `acp-bridge sessions`; returns the exit code."""
    parser = Parser("sessions", SESSIONS_HELP)
    parser.add_argument("--cwd")
    parser.add_argument("--search")
    given = _given(parser, arguments)
    try:
        found = known.listing(data_folder(given.home))
    except known.NotFound as why:
        return fail("sessions", why)
    if given.cwd is not None:
        folder = known.real_path(given.cwd)
        found = [info for info in found if info.cwd and known.real(info.cwd) == folder]
    if given.search is not None:
        found = [info for info in found if _has(info, given.search.casefold())]
    if given.json:
        return print_json(map(_as_json, found))
    if not found:
        return print_text("No sessions.\n")
    short = known.short_ids(info.session_id for info in found)
    rows = [
        [
            short[info.session_id],
            _local_time(info.updated_at),
            info.agent,
            _home_as_tilde(info.cwd),
            info.title or "",
        ]
        for info in found
    ]
    return print_text(table(["ID", "USED", "AGENT", "FOLDER", "TITLE"], rows, columns()))


def show(arguments: Sequence[str]) -> int:
    """Run `acp-bridge show`; returns the exit code."""
    parser = Parser("show", SHOW_HELP)
    parser.add_argument("session", nargs="?")
    given = _given(parser, arguments)
    home = data_folder(given.home)
    try:
        if given.session is None:
            info = known.last_used(home, known.here())
        else:
            info = known.session(home, given.session)
        said = [for_replay(each) for each in transcript(home, info.session_id)]
        waits = waiting_prompts(home, info.session_id)
    except known.NotFound as why:
        return fail("show", why)
    except JournalError as error:
        return fail("show", f"session {info.session_id[:8]} can't be read: {error}")
    if not given.json:
        return print_text(_page(info, said, waits))
    shown = (each for each in said if not own_meta(each).get(CONTEXT))
    return print_json({"sessionId": info.session_id, **each} for each in shown)


def _given(parser: Parser, arguments: Sequence[str]) -> argparse.Namespace:
    """Read the arguments. Raises SystemExit."""
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--home", default=os.environ.get("ACP_BRIDGE_HOME"))
    log.configure("error", None)
    return parser.parse_args(list(arguments))


def _page(info: SessionInfo, said: Sequence[Json], waits: Sequence[PromptRow]) -> str:
    head = [
        f"# {one_line(info.title or 'A session without a title')}",
        f"Session `{one_line(info.session_id)}` of {one_line(info.agent)}"
        f" in `{one_line(info.cwd)}`, last used {_local_time(info.updated_at)}.",
    ]
    queue = [f"{at}. {_waiting(row)}" for at, row in enumerate(waits, 1)]
    parts = [*head, markdown(said), *(["## Waiting", "\n".join(queue)] if queue else [])]
    return "\n\n".join(filter(None, parts)) + "\n"


def _waiting(row: PromptRow) -> str:
    prompt = row.params.get("prompt")
    text = summary(prompt if isinstance(prompt, list) else [], 500)
    return harmless(f"{text} ({row.state})")


def _has(info: SessionInfo, text: str) -> bool:
    said = (info.title or "", info.cwd, info.agent, info.session_id)
    return any(text in each.casefold() for each in said)


def _as_json(info: SessionInfo) -> Json:
    return {
        "sessionId": info.session_id,
        "title": info.title,
        "cwd": info.cwd,
        "agent": info.agent,
        "updatedAt": info.updated_at,
    }


def _local_time(updated_at: str) -> str:
    try:
        return datetime.fromisoformat(updated_at).astimezone().strftime("%Y-%m-%d %H:%M")
    except ValueError:
        return updated_at


def _home_as_tilde(folder: str) -> str:
    home = os.path.expanduser("~")
    return "~" + folder[len(home) :] if f"{folder}/".startswith(f"{home}/") else folder
