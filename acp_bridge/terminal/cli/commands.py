"""The table of the commands of `acp-bridge`: what the help says of each, and its module."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from acp_bridge.terminal.cli.parser import Parser


class Command(NamedTuple):
    """A command; its module is imported when its function or its parser is asked for."""

    about: str
    module: str
    #: what may follow the command's name, as the help of `acp-bridge` shows it.
    arguments: str = ""
    #: the name of the command's function, where its module has several commands; else "main".
    function: str = ""

    @property
    def main(self) -> Callable[[Sequence[str]], int]:
        """The command's function: takes the arguments after its name, returns the exit code."""
        main: Callable[[Sequence[str]], int] = self._of_module(self.function or "main")
        return main

    @property
    def parser(self) -> Callable[[], Parser]:
        """The function that makes the parser of the command's arguments."""
        name = f"{self.function}_parser" if self.function else "parser"
        parser: Callable[[], Parser] = self._of_module(name)
        return parser

    def _of_module(self, name: str) -> Any:
        return getattr(import_module(f"acp_bridge.terminal.{self.module}"), name)


#: what other tools call a command, and its name here.
OTHER_NAMES: Final[Mapping[str, str]] = {
    **dict.fromkeys(("rules", "rule", "allow"), "permissions"),
    **dict.fromkeys(("list", "ls", "history", "search"), "sessions"),
    **dict.fromkeys(("usage", "costs"), "cost"),
    **dict.fromkeys(("stop", "kill"), "cancel"),
    **dict.fromkeys(("login", "auth"), "key"),
    "status": "ps",
    "reject": "deny",
    "config": "setup",
    "resume": "chat",
}
_ANSWER: Final = "answer what the agent asks"
COMMANDS: Final[Mapping[str, Command]] = {
    "chat": Command("talk with an agent in this terminal", "commands.chat"),
    "attach": Command("see one in this terminal, and take part in it", "commands.attach", "[ID]"),
    "run": Command(
        "one prompt from a script: the answer on stdout, exit codes",
        "commands.run_command",
        '"PROMPT"',
    ),
    "sessions": Command("list them", "commands.reading", "", "sessions"),
    "show": Command("the transcript of one", "commands.reading", "[ID]", "show"),
    "cost": Command("what they have cost, as far as agents tell it", "commands.cost"),
    "export": Command(
        "write one into a file, to take it elsewhere",
        "commands.bundle",
        "ID FILE",
        "export_session",
    ),
    "import": Command("make one of such a file", "commands.bundle", "FILE", "import_session"),
    "journal": Command(
        "copy all of them into a database, or out of one",
        "commands.journal.command",
        "copy FROM TO",
    ),
    "ps": Command(
        "list them: what each does, what waits, what is asked", "commands.live", "", "ps"
    ),
    "send": Command("put a prompt onto the queue of one", "commands.send", 'ID "PROMPT"'),
    "cancel": Command("stop the turn that runs", "commands.live", "ID", "cancel"),
    "approve": Command(_ANSWER, "commands.asked", "ID", "approve"),
    "deny": Command(_ANSWER, "commands.asked", "ID", "deny"),
    "close": Command("end it; it is kept", "commands.live", "ID", "close"),
    "delete": Command("delete it for good", "commands.live", "ID", "delete"),
    "trust": Command(
        "let a project's hooks and rules count (docs/hooks.md)", "commands.trust", "FOLDER"
    ),
    "permissions": Command(
        "how your rules decide about a command (docs/permissions.md)",
        "commands.permissions",
        "check|use",
    ),
    "doctor": Command("look if all is well, and say what to do if not", "doctor.command"),
    "key": Command(
        "keep a key for the built-in agent, without showing it", "key.command", "[NAME]"
    ),
    "setup": Command(
        "make an editor start this: what goes where, or written there",
        "setup.command",
        "EDITOR",
    ),
    "connect": Command(
        "work with a bridge on another machine: an editor starts it",
        "commands.connect",
        "URL",
    ),
    "completion": Command(
        "complete commands and options in bash, zsh or fish",
        "commands.completion",
        "SHELL",
    ),
    "serve": Command(
        "serve clients from elsewhere, with tokens (docs/remote.md)",
        "commands.serve",
        "HOST:PORT",
    ),
    "replay": Command("an agent that is made of a trace", "commands.replay", "FILE"),
    "agent": Command("the built-in agent alone, without a bridge", "commands.agent"),
    "demo": Command("show it working, offline, in under 20 seconds", "demo"),
}
