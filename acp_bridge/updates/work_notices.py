"""The notices of running turns and waiting prompts, for a client that has just come."""

from __future__ import annotations

from typing import Final

from acp_bridge.protocol import Json
from acp_bridge.updates import notices

#: characters of a prompt's text.
_LENGTH: Final = 70
#: the most sessions that one notice names.
_ROWS: Final = 5
#: state -> the words for a session at work.
WORKING: Final = {
    "running": "a turn runs",
    "permission": "it waits for an answer",
    "paused": "its turn is paused",
}

NOTHING_RUNS: Final = "Nothing runs and nothing waits."
NEXT: Final = (
    "[acp-bridge] What was waited for has ended, and there is more: `/queue wait` waits for the"
    " next, `/queue` shows what waits."
)


def at_work(running: Json | None, waiting: list[Json]) -> str:
    """Return the notice, behind a load, of work that goes on, from parameters of prompts."""
    lines = []
    if running is not None:
        lines.append(f"A turn runs in this session: {_quoted(running)}.")
    if waiting:
        count = "1 prompt waits" if len(waiting) == 1 else f"{len(waiting)} prompts wait"
        lines += [f"{count} in the queue:", notices.numbered(waiting)]
    lines.append(
        "`/queue wait` waits until the turn ends, and meanwhile Stop reaches it; `/queue stop`"
        " stops it at once."
    )
    return "[acp-bridge] " + "\n\n".join(lines)


def stopping(prompt: Json) -> str:
    """Return the answer to `/queue stop`; `prompt`: the parameters of the prompt that it ends."""
    return f"Stopping {_quoted(prompt)}."


def kept(rows: list[Json], agent: str) -> str:
    """Return the notice, in a new session, of work in its folder that no client has open.

    `rows` are of `_acp_bridge/live`; `agent`: the name of the agent that this client has.
    """
    lines = [_of_row(row, agent) for row in rows[:_ROWS]]
    if len(rows) > _ROWS:
        lines.append(f"- and {len(rows) - _ROWS} more: `acp-bridge ps` lists them")
    return (
        "[acp-bridge] Work goes on in this folder that no client has open:\n\n"
        + "\n".join(lines)
        + "\n\nTo come back to it, load that session here, or use the command in a terminal."
    )


def _of_row(row: Json, agent: str) -> str:
    title, waiting = row.get("title"), row.get("waiting")
    named = f"`{notices.code(title)}`" if isinstance(title, str) and title else "a session"
    if row["agent"] != agent:
        named += f" of the agent `{notices.code(row['agent'])}`"
    does = [WORKING[row["state"]]] if row["state"] in WORKING else []
    if isinstance(waiting, int) and waiting:
        does.append("1 prompt waits" if waiting == 1 else f"{waiting} prompts wait")
    told = ", ".join(does) or "it waits for an answer"
    if isinstance(asks := row.get("asks"), str) and asks:
        told += f" to {notices.as_code(asks)}"
    return f"- {named}: {told} (`acp-bridge attach {notices.code(row['sessionId'])}`)"


def _quoted(prompt: Json) -> str:
    return f"“{notices.summary(prompt['prompt'], _LENGTH)}”"


def prompt_not_run(why: str) -> str:
    """Return the notice of a prompt that failed while no client was there to be told."""
    return f"[acp-bridge] This prompt was not run, and is not sent again: {why}"
