"""What an agent did in a session, as its tool calls tell it: files read and changed, commands.

A call counts as done when its card says that it is completed, and nobody has refused it; a command
also when it has failed, since it may have run. No I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from acp_bridge.protocol import ENDED, Json, as_object, objects, own_meta
from acp_bridge.updates.tool_calls import commands_of, plain_name
from acp_bridge.view.blocks import Call, Diff
from acp_bridge.view.command_ends import command_end, runs_a_command
from acp_bridge.view.from_updates import Updates, card

_CHANGES: Final = ("edit", "delete", "move")


@dataclass(slots=True)
class Done:
    """A tool call, as far as it is known, in the turn in which it ended."""

    turn: int
    call: Json
    #: the changes in its latest update that has any: the last one may have words in their place.
    diffs: tuple[Diff, ...] = ()
    refused: bool = False
    ended: bool = False

    @property
    def completed(self) -> bool:
        """True for a call that has succeeded, and that nobody has refused."""
        return self.call.get("status") == "completed" and not self.refused

    @property
    def commands(self) -> list[str]:
        """The commands that the call ran, or its title where the agent tells none."""
        if self.refused or not self.ended or not runs_a_command(self.call):
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
    """The ended calls of a session, in the order in which they ended."""

    done: list[Done] = field(default_factory=list)

    def of(self, turn: int | None) -> Iterator[Done]:
        """Give the calls of a turn; None: of all turns."""
        return (each for each in self.done if turn in (None, each.turn))


def work(updates: Iterable[tuple[int, Json]]) -> Work:
    """Return the ended calls of a session; `updates`: the recorded ones, each with its turn."""
    found, calls, readers = Work(), dict[object, Done](), dict[object, Updates]()
    for turn, params in updates:
        child = params.get("sessionId")  # a subagent's calls have ids of their own
        match readers.setdefault(child, Updates()).read(params):
            case Call() as call:
                here = calls.setdefault((child, call.call_id), Done(turn, call.now))
                here.call = call.now
                if diffs := tuple(_diffs(call.update)):
                    here.diffs = diffs
                decision = as_object(own_meta(params).get("decided")).get("decision")
                here.refused = here.refused if decision is None else decision != "allow"
                if not here.ended and call.now.get("status") in ENDED:
                    here.ended, here.turn = True, turn
                    here.diffs = here.diffs or _written(call.now)
                    found.done.append(here)
    return found


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
