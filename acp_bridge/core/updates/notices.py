"""Every sentence that the bridge itself says in a session, and the one form in which it says them.

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
from acp_bridge.core.updates.wording import as_code, code, duration, named, trust, visible, words

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

HOOKS_UNREAD: Final = (
    "[acp-bridge] The files of hooks could not be read in time: no hook runs in this session until"
    " it is opened again; every permission is asked of you."
)
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
ASK_WHAT: Final = "Ask what? `/queue ask QUESTION` is answered beside the session."
CANNOT_ASK: Final = (
    "this agent can't be asked beside the session: it has no forks. Ask it in a prompt"
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
_OF_HOOK: Final = 2_000


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


def titled(title: str) -> str:
    """Return the answer to `/queue title`; `title` is empty if the user gave no words."""
    return f"Titled: {words(title)}" if title else "Give the title behind it: `/queue title WORDS`."


def answered_beside(answer: str) -> str:
    """Return the notice of the answer to `/queue ask`: the agent's words, each line as a quote."""
    quote = "\n".join(f"> {visible(line)}" for line in answer.splitlines())
    return f"[acp-bridge] Asked beside the session, which keeps nothing of this:\n\n{quote}"


def not_answered(why: str) -> str:
    """Return the notice that `/queue ask` has no answer."""
    return f"[acp-bridge] Not answered: {words(why)}."


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


def given_back(prompt: list[Any]) -> str:
    """Return the notice that a turn was stopped before the agent took these words into it."""
    return f"[acp-bridge] Stopped before the agent took these words: {_beginning(prompt)}"


def not_joined(prompt: list[Any], *, perhaps_read: bool) -> str:
    """Return the notice that words are left over which were to join a turn that has ended."""
    why = (
        "Perhaps not read: the agent took these words into a turn that ended without another word"
        if perhaps_read
        else "Not sent: the agent ended during the turn that these words were to join"
    )
    return f"[acp-bridge] {why}. They are left over, `/queue run` sends them: {_beginning(prompt)}"


def steers(prompt: list[Any], *, now: bool) -> str:
    """Return the answer to `/queue steer`; `now`: the agent takes words into the turn that runs."""
    what = "joins the turn that runs" if now else "is the next to run: this agent takes no words in"
    return f"{_beginning(prompt)} {what}."


def no_such_waiting(given: list[str], usage: str) -> str:
    """Return the answer to `/queue steer` with words that are no waiting prompt's number."""
    return f"No prompt {words(repr(' '.join(given)))} waits that could join the turn. {usage}"


def running(count: int) -> str:
    """Return the notice before `count` left-over prompts run: the user has not just sent them."""
    return f"Running {count} left-over prompt{'' if count == 1 else 's'}."


def dropped(count: int) -> str:
    """Return the answer to `/queue drop`, which has dropped `count` prompts."""
    return f"Dropped {count}." if count else NOTHING_LEFT


def dropped_one(number: int) -> str:
    """Return the answer to a drop of one prompt."""
    return f"Dropped prompt {number}."


def dropped_unsynced(number: int) -> str:
    """Return the answer to a drop of one prompt that the disk has not taken."""
    return (
        f"Dropped prompt {number}, but the disk has not taken that: after a loss of power it may"
        " be left over."
    )


def edited(number: int, prompt: list[Any]) -> str:
    """Return the answer to an edit of a prompt, with its words from now on."""
    return f"Prompt {number} is now: {_beginning(prompt)}"


def moved(number: int) -> str:
    """Return the answer to a move of a prompt."""
    return f"Moved prompt {number}. `/queue` shows the order."


def not_changed(why: str) -> str:
    """Return the answer to a change of a prompt that was not made."""
    return f"Nothing is changed: {words(why)}."


def changed_by_other(how: str) -> str:
    """Return the notice, to who sent a prompt, of a change that another client has made."""
    return f"[acp-bridge] Another client has changed your prompt. {how}"


def no_such_prompt(number: str) -> str:
    """Return why a number names no prompt that waits or is left over."""
    return f"no prompt {words(number, 80)} waits: it has begun or has ended, or never was"


def bad_hooks(file: str, why: str) -> str:
    """Return the notice of a file of hooks that can't be used."""
    return (
        f"[acp-bridge] {as_code(file)}: {words(why)}. No hook of this file runs until that is"
        " mended and the session is opened again; every permission is asked of you."
    )


def rule_refused(title: str, rule: str) -> str:
    """Return the notice of a tool call that a rule has refused."""
    return f"[acp-bridge] Your rule refused {as_code(title)}: {words(rule)}"


def unattended(about: str) -> str:
    """Return the notice of a tool call that was denied because nobody could answer."""
    return f"[acp-bridge] Denied, since nobody could answer: {as_code(about)}"


def untrusted_hooks(folder: str) -> str:
    """Return the notice of a project whose hooks are not trusted."""
    return (
        "[acp-bridge] This project has hooks of its own (`.acp_bridge/hooks.toml`). They are off:"
        f" {trust(folder)} on a terminal shows them, and turns them on for sessions"
        " that are opened after that."
    )


def changed_hooks(files: list[str], folder: str) -> str:
    """Return the notice of trusted hooks that have changed."""
    named = ", ".join(map(as_code, files[:5])) + (" and more" if len(files) > 5 else "")
    return (
        f"[acp-bridge] The hooks of this project are off, since {named} changed after you trusted"
        f" them; every permission is asked of you. {trust(folder)} on a terminal turns"
        " them on again, for sessions that are opened after that."
    )


def hooks_count(file: str, hooks: list[tuple[str, str]], *, new: bool) -> str:
    """Return the notice of a file of hooks that is new to a session, or has changed since.

    `hooks`: their events and commands.
    """
    shown = [f"{event}: `{code(command)}`" for event, command in hooks]
    more = f", and {len(shown) - 10} more" if len(shown) > 10 else ""
    of = "Hooks" if new else "The hooks have changed"
    named = ", ".join(shown[:10]) + more
    return f"[acp-bridge] {of} of {as_code(file)} that run in this session: {named}."


def hooks_gone(file: str) -> str:
    """Return the notice of a file of hooks that a session has had, and that is gone."""
    return f"[acp-bridge] The hooks of {as_code(file)} are gone: none of them runs in this session."


def hook_failed(event: str, command: str, why: str) -> str:
    """Return the notice of a hook that has failed."""
    return f"[acp-bridge] A hook of {event} failed (`{code(command)}`): {words(why)}."


def prompt_refused(why: str) -> str:
    """Return the notice beside a prompt that a hook has refused."""
    return f"[acp-bridge] A hook refused the prompt: {words(why, _OF_HOOK)}"


def permission_refused(title: str, why: str) -> str:
    """Return the notice of a tool call that a hook has refused."""
    return f"[acp-bridge] A hook refused {as_code(title)}: {words(why, _OF_HOOK)}"


def permission_allowed(about: str) -> str:
    """Return the notice of a tool call that a hook has allowed; `about`: its summary."""
    return f"[acp-bridge] A hook allowed: {as_code(about)}"


def feedback(text: str) -> str:
    """Return the prompt that sends the agent back to work; it says that a hook wrote it."""
    return f"[acp-bridge] Feedback of a hook at the end of the turn, not of the user:\n\n{text}"


def enough_feedback(text: str) -> str:
    """Return the notice of feedback that the agent is not given, after too much of it."""
    said = words(text, _OF_HOOK)
    return f"[acp-bridge] Hooks have sent the agent back to work often enough. Not sent: {said}"


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


def _beginning(prompt: list[Any]) -> str:
    return as_code(summary(prompt, _LENGTH))


def left_alone(seconds: float) -> str:
    """Return the notice that work ends as nobody had its session open for `seconds` seconds."""
    return (
        f"[acp-bridge] Nobody has had this session open for {duration(seconds)}: what runs is"
        " cancelled, and what waits is left over."
    )
