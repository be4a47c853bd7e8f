"""The command `acp-bridge demo`: its arguments, its temporary home, its exit code."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TextIO

import anyio

from acp_bridge import __version__
from acp_bridge.sharing.bridge_client.own_process import BRIDGE
from acp_bridge.sharing.bridge_client.tasks import beside
from acp_bridge.terminal.cli.parser import Entry, Parser
from acp_bridge.terminal.demo.play import play
from acp_bridge.terminal.demo.recording import Recording
from acp_bridge.terminal.demo.screen import Screen
from acp_bridge.terminal.shared.waiting import STOP_SIGNALS

_ABOUT = """\
Shows what the bridge is for, without a network and in a few seconds. A client
starts real bridges with real agents behind them, gives them trouble, and
records every line that it sends and gets. Each line printed is a check made on
that recording: the step, the time measured, and what was found."""
_STEPS = (
    Entry("1 three at once", "three prompts wait their turn; each is answered once"),
    Entry("2 cancel", "a turn is stopped in mid-stream; the next one works"),
    Entry("3 interrupt", "a prompt takes the place of the one that runs"),
    Entry(
        "4 deaf agent",
        "the agent ignores the cancel: it is killed and restarted,\n"
        "and still knows what it was told",
    ),
    Entry("5 agent killed", "kill -9 of the agent; the session goes on"),
    Entry(
        "6 bridge killed",
        "kill -9 of the bridge; another one shows all that was\n"
        "shown, and holds the prompt that waited",
    ),
    Entry("7 the end", "nothing is left running"),
)
_AFTER = """\
Your own sessions are not touched: everything is kept in a temporary folder,
removed at the end. Colour is for terminals, and not used if NO_COLOR is set.

exit code: 0 every check passed, 1 one failed, 2 wrong usage, 130 interrupted."""


def parser() -> Parser:
    """Return the parser of the arguments of `acp-bridge demo`."""
    usage = "acp-bridge demo [--record FILE]"
    parser = Parser("acp-bridge demo", usage, _ABOUT, _STEPS, _AFTER, column=20)
    parser.add_argument(
        "--record",
        metavar="FILE",
        help="write the recording to FILE, as JSON lines: the client, the\n"
        "direction (in, out, or note), the time in seconds, the line",
    )
    parser.add_argument("-h", "--help", action="help", help="show this")
    return parser


def main(arguments: Sequence[str], *, bridge: Sequence[str] = BRIDGE) -> int:
    """Run the demo; `bridge` is the command that starts a bridge. Returns the exit code."""
    try:
        options = parser().parse_args(arguments)
    except SystemExit as exc:
        return exc.code if isinstance(exc.code, int) else 2
    if options.record is None:
        return _run(bridge, None)
    try:
        file = open(options.record, "w", encoding="utf-8")  # noqa: SIM115
    except OSError as exc:
        sys.stderr.write(f"acp-bridge demo: --record {options.record}: {exc.strerror}\n")
        return 2
    with file:
        return _run(bridge, file)


def _run(bridge: Sequence[str], record: TextIO | None) -> int:
    screen = _screen(sys.stdout)
    start = time.monotonic()
    screen.say(f"acp-bridge {__version__}, the demo: real processes, no model, no network.\n")
    with tempfile.TemporaryDirectory(prefix="acp-bridge-demo-", ignore_cleanup_errors=True) as home:
        recordings: dict[str, Recording] = {}
        try:
            stopped = anyio.run(
                _until_stopped, partial(play, Path(home), screen, bridge, recordings)
            )
        finally:
            if record:
                _write(record, recordings, start)
    if stopped:
        screen.say("Interrupted.")
        return 128 + stopped
    seconds = time.monotonic() - start
    passed = f"{screen.checks - screen.failures} of {screen.checks} checks passed"
    screen.say(f"\n{passed} in {seconds:.1f} s.")
    return 1 if screen.failures else 0


async def _until_stopped(demo: Callable[[], Awaitable[None]]) -> int:
    """Run the demo; returns the number of the signal that ended it early, or 0.

    Later signals are ignored, since the clean-up is bounded.
    """
    stopped: list[int] = []

    async def watch() -> None:
        with anyio.open_signal_receiver(*STOP_SIGNALS) as signals:
            async for number in signals:
                stopped.append(number)
                running.cancel()

    async with beside() as tasks:
        with anyio.CancelScope() as running:
            tasks.start_soon(watch)
            await demo()
    return stopped[0] if stopped else 0


def _write(file: TextIO, recordings: dict[str, Recording], start: float) -> None:
    lines = [(line, client) for client, lines in recordings.items() for line in lines]
    for line, client in sorted(lines, key=lambda pair: pair[0].time):
        text = line.raw.decode(errors="backslashreplace")
        entry = {"client": client, "direction": line.direction, "time": line.time - start}
        file.write(json.dumps({**entry, "line": text}) + "\n")


def _screen(out: TextIO) -> Screen:
    live = out.isatty() and os.environ.get("TERM", "dumb") != "dumb"
    return Screen(out, colour=live and not os.environ.get("NO_COLOR"), live=live)
