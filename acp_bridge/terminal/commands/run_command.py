"""`acp-bridge run`: sends one prompt from a script and writes the answer to stdout."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import anyio

from acp_bridge.core.agents import origin
from acp_bridge.core.records import replace
from acp_bridge.core.runtime import log
from acp_bridge.sharing.bridge_client.own_process import over_process
from acp_bridge.terminal.cli.harmless import one_line
from acp_bridge.terminal.cli.options import data_folder, split
from acp_bridge.terminal.cli.parser import CommandParser
from acp_bridge.terminal.cli.printing import fail
from acp_bridge.terminal.commands.live import found_by
from acp_bridge.terminal.commands.own_bridge import (
    OwnBridge,
    add_options,
    any_given,
    environment,
    own_bridge,
    prompt_given,
    session_to_go_on,
)
from acp_bridge.terminal.shared import headless, known
from acp_bridge.terminal.shared.permissions import Policy
from acp_bridge.terminal.shared.reach import There, add_at, there_of
from acp_bridge.terminal.shared.screen import StdScreen, std_screen
from acp_bridge.terminal.shared.waiting import Stop, stopped_by_signals

_ABOUT: Final = """\
Give an agent one prompt, without a person: its answer is written to stdout, what it does to
stderr. PROMPT may be - to be read from stdin. The session is kept like any other: an editor can
load it, and 'acp-bridge ps', 'attach' and 'cancel' work on it while it runs. With --at it runs at
the bridge of another machine, and goes on there if the line drops."""
_EXAMPLES: Final = (
    'acp-bridge run "Which of these tests are slow?"',
    "git diff | acp-bridge run - -- codex-acp",
    'acp-bridge run --permissions allow --timeout 600 "Fix the lint errors" || exit',
)
_AFTER: Final = """\
An agent may not ask before it does something: what it asks for is a matter of its own settings.
A session of another agent than the built-in one needs its command after --.
The options of 'acp-bridge' itself may be given too, such as --model, --openhands and --home. With
--keep 8h the turn goes on if the terminal is closed or the line drops.

exit code: 0 the turn has ended, 1 no such session, stdout can't be written, or an error of
acp-bridge, 2 wrong usage, 3 something was denied, 4 a limit of tokens or requests was reached, or
the budget is spent, 5 the agent refuses, 6 the agent failed, 7 the time was over, 8 somebody else
cancelled the turn, 9 the agent wants a login, its model a key, or --at a token, 130 interrupted."""
_MOST_SECONDS: Final = 7 * 24 * 3600
#: options of other commands, and what run has in their place.
_REFUSED: Final = {
    "--resume": "run has --continue, for the last session of this folder, and --session ID",
    "--bell": "nobody is waited for here; notify.toml has messages to your phone or desktop",
    "--read-only": "run sends a prompt; acp-bridge attach --read-only looks on",
    "--wait": "run always waits; acp-bridge send ID without --wait does not",
    "--interrupt": "run has --delivery interrupt for that",
    "--steer": "run has --delivery steer for that",
    "--version": "acp-bridge --version says it",
}


def main(arguments: Sequence[str]) -> int:
    """Run `acp-bridge run`; returns the exit code.

    Raises SystemExit for wrong usage and for help.
    """
    reader = parser()
    given, agent = _parsed(reader, arguments)
    if sys.stdout is None:
        return fail("run", "there is no stdout for the answer")
    if given.at is not None:
        return _run_there(reader, given, agent)
    bridge = own_bridge(given, agent)
    order = _order(given, bridge)
    log.configure("error", None)
    return anyio.run(_run, order, bridge)


async def _run(order: headless.Order, bridge: OwnBridge) -> int:
    def connect(screen: StdScreen) -> headless.Connect:
        def told(line: str) -> None:
            screen.tell(one_line(line))

        return partial(over_process, bridge.command, tell=told, env=environment(), log=bridge.log)

    return await _over(order, connect, keeps=bridge.keeps)


async def _over(
    order: headless.Order,
    connect: Callable[[StdScreen], headless.Connect],
    *,
    keeps: bool = False,
) -> int:
    """Run the prompt of `order` and return the exit code, or that of a signal that stopped it.

    `connect` makes the way to the bridge, given the screen to which notices go. `keeps`: the bridge
    goes on with the turn when the terminal has gone.
    """
    stop = Stop()
    async with stopped_by_signals(stop, keeps=keeps), std_screen(stop) as screen:
        code = await headless.run(order, screen, connect(screen), stop)
    return stop.reason or code


# --- at a bridge elsewhere


def _run_there(reader: CommandParser, given: argparse.Namespace, agent: list[str] | None) -> int:
    """Run the prompt at the bridge that `--at` names; returns the exit code."""
    if agent is not None or any_given(given):
        reader.error("--at: agent and options are those of the bridge there, so give none")
    given.prompt = prompt_given(reader, given.prompt)
    log.configure("error", None)
    if origin.runs_in_agent():
        return fail("run", "an agent can't do that: use a terminal of your own")
    there = there_of("run", data_folder(given.home), given.at)
    return anyio.run(_ordered, there, given)


async def _ordered(there: There, given: argparse.Namespace) -> int:
    cwd, session_id = given.folder or str(known.here()), None
    if given.again or given.session is not None:
        session = await found_by("run", there, given.session, Path(cwd))
        if isinstance(session, int):
            return session
        cwd, session_id = str(session.about.get("cwd")), session.session_id
    return await _over(_order_of(given, cwd, session_id), lambda _: there.open)


def parser() -> CommandParser:
    """Return the parser of the arguments of `acp-bridge run`."""
    usage = 'acp-bridge run [OPTIONS] "PROMPT" [--at URL | -- COMMAND ARGS...]'
    parser = CommandParser("run", usage, _ABOUT, _EXAMPLES, _AFTER, column=29)
    parser.refused = _REFUSED
    parser.add_argument("prompt", nargs="?")
    parser.add_argument(
        "--permissions",
        metavar="|".join((Policy.DENY, Policy.ALLOW)),
        help="what the agent may do where it asks. deny, the default: calls that it\n"
        "says only read, search or think are allowed, everything else is\n"
        'denied. allow: everything, each call once. With unattended = "wait"\n'
        "in permissions.toml and without this option the rest waits for you",
    )
    parser.add_argument(
        "--continue",
        dest="again",
        action="store_true",
        help="go on with the session that was used last in this folder",
    )
    parser.add_argument(
        "--session",
        metavar="ID",
        help="go on with this session; its first characters are enough",
    )
    parser.add_argument(
        "--timeout",
        metavar="SECONDS",
        help="cancel the turn when it takes longer, the start included",
    )
    parser.add_argument(
        "--json",
        action="store_true",
        help="write each update as one line of JSON, and the outcome as the last one",
    )
    add_at(parser)
    _add_folder(parser)
    add_options(parser)
    return parser


def _add_folder(parser: CommandParser) -> None:
    parser.add_argument(
        "--folder",
        metavar="FOLDER",
        help="with --at: where a new session works there (default: the path of this\n"
        "folder, which has to be one there)",
    )


def _parsed(
    reader: CommandParser, arguments: Sequence[str]
) -> tuple[argparse.Namespace, list[str] | None]:
    words, agent = split(arguments)
    given = reader.parse_args(words)
    if given.prompt is None:
        reader.error('give it a prompt: acp-bridge run "PROMPT"')
    if given.again and given.session is not None:
        reader.error("--continue and --session name two sessions; choose one")
    if given.permissions not in (None, *Policy):
        reader.error(f"--permissions: choose from {', '.join(Policy)}")
    if given.folder is not None and (given.at is None or not given.folder.startswith("/")):
        reader.error("--folder: with --at, give the path of a folder there, such as /home/me/src")
    given.timeout = _seconds(reader, given.timeout)
    return given, agent


def _seconds(parser: CommandParser, given: str | None) -> float | None:
    try:
        seconds = float(given) if given is not None else None
    except ValueError:
        seconds = 0.0
    if seconds is not None and not 0 < seconds <= _MOST_SECONDS:
        parser.error(f"--timeout: a number of seconds above 0, {_MOST_SECONDS} at most")
    return seconds


def _order(given: argparse.Namespace, bridge: OwnBridge) -> headless.Order:
    """Return what the parsed arguments say to run. Raises SystemExit after a message on stderr."""
    goes_on = given.again or given.session is not None
    info = session_to_go_on("run", bridge, given.session) if goes_on else None
    given.prompt = prompt_given(parser(), given.prompt)
    folder = info.cwd if info else str(known.here())
    return replace(
        _order_of(given, folder, info.session_id if info else None),
        open_timeout=bridge.settings.request_timeout,
        drain_timeout=bridge.settings.drain_timeout,
        has_login=not bridge.settings.builtin,
        agent=bridge.settings.agent_name,
    )


def _order_of(given: argparse.Namespace, cwd: str, session_id: str | None) -> headless.Order:
    return headless.Order(
        given.prompt,
        cwd,
        session_id,
        policy=Policy(given.permissions) if given.permissions else None,
        json=given.json,
        timeout=given.timeout,
        at=f"--at {given.at}" if given.at is not None else "",
    )
