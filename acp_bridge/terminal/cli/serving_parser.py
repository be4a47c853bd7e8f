"""The options of `acp-bridge` itself with their defaults, and their parser and help."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Final, NamedTuple

from acp_bridge.core.runtime import waits
from acp_bridge.core.settings import Settings
from acp_bridge.terminal.cli import openhands
from acp_bridge.terminal.cli.commands import COMMANDS
from acp_bridge.terminal.cli.parser import DataFolder, Entry, Heading, Parser, Part

_USAGE: Final = """\
acp-bridge [OPTIONS] [-- COMMAND ARGS...]
acp-bridge COMMAND ..."""
_ABOUT: Final = """\
Start this instead of an ACP agent: it never loses a prompt, stops when told to, and outlives the
agent behind it. It speaks the Agent Client Protocol (versions 1 and 2) on stdin and stdout."""
_AFTER: Final = """\
The built-in agent takes keys from the environment (ANTHROPIC_API_KEY, OPENAI_API_KEY, ...) or
from keys.env in its data folder, where 'acp-bridge key' keeps them; 'acp-bridge agent --help' says
more.

In a session, /queue shows what waits; /queue run and /queue drop decide about prompts that
were left over when a bridge was killed; /queue memory about an agent that won't load its session.

exit code: 0 the client ended the session, 2 wrong usage."""

LEVELS: Final = ("debug", "info", "warning", "error")
#: the default levels of the log: on stderr, and in a file.
STDERR_LEVEL, FILE_LEVEL = "warning", "info"
#: minutes without work after which the built-in agent's process is ended until the next prompt.
SLEEP: Final = 60.0
#: The settings if the user chooses nothing.
DEFAULTS: Final = Settings(command=(), agent_name="", home=Path())


class Switch(StrEnum):
    """The values of an option that turns something on or off."""

    ON = "on"
    OFF = "off"


class OfEnvironment(str):
    """A value that came from an environment variable, so that error messages name the variable."""

    __slots__ = ()


class Option(NamedTuple):
    """An option of the bridge; its default is an environment variable."""

    name: str
    #: the name of its value in the help; None for a switch `--no-NAME`.
    value: str | None
    about: str
    #: the option may be given without a value, which means "on".
    optional: bool = False

    @property
    def argument(self) -> str:
        """Return the option as a user types it, without a value: `--name` or `--no-name`."""
        return f"--{self.name}" if self.value else f"--no-{self.name}"

    @property
    def attribute(self) -> str:
        """Return the name of the attribute in which argparse stores the value."""
        return self.argument[2:].replace("-", "_")

    def add_to(self, parser: argparse._ActionsContainer, env: Mapping[str, str]) -> None:
        """Add the option to a parser or a group; the variable in `env` is its default."""
        if self.value is None:
            parser.add_argument(self.argument, action="store_true", help=self.about)
            return
        found = env.get(variable(self.name))  # an empty variable counts as not set
        parser.add_argument(
            self.argument,
            action=DataFolder if self.name == "home" else "store",
            nargs="?" if self.optional else None,
            const=Switch.ON if self.optional else None,
            default=OfEnvironment(found) if found else None,
            metavar=self.value,
            help=self.about,
        )


#: The options by the titles of their groups in the help. The lines were broken by hand.
GROUPS: Final[Mapping[str, Sequence[Option]]] = {
    "prompts and cancels": (
        Option(
            "delivery",
            "queue|interrupt|steer",
            "a prompt that comes during a turn waits for its end,\n"
            "cancels it, or joins it where the agent can take words\n"
            f"(ACP_BRIDGE_DELIVERY; default {DEFAULTS.delivery})",
        ),
        Option(
            "on-cancel",
            "keep|clear",
            "a cancel leaves the prompts that wait, or cancels them\n"
            f"too (ACP_BRIDGE_ON_CANCEL; default {DEFAULTS.on_cancel})",
        ),
        Option(
            "drain-timeout",
            "SECONDS",
            "how long an agent may take to stop before it is killed\n"
            f"and restarted (ACP_BRIDGE_DRAIN_TIMEOUT; default {DEFAULTS.drain_timeout:g}, with\n"
            f"--openhands {openhands.DRAIN:g})",
        ),
        Option(
            "resume-at-reset",
            "on|off",
            "what waits behind a usage limit of the agent goes on by\n"
            "itself when the limit resets, where that is told\n"
            "(ACP_BRIDGE_RESUME_AT_RESET; default"
            f" {Switch.ON if DEFAULTS.resume_at_reset else Switch.OFF})",
            optional=True,
        ),
        Option(
            "budget",
            "AMOUNT",
            "what a session may cost, such as 5USD: then its turn is\n"
            "cancelled, and nothing starts until /queue go, which lets it\n"
            "cost as much again (ACP_BRIDGE_BUDGET; default: not looked at)",
        ),
        Option(
            "reload-after-cancel",
            "unclean|always",
            "restart the agent only after a cancel that went wrong, or\n"
            "after each (ACP_BRIDGE_RELOAD_AFTER_CANCEL; default"
            f" {DEFAULTS.reload_after_cancel})",
        ),
        Option(
            "cancel-silent-after",
            "MINUTES",
            "cancel a turn in which for so long nothing comes from the\n"
            "agent, no tool call is open and no program below it computes;\n"
            f"0: never (ACP_BRIDGE_CANCEL_SILENT_AFTER; default {DEFAULTS.cancel_silent_after:g})",
        ),
    ),
    "the agent": (
        Option(
            "model",
            "MODEL",
            "the built-in agent's model as LiteLLM names it, such as\n"
            "anthropic/claude-sonnet-5-5; or demo, or scripted:FILE\n"
            "(ACP_BRIDGE_MODEL; default the first whose key is there,\n"
            "else demo)",
        ),
        Option(
            "openhands",
            "URL",
            "instead of the built-in agent, one that drives a running\n"
            "OpenHands agent-server, such as http://127.0.0.1:8000; the\n"
            "key is OPENHANDS_SESSION_API_KEY (ACP_BRIDGE_OPENHANDS)",
        ),
        Option(
            "openhands-profile",
            "NAME",
            "the agent profile of its new conversations\n"
            "(ACP_BRIDGE_OPENHANDS_PROFILE; default the active one)",
        ),
        Option(
            "agent-name",
            "NAME",
            "the name under which the agent's sessions are kept and found\n"
            "again (ACP_BRIDGE_AGENT_NAME; default: from the command)",
        ),
        Option(
            "agent-protocol",
            "auto|1|2",
            "the version of ACP that is spoken with the agent; auto: that of\n"
            "the client, the other one with an agent that does not have it\n"
            f"(ACP_BRIDGE_AGENT_PROTOCOL; default {DEFAULTS.agent_protocol})",
        ),
        Option(
            "start-timeout",
            "SECONDS",
            "how long an agent may take to start; longer, up to 10 minutes,\n"
            "while npx, uvx or the like fetches it\n"
            f"(ACP_BRIDGE_START_TIMEOUT; default {DEFAULTS.start_timeout:g})",
        ),
        Option(
            "login-shell-path",
            "on|off",
            "take the PATH of your login shell: an editor that was started\n"
            "from the desktop may have another one\n"
            "(ACP_BRIDGE_LOGIN_SHELL_PATH; default off)",
            optional=True,
        ),
        Option(
            "request-timeout",
            "SECONDS",
            "how long an agent may take to open a session, or to take a\n"
            f"setting (ACP_BRIDGE_REQUEST_TIMEOUT; default {DEFAULTS.request_timeout:g})",
        ),
        Option(
            "sleep-after",
            "MINUTES",
            "end the agent of a session that was at rest for so long; it\n"
            "is started again when it is needed; 0: never\n"
            f"(ACP_BRIDGE_SLEEP_AFTER; default {DEFAULTS.sleep_after / 60:g}, built-in agent"
            f" {SLEEP:g})",
        ),
        Option(
            "spare",
            "on|off",
            "keep one more process of the agent ready, so that the next\n"
            f"session opens at once; ended when unused for {waits.SPARE / 60:g} minutes\n"
            f"(ACP_BRIDGE_SPARE; default {Switch.ON if DEFAULTS.spare else Switch.OFF})",
            optional=True,
        ),
        Option(
            "process-per-session",
            "on|off",
            "start a process of the agent for each session, or share one\n"
            "among sessions that are at rest (ACP_BRIDGE_PROCESS_PER_SESSION;\n"
            "default on, and off for Claude Code and opencode;\n"
            "sessions of Codex share until their first prompt)",
            optional=True,
        ),
    ),
    "the bridge": (
        Option(
            "keep",
            "DURATION",
            "when the client ends, go on with what runs and waits for so\n"
            "long, such as 30m or 8h: another client can load the\n"
            "session meanwhile (ACP_BRIDGE_KEEP; default: end as well)",
        ),
        Option(
            "listen",
            None,
            "let no other client of yours join over a socket in the data\n"
            "folder (ACP_BRIDGE_LISTEN=off)",
        ),
        Option(
            "rules",
            "FILE",
            "your rules about what agents may do, instead of\n"
            "permissions.toml in the data folder (ACP_BRIDGE_RULES)",
        ),
        Option("home", "FOLDER", "where sessions are kept (ACP_BRIDGE_HOME)"),
        Option(
            "journal",
            "URL",
            "keep them in a PostgreSQL database, such as\n"
            "postgresql://me@db.example.org/sessions, where another\n"
            "machine finds them; the password comes from .pgpass or\n"
            "PGPASSWORD (ACP_BRIDGE_JOURNAL; default: the data folder)",
        ),
        Option(
            "lease",
            "SECONDS",
            "a bridge that has not reached the database for so long ends\n"
            "its turns, and another may take its sessions over\n"
            f"(ACP_BRIDGE_LEASE; default {DEFAULTS.lease:g})",
        ),
        Option(
            "log-file",
            "FILE",
            "the log, instead of bridge.log in the data folder and stderr\n(ACP_BRIDGE_LOG_FILE)",
        ),
        Option(
            "log-level",
            "|".join(LEVELS),
            "the least that the log has (ACP_BRIDGE_LOG_LEVEL; default\n"
            f"{FILE_LEVEL} in a file, {STDERR_LEVEL} on stderr)",
        ),
        Option(
            "trace",
            "FILE",
            "what goes over the wire to client and agent, but for logins\n"
            "(ACP_BRIDGE_TRACE; docs/trace.md)",
        ),
    ),
}
OPTIONS: Final = {option.name: option for group in GROUPS.values() for option in group}


def variable(option: str) -> str:
    """Return the name of the environment variable for an option."""
    return "ACP_BRIDGE_" + option.upper().replace("-", "_")


def words_of(given: argparse.Namespace, options: Iterable[Option]) -> list[str]:
    """Return those of `options` that were given to a command, as arguments of `acp-bridge`."""
    words: list[str] = []
    for option in options:
        value = getattr(given, option.attribute)
        if option.value is None:
            words += [option.argument] if value else []
        elif value is not None:
            words += [option.argument, value]
    return words


def parser(env: Mapping[str, str]) -> Parser:
    """Return the parser of the bridge's options; defaults are taken from `env`."""
    parser = Parser("acp-bridge", _USAGE, _ABOUT, tuple(_listing()), _AFTER, column=36)
    for title, options in GROUPS.items():
        group = parser.add_argument_group(title)
        for option in options:
            option.add_to(group, env)
    group.add_argument("--version", action="store_true", help="")
    group.add_argument("--help", action="store_true", help="")
    group.add_argument("-h", dest="help", action="store_true")
    return parser


def _listing() -> Iterator[Part]:
    """Yield the part of the help that lists the commands, and the heading of the options."""
    yield Heading("Set up (each command has its own --help; docs/commands.md says more)", 1)
    yield from _commands("doctor", "key", "setup", "completion", "permissions", "trust", "demo")
    yield Heading("Work with sessions", 1)
    yield Heading("a new one, or one that is kept", 2)
    kept = ("sessions", "show", "cost", "export", "import", "journal")
    yield from _commands("chat", "run", *kept)
    yield Heading("one that is live, in an editor or elsewhere", 2)
    yield from _commands("ps", "attach", "send", "cancel", "approve|deny", "close", "delete")
    yield Heading("Serve an editor, which starts one of these", 1)
    yield Entry("acp-bridge", "the built-in agent")
    yield Entry("acp-bridge -- codex-acp", "any other ACP agent")
    yield from _commands("agent", "replay", "serve", "connect")
    yield Heading("Options for serving (and the environment variables that set them)", 1)


def _commands(*names: str) -> Iterator[Entry]:
    """Yield a help entry for each command.

    `a|b` stands for two commands with the same explanation.
    """
    for name in names:
        command = COMMANDS[name.partition("|")[0]]
        yield Entry(f"acp-bridge {name} {command.arguments}".rstrip(), command.about)
