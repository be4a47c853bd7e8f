"""The sentences that core says in a session, and the one form in which the bridge says any.

A feature's sentences stand in its folder.

A notice is an agent message of its own, marked in `_meta.acp_bridge`, so that a client that knows
the bridge can show it apart. It is Markdown, with an empty line before and after it and its lists,
since clients join it to other texts. What needs the user is always such a text.
"""

from __future__ import annotations

from typing import Any, Final
from uuid import uuid4

from acp_bridge.core import errors
from acp_bridge.core.protocol import (
    AGENT_MESSAGE,
    NOTICE,
    PERHAPS_READ,
    ErrorCode,
    Json,
    LiveState,
    own_meta,
    text_chunk,
    with_own_meta,
)
from acp_bridge.core.runtime.own_commands import OWN_COMMANDS
from acp_bridge.core.updates.wording import as_code, code, duration, named, words

_UNRECORDED: Final = (
    "[acp-bridge] The journal can't be written: this session is not recorded now. What follows is"
    " shown, and written as soon as that works; if the bridge ends before, it will not be there"
    " when this session is loaded again."
)
UNRECORDED: Final = f"{_UNRECORDED} Is the disk full, its folder gone, or its database away?"
MISSING: Final = (
    "[acp-bridge] The journal could not be written for a while: a part of what was shown is"
    " missing here."
)
INTERRUPTED: Final = (
    "[acp-bridge] Interrupted: the bridge ended during this turn. The prompt was not sent again."
)
FORGOT_YOUNG: Final = (
    "[acp-bridge] The agent did not keep this session, since no turn of it had ended. It goes on"
    " as a new session of the agent: what was said before is shown here, but the agent does not"
    " remember it."
)
MEMORY_LOST: Final = (
    "[acp-bridge] Memory lost: this agent can neither load nor resume sessions, and its process"
    " had to be started again. It does not remember what was said before."
)
NOT_READY: Final = (
    "[acp-bridge] The agent is not ready: it would not start, load the session or take it"
    " without authentication; the log says which. The next prompt tries again."
)

MEMORY_WAYS: Final = (
    "Each further prompt tries again. If it can't be loaded: `/queue memory new` goes on with a"
    " new session of the agent, which remembers nothing; `/queue memory restore` does the same and"
    " gives it the transcript with your next prompt"
)
MEMORY_NEW: Final = (
    "[acp-bridge] Memory lost, as you said: from the next prompt on, a new session of the agent"
    " stands behind this one. It does not remember what was said before."
)
MEMORY_RESTORED: Final = (
    "[acp-bridge] Memory lost, as you said: from the next prompt on, a new session of the agent"
    " stands behind this one. That prompt also carries the transcript of this session, the newest"
    " part of it if it is long, so that the agent can read what was said before."
)
MEMORY_SENT: Final = (
    "[acp-bridge] The transcript of this session went to the agent with this prompt"
)
MEMORY_DOUBTFUL: Final = (
    "[acp-bridge] The agent says that it has loaded this session, and has repeated nothing of it:"
    " it may not remember what was said before. If so, `/queue memory new` goes on with a new"
    " session of the agent, and `/queue memory restore` does the same and gives it the transcript"
    " with your next prompt."
)
MEMORY_STOPPED: Final = "The journal can't be written: nothing was changed."
LIST_ASLEEP: Final = "the agent sleeps: what only it has is not listed until it is needed again"
TRANSCRIPT_WHOLE: Final = (
    "The session in which this conversation was held could not be loaded again. This is its"
    " transcript, for you to know what was said and done. None of it is to be done again."
)
TRANSCRIPT_CUT: Final = f"{TRANSCRIPT_WHOLE} It is long: the older part is left out."

FEEDBACK_UNWRITTEN: Final = (
    "[acp-bridge] A hook would send the agent back to work, but the journal can't be written: its"
    " feedback was not given."
)

#: state of the standstill -> its notice, as it begins and for a client that comes later.
STANDSTILL: Final = {
    "pausing": (
        "[acp-bridge] Pausing: what the agent has begun ends first, then the turn waits."
        " `/queue go` goes on; Stop ends the turn."
    ),
    "paused": (
        "[acp-bridge] Paused: nothing goes on and nothing starts until `/queue go`. Stop ends the"
        " turn."
    ),
    "held": (
        "[acp-bridge] On hold: a turn that runs goes on to its end; nothing more starts until"
        " `/queue go`."
    ),
}
GOES_ON: Final = "[acp-bridge] Going on."
WAITS_FOR_GO: Final = "[acp-bridge] This prompt waits for `/queue go`."
RUN_LATER: Final = "They run after `/queue go`."
NOTHING_PAUSED: Final = (
    "Nothing is paused or on hold. Prompts that are left over run with `/queue run`."
)
NOTHING_TO_PAUSE: Final = (
    "Nothing runs and nothing waits: there is nothing to pause. `/queue hold` keeps the next prompt"
    " waiting."
)
CANNOT_PAUSE: Final = (
    "This agent can't pause a turn. A hold (`/queue hold`) lets the turn that"
    " runs go on to its end, and starts nothing more until `/queue go`."
)

NOTHING_LEFT: Final = "Nothing is left over."
RUN_STOPPED: Final = "The journal can't be written: nothing more is run."
DROP_STOPPED: Final = "The journal can't be written: the rest is still left over."

DETACHED: Final = (
    "[acp-bridge] Nothing was read here for a while, and others have this session open: it went on"
    " without waiting. What follows is shown here again from your next prompt on. To see all of it,"
    " load the session again."
)
CLOSED_BY_OTHER: Final = "[acp-bridge] This session was closed by another client."
DELETED_BY_OTHER: Final = "[acp-bridge] This session was deleted by another client."


# --- work that goes on --------------------------------------------------------------------------

#: the most characters of a prompt's text that are shown.
_LENGTH: Final = 70
#: the most sessions that one notice names.
_ROWS: Final = 5
#: state -> the words for a session at work.
WORKING: Final = {
    LiveState.RUNNING: "a turn runs",
    LiveState.PERMISSION: "it waits for an answer",
    LiveState.PAUSED: "its turn is paused",
    LiveState.WORKING: "the agent works",
}

STOPPING_WORK: Final = "Stopping what the agent does outside of a prompt."
NOTHING_RUNS: Final = "Nothing runs and nothing waits."
NEXT: Final = (
    "[acp-bridge] What was waited for has ended, and there is more: `/queue wait` waits for the"
    " next, `/queue` shows what waits."
)

# --- how a turn ended ---------------------------------------------------------------------------

_REASONS: Final = {
    "cancelled": "stopped",
    "max_tokens": "ended: the model's limit of tokens",
    "max_turn_requests": "ended: the limit of requests of one turn",
    "refusal": "ended: the agent refused",
}
#: characters that are shown of what a hook says.
OF_HOOK: Final = 2_000


def notice(text: str) -> Json:
    """Return the parameters of `session/update` (without the session's id) that say this text."""
    chunk = text_chunk(AGENT_MESSAGE, f"\n\n{text}\n\n", f"acp-bridge-{uuid4().hex[:12]}")
    return with_own_meta({"update": chunk}, {NOTICE: True})


def unrecorded(why: str) -> str:
    """Return the notice that the session is not recorded now. `why`: the reason, if it is known."""
    return f"{_UNRECORDED} The reason: {words(why)}." if why else UNRECORDED


def away(seconds: float) -> str:
    """Return the notice that the database is away, and that work ends in `seconds` seconds."""
    return (
        "[acp-bridge] The database of this session can't be reached. If that stays so, what the"
        f" agent does is ended in {seconds:.0f} seconds, since another machine may take up the"
        " session after that. Prompts that wait go on waiting."
    )


def lost(why: str) -> str:
    """Return the notice that this bridge has lost the session, for the reason `why`."""
    return (
        f"[acp-bridge] This session can't go on here: {words(why)}. What the database does not have"
        " of it is kept in a file on this machine, and the log names the file."
    )


def given_up(name: str, before: object, now: object) -> str:
    """Return the notice that the setting `name`, which was `before`, is `now` at the agent."""
    value = "its own setting" if now is None else as_code(repr(now))
    return (
        f"[acp-bridge] {as_code(name)}: the agent goes on with {value}. {as_code(repr(before))} was"
        " given up for another choice, which no agent could take at that time: choose again."
    )


def not_ready(refusal: str | None) -> str:
    """Return the notice that no process takes a session; `refusal`: why it was not loaded."""
    if refusal is None:
        return NOT_READY
    return f"[acp-bridge] This is the transcript, but {words(refusal)}. {MEMORY_WAYS}."


def memory_sent(characters: int) -> str:
    """Return the notice beside the prompt that carries the transcript."""
    return f"{MEMORY_SENT} ({characters} characters)."


def left_over(prompts: list[tuple[int, Json]]) -> str:
    """Return the notice, behind a load, of left-over prompts: their numbers and parameters."""
    count = "1 prompt was" if len(prompts) == 1 else f"{len(prompts)} prompts were"
    return (
        f"[acp-bridge] {count} waiting when the bridge ended. Left over, not run:\n\n"
        f"{numbered(prompts)}\n\n`/queue run` runs, `/queue drop [NUMBER]` forgets."
    )


def still_left_over(number: int) -> str:
    """Return the notice to a client that has sent a left-over prompt again under its key."""
    return (
        f"[acp-bridge] This prompt was sent before, and is left over as number {number}. It runs"
        " when you say so, and is answered then: `/queue run` runs what is left over,"
        f" `/queue drop {number}` forgets this."
    )


def not_paused(why: str) -> str:
    """Return the notice that the agent refused to pause the turn that runs."""
    return (
        f"[acp-bridge] The agent did not pause: {words(why)}. The turn goes on; nothing more starts"
        " until `/queue go`."
    )


def queue(
    waiting: list[tuple[int, Json]], left: list[tuple[int, Json]], standstill: str | None = None
) -> str:
    """Return the answer to `/queue`; both lists are of numbers and parameters of prompts.

    `standstill`: the sentence about a pause or a hold, if there is one.
    """
    lines = [standstill] if standstill else []
    lines.append(f"{len(waiting)} waiting." if waiting else "Nothing is waiting.")
    if waiting:
        lines.append(numbered(waiting))
    if left:
        lines += ["Left over since a restart:", numbered(left)]
        lines.append("`/queue run` runs them, `/queue drop [NUMBER]` forgets.")
    return "\n\n".join(lines)


def not_joined(prompt: list[Any], *, perhaps_read: bool) -> str:
    """Return the notice that words are left over which were to join a turn that has ended."""
    why = (
        "Perhaps not read: the agent took these words into a turn that ended without another word"
        if perhaps_read
        else "Not sent: the agent ended during the turn that these words were to join"
    )
    return f"[acp-bridge] {why}. They are left over, `/queue run` sends them: {beginning(prompt)}"


def running(count: int) -> str:
    """Return the notice before `count` left-over prompts run: the user has not just sent them."""
    return f"Running {count} left-over prompt{'' if count == 1 else 's'}."


def dropped(count: int) -> str:
    """Return the answer to `/queue drop`, which has dropped `count` prompts."""
    return f"Dropped {count}." if count else NOTHING_LEFT


def unattended(about: str) -> str:
    """Return the notice of a tool call that was denied because nobody could answer."""
    return f"[acp-bridge] Denied, since nobody could answer: {as_code(about)}"


def prompt_refused(why: str) -> str:
    """Return the notice beside a prompt that a hook has refused."""
    return f"[acp-bridge] A hook refused the prompt: {words(why, OF_HOOK)}"


# --- work that goes on, for a client that has just come -----------------------------------------


def at_work(running: Json | None, waiting: list[tuple[int, Json]]) -> str:
    """Return the notice, behind a load, of work that goes on.

    `running`: a prompt's parameters; `waiting`: numbers and parameters.
    """
    lines = []
    if running is not None:
        lines.append(f"A turn runs in this session: {_quoted(running)}.")
    if waiting:
        count = "1 prompt waits" if len(waiting) == 1 else f"{len(waiting)} prompts wait"
        lines += [f"{count} in the queue:", numbered(waiting)]
    lines.append(
        "`/queue wait` waits until the turn ends, and meanwhile Stop reaches it; `/queue stop`"
        " stops it at once."
    )
    return "[acp-bridge] " + "\n\n".join(lines)


def stopping(prompt: Json) -> str:
    """Return the answer to `/queue stop`; `prompt`: the parameters of the prompt that it ends."""
    return f"Stopping {_quoted(prompt)}."


def killed_at_work(programs: list[str]) -> str:
    """Return the notice that the agent was killed after a Stop of its work outside of a prompt.

    `programs`: the names of the programs that end with it, and of what it lists as running in the
    background.
    """
    said = "[acp-bridge] After your Stop the agent was killed, and is started again."
    if not programs:
        return said
    return f"{said} What it had started ends with it: {named(programs, _ROWS)}."


def ended_in_background(titles: list[str]) -> str:
    """Return the notice of what has ended in the background with the agent's process."""
    said = "[acp-bridge] What ran in the background has ended with the agent's process"
    return f"{said}: {named(titles, _ROWS)}."


def children_go_on(titles: list[str]) -> str:
    """Return the notice that a Stop can't reach the subagents of these titles."""
    return (
        "[acp-bridge] The agent does not let these subagents be stopped, and they may work on:"
        f" {named(titles, _ROWS)}."
    )


def kept_work(rows: list[Json], agent: str) -> str:
    """Return the notice, in a new session, of work in its folder that no client has open.

    `rows` are of `_acp_bridge/live`; `agent`: the name of the agent that this client has.
    """
    lines = [_of_row(row, agent) for row in rows[:_ROWS]]
    if len(rows) > _ROWS:
        lines.append(f"- and {len(rows) - _ROWS} more: `{OWN_COMMANDS.line('ps')}` lists them")
    return (
        "[acp-bridge] Work goes on in this folder that no client has open:\n\n"
        + "\n".join(lines)
        + "\n\nTo come back to it, load that session here, or use the command in a terminal."
    )


def _of_row(row: Json, agent: str) -> str:
    title, waiting = row.get("title"), row.get("waiting")
    named = f"`{code(title)}`" if isinstance(title, str) and title else "a session"
    if row["agent"] != agent:
        named += f" of the agent `{code(row['agent'])}`"
    does = [WORKING[row["state"]]] if row["state"] in WORKING else []
    if isinstance(waiting, int) and waiting:
        does.append("1 prompt waits" if waiting == 1 else f"{waiting} prompts wait")
    if row.get("background"):
        does.append("something runs in the background")
    told = ", ".join(does) or "it waits for an answer"
    if isinstance(asks := row.get("asks"), str) and asks:
        told += f" to {as_code(asks)}"
    return f"- {named}: {told} (`{OWN_COMMANDS.line('attach', code(row['sessionId']))}`)"


def _quoted(prompt: Json) -> str:
    return f"“{words(summary(prompt['prompt'], _LENGTH))}”"


def prompt_not_run(why: str) -> str:
    """Return the notice of a prompt that failed while no client was there to be told."""
    return f"[acp-bridge] This prompt was not run, and is not sent again: {words(why)}"


# --- how a turn ended, for the transcript, and for the terminal that asked ----------------------


def turn_end(stop_reason: object) -> str | None:
    """Return words for the `stopReason` of an answer; None for `end_turn`."""
    if stop_reason == "end_turn":
        return None
    return _REASONS.get(str(stop_reason), f"ended: {stop_reason}")


def turn_error(code: int, message: str, data: Any) -> str:
    """Return words for the error that answered a prompt, with `data.details` if it says more."""
    if code == ErrorCode.REQUEST_CANCELLED:
        return "taken back"
    return f"error: {errors.whole(message, data)}"


def turn_ended(told: Json) -> str | None:
    """Return the sentence on how a turn ended, from its journaled answer; None if it ended well."""
    match told:
        case {"error": {"code": int(code), "message": str(message), **rest}}:
            said: str | None = turn_error(code, message, rest.get("data"))
        case {"stopReason": stop_reason}:
            said = turn_end(stop_reason)
        case _:
            return None
    if said is None:
        return None
    line = words(said)
    end = "" if line.endswith((".", "!", "?", "…")) else "."
    return f"[acp-bridge] {line[0].upper()}{line[1:]}{end}"


# --- texts of others, in a sentence of ours -----------------------------------------------------


def summary(prompt: list[Any], length: int) -> str:
    """Return a prompt's text as one line, cut to `length` characters."""
    texts = [block.get("text") for block in prompt if isinstance(block, dict)]
    text = " ".join([" ".join(str(each).split()) for each in texts if each])
    return text if len(text) <= length else text[: length - 1] + "…"


def first_line(prompt: list[Any], length: int) -> str:
    """Return the first line of a prompt's text, cut to `length` characters."""
    for block in prompt:
        text = block.get("text") if isinstance(block, dict) else None
        for line in text.splitlines() if isinstance(text, str) else ():
            if line.strip():
                return summary([{"text": line}], length)
    return ""


def numbered(prompts: list[tuple[int, Json]]) -> str:
    """Return a list of prompts, each with its number and the beginning of its text.

    Not a numbered list of Markdown: there only the first number would count.
    """
    return "\n".join(f"- {number}: {_listed(params)}" for number, params in prompts)


def _listed(params: Json) -> str:
    unread = " (perhaps not read)" if PERHAPS_READ in own_meta(params) else ""
    return words(summary(params["prompt"], _LENGTH)) + unread


def beginning(prompt: list[Any]) -> str:
    """Return the beginning of a prompt's text, as code."""
    return as_code(summary(prompt, _LENGTH))


def left_alone(seconds: float) -> str:
    """Return the notice that work ends as nobody had its session open for `seconds` seconds."""
    return (
        f"[acp-bridge] Nobody has had this session open for {duration(seconds)}: what runs is"
        " cancelled, and what waits is left over."
    )
