"""Rules, calls and decisions. SANS-IO.

A *call* is one tool call of an agent about which a permission is asked. A *rule* is one string of
`permissions.toml`, such as `Bash(git status *)`, with the list in which it stands.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Final

from acp_bridge.core.records import replace


class Action(StrEnum):
    """The list in which a rule stands, and what a decision says."""

    DENY = "deny"
    ASK = "ask"
    ALLOW = "allow"


class Tool(Enum):
    """The kinds of tools that a rule can name."""

    READ = "Read"
    SEARCH = "Search"
    EDIT = "Edit"
    BASH = "Bash"
    FETCH = "WebFetch"
    MCP = "mcp"


#: the ACP kinds of tool calls that each tool stands for.
KINDS: Final = {
    "read": Tool.READ,
    "search": Tool.SEARCH,
    "edit": Tool.EDIT,
    "delete": Tool.EDIT,
    "move": Tool.EDIT,
    "execute": Tool.BASH,
    "fetch": Tool.FETCH,
}
#: the tools whose rules have a pattern of paths.
PATHS: Final = (Tool.READ, Tool.SEARCH, Tool.EDIT)


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule: its list, the tool that it names, and a pattern; empty: every call of the tool."""

    action: Action
    tool: Tool
    pattern: str
    #: the rule as it is written, the file, and the line in it, from 1.
    text: str
    file: str = ""
    line: int = 0

    def __str__(self) -> str:
        where = f", line {self.line}" if self.line else ""
        return f"{self.action} {self.text} ({self.file}{where})" if self.file else self.text


@dataclass(frozen=True, slots=True)
class Only:
    """Rules for one agent and/or one folder; an empty name or pattern is any."""

    agent: str
    folder: str
    rules: tuple[Rule, ...]


@dataclass(frozen=True, slots=True)
class Check:
    """An example in a file of rules: a command or a path, and the decision expected for it."""

    bash: str
    edit: str
    read: str
    decision: Action
    line: int


@dataclass(frozen=True, slots=True)
class Rules:
    """What a file of rules says."""

    rules: tuple[Rule, ...] = ()
    only: tuple[Only, ...] = ()
    checks: tuple[Check, ...] = ()
    #: what becomes of a call that no rule names: the person is asked, or it is denied.
    default: Action = Action.ASK
    #: what becomes of a question that nobody can answer; None: the file does not say.
    unattended: Action | None = None

    @property
    def allows(self) -> list[tuple[Only | None, Rule]]:
        """Each rule that allows something, with the agent and folder that it is restricted to."""
        parts = [(None, self.rules), *((each, each.rules) for each in self.only)]
        return [
            (only, rule) for only, rules in parts for rule in rules if rule.action is Action.ALLOW
        ]

    @property
    def _each(self) -> dict[str, Action]:
        """Each rule in a short text with its list, agent and folder, and its list."""
        parts = [("", self.rules)]
        for only in self.only:
            where = ", ".join(filter(None, (only.agent, only.folder)))
            parts.append((f" ({where})", only.rules))
        return {
            f"{rule.action} {rule.text}{where}": rule.action
            for where, rules in parts
            for rule in rules
        }

    @property
    def allowed(self) -> list[str]:
        """Each rule that allows something, in a short text with its agent and folder."""
        return [each for each, action in self._each.items() if action is Action.ALLOW]

    def loosened_since(self, before: Rules) -> list[str]:
        """Return what these rules leave to agents that those `before` did not, in short texts."""
        now, then = self._each, before._each
        allows = [each for each in self.allowed if each not in then]
        gone = [each for each in then if then[each] is not Action.ALLOW and each not in now]
        words: list[tuple[str, Action | None, Action | None]] = [
            ("default", self.default, before.default),
            ("unattended", self.unattended, before.unattended),
        ]
        gone += [f"{name} = deny" for name, new, old in words if old == "deny" != new]
        return [*allows, *(f"removed {each}" for each in gone)]

    def of(self, *actions: Action) -> Rules:
        """Return a copy that has only the rules of these lists, and no examples."""

        def kept(rules: tuple[Rule, ...]) -> tuple[Rule, ...]:
            return tuple(rule for rule in rules if rule.action in actions)

        only = tuple(replace(each, rules=kept(each.rules)) for each in self.only)
        return replace(self, rules=kept(self.rules), only=only, checks=())


@dataclass(frozen=True, slots=True)
class Call:
    """What is known of one tool call."""

    #: None for a call that no rule can allow: of a kind `other` or none, of more than one over
    #: time, or with an input that is not understood.
    tool: Tool | None = None
    #: every tool that it was ever said to be, for refusals.
    said: frozenset[Tool] = frozenset()
    #: why no rule can allow it, if that is not that its kind is unknown.
    odd: str = ""
    #: each name that it gives its MCP tool, `mcp__server__tool`; more than one only if they differ.
    names: tuple[str, ...] = ()
    #: each command line that the call names.
    commands: tuple[str, ...] = ()
    #: the title of a call that runs a command and doesn't say which: it may be refused by it.
    title: str = ""
    #: the title of a call of which no tool is known: an MCP tool may be refused by it.
    tool_title: str = ""
    #: what the input of a call says that runs a command, but not under a name that is known.
    texts: tuple[str, ...] = ()
    #: each path that the call names.
    paths: tuple[str, ...] = ()
    #: those of its texts that are patterns of files' names.
    globs: tuple[str, ...] = ()
    #: the address that is fetched.
    url: str = ""
    #: every address in its input and title, for refusals.
    addresses: tuple[str, ...] = ()
    #: the folder that it names for its command, if it names one.
    cwd: str = ""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a call is made: the session's folder, and paths that no rule may let be written."""

    cwd: str
    #: paths of files and folders whose writing is always the person's to allow.
    protected: tuple[str, ...] = ()
    home: str = "/nonexistent"
    #: the folder without links, while one call is judged; empty: not looked up.
    real: str = ""


@dataclass(frozen=True, slots=True)
class Judgement:
    """What the rules say of a call, before hooks and persons have a word.

    `deny` or `ask` is the rule that denies it or has it asked, if one does. Else `allowed` are the
    rules that together allow the call; if there are none, `default` decides.
    """

    deny: Rule | None = None
    ask: Rule | None = None
    #: why the person has to be asked, or why no rule allows.
    why: str = ""
    #: True if the person alone may allow the call, so that no hook may.
    protected: bool = False
    #: True if it is not known what the rules refuse: what can't be asked of a person is refused.
    unjudged: bool = False
    allowed: tuple[Rule, ...] = ()
    default: Action = Action.ASK

    @property
    def action(self) -> Action:
        """The decision, if no hook has a word about it."""
        if self.deny:
            return Action.DENY
        if self.ask or self.protected:
            return Action.ASK
        return Action.ALLOW if self.allowed else self.default

    @property
    def _leniency(self) -> int:
        """How much it leaves to hooks and persons: it is compared with that of others."""
        found = (self.deny, self.protected, self.ask, not self.allowed and self.default == "deny")
        return next((at for at, each in enumerate(found) if each), 5 if self.allowed else 4)

    def and_also(self, other: Judgement) -> Judgement:
        """Return what is allowed only if this and the other judgement allow it: the stricter one.

        A `default` that denies counts as a rule, beside a judgement that would ask.
        """
        strict, lenient = sorted((self, other), key=lambda each: each._leniency)
        if strict.action is Action.ASK and lenient.action is Action.DENY:
            return Judgement(deny=Rule(Action.DENY, Tool.BASH, "", 'default = "deny"'))
        return strict
