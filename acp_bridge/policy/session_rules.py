"""The rules of one session: read from their files, and again whenever one has changed.

- While a file has a mistake, its last good refusals hold and all else is asked (invariant A1).
- A project's own file can refuse and ask; what it allows does not count (invariant A2).
- Everything here may wait for a disk: it is called in a thread.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Final

from acp_bridge.hooks import trust
from acp_bridge.policy import config, decide, paths
from acp_bridge.policy.calls import call_of
from acp_bridge.policy.definitions import Action, Call, Judgement, Place, Rules, Tool
from acp_bridge.protocol import Json
from acp_bridge.updates import notices

#: bytes of a file of rules.
_LARGEST: Final = 1024 * 1024
_Mark = tuple[int, int, int, int]


def load(path: Path, place: Place, *, project: bool = False) -> Rules | None:
    """Return the rules of a file, None if it is not there; raises config.BadRules.

    The user's own may not be writable by everybody; its examples must be decided as they say.
    """
    try:
        found = trust.read_text(path, _LARGEST)
        if found is None:
            return None
        if not project:
            trust.check_own(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise config.BadRules(f"it can't be read: {error.strerror}") from error
    except trust.NotTrustable as error:
        raise config.BadRules(str(error)) from error
    rules = config.parse(found[1], path.name)
    if wrong := decide.failed_checks(rules, place):
        raise config.BadRules(wrong[0])
    return rules.of(Action.DENY, Action.ASK) if project else rules


class _File:
    """One file of rules as it was read last."""

    def __init__(self, path: Path, load: Callable[[Path], Rules | None]) -> None:
        self.path = path
        self.rules: Rules | None = None
        #: the mistake in it as it is now; empty if it has none.
        self.mistake = ""
        self._load = load
        self._mark: _Mark | None = None

    def look(self) -> bool:
        """Read it if it has changed; returns True if it has a mistake that it did not have."""
        mark = _mark(self.path)
        if mark is not None and mark == self._mark:
            return False
        self._mark, before = mark, self.mistake
        try:
            self.rules, self.mistake = self._load(self.path), ""
        except config.BadRules as bad:
            refusals = (self.rules or Rules()).of(Action.DENY)
            self.rules, self.mistake = replace(refusals, default=Action.ASK), str(bad)
        return bool(self.mistake) and self.mistake != before


class SessionRules:
    """The rules that hold in one session."""

    def __init__(self, own: Path, project: Path, home: Path, cwd: str, agent: str) -> None:
        """`own`, `project`: the files; `home`: the data folder; `agent`: the name of the agent."""
        guarded = (home, own, Path(os.path.realpath(home)), Path(os.path.realpath(own)))
        self._place = Place(cwd, tuple(map(str, guarded)), os.path.expanduser("~"))
        self._agent = agent
        self._files = (
            _File(own, lambda path: load(path, self._place)),
            _File(project, lambda path: load(path, self._place, project=True)),
        )

    def judge(self, described: Json, kinds: Iterable[object]) -> tuple[Judgement, list[str]]:
        """Return what the rules say of a tool call as the agent has described it.

        `kinds`: each that it was ever said to be. With it come notices about files with mistakes.
        """
        return self._judge(call_of(described, kinds))

    def judge_file(self, path: str, *, writes: bool) -> tuple[Judgement, list[str]]:
        """Return what the rules say of a file that the agent reads or writes at the client."""
        if not paths.resolved(path, self._place):
            return Judgement(why="no file can have this name", protected=True, unjudged=True), []
        return self._judge(decide.example(Tool.EDIT if writes else Tool.READ, path))

    def judge_command(self, command: str) -> tuple[Judgement, list[str]]:
        """Return what the rules say of a command that the agent runs in the client's terminal."""
        return self._judge(decide.example(Tool.BASH, command))

    @property
    def mistakes(self) -> list[tuple[Path, str]]:
        """Each file with a mistake, and the mistake, as they were when a call was last judged."""
        return [(each.path, each.mistake) for each in self._files if each.mistake]

    @property
    def are_there(self) -> bool:
        """True if a file of rules was there when a call was last judged."""
        return any(each.rules for each in self._files)

    @property
    def unattended(self) -> Action | None:
        """What becomes of a question that nobody can answer; None: no file says."""
        said = {each.rules.unattended for each in self._files if each.rules}
        return Action.DENY if Action.DENY in said else Action.ASK if Action.ASK in said else None

    def _judge(self, call: Call) -> tuple[Judgement, list[str]]:
        said = [
            notices.bad_rules(str(each.path), each.mistake) for each in self._files if each.look()
        ]
        known = [each.rules for each in self._files if each.rules]
        rules = [
            rule for each in known for rule in decide.rules_for(each, self._agent, self._place)
        ]
        strict = any(each.default is Action.DENY for each in known)
        default = Action.DENY if strict else Action.ASK
        judgement = decide.judge(rules, default, call, self._place)
        mistaken = next((each for each in self._files if each.mistake), None)
        if mistaken and not judgement.deny:
            why = f"{mistaken.path.name} can't be used"
            judgement = Judgement(ask=judgement.ask, why=why, protected=True)
        return judgement, said


def _mark(path: Path) -> _Mark | None:
    """Return what tells a file from a changed one; None if it is not there."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
