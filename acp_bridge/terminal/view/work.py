"""What an agent did in a session, as its tool calls tell it: files read and changed, commands.

A file counts as read or changed when the call's card says that it is completed. A command counts as
run when it was allowed and has ended, or when the agent tells of its run: an output, an exit code.
Nothing counts that was denied or never answered, or that its agent says was not run. Of other
commands that have ended nobody knows whether they ran. No I/O.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from acp_bridge.core.protocol import (
    ASSUMED,
    ENDED,
    RAN,
    TOOL_CALL_UPDATE,
    Json,
    as_object,
    objects,
    own_meta,
)
from acp_bridge.core.updates.tool_calls import commands_of, plain_name
from acp_bridge.terminal.view.blocks import Call, Diff
from acp_bridge.terminal.view.command_ends import command_end, runs_a_command, shows_output
from acp_bridge.terminal.view.from_updates import Updates, card

_CHANGES: Final = ("edit", "delete", "move")


class Ran(Enum):
    """Whether a call was run."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


@dataclass(slots=True)
class Done:
    """A tool call, as far as it is known, in the turn in which it ended."""

    turn: int
    call: Json
    #: the changes in its latest update that has any: the last one may have words in their place.
    diffs: tuple[Diff, ...] = ()
    #: what became of the last permission about it: `allow`, `deny` or `cancelled`.
    decision: object = None
    #: a permission was asked for it, and nobody has answered.
    unanswered: bool = False
    #: the agent says that it was not run.
    not_run: bool = False
    #: the agent said, after it had told of the call, that it runs; it has shown an output.
    begun: bool = False
    output: bool = False
    ended: bool = False
    #: the agent has not told the end: the bridge has assumed it.
    assumed: bool = False
    #: the agent says `in_progress` of each call that it begins.
    tells_begin: bool = False

    @property
    def refused(self) -> bool:
        """True for a call that was denied or not answered, or that the agent did not run."""
        return self.not_run or self.unanswered or self.decision not in (None, "allow")

    @property
    def ran(self) -> Ran:
        """Whether the call was run, as far as agent and bridge tell."""
        if self.refused:
            return Ran.NO
        if self.output or command_end(self.call) is not None:
            return Ran.YES
        if not self.ended:
            return Ran.NO  # not yet
        told = self.call.get("status") == "completed" and not self.assumed
        if self.decision == "allow" or self.begun or told:
            return Ran.YES
        return Ran.NO if self.tells_begin else Ran.UNKNOWN

    @property
    def completed(self) -> bool:
        """True for a call that has succeeded, and that nobody has refused."""
        return self.call.get("status") == "completed" and not self.refused

    def commands(self, ran: Ran) -> list[str]:
        """Return the call's commands, or its title where the agent tells none, if `ran` holds."""
        if not runs_a_command(self.call) or self.ran is not ran:
            return []
        return commands_of(self.call) or [card(self.call).title]

    @property
    def end(self) -> str:
        """How the call's command ended; "" for a success, and where that is not known."""
        return str(command_end(self.call) or "")

    @property
    def paths(self) -> list[str]:
        """The paths of the files that the call names, each once."""
        places = (place.get("path") for place in objects(self.call.get("locations")))
        named = [path for path in places if isinstance(path, str) and path]
        return list(dict.fromkeys([*(diff.path for diff in self.diffs), *named]))

    @property
    def changes(self) -> bool:
        """True for a call that has changed files by an edit tool."""
        return self.completed and (bool(self.diffs) or self.call.get("kind") in _CHANGES)

    @property
    def reads(self) -> bool:
        """True for a call that has read files."""
        return self.completed and not self.diffs and self.call.get("kind") == "read"


@dataclass(slots=True)
class Work:
    """The calls of a session, in the order in which they ended."""

    done: list[Done] = field(default_factory=list)

    def of(self, turn: int | None) -> Iterator[Done]:
        """Give the calls of a turn; None: of all turns."""
        return (each for each in self.done if turn in (None, each.turn))


def work(
    updates: Iterable[tuple[int, Json]],
    unanswered: Collection[str] = (),
    *,
    tells_begin: bool = False,
) -> Work:
    """Return the calls of a session that have ended, and then those that still run.

    Args:
        updates: the recorded ones, each with its turn.
        unanswered: the ids of the calls for which a permission was asked and never answered.
        tells_begin: the agent says `in_progress` of each call that it begins.
    """
    calls, readers = dict[object, Done](), dict[object, Updates]()
    ended: list[Done] = []
    for turn, params in updates:
        child = params.get("sessionId")  # a subagent's calls have ids of their own
        match readers.setdefault(child, Updates()).read(params):
            case Call() as call:
                here = calls.get((child, call.call_id))
                if here is None:
                    asked = call.call_id in unanswered
                    here = Done(turn, call.now, unanswered=asked, tells_begin=tells_begin)
                    calls[child, call.call_id] = here
                _note(here, call, own_meta(params))
                if not here.ended and call.now.get("status") in ENDED:
                    here.ended, here.turn = True, turn
                    here.diffs = here.diffs or _written(call.now)
                    ended.append(here)
    return Work([*ended, *(each for each in calls.values() if not each.ended and each.output)])


def _note(here: Done, call: Call, own: Json) -> None:
    """Note what one update tells of a call; `own`: the bridge's marks on it."""
    here.call = call.now
    if diffs := tuple(_diffs(call.update)):
        here.diffs = diffs
    here.decision = as_object(own.get("decided")).get("decision") or here.decision
    here.not_run |= own.get(RAN) is False
    here.assumed |= own.get(ASSUMED) is True
    before = call.before or {}
    if call.update.get("sessionUpdate") == TOOL_CALL_UPDATE:
        runs = call.update.get("status") == "in_progress"
        here.begun |= runs and bool(before) and before.get("status") != "in_progress"
        here.output |= shows_output(call.update, call.now)


def _written(call: Json) -> tuple[Diff, ...]:
    """Return the change by a call that wrote a file without a diff, if its input has all the text.

    opencode tells in this way what its tool `write` does.
    """
    found = {plain_name(name): text for name, text in as_object(call.get("rawInput")).items()}
    path, text = found.get("filepath"), found.get("content")
    if call.get("kind") != "edit" or not isinstance(path, str) or not isinstance(text, str):
        return ()
    return (Diff(path, None, text),) if path else ()


def _diffs(update: Json) -> Iterator[Diff]:
    """Give the changes that an update tells, but for those that change nothing."""
    told = [item for item in objects(update.get("content")) if item.get("type") == "diff"]
    for each in card({"content": told}).content if told else ():
        if isinstance(each, Diff) and each.path and each.old != each.new:
            yield each
