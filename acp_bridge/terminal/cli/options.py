"""Turns the arguments of `acp-bridge`, and its environment variables, into settings."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple, NoReturn, TypeVar

from acp_bridge import __version__
from acp_bridge.core.runtime import waits
from acp_bridge.core.settings import (
    AgentProtocol,
    DatabaseUrl,
    Delivery,
    Money,
    OnCancel,
    ReloadAfterCancel,
    Settings,
    default_home,
)
from acp_bridge.terminal.cli import openhands, own_agent
from acp_bridge.terminal.cli.commands import COMMANDS, OTHER_NAMES
from acp_bridge.terminal.cli.naming import agent_name, former_names, is_named
from acp_bridge.terminal.cli.parser import fail
from acp_bridge.terminal.cli.serving_parser import (
    DEFAULTS,
    LEVELS,
    SLEEP,
    STDERR_LEVEL,
    OfEnvironment,
    Switch,
    parser,
    variable,
)

_MOST_SECONDS: Final = 600
#: seconds; a shorter lease has no room for the kill of an agent and a renewal that fails once.
_LEAST_LEASE: Final = 15
_MOST_MINUTES: Final = 10_080
_DURATION: Final = re.compile(r"([0-9]{1,9})([smhd])")
_MONEY: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?) ?([A-Za-z]{3})")
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}
#: seconds; the longest time for which unattended work may go on.
_MOST_KEPT: Final = 7 * 86400
#: the name under which the built-in agent's sessions are kept.
BUILT_IN: Final = "built-in"
_Enum = TypeVar("_Enum", AgentProtocol, Delivery, OnCancel, ReloadAfterCancel, Switch)


class Options(NamedTuple):
    """The meaning of the arguments: the bridge's settings, which agent it starts, and its log."""

    settings: Settings
    #: the agent is the built-in one or OpenHands', both of this project.
    own_agent: bool
    #: the packages that this project's agent imports and that may not be installed.
    packages: Sequence[str]
    #: the file that the user named for the log.
    log_file: Path | None
    log_level: str | None

    @property
    def log(self) -> Path:
        """The file of the log: the user's, or else the one in the data folder."""
        return self.log_file or log_of(self.settings.home)


def parse(arguments: Sequence[str], env: Mapping[str, str]) -> Options:
    """Parse the arguments; the value of an option that is not given is taken from `env`.

    Raises SystemExit: 2 after a message on stderr, 0 after `--help` and `--version`.
    """
    own, agent = split(arguments)
    given = _parsed(own, env)
    if agent == []:
        fail("there is no command after --")
    command = agent or []
    packages = own_agent.OPENHANDS if given.openhands else own_agent.built_in(given.model)
    settings = _settings(given, command, env)
    _check_reachable(given, settings)
    return Options(
        settings=settings,
        own_agent=not command,
        packages=() if command else packages,
        log_file=_file(given.log_file),
        log_level=given.log_level,
    )


def data_folder(home: str | None) -> Path:
    """Return the absolute path of the data folder; `home`: the user's choice, None for none."""
    return Path(home or default_home()).expanduser().absolute()


def log_of(home: Path) -> Path:
    """Return the path of the log file of a data folder's bridges that have no `--log-file`."""
    return home / "bridge.log"


def split(arguments: Sequence[str]) -> tuple[list[str], list[str] | None]:
    """Return the arguments before `--`, and the agent's command after it, None without `--`."""
    words = list(arguments)
    if "--" not in words:
        return words, None
    at = words.index("--")
    return words[:at], words[at + 1 :]


def _parsed(arguments: list[str], env: Mapping[str, str]) -> argparse.Namespace:
    reader = parser(env)
    given, rest = reader.parse_known_args(arguments)
    if given.help:
        from acp_bridge.terminal.cli.printing import columns

        _say(reader.help_for(columns()))
    if given.version:
        _say(f"acp-bridge {__version__}\n")
    if rest:
        fail(f"unknown argument {rest[0]!r}{_meant(rest[0]) or reader.meant(rest[0])}")
    if (given.log_level or STDERR_LEVEL).lower() not in LEVELS:
        fail(f"{_place('log-level', given.log_level)}: choose from {', '.join(LEVELS)}")
    return given


def _meant(word: str) -> str:
    """Return a hint for an unknown argument: a similar command's name, or `--` for an agent."""
    if word.startswith("-"):
        return ""
    from difflib import get_close_matches

    if word in COMMANDS:
        return f"; a command stands before its options: acp-bridge {word} ..."
    close = get_close_matches(word, [*COMMANDS, "--help", "--version"], 1)
    meant = OTHER_NAMES.get(word) or next(iter(close), "")
    command = f"did you mean acp-bridge {meant}? To" if meant else "to"
    return f"; {command} run an agent: acp-bridge -- {word}"


def _check_reachable(given: argparse.Namespace, settings: Settings) -> None:
    """Refuse `--keep` without a socket: no client could join the work that goes on.

    Raises SystemExit(2) after a message.
    """
    if settings.keep and not settings.listen:
        no_socket = "--no-listen" if given.no_listen else f"{variable('listen')}=off"
        fail(
            f"{_place('keep', given.keep)} with {no_socket}: nobody could reach the work that is"
            " kept; leave one of them out"
        )


def _place(name: str, value: str | None) -> str:
    """Return where the user set the option `name`: `--name`, or its environment variable."""
    return variable(name) if isinstance(value, OfEnvironment) else f"--{name}"


def _settings(given: argparse.Namespace, command: list[str], env: Mapping[str, str]) -> Settings:
    other = command or (_openhands(given) if given.openhands else [])
    _check_of_one_agent(given, command, env)
    found = agent_name(command) if command else openhands.NAME if other else BUILT_IN
    _warn_of_guess(given, command, found)
    drain = openhands.DRAIN if other and not command else DEFAULTS.drain_timeout
    sleep = DEFAULTS.sleep_after / 60 if other else SLEEP
    reload = _choice(ReloadAfterCancel, "reload-after-cancel", given.reload_after_cancel)
    return Settings(
        command=tuple(other or _built_in(given)),
        agent_name=given.agent_name or found,
        former_names=former_names(command) | {found} if command else frozenset({found}),
        named=bool(given.agent_name),
        home=data_folder(given.home),
        journal=database(given.journal),
        lease=_seconds("lease", given.lease, DEFAULTS.lease, _LEAST_LEASE),
        builtin=not other,
        ours=not command,
        parent=() if other else tuple(_built_in(given, "agent.fork_parent")),
        agent_protocol=_choice(AgentProtocol, "agent-protocol", given.agent_protocol)
        or DEFAULTS.agent_protocol,
        delivery=_choice(Delivery, "delivery", given.delivery) or DEFAULTS.delivery,
        on_cancel=_choice(OnCancel, "on-cancel", given.on_cancel) or DEFAULTS.on_cancel,
        reload_after_cancel=reload or DEFAULTS.reload_after_cancel,
        listen=not given.no_listen and _is_on("listen", env),
        drain_timeout=_seconds("drain-timeout", given.drain_timeout, drain, 0.05),
        start_timeout=_starts(given),
        restart_timeout=max(_starts(given), DEFAULTS.restart_timeout),
        login_shell_path=_is_given("login-shell-path", given.login_shell_path),
        request_timeout=_seconds("request-timeout", given.request_timeout, waits.REQUEST, 1),
        sleep_after=60 * _minutes("sleep-after", given.sleep_after, sleep),
        cancel_silent_after=60 * _minutes("cancel-silent-after", given.cancel_silent_after, 0),
        resume_at_reset=_is_given("resume-at-reset", given.resume_at_reset),
        budget=_money("budget", given.budget),
        spare=waits.SPARE if _is_given("spare", given.spare) else 0.0,
        process_per_session=_switch("process-per-session", given.process_per_session),
        keep=_duration("keep", given.keep),
        rules=_file(given.rules),
        trace=_file(given.trace),
    )


def _starts(given: argparse.Namespace) -> float:
    """Return how many seconds an agent may take to start."""
    return _seconds("start-timeout", given.start_timeout, waits.START, 1)


def _check_of_one_agent(
    given: argparse.Namespace, command: list[str], env: Mapping[str, str]
) -> None:
    """Refuse options of an agent that is not the one to be started, such as `--model`.

    Raises SystemExit(2) after a message.
    """
    if (command or given.openhands) and given.model and variable("model") not in env:
        way = "give it to the command after -- instead" if command else "--openhands has its own"
        fail(f"--model is the built-in agent's; {way}")
    server = given.openhands, given.openhands_profile
    if wrong := openhands.misused(*server, other=bool(command), env=env):
        fail(wrong)


def database(value: str | None) -> DatabaseUrl | None:
    """Return the database that `value`, the URL of `--journal`, names; None for None.

    Raises SystemExit(2) after a message if it is no such URL.
    """
    if value is None:
        return None
    from acp_bridge.postgres.url import parse as parse_url  # with it comes all of a journal

    try:
        return parse_url(value)
    except ValueError as why:  # which repeats nothing of it
        fail(f"{_place('journal', value)}: {why}")


def _file(name: str | None) -> Path | None:
    return Path(name).expanduser().absolute() if name else None


def _warn_of_guess(given: argparse.Namespace, command: list[str], name: str) -> None:
    """Warn the user if the agent's command doesn't say its name, and the user neither."""
    if not command or given.agent_name or is_named(command):
        return
    from acp_bridge.terminal.cli.harmless import one_line
    from acp_bridge.terminal.cli.printing import say_on_stderr

    say_on_stderr(
        f"acp-bridge: the command of the agent doesn't say its name; sessions are kept under"
        f" {one_line(name)!r}. If other agents are started like that, too, tell them apart with"
        " --agent-name NAME\n"
    )


def _built_in(given: argparse.Namespace, module: str = "agent") -> list[str]:
    command = [sys.executable, "-I", "-m", module]  # isolated: invariant P14
    if given.model:
        command += ["--model", given.model]
    if given.home:
        command += ["--home", str(Path(given.home).expanduser().absolute())]
    return command


def _openhands(given: argparse.Namespace) -> list[str]:
    try:
        return openhands.command(given.openhands, given.openhands_profile, given.home)
    except ValueError as wrong:
        fail(str(wrong))


def _switch(name: str, value: str | None) -> bool | None:
    """Return whether an option that is on or off is on; None if it is not given."""
    chosen = _choice(Switch, name, value)
    return None if chosen is None else chosen is Switch.ON


def _is_given(name: str, value: str | None) -> bool:
    """Return True if an option that is on or off is on; raises as `_choice`."""
    return _choice(Switch, name, value) is Switch.ON


def _choice(kind: type[_Enum], name: str, value: str | None) -> _Enum | None:
    if value is None:
        return None
    try:
        return kind(value)
    except ValueError:
        fail(f"{_place(name, value)}: choose from {', '.join(kind)}")


def _is_on(name: str, env: Mapping[str, str]) -> bool:
    value = env.get(variable(name)) or "on"
    if value not in ("on", "off"):
        fail(f"{variable(name)}: choose from on, off")
    return value == "on"


def _seconds(name: str, value: str | None, default: float, least: float) -> float:
    try:
        seconds = float(value) if value is not None else default
    except ValueError:
        seconds = -1.0
    if not least <= seconds <= _MOST_SECONDS:
        fail(f"{_place(name, value)}: a number of seconds from {least:g} to {_MOST_SECONDS}")
    return seconds


def _minutes(name: str, value: str | None, default: float) -> float:
    try:
        minutes = float(value) if value is not None else default
    except ValueError:
        minutes = -1.0
    if not 0 <= minutes <= _MOST_MINUTES:
        fail(f"{_place(name, value)}: a number of minutes from 0, for never, to {_MOST_MINUTES}")
    return minutes


def _duration(name: str, value: str | None) -> float:
    if value is None or value in ("0", "off", ""):
        return 0.0
    found = _DURATION.fullmatch(value)
    seconds = int(found[1]) * _UNITS[found[2]] if found else 0
    if not 0 < seconds <= _MOST_KEPT:
        fail(f"{_place(name, value)}: a duration such as 90s, 30m, 8h or 2d, up to 7d; 0: never")
    return seconds


def _money(name: str, value: str | None) -> Money | None:
    if value is None or value in ("0", "off", ""):
        return None
    found = _MONEY.fullmatch(value)
    if found is None or not float(found[1]):
        fail(f"{_place(name, value)}: an amount and its currency, such as 5USD or 0.50EUR; 0: none")
    return Money(float(found[1]), found[2].upper())


def _say(text: str) -> NoReturn:
    from acp_bridge.terminal.cli.printing import print_text

    raise SystemExit(print_text(text))
