"""The sentences that the bridge says of an agent that is silent, odd or at a limit. SANS-IO.

They are shown as notices (`updates.notices`).
"""

from __future__ import annotations

from typing import Final

from acp_bridge.core.updates.wording import as_code, code, duration, words

LIMIT_RESET: Final = "[acp-bridge] The agent's usage limit has reset: going on."
NOTHING_HELD: Final = "[acp-bridge] Nothing waits any more behind the usage limit."
#: what `/queue memory` can do about an agent that does not have the session any more.
_WAYS: Final = (
    "`/queue memory new` goes on with a new session of the agent. `/queue memory restore` does the"
    " same, and gives it the transcript with your next prompt."
)
RESUME_DOUBTFUL: Final = (
    "[acp-bridge] The agent said that it resumed this session, and then refused the prompt without"
    f" a word. It may not have the session any more. {_WAYS}"
)
BROKEN_BY_CANCEL: Final = (
    "[acp-bridge] Since the last Stop the agent has answered two prompts in a row with an internal"
    f" error. acp-bridge starts it again, once. If the errors go on: {_WAYS}"
)
#: the most programs that one notice names.
_PROGRAMS: Final = 5


def silent(
    seconds: float, programs: list[tuple[str, float, float]] | None, *, in_call: bool
) -> str:
    """Return the notice that the agent has said nothing in a turn for `seconds` seconds.

    `programs`: the name of each process below the agent, its CPU time and its age in seconds; None
    if they can't be seen. `in_call`: a tool call is open.
    """
    with_call = ", and a tool call is open" if in_call else ""
    said = f"[acp-bridge] The agent has said nothing for {duration(seconds)}{with_call}."
    named = [each for each in programs or [] if each[0]]
    if programs is None:
        below = "What runs below it can't be seen."
    elif not named:
        below = "No program runs below it."
    else:
        named.sort(key=lambda each: -each[1])
        rows = [
            f"- {as_code(code(name))}: {duration(cpu)} of CPU time, began {duration(age)} ago"
            for name, cpu, age in named[:_PROGRAMS]
        ]
        rows += [f"- and {len(named) - _PROGRAMS} more"] if len(named) > _PROGRAMS else []
        below = "\n\n".join(("Below it run:", "\n".join(rows), "Stop ends the turn."))
        return f"{said} {below}"
    return f"{said} {below} Stop ends the turn."


def starting(agent: str) -> str:
    """Return the notice that the agent of this name is starting, which takes long."""
    return f"[acp-bridge] {as_code(agent, 80)} is starting."


def cancelled_silent(seconds: float) -> str:
    """Return the notice that a turn is cancelled, as its agent was silent for `seconds` seconds."""
    return (
        f"[acp-bridge] Stopping this turn: for {duration(seconds)} the agent has said nothing, no"
        " tool call was open, and nothing below it has computed (`--cancel-silent-after`)."
    )


def too_many_requests(open_: int) -> str:
    """Return the notice that the agent has `open_` open requests, which is too many."""
    return (
        f"[acp-bridge] The agent has {open_} open requests. Until some of them are answered,"
        " acp-bridge refuses its requests for files and terminals. While you have a request to"
        " answer, acp-bridge reads nothing more from the agent. Stop ends the turn."
    )


def usage_limit(resets: str | None, *, goes_on: bool, spent: int) -> str:
    """Return the notice of a queue that is held since the agent has met a usage limit.

    `resets`: when the limit resets; None if the agent has not told. `goes_on`: the queue goes on
    by itself then. `spent`: how often it has gone on by itself, if it does so no more; else 0.
    """
    told = "The agent has not said when the limit resets."
    if resets is not None:
        told = f"The limit resets at {resets}."
    how = "What waits is on hold until `/queue go`"
    if goes_on:
        how = "What waits is on hold, and goes on by itself then; `/queue go` goes on at once"
    elif spent:
        how += f": it has gone on by itself {spent} times, and does so no more"
    return f"[acp-bridge] The agent has met a usage limit. {told} {how}."


#: an agent has ended a turn with a reason that ACP doesn't have, or without a word.
NO_WORD: Final = "[acp-bridge] The agent ended the turn without a word."


def no_word(reason: str) -> str:
    """Return the notice of a turn in which the agent has said nothing; `reason`: its own word for
    the end, if ACP doesn't have that."""
    if not reason:
        return NO_WORD
    return f"{NO_WORD} It gave a reason that ACP does not have: {as_code(reason, 80)}."


def not_answered(about: str, said: str) -> str:
    """Return the notice that a client did not answer a permission; `said`: its error, if any."""
    how = f"answered with an error: {words(said)}" if said else "gave an answer without a choice"
    return (
        "[acp-bridge] The agent's question was not answered, so nothing was allowed:"
        f" {words(about)}. The client {how}"
    )


def no_options(about: str) -> str:
    """Return the notice of a permission of whose options no client can show one."""
    return (
        f"[acp-bridge] The agent asked for a permission with options that no client here knows, so"
        f" nothing was allowed: {words(about)}"
    )
