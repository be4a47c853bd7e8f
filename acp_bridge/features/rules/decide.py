"""Judges a call by the rules.

- Deny, then ask, then allow: the strictest rule that matches counts, and the order in a file does
  not. Nothing is allowed that was not understood (invariant A1).
- An allow needs every command of a line, every path and every file that it writes to match one.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Iterable, Iterator
from functools import cache, lru_cache
from itertools import chain, product

from acp_bridge.core.records import replace
from acp_bridge.features.rules import harmless, paths, programs
from acp_bridge.features.rules.calls import choices
from acp_bridge.features.rules.definitions import (
    PATHS,
    Action,
    Call,
    Check,
    Judgement,
    Place,
    Rule,
    Rules,
    Tool,
)
from acp_bridge.features.rules.lines import Lines, Word, files, lines_of, patterns
from acp_bridge.features.rules.ruleset import Ruleset, glob, is_from, named_by
from acp_bridge.features.rules.shell import Command, Redirect
from acp_bridge.features.rules.steps import Step, Unclear, follow, is_inside

#: names of folders below which nobody's rule lets an agent write.
_GUARDED = frozenset({".acp_bridge", ".git"})
#: how gemini-cli calls an MCP tool in a title.
_TOOL_OF_GEMINI = re.compile(r"(.+) \((.+) MCP Server\)", re.DOTALL)


def rules_for(rules: Rules, agent: str, place: Place) -> tuple[Rule, ...]:
    """Return the rules that hold for an agent of this name in a session's folder."""
    found = list(rules.rules)
    folder = place.real or os.path.realpath(place.cwd)
    for only in rules.only:
        named = not only.agent or only.agent == agent
        if named and (not only.folder or paths.matches(only.folder, folder, place)):
            found.extend(only.rules)
    return tuple(found)


def judge(rules: Ruleset, default: Action, call: Call, place: Place) -> Judgement:
    """Return what the rules say of a call; `default`: the decision if none of them names it."""
    place = place if place.real else replace(place, real=os.path.realpath(place.cwd))
    lines = lines_of(rules, call, moved=_moved(call, place))
    judged = _Judged(rules, call, lines, place)
    if deny := judged.first(Action.DENY):
        return Judgement(deny=deny)
    ask = judged.first(Action.ASK)
    if lines.too_long:
        return Judgement(ask=ask, why="it is too long to be looked at", protected=True)
    if perhaps := judged.perhaps(Action.DENY):
        return Judgement(ask=ask or perhaps, why="it may run what a rule refuses", protected=True)
    if where := judged.protected():
        return Judgement(ask=ask, why=f"it may write to {where}", protected=True)
    if ask:
        return Judgement(ask=ask)
    if perhaps := judged.perhaps(Action.ASK):
        return Judgement(ask=perhaps, why="it may run what the rule is about")
    if unknown := judged.unknown(Action.DENY) or judged.unknown(Action.ASK):
        return Judgement(ask=unknown, why="it is not known which file it means")
    allowed, why = judged.allowed()
    return Judgement(allowed=allowed, why=why, default=default)


def _moved(call: Call, place: Place) -> bool:
    """Return True if the commands of a call run in another folder than the session's."""
    return bool(call.cwd) and paths.resolved(call.cwd, place) != place.real


def failed_checks(rules: Rules, place: Place) -> list[str]:
    """Return a sentence for each example of a file that is not decided as it says."""
    wrong = []
    ruleset = Ruleset(rules.rules)
    for check in rules.checks:
        now = judge(ruleset, rules.default, _call(check), place).action
        if now is not check.decision:
            shown = check.bash or check.edit or check.read
            wrong.append(f"line {check.line}: {shown!r} is decided {now}, not {check.decision}")
    return wrong


def _call(check: Check) -> Call:
    if check.bash:
        return example(Tool.BASH, check.bash)
    return example(Tool.EDIT if check.edit else Tool.READ, check.edit or check.read)


def example(tool: Tool, text: str) -> Call:
    """Return a call of a tool with this command, or with this path."""
    if tool is Tool.BASH:
        return Call(tool, frozenset({tool}), commands=(text,))
    return Call(tool, frozenset({tool}), paths=(text,))


class _Judged:
    """One call and the rules of its session, with ways to find those that decide."""

    def __init__(self, rules: Ruleset, call: Call, lines: Lines, place: Place) -> None:
        self._rules = rules
        self._call = call
        self._lines = lines
        self._place = place
        #: the forms of a path that a refusal is compared with.
        self._readings = cache(lambda path: paths.readings(path, place))
        #: the files that a shell may put in place of a pattern; None: nobody can tell.
        self._files_of = cache(lambda pattern: paths.expanded(pattern, place))
        self._paths = cache(self._named)
        self._steps: list[Step] = []
        self._redirects: list[Redirect] = []
        #: why the lines can't be allowed; empty: each is understood.
        self._unclear = self._followed()
        #: the lines, and the commands that loops make with their values.
        self._said = [lines, *self._made()]
        words = [*lines.words, *self._words_of_steps()]
        words = [each for each in words if not each.hidden or self._is_there(each)]
        redirects = lines.redirects
        if not self._unclear:  # where those behind a `cd` are, the steps know
            words = [each for each in words if not each.moved or _is_absolute(each.text)]
            redirects = [each for each in redirects if not each.moved or _is_absolute(each.path)]
        self._redirects = list(dict.fromkeys([*redirects, *self._redirects]))
        self._words = list(dict.fromkeys(words))
        found = [each for command in lines.commands for each in patterns(command)]
        found = [*(each for each in found if re.search(r"[*?\[{\\]", each)), *call.globs]
        # A program takes the backslash of `.e\nv` away.
        plain = (each.replace("\\", "") for each in found)
        self._patterns = {each for one in plain for each in choices(one)}

    def _followed(self) -> str:
        """Follow each line; returns why one can't be followed, empty if each can."""
        place = self._place
        begin = paths.resolved(self._call.cwd, place) if self._call.cwd else place.real
        if self._lines.told and not is_inside(begin, place):
            return "it runs in another folder than the session's"
        for line in self._lines.told:
            try:
                steps, written = follow(line, place, begin)
            except Unclear as unclear:
                return str(unclear)
            self._steps += steps
            for each in written:
                found = (_in(folder, each.path, place) for folder in each.folders)
                self._redirects += [Redirect(path, each.writes) for path in found]
        return ""

    def _made(self) -> Iterator[Lines]:
        written = {each.words for each in self._lines.commands}
        made = {each.command.words for each in self._steps} - written
        if made:
            yield Lines(self._rules, tuple(sorted(map(shlex.join, made))), (), False)

    def _words_of_steps(self) -> Iterator[Word]:
        for step in self._steps:
            for word, folder in product(files(step.command), step.folders):
                yield replace(word, text=_in(folder, word.text, self._place))

    def _is_there(self, hidden: Word) -> bool:
        """Return True for a `.git` that exists, or whose folder is the session's or above it."""
        found = paths.resolved(hidden.text, self._place)
        folder = found.rpartition("/")[0] or "/"
        return os.path.lexists(found) or paths.is_above(folder, (self._place.real,))

    # --- deny and ask ----------------------------------------------------------------------

    def first(self, action: Action) -> Rule | None:
        """Return a rule of the list `action` that names the call or a part of it; else None."""
        call, rules = self._call, self._rules
        named = (rule for rule in rules.of(action, Tool.MCP) if _is_named(rule, call))
        if (rule := next(named, None)) or call.tool is Tool.MCP:
            return rule
        for rule in rules.of(action, Tool.MCP) if call.tool_title else ():
            if _may_be_named(rule, call.tool_title):
                return rule
        for tool in call.said:
            if tool is not Tool.FETCH and (bare := rules.bare(action, tool)):
                return bare
        if Tool.FETCH in call.said:
            for rule in rules.of(action, Tool.FETCH):
                found = (call.url, *call.addresses)
                if any(is_from(rule.pattern, each, below=True) for each in found):
                    return rule
        running = filter(None, (each.running(action) for each in self._said))
        return next(running, None) or self._touches(action)

    def perhaps(self, action: Action) -> Rule | None:
        """Return a rule of the list about a command that only perhaps runs; else None."""
        of_lines = (each.perhaps_running(action) for each in self._said)
        of_steps = (
            self._rules.refusing_expanded(action, each.command.words, each.command.expands)
            for each in self._steps
        )
        return next(filter(None, (*of_lines, *of_steps)), None)

    def _touches(self, action: Action) -> Rule | None:
        tools = dict.fromkeys(rule.tool for rule in self._rules.of_paths(action))
        named = (self._rules.naming(action, each, self._paths(each), self._place) for each in tools)
        return next(filter(None, named), None)

    def unknown(self, action: Action) -> Rule | None:
        """Return a rule about paths if nobody can tell which paths the call names; else None."""
        of_paths = self._rules.of_paths(action)
        if of_paths and self._is_unclear():
            return of_paths[0]
        if of_paths and (above := self._of_a_folder_above(of_paths)):
            return above
        hidden = [path for each in self._words for path in self._made_of(each, hidden=True)]
        shown = [each for path in hidden for each in self._readings(path)]
        for tool in {rule.tool for rule in of_paths} - {Tool.SEARCH} if shown else ():
            if found := self._rules.naming(action, tool, shown, self._place):
                return found
        rules = [rule for rule in of_paths if self._concerns(rule.tool)]
        names = {each.rpartition("/")[2] for each in self._patterns}
        for rule, name in product(rules, names):
            pattern = rule.pattern.rpartition("/")[2]
            if "**" not in pattern and paths.may_be_named(name, pattern):
                return rule
        return None

    def _of_a_folder_above(self, rules: Iterable[Rule]) -> Rule | None:
        """Return a rule that names something in a folder which the call changes as a whole."""
        call, place = self._call, self._place
        edits = Tool.EDIT in call.said and not call.commands
        changed = list(call.paths) if edits else []
        changed += [each.text for each in self._words if each.changes_below]
        folders = {path for each in changed for path in self._readings(each)}
        for rule in rules if folders else ():
            fixed = paths.fixed(rule.pattern, place)
            if any(paths.is_above(folder, fixed) for folder in folders):
                return rule
        return None

    def _is_unclear(self) -> bool:
        if any(each.moved and not os.path.isabs(each.path) for each in self._redirects):
            return True
        for each in self._words:
            far = each.moved and not each.text.startswith(("/", "~"))
            of_another = each.expands and re.match(r"~[^/]", each.text)
            if far or of_another or (each.is_glob and self._files_of(each.text) is None):
                return True
        named = [path for tool in PATHS for path in self._paths(tool)]
        return any(map(paths.depends_on_process, named))

    def _named(self, tool: Tool) -> list[str]:
        """Return the paths that a rule about this tool is compared with, as named and resolved."""
        found = list(self._call.paths) if self._concerns(tool) else []
        if tool is not Tool.SEARCH:
            wanted = tool is Tool.EDIT
            found += [each.path for each in self._redirects if each.writes or not wanted]
            for each in self._words:
                found += [each.text, *self._made_of(each, hidden=False)]
            found += [word for words in self._lines.raw for word in words]
            folder = self._call.cwd
            found += [os.path.join(folder, each) for each in found] if folder else []
        return list(dict.fromkeys(each for path in found for each in self._readings(path)))

    def _made_of(self, word: Word, *, hidden: bool) -> list[str]:
        """Return the files that a shell may put in place of a word; with False those that it surely
        may, with True those that it only puts there where it is told to show what is hidden."""
        made = (self._files_of(word.text) or ()) if word.is_glob else ()
        return [path for path in made if paths.is_shown(path, word.text, self._place) is not hidden]

    def _concerns(self, tool: Tool) -> bool:
        """Return True if rules about this tool are compared with the paths that the call names."""
        call = self._call
        searches = tool is Tool.READ and Tool.SEARCH in call.said
        return searches or tool in call.said or call.tool in (Tool.BASH, Tool.FETCH, None)

    # --- what is the person's alone to allow -------------------------------------------------

    def protected(self) -> str:
        """Return a path to which the call may write and no rule may allow that; empty: none."""
        call, guards = self._call, self._place.protected
        writing = not call.commands
        writing &= call.tool not in (Tool.READ, Tool.SEARCH, Tool.FETCH, Tool.MCP)
        changed = list(call.paths) if writing else []
        for word in (each for each in self._words if each.changes_below):
            made = (self._files_of(word.text) or ()) if word.is_glob else ()
            changed += [word.text, *(each for each in made if "/.git" not in each)]
        written = dict.fromkeys([*changed, *(each.path for each in self._redirects if each.writes)])
        looked_at = dict.fromkeys(each.text for each in self._words if each.reads)
        others = dict.fromkeys([*written, *(each.text for each in self._words if not each.reads)])
        others |= dict.fromkeys([call.cwd] if call.commands else ())
        wild = [(each.text, each.reads) for each in self._words if each.is_glob]
        wild += [(each, False) for each in (call.globs if writing else ())]

        def some(names: Iterable[str], test: Callable[[str], bool]) -> Iterator[str]:
            return (name for name in names if name and any(map(test, self._readings(name))))

        found = chain(
            some(changed, lambda path: paths.is_above(path, guards)),
            some(written, paths.is_in_a_repository),
            some(looked_at, lambda path: _is_guarded(path, guards, reads=True)),
            some(others, lambda path: _is_guarded(path, guards, reads=False)),
            (each for each, reads in wild if self._may_be_protected(each, reads=reads)),
            (each.text for each in self._words if self._may_lead_to(each)),
        )
        return next(found, "")

    def _may_lead_to(self, word: Word) -> bool:
        """Return True for a relative word behind a `cd` that has the name of a protected path."""
        if not word.moved or word.text.startswith(("/", "~")):
            return False
        last = {each.rpartition("/")[2].casefold() for each in self._place.protected}
        if word.changes_below:
            last |= self._above()
        names = word.text.casefold().split("/")
        if not word.is_glob:
            return not last.isdisjoint(names)
        return any(paths.names_of(name).fullmatch(each) for each in last for name in names)

    def _above(self) -> set[str]:
        """Return every name, in small letters, in the protected paths below the user's home."""
        home = f"{self._place.home.rstrip('/')}/"
        below = (each[len(home) :] for each in self._place.protected if each.startswith(home))
        return {name.casefold() for each in below for name in each.split("/")}

    def _may_be_protected(self, word: str, *, reads: bool) -> bool:
        """Return True if a shell may put a path that no rule lets be written in place of a word."""
        hidden = [name for name in word.split("/") if name.startswith(".") and not reads]
        if any(paths.names_of(name).fullmatch(each) for name in hidden for each in _GUARDED):
            return True
        protected, found = self._place.protected, self._files_of(word)
        if found is None and any(map(paths.leads_up, word.split("/"))):
            return True
        made = (self._readings(each)[-1] for each in found or ())
        below = any(paths.may_be_below(word, each, self._place) for each in protected)
        return below or any(paths.is_below(each, protected) for each in made)

    # --- allow -------------------------------------------------------------------------------

    def allowed(self) -> tuple[tuple[Rule, ...], str]:
        """Return the rules that together allow the call; or none, and why."""
        try:
            return tuple(dict.fromkeys(self._used())), ""
        except Unclear as why:
            return (), str(why)

    def _used(self) -> Iterator[Rule]:
        """Give a rule that allows each part of the call; raises Unclear."""
        call, tool = self._call, self._call.tool
        mine = self._rules.of(Action.ALLOW, tool) if tool else ()
        match tool:
            case None:
                raise Unclear(call.odd or "it is not known what kind of tool this is")
            case Tool.BASH if not call.commands:
                raise Unclear("the agent does not say which command it is")
            case Tool.BASH:
                yield from self._used_by_lines()
            case Tool.MCP:
                yield _first((rule for rule in mine if _is_named(rule, call)), "no rule names it")
            case Tool.FETCH:
                from_it = (rule for rule in mine if is_from(rule.pattern, call.url, below=False))
                yield _first(from_it, "no rule names it")
            case _ if call.paths:
                for path in call.paths:
                    yield self._allowing(tool, path, f"no rule allows {path}")
            case _:
                bare = (rule for rule in mine if not rule.pattern and tool is not Tool.EDIT)
                yield _first(bare, "it is not known which file it means")

    def _used_by_lines(self) -> Iterator[Rule]:
        if self._unclear or not self._steps:
            raise Unclear(self._unclear or "it does not say which command it runs")
        for step in self._steps:
            if not _does_nothing(step.command):
                yield self._allowing_step(step)
        for path in (each.path for each in self._redirects if each.writes):
            yield self._allowing(Tool.EDIT, path, f"no Edit rule allows writing {path}")

    def _allowing(self, tool: Tool, path: str, why: str) -> Rule:
        """Return a rule that allows a tool to use a path; raises Unclear, which says `why`."""
        real = self._readings(path)[-1] if paths.resolved(path, self._place) else ""
        found = self._rules.bare(Action.ALLOW, tool) if real else None
        if real and not found and not paths.depends_on_process(real):
            found = self._rules.naming(Action.ALLOW, tool, [real], self._place)
        return _first(filter(None, [found]), why)

    def _allowing_step(self, step: Step) -> Rule:
        """Return a rule that allows a command with all its words; raises Unclear."""
        why = f"no rule allows {' '.join(step.command.words)}"
        for command in filter(None, (step.command, step.short)):
            for rule in self._rules.allowing(command.words):
                if not (odd := self._odd(rule, named_by(rule), command, step.folders)):
                    return rule
                why = f"no rule allows {command.words[0]} with {odd}"
        raise Unclear(why)

    def _odd(
        self, rule: Rule, named: tuple[str, ...], command: Command, folders: tuple[str, ...]
    ) -> str:
        """Return what a command has that a rule for its first words does not allow; or empty."""
        name = command.words[0]
        exact = "*" not in command.words and named == command.words
        wrapper = programs.is_wrapper(command.words)
        if wrapper and not exact:
            return "other words than those of a rule"
        relative = wrapper or "/" in name
        if relative and not _is_absolute(name) and folders != (self._place.real,):
            return "another folder"
        if name == "git" and any(map(paths.is_bare_repository, folders)):
            return "a folder that is a repository itself"
        if exact:
            return ""

        def outside(path: str, is_glob: bool) -> bool:
            # A `**` is a `*` to bash, and follows no links in zsh.
            found = self._meant(path.replace("**", "*"), folders, is_glob)
            return found is None or not all(is_inside(each, self._place) for each in found)

        if strays := self._strays(named, command, folders):
            return strays
        own = named.index("*") if "*" in named else len(named)
        return harmless.objection(command, max(own, 1), outside)

    def _meant(self, word: str, folders: tuple[str, ...], is_glob: bool) -> list[str] | None:
        """Return the paths, without links, that a word may mean in these folders; None: any.

        `is_glob`: a shell puts the files that match it in its place, if there are any.
        """
        made: list[str] = []
        for named in (_in(each, word, self._place) for each in folders):
            found = self._files_of(named) if is_glob else [named]
            if found is None:
                return None
            made += [paths.resolved(each, self._place) for each in found or [named]]
        return made

    def _strays(self, named: tuple[str, ...], command: Command, folders: tuple[str, ...]) -> str:
        """Return a path that matches a star of a rule, and leads to where that star doesn't."""
        for pattern in (each for each in named if "*" in each and each != "*"):
            below = glob(os.path.join(self._place.real, pattern.removeprefix("./")))
            for at, word in enumerate(command.words):
                if "/" not in word or not glob(pattern).fullmatch(word) or "://" in word:
                    continue
                found = self._meant(word, folders, at in command.expands)
                if not found or ".." in word.split("/") or not all(map(below.fullmatch, found)):
                    return word
        return ""


def _in(folder: str, path: str, place: Place) -> str:
    """Return a path as it is named from the session's folder, if it is in another one."""
    return path if folder == place.real or _is_absolute(path) else os.path.join(folder, path)


def _is_absolute(path: str) -> bool:
    return path.startswith(("/", "~"))


def _does_nothing(command: Command) -> bool:
    """Return True for `true`, `false`, `:` and `exit 1`, which need no rule."""
    words = command.words
    return words in (("true",), ("false",), (":",)) or (
        words[0] == "exit" and all(each.isdigit() for each in words[1:]) and len(words) <= 2
    )


@lru_cache(maxsize=256)
def _is_guarded(path: str, protected: tuple[str, ...], *, reads: bool) -> bool:
    """Return True for an absolute path to which no rule lets an agent write.

    `reads`: a command that surely only reads names it, which it may do in a `.git`.
    """
    guarded = not reads and not _GUARDED.isdisjoint(path.casefold().split("/"))
    return guarded or paths.is_below(path, protected) or paths.depends_on_process(path)


def _first(rules: Iterable[Rule], why: str) -> Rule:
    """Return the first of these rules; raises Unclear if there is none."""
    for rule in rules:
        return rule
    raise Unclear(why)


def _may_be_named(rule: Rule, title: str) -> bool:
    """Return True if a title may be that of an MCP tool which a rule names, for refusals.

    gemini-cli has `tool (server MCP Server)` there, opencode `server_tool`.
    """
    if found := _TOOL_OF_GEMINI.fullmatch(title):
        return glob(rule.pattern).fullmatch(f"mcp__{found[2]}__{found[1]}") is not None
    short = rule.pattern.removeprefix("mcp__").replace("__", "_")
    named = [rule.pattern, *([short] if re.match(r"[^*]+_", short) else [])]
    return any(glob(each).fullmatch(title) is not None for each in named)


def _is_named(rule: Rule, call: Call) -> bool:
    return any(glob(rule.pattern).fullmatch(each) is not None for each in call.names)
