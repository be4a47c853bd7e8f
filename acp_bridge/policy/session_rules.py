"""The rules of one session: read from their files, and again whenever one has changed.

- While a file has a mistake, its last good refusals hold and all else is asked (invariant A1).
- A project's own file can refuse and ask; what it allows counts only while the user trusts the
  file as it is (invariant A2).
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
from acp_bridge.policy.places import PROJECT_FILE, RECORDS
from acp_bridge.policy.ruleset import Ruleset
from acp_bridge.protocol import Json
from acp_bridge.updates import notices

#: the most bytes of a file of rules.
_LARGEST: Final = 1024 * 1024
_BASH: Final = frozenset({Tool.BASH})
_Mark = tuple[int, int, int, int]


def load(path: Path, place: Place) -> tuple[Rules | None, str]:
    """Return the rules of the user's own file, None if it is not there, and an empty notice.

    Raises config.BadRules, also for a file that anybody may write.
    """
    found = _read(path, path.name, place)
    try:
        if found:
            trust.check_own(path)
    except FileNotFoundError:
        return None, ""
    except OSError as error:
        raise config.BadRules(f"it can't be read: {error.strerror}") from error
    except trust.NotTrustable as error:
        raise config.BadRules(str(error)) from error
    return (found[0] if found else None), ""


def load_project(path: Path, place: Place, home: Path) -> tuple[Rules | None, str]:
    """Return the rules of a project's file that count, and a notice if its `allow` rules don't.

    Those count while the user trusts the file as it is. None: there is no file. Raises
    config.BadRules.
    """
    found = read_project(path, place)
    if found is None or not found[0].allows:
        return (found[0] if found else None), ""
    rules, files = found
    folder = os.path.realpath(place.cwd)
    try:
        record = trust.read_record(trust.record_path(home, folder, RECORDS))
    except OSError:
        record = None
    if record and record.folder == folder and not trust.changed(record.files, files):
        return rules, ""
    said = notices.untrusted_rules(folder, changed=record is not None)
    return rules.of(Action.DENY, Action.ASK), said


def read_project(path: Path, place: Place) -> tuple[Rules, dict[str, str]] | None:
    """Return all rules of a project's file, and its hash by its name; raises config.BadRules."""
    found = _read(path, PROJECT_FILE, place)
    return (found[0], {PROJECT_FILE: trust.digest(found[1])}) if found else None


def _read(path: Path, name: str, place: Place) -> tuple[Rules, bytes] | None:
    """Return the rules and the content of a file; None if it is not there.

    Raises config.BadRules, also if an example in it is decided otherwise than it says.
    """
    try:
        found = trust.read_text(path, _LARGEST)
    except trust.NotTrustable as error:
        raise config.BadRules(str(error)) from error
    if found is None:
        return None
    rules = config.parse(found[1], name)
    if wrong := decide.failed_checks(rules, place):
        raise config.BadRules(wrong[0])
    return rules, found[0]


class _File:
    """One file of rules as it was read last."""

    def __init__(self, load: Callable[[Path], tuple[Rules | None, str]], *paths: Path) -> None:
        """`load` reads it; `paths`: the file, and others after whose change it is read again."""
        self.path = paths[0]
        self.rules: Rules | None = None
        #: the mistake in it as it is now; empty if it has none.
        self.mistake = ""
        self._load = load
        self._paths = paths
        self._marks: list[_Mark | None] = []
        self._said = ""

    def look(self) -> str:
        """Read the file if it has changed; returns the notice of what is newly wrong, or empty."""
        marks = list(map(_mark, self._paths))
        if marks[0] is not None and marks == self._marks:
            return ""
        self._marks, before = marks, self._said
        try:
            self.rules, self._said = self._load(self.path)
            self.mistake = ""
        except config.BadRules as bad:
            refusals = (self.rules or Rules()).of(Action.DENY)
            self.rules, self.mistake = replace(refusals, default=Action.ASK), str(bad)
            self._said = notices.bad_rules(str(self.path), self.mistake)
        return self._said if self._said != before else ""


class SessionRules:
    """The rules that hold in one session."""

    def __init__(self, own: Path, project: Path, home: Path, cwd: str, agent: str) -> None:
        """`own`, `project`: the files; `home`: the data folder; `agent`: the name of the agent."""
        guarded = (home, own, Path(os.path.realpath(home)), Path(os.path.realpath(own)))
        self._place = Place(cwd, tuple(map(str, guarded)), os.path.expanduser("~"))
        self._agent = agent
        self._made: tuple[tuple[list[Rules], str], Ruleset] | None = None
        record = trust.record_path(home, os.path.realpath(cwd), RECORDS)
        self._files = (
            _File(lambda path: load(path, self._place), own),
            _File(lambda path: load_project(path, self._place, home), project, record),
        )

    def judge(self, described: Json, kinds: Iterable[object]) -> tuple[Judgement, list[str]]:
        """Return what the rules say of a tool call as the agent has described it.

        `kinds`: each kind that the call was ever said to be of. The second value is the notices
        about files with mistakes.
        """
        return self._judge(call_of(described, kinds))

    def judge_file(self, path: str, *, writes: bool) -> tuple[Judgement, list[str]]:
        """Return what the rules say of a file that the agent reads or writes at the client."""
        if not paths.resolved(path, self._place):
            return Judgement(why="no file can have this name", protected=True, unjudged=True), []
        return self._judge(decide.example(Tool.EDIT if writes else Tool.READ, path))

    def judge_command(self, *lines: str, cwd: str = "") -> tuple[Judgement, list[str]]:
        """Return what the rules say of a command that the agent runs in the client's terminal.

        `lines`: the command lines that the client may make of the words of the command; `cwd`: the
        folder that the command names, if any.
        """
        return self._judge(Call(Tool.BASH, _BASH, commands=lines, cwd=cwd))

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
        """The action for a question that nobody can answer: the strictest; None: no file says."""
        said = {each.rules.unattended for each in self._files if each.rules}
        return Action.DENY if Action.DENY in said else Action.ASK if Action.ASK in said else None

    def _judge(self, call: Call) -> tuple[Judgement, list[str]]:
        said = [notice for each in self._files if (notice := each.look())]
        known = [each.rules for each in self._files if each.rules]
        if self._place.real != (real := os.path.realpath(self._place.cwd)):
            self._place = replace(self._place, real=real)
        place = self._place
        strict = any(each.default is Action.DENY for each in known)
        default = Action.DENY if strict else Action.ASK
        judgement = decide.judge(self._ruleset(known, place), default, call, place)
        mistaken = next((each for each in self._files if each.mistake), None)
        if mistaken and not judgement.deny:
            why = f"{mistaken.path.name} can't be used"
            judgement = Judgement(ask=judgement.ask, why=why, protected=True)
        return judgement, said

    def _ruleset(self, known: list[Rules], place: Place) -> Ruleset:
        """Return the rules of these files that hold here, made again when one has changed."""
        if self._made is None or self._made[0] != (known, place.real):
            here = [decide.rules_for(each, self._agent, place) for each in known]
            self._made = (known, place.real), Ruleset([rule for each in here for rule in each])
        return self._made[1]


def _mark(path: Path) -> _Mark | None:
    """Return what is different once a file has changed; None if the file is not there."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
