"""`acp-bridge` without a command: serve the client on stdin and stdout.

The bridge itself is imported last: neither `--help` nor a wrong option waits for it.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from acp_bridge.agents import guard
from acp_bridge.cli.options import Options, parse
from acp_bridge.cli.own_agent import hindrance
from acp_bridge.cli.serving_parser import FILE_LEVEL, STDERR_LEVEL
from acp_bridge.runtime import keep, log, waits

#: seconds. A worker thread that merges the journal must not hold the event loop up for 5 ms, the
#: interpreter's default.
_SWITCH_INTERVAL: Final = 0.0005
#: objects. Messages die by their reference counts, so cycles are looked for rarely.
_COLLECT_AFTER: Final = 50_000

#: the log of kept bridges, in the data folder, and its size (bytes) from which on a new one begins.
_LOG: Final = "bridge.log"
_LOG_BYTES: Final = 4_000_000

_AT_A_TERMINAL: Final = (
    "acp-bridge speaks ACP on stdin and stdout: an editor starts it. Ctrl-D ends it.\n"
    "'acp-bridge chat' talks with an agent here, 'acp-bridge demo' shows what the bridge does.\n"
)


def main(arguments: Sequence[str]) -> int:
    """Serve until the client is gone; returns the exit code."""
    try:
        options = parse(arguments, os.environ)
    except SystemExit as exc:
        return exc.code if isinstance(exc.code, int) else 2
    if not options.own_agent and _at_a_terminal():
        return _become(options.settings.command)
    if sys.stdin is not None and sys.stdin.isatty():
        sys.stderr.write(_AT_A_TERMINAL)
        options = replace(options, settings=replace(options.settings, keep=0.0))
    if not options.settings.keep:
        return _serve(options, None)
    return _serve_kept(options)


def _serve_kept(options: Options) -> int:
    """Serve in a process that may outlive the client; returns there, with the exit code."""
    folder = None
    with suppress(OSError):  # it was removed
        folder = os.getcwd()
    try:
        waiter = keep.detach()
    except OSError as exc:
        sys.stderr.write(f"acp-bridge: no process for --keep: {exc.strerror}\n")
        return 1
    code = 1
    try:
        code = _serve(replace(options, settings=replace(options.settings, folder=folder)), waiter)
    except Exception:
        log.logger.exception("the bridge has failed")
    finally:
        waiter.let_go(code)
    return code


def _at_a_terminal() -> bool:
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout))


def _become(command: Sequence[str]) -> int:
    """Replace this process by the agent; returns the exit code if that is not possible.

    No client has a terminal for stdin and stdout. A person does, whom a client had log in at the
    agent: it runs the command that it is configured with, and the login's arguments behind it.
    """
    import signal

    for name in ("SIGPIPE", "SIGXFSZ"):  # Python ignores them, and exec keeps what is ignored
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    try:
        guard.mark()
        os.execvp(command[0], list(command))
    except OSError as exc:
        sys.stderr.write(f"acp-bridge: {command[0]}: {exc.strerror}\n")
    return 127


def _open_log(options: Options) -> bool:
    file, stderr = options.log_file, None
    if options.settings.keep:  # nobody may be there for stderr
        file, stderr = file or options.settings.home / _LOG, options.log_level or STDERR_LEVEL
    level = options.log_level or (FILE_LEVEL if file else STDERR_LEVEL)
    try:
        if file and not options.log_file:
            _make_room(file)
        log.configure(level, file, stderr)
    except OSError as exc:
        sys.stderr.write(f"acp-bridge: the log file can't be written: {exc.strerror}\n")
        return False
    return True


def _make_room(file: Path) -> None:
    """See to it that the log of kept bridges can be written, and does not grow for ever."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if file.exists() and file.stat().st_size > _LOG_BYTES:
        file.replace(file.with_suffix(".log.1"))


def _has_its_agent(options: Options) -> bool:
    """Tell if an agent of ours, where one is wanted, is what would be started."""
    if not options.own_agent:
        return True
    why = hindrance(os.environ, options.packages, openhands=not options.settings.builtin)
    if why is not None:
        log.logger.error("%s", why)
    return why is None


def _serve(options: Options, waiter: keep.Waiter | None) -> int:
    if not _open_log(options) or not _has_its_agent(options):
        return 2
    sys.setswitchinterval(_SWITCH_INTERVAL)
    import anyio

    from acp_bridge.agents.orphans import ORPHANS
    from acp_bridge.bridge import serving
    from acp_bridge.runtime import open_files
    from acp_bridge.wire.stdio import claim_stdio

    try:
        stdin, stdout = claim_stdio()
    except OSError as exc:
        sys.stderr.write(f"acp-bridge: {exc.strerror}\n")
        return 2
    ORPHANS.adopt()
    settings = replace(options.settings, agent_files=open_files.raise_limit())
    gc.freeze()  # modules are never collected
    gc.set_threshold(_COLLECT_AFTER)
    anyio.run(serving.serve, settings, stdin, stdout, partial(_leave_in_time, waiter), waiter)
    return 0


def _leave_in_time(waiter: keep.Waiter | None) -> None:
    """See to it that the process ends in time, whatever hangs (invariant P2).

    That may be a tree that does not die, which its guard goes on killing, or a thread on a disk
    that does not answer. All that could be kept has been written by then.
    """
    import threading

    def leave() -> None:
        if waiter:
            waiter.let_go(0)
        os._exit(0)

    timer = threading.Timer(waits.LEAVE, leave)
    timer.daemon = True
    timer.start()
