"""Judges a line by wide rules, and says what the rules have read of an allowed one."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from acp_bridge.features.rules import config, decide, posix, shell, steps
from acp_bridge.features.rules.definitions import Action, Place, Tool
from acp_bridge.features.rules.ruleset import Ruleset
from acp_bridge.features.rules.shell import Command
from tests.fuzz_rules import scratch as folder

RULES = """
default = "ask"
allow = ["Read", "Bash(ls *)", "Bash(cat *)", "Bash(head *)", "Bash(grep *)", "Bash(nl src/**)",
  "Bash(wc *)", "Bash(sort *)", "Bash(find *)", "Bash(git *)", "Bash(tar *)", "Bash(echo *)",
  "Bash(printf *)", "Bash(test *)", "Bash(pwd)", "Bash(cd *)", "Bash(python3 *)", "Edit(out/**)"]
deny = ["Bash(rm *)", "Bash(git push *)", "Read(**/secret)"]
"""


@dataclass
class Read:
    """What the rules have read of a line."""

    #: each command, with the folders in which it may run.
    commands: list[tuple[Command, tuple[str, ...]]] = field(default_factory=list)
    #: commands that run others, such as `timeout 5 ls` and `sh -c ls`.
    wrappers: list[Command] = field(default_factory=list)
    assignments: set[str] = field(default_factory=set)
    #: the variables of loops.
    names: set[str] = field(default_factory=set)
    #: the files that it may write, without links.
    writes: set[str] = field(default_factory=set)


class _Walk(steps._Walk):
    """Follows a line as the rules do, and notes what they take away: wrappers and assignments."""

    def __init__(self, place: Place, read: Read) -> None:
        super().__init__(place)
        self._noted = read

    def _simple(self, simple: posix.Simple, here: tuple[str, ...], values: steps._Values) -> None:
        self._noted.assignments.update(simple.assignments)
        super()._simple(simple, here, values)

    def _script(
        self,
        script: posix.Script,
        here: tuple[str, ...],
        values: steps._Values,
        *,
        below: bool = False,
    ) -> None:
        self._noted.names.update(values)
        super()._script(script, here, values, below=below)

    def _run(self, command: Command, here: tuple[str, ...]) -> None:
        if shell.behind_harmless(command) or shell.plain_script(command) is not None:
            self._noted.wrappers.append(command)
        super()._run(command, here)


class Judge:
    """The rules, in one scratch folder."""

    def __init__(self, scratch: str) -> None:
        self.place = Place(
            folder.project(scratch),
            home=folder.home(scratch),
            real=os.path.realpath(folder.project(scratch)),
        )
        self._rules = Ruleset(
            decide.rules_for(config.parse(RULES, "permissions.toml"), "", self.place)
        )

    def allows(self, line: str) -> bool:
        call = decide.example(Tool.BASH, line)
        return decide.judge(self._rules, Action.ASK, call, self.place).action is Action.ALLOW

    def read(self, line: str) -> Read:
        """Return what the rules have read of a line that they allow."""
        read = Read()
        walk = _Walk(self.place, read)
        walk.line(line, (self.place.real,))
        read.commands += [(each.command, each.folders) for each in walk.steps]
        for each in walk.written:
            path = each.path
            if path.startswith("~/"):
                path = self.place.home + path[1:]
            found = (os.path.join(one, path) for one in each.folders)
            read.writes.update(os.path.realpath(one) for one in found if each.writes)
        return read
