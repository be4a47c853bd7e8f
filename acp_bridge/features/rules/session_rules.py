"""The rules of one session: read from their files, and again whenever one has changed.

- While a file has a mistake, its last good refusals hold and all else is asked (invariant A1).
  Where only its examples are wrong, its refusals are known, and hold.
- What the user's file denies or asks counts at once. In an open session that is also so for what
  it has denied or asked; what it newly allows counts once the user has said so (invariant A3).
- A project's own file can refuse and ask; what it allows counts only while the user trusts the
  file as it is (invariant A2).
- Everything here may wait for a disk: it is called in a thread.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from acp_bridge.core.protocol import Json
from acp_bridge.core.records import replace
from acp_bridge.features.hooks import trust
from acp_bridge.features.rules import config, decide, paths
from acp_bridge.features.rules import notices as rule_notices
from acp_bridge.features.rules.calls import call_of
from acp_bridge.features.rules.definitions import Action, Call, Judgement, Place, Rules, Tool
from acp_bridge.features.rules.opened import LARGEST, Opened, used_record
from acp_bridge.features.rules.places import OWN_FILE, PROJECT_FILE, RECORDS
from acp_bridge.features.rules.ruleset import Ruleset

_BASH: Final = frozenset({Tool.BASH})


def load(path: Path, place: Place) -> tuple[Rules | None, bytes | None]:
    """Return the rules and the content of the user's own file, None for both if it is not there.

    Raises config.BadRules, also for a file that anybody may write.
    """
    found = _read(path, path.name, place)
    if found is None:
        return None, None
    try:
        trust.check_own(path)
    except OSError as error:
        raise config.BadRules(f"it can't be read: {error.strerror}") from error
    except trust.NotTrustable as error:
        raise config.BadRules(str(error)) from error
    return found


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
    said = rule_notices.untrusted_rules(folder, changed=record is not None)
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
        found = trust.read_text(path, LARGEST)
    except trust.NotTrustable as error:
        raise config.BadRules(str(error)) from error
    if found is None:
        return None
    return _parsed(found[1], name, place), found[0]


def _parsed(text: str, name: str, place: Place) -> Rules:
    rules = config.parse(text, name)
    if wrong := decide.failed_checks(rules, place):
        raise config.BadRules(*wrong, rules=rules)
    return rules


class _File:
    """One file of rules as it was read last."""

    def __init__(self, load: Callable[[Path], tuple[Rules | None, str]], *paths: Path) -> None:
        """`load` reads it; `paths`: the file, and others after whose change it is read again."""
        self.path = paths[0]
        self.rules: Rules | None = None
        #: each mistake in it as it is now.
        self.mistakes: tuple[str, ...] = ()
        #: it is not known what it refuses: it has had a mistake ever since the session knows it.
        self.unknown = True
        self._load = load
        self._paths = paths
        self._marks: list[trust.Mark | None] = []
        self._said = ""

    def look(self) -> str:
        """Read the file if it has changed; returns the notice of what is newly wrong, or empty."""
        marks = list(map(trust.mark, self._paths))
        if marks[0] is not None and marks == self._marks and not self.mistakes:
            return ""
        before = self._said
        try:
            self.rules, self._said = self._load(self.path)
            self.mistakes, self.unknown = (), False
        except config.BadRules as bad:
            self.unknown = self.unknown and bad.rules is None
            refusals = (bad.rules or self.rules or Rules()).of(Action.DENY)
            self.rules, self.mistakes = replace(refusals, default=Action.ASK), bad.each
            self._said = rule_notices.bad_rules(str(self.path), self.mistakes)
        self._marks = marks
        return self._said if self._said != before else ""


class _Own(_File):
    """The user's own file. What it newly allows in an open session counts once the user says so."""

    def __init__(
        self, path: Path, home: Path, place: Callable[[], Place], opened: Opened | None
    ) -> None:
        """`place` is where calls are made; `opened`: the file then, None: it counts as it is."""
        self._record = used_record(home, path)
        other = path != home / OWN_FILE
        self._use = f"use --rules {shlex.quote(str(path))}" if other else "use"
        super().__init__(self._counting, path, self._record)
        self._place = place
        #: the file as it counted last.
        self._kept = opened
        #: the rules that counted before the file has changed; None while it is as it counts.
        self.before: Rules | None = None

    def _counting(self, path: Path) -> tuple[Rules | None, str]:
        """Return the rules of the file as it is, and a notice of what does not count of them."""
        try:
            rules, content = load(path, self._place())
        except config.BadRules:
            if self.rules is None and self.before is None:
                self.before = self._rules_before()
            raise
        if self._kept is None or self._kept.content == content:
            self.before = None
            return rules, ""
        before = self.before = self.before or self._rules_before() or Rules()
        newly = (rules or Rules()).loosened_since(before)
        if self._is_used(content):
            self._kept, self.before = Opened(content, trust.mark(self._record)), None
            return rules, rule_notices.rules_used(str(path), newly, self._use)
        return rules, rule_notices.rules_changed(str(path), newly, self._use) if newly else ""

    def _rules_before(self) -> Rules | None:
        """Return the rules of the file as it counted last; none of one that could not be used."""
        if self._kept is None:
            return None
        try:
            rules = _parsed((self._kept.content or b"").decode(), self.path.name, self._place())
        except config.BadRules as bad:
            rules = (bad.rules or Rules()).of(Action.DENY)
            self.unknown = self.unknown and bad.rules is None
        except UnicodeDecodeError:
            rules = Rules()
        else:
            self.unknown = False
        return rules

    def _is_used(self, content: bytes | None) -> bool:
        """Return True if the user has said, since it counted last, that this content counts."""
        if content is None or self._kept is None or trust.mark(self._record) == self._kept.used:
            return False
        try:
            record = trust.read_record(self._record)
        except OSError:
            return False
        said = (os.path.abspath(self.path), {OWN_FILE: trust.digest(content)})
        return record is not None and (record.folder, record.files) == said


class SessionRules:
    """The rules that hold in one session."""

    def __init__(
        self,
        own: Path,
        project: Path,
        home: Path,
        cwd: str,
        agent: str,
        opened: Opened | None = None,
    ) -> None:
        """`own`, `project`: the files; `home`: the data folder; `agent`: the name of the agent.

        `opened`: the user's file as it was when the session was opened; None: it counts as it is.
        """
        guarded = (home, own, Path(os.path.realpath(home)), Path(os.path.realpath(own)))
        self._place = Place(cwd, tuple(map(str, guarded)), os.path.expanduser("~"))
        self._agent = agent
        self._made: dict[bool, tuple[tuple[list[Rules], str], Ruleset]] = {}
        record = trust.record_path(home, os.path.realpath(cwd), RECORDS)
        self._own = _Own(own, home, lambda: self._place, opened)
        self._files = (
            self._own,
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
        """Each file with mistakes, with each of them, as they were when a call was last judged."""
        return [(each.path, mistake) for each in self._files for mistake in each.mistakes]

    @property
    def are_there(self) -> bool:
        """True if a file of rules was there when a call was last judged."""
        return any(each.rules for each in self._files)

    @property
    def unattended(self) -> Action | None:
        """The action for a question that nobody can answer: the strictest; None: no file says."""
        rules = [*(each.rules for each in self._files), self._own.before]
        said = {each.unattended for each in rules if each}
        return Action.DENY if Action.DENY in said else Action.ASK if Action.ASK in said else None

    def _judge(self, call: Call) -> tuple[Judgement, list[str]]:
        said = [notice for each in self._files if (notice := each.look())]
        if self._place.real != (real := os.path.realpath(self._place.cwd)):
            self._place = replace(self._place, real=real)
        judgement = self._judged(call, [each.rules for each in self._files], before=False)
        if self._own.before is not None:
            known = [self._own.before, *(each.rules for each in self._files[1:])]
            judged = self._judged(call, known, before=True)
            if judgement.allowed and not judged.allowed:
                why = "the rule that allows it was added after this session was opened"
                judged = replace(judged, why=judged.why if judged.protected else why)
            judgement = judgement.and_also(judged)
        mistaken = next((each for each in self._files if each.mistakes), None)
        if mistaken and not judgement.deny:
            why = f"{mistaken.path.name} can't be used"
            judgement = Judgement(
                ask=judgement.ask, why=why, protected=True, unjudged=mistaken.unknown
            )
        return judgement, said

    def _judged(self, call: Call, files: list[Rules | None], *, before: bool) -> Judgement:
        """Judge by the rules of these files; `before`: as they counted before a change."""
        known = [each for each in files if each]
        place = self._place
        strict = any(each.default is Action.DENY for each in known)
        default = Action.DENY if strict else Action.ASK
        return decide.judge(self._ruleset(known, before=before), default, call, place)

    def _ruleset(self, known: list[Rules], *, before: bool) -> Ruleset:
        """Return the rules of these files that hold here, made again when one has changed."""
        made = self._made.get(before)
        if made is None or made[0] != (known, self._place.real):
            here = [decide.rules_for(each, self._agent, self._place) for each in known]
            made = (known, self._place.real), Ruleset([rule for each in here for rule in each])
            self._made[before] = made
        return made[1]
