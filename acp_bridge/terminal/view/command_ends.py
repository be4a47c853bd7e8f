"""How the command of a tool call ended. ACP has no member for that; each agent has its own. No I/O.

Invariant: a command succeeded only if its agent says so in a member. Its output may say anything,
so a text tells a code only of a call that the agent itself calls failed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

from acp_bridge.core.protocol import ENDED, Json, as_object, objects
from acp_bridge.core.updates import tool_calls

#: status of a card whose command has ended, nobody tells how; never `completed`.
UNKNOWN: Final = "ended"
#: where agents tell the exit code, in the order in which they are believed.
_CODES: Final = (
    ("rawOutput", "exitCode"),  # the built-in agent, cursor
    ("rawOutput", "exit_code"),  # codex-acp
    ("rawOutput", "metadata", "exit"),  # opencode
    ("rawOutput", "details", "exitCode"),  # pi-acp
)
#: where agents tell the code to clients that show their terminals. claude-agent-acp and pi-acp send
#: 1 for every failure, so what they write about the code is read first.
_OF_TERMINAL: Final = ("_meta", "terminal_exit", "exit_code")
#: where agents tell what a command writes to clients that show their terminals.
_TERMINAL_OUTPUT: Final = ("_meta", "terminal_output", "data")
_SIGNALS: Final = (("rawOutput", "signal"), ("_meta", "terminal_exit", "signal"))
#: where an output stands in a call without content: codex-acp, opencode, cursor.
_OUTPUTS: Final = ("aggregated_output", "output", "stdout")
#: what agents write about a code: "Exit code 1" (claude-agent-acp), "Return code: 1"
#: (mistral-vibe), "failed with exit code: 1" (kimi-cli), "Command exited with code 1" (pi-acp).
_WRITTEN: Final = re.compile(r"\b(?:exit|return|exited with)(?: exit)? code:? (-?\d{1,10})\b", re.I)
#: how many of the first and of the last lines of an output are searched for a code.
_SEARCHED: Final = 3
#: characters of an output that are searched at each end.
_FAR: Final = 1_000
#: kinds under which a call may run a command that it names; edits name commands such as "view".
_MAY_RUN: Final = ("", "other")


@dataclass(frozen=True, slots=True)
class CommandEnd:
    """What an agent tells of the end of a command; None for what it does not tell."""

    code: int | None = None
    signal: str | None = None

    def __str__(self) -> str:
        """Return the words shown beside the command, such as "exit code 1"; "" for a success."""
        if self.signal:
            return f"ended by {self.signal}"
        return f"exit code {self.code}" if self.code else ""


def runs_a_command(call: Json) -> bool:
    """Return True for a call that runs a command, by its kind or by what it names."""
    kind = call.get("kind") or ""
    return kind == "execute" or (kind in _MAY_RUN and tool_calls.names_a_command(call))


def command_end(call: Json) -> CommandEnd | None:
    """Return how the command of an ended call ended; None if that is not known."""
    if call.get("status") not in ENDED:
        return None
    signals = (_member(call, path) for path in _SIGNALS)
    if signal := next((each for each in signals if isinstance(each, str) and each), None):
        return CommandEnd(signal=signal)
    codes = (_member(call, path) for path in _CODES)
    found = next((each for each in codes if _is_code(each)), None)
    if found is None and call.get("status") == "failed":
        found = _written(call)
    if found is None and _is_code(of_terminal := _member(call, _OF_TERMINAL)):
        found = of_terminal
    return None if found is None else CommandEnd(found)


def shows_output(update: Json, call: Json) -> bool:
    """Return True for an update that shows an output of a call that still runs.

    `call`: the call with this update. What is told before a call runs, or of its end, is no output.
    """
    if _member(update, _TERMINAL_OUTPUT):
        return True
    if call.get("status") != "in_progress":
        return False
    texts = (as_object(item.get("content")).get("text") for item in objects(update.get("content")))
    return any(texts) or bool(raw_text(update))


def status(call: Json) -> str:
    """Return the status of a call as it is shown: `completed` for a success alone."""
    given = call.get("status")
    if given != "completed":
        return given if isinstance(given, str) else ""
    if (end := command_end(call)) is not None:
        return "failed" if str(end) else "completed"
    return UNKNOWN if runs_a_command(call) else "completed"


def raw_text(call: Json) -> str:
    """Return the text in the raw output of a call; "" if there is none."""
    raw = call.get("rawOutput")
    found = [raw, *(as_object(raw).get(name) for name in _OUTPUTS)]
    return next((each for each in found if isinstance(each, str) and each), "")


def _member(call: Json, path: tuple[str, ...]) -> Any:
    value: Any = call
    for name in path:
        value = as_object(value).get(name)
    return value


def _is_code(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _written(call: Json) -> int | None:
    """Return the code that the first or the last lines of an output name; None if none does."""
    texts = [as_object(item.get("content")).get("text") for item in objects(call.get("content"))]
    texts += [each.get("text") for each in objects(call.get("rawOutput"))]
    for text in [*texts, raw_text(call)]:
        if not isinstance(text, str):
            continue
        first, last = text[:_FAR].splitlines()[:_SEARCHED], text[-_FAR:].splitlines()[-_SEARCHED:]
        for line in [*first, *reversed(last)]:
            if (found := _WRITTEN.search(line)) and int(found[1]):
                return int(found[1])
    return None
