"""`acp-bridge` without a command: serve the client on stdin and stdout.

The bridge itself is imported last: neither `--help` nor a wrong option waits for it, nor the start
of the agent, which waits for as few imports as can be.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from acp_bridge.core.agents import guard
from acp_bridge.core.agents.environment import HANDED_ON
from acp_bridge.core.records import replace
from acp_bridge.core.runtime import keep, waits
from acp_bridge.core.runtime.own_commands import OWN_COMMANDS
from acp_bridge.core.settings import Settings
from acp_bridge.terminal.cli.options import Options, data_folder, parse
from acp_bridge.terminal.cli.own_agent import hindrance, lacks_extra
from acp_bridge.terminal.cli.serving_parser import FILE_LEVEL, STDERR_LEVEL

if TYPE_CHECKING:
    from acp_bridge.core.agents.birth import Newborn

#: seconds between switches of threads. With the interpreter's default of 5 ms a worker thread that
#: merges the journal would delay the event loop by that much.
_SWITCH_INTERVAL: Final = 0.0005
#: mallopt(3): the size from which on a block is mapped by itself.
_MMAP_THRESHOLD: Final = -3
_LARGE: Final = 1 << 19

_AT_A_TERMINAL: Final = (
    "acp-bridge speaks ACP on stdin and stdout: an editor starts it. Ctrl-D ends it.\n"
    "'acp-bridge chat' talks with an agent here, 'acp-bridge demo' shows what the bridge does.\n"
)

#: seconds that the shell may take to read the user's files.
_WITHIN: Final = 10.0


def main(arguments: Sequence[str]) -> int:
    """Serve the client on stdin and stdout until it leaves; returns the exit code."""
    try:
        options = parse(arguments, os.environ)
    except SystemExit as exc:
        return exc.code if isinstance(exc.code, int) else 2
    if options.settings.home != data_folder(None):  # also one of the client's environment
        OWN_COMMANDS.use_home(str(options.settings.home))
    if not options.own_agent and _at_a_terminal():
        _withhold(options.settings)
        return _become(options.settings.command)
    if sys.stdin is not None and sys.stdin.isatty():
        sys.stderr.write(_AT_A_TERMINAL)
        options = replace(options, settings=replace(options.settings, keep=0.0))
    if not options.settings.keep:
        return _serve(options, None)
    return _serve_kept(options)


def _serve_kept(options: Options) -> int:
    """Fork a process that may outlive this one, and serve in it (`--keep`); this one waits for it.

    Returns the exit code, in the new process only.
    """
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
        from acp_bridge.core.runtime import log

        log.logger.exception("the bridge has failed")
    finally:
        waiter.let_go(code)
    return code


def _at_a_terminal() -> bool:
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout))


def _withhold(settings: Settings) -> None:
    """Keep the journal's database out of the environment of every process started from now on."""
    if settings.journal is not None:
        HANDED_ON.withhold_database()


def _become(command: Sequence[str]) -> int:
    """Replace this process by the agent; returns 127 if that fails.

    It is for a bridge that a person starts in a terminal, to log in: a client tells the person to
    run its configured command with the login's arguments added, which the agent is to get itself.
    """
    import signal

    # Python ignores them, and an ignored signal stays ignored through exec.
    for name in ("SIGPIPE", "SIGXFSZ"):
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    try:
        guard.mark()
        os.execvpe(command[0], list(command), HANDED_ON.of(os.environ))
    except OSError as exc:
        sys.stderr.write(f"acp-bridge: {command[0]}: {exc.strerror}\n")
    return 127


def _open_log(options: Options) -> bool:
    """Open the log; False, after a message on stderr, if the user's file can't be written."""
    from acp_bridge.core.runtime import log

    level, stderr = options.log_level or FILE_LEVEL, options.log_level or STDERR_LEVEL
    try:
        if options.log_file is None:
            log.configure(level, options.log, stderr, rotated=True)
        else:  # with --keep, stderr may lead nowhere once the client has left
            log.configure(level, options.log_file, stderr if options.settings.keep else None)
    except OSError as exc:
        if options.log_file is None:  # stderr will do
            log.configure(stderr, None)
            log.logger.warning("%s can't be written: %s", options.log, exc.strerror)
            return True
        sys.stderr.write(f"acp-bridge: the log file can't be written: {exc.strerror}\n")
        return False
    return True


def _has_its_agent(options: Options) -> bool:
    """Return False, and log why, if this project's agent is wanted and can't be started."""
    if not options.own_agent:
        return True
    return not _told(
        hindrance(os.environ, options.packages, openhands=not options.settings.builtin)
    )


def _has_its_database(options: Options) -> bool:
    """Return False, and log why, if a database is wanted and nothing here can speak to it."""
    if options.settings.journal is None:
        return True
    return not _told(lacks_extra("psycopg", "postgres"))


def _told(why: str | None) -> bool:
    """Log why nothing can be served, if there is a reason; returns True then."""
    if why is None:
        return False
    from acp_bridge.core.runtime import log

    log.logger.error("%s", why)
    return True


def _serve(options: Options, waiter: keep.Waiter | None) -> int:
    # The log may wait until the agent has begun where nothing is refused or told before that.
    wanted = options.settings
    log_waits = not (
        options.own_agent or options.log_file or wanted.journal or wanted.login_shell_path
    )
    if not log_waits and not can_serve(options):
        return 2
    from acp_bridge.core.wire.claim import claim_stdio

    try:
        stdin, stdout = claim_stdio()
    except OSError as exc:
        sys.stderr.write(f"acp-bridge: {exc.strerror}\n")
        return 2
    settings = prepared(options)
    # The agent starts while the rest is imported, which takes about as long.
    early = [] if settings.builtin else _born(settings)
    if log_waits:
        _open_log(options)
    import anyio

    from acp_bridge import serving

    loaded()
    on_end = partial(leave_in_time, waiter)
    anyio.run(serving.serve, settings, stdin, stdout, on_end, waiter, early)
    return 0


def _born(settings: Settings) -> list[Newborn]:
    from acp_bridge.core.agents.birth import born_early

    return born_early(settings.command, settings.agent_files, settings.folder)


def can_serve(options: Options) -> bool:
    """Open the log; return False, after a message, if it, agent or database can't be used."""
    return _open_log(options) and _has_its_agent(options) and _has_its_database(options)


def prepared(options: Options) -> Settings:
    """Prepare this process for the start of agents, and return the bridge's settings.

    It adopts orphans, hides the journal's database from children, takes the PATH of the login
    shell if that is wanted, and raises the limit of open files, which the settings then have.
    """
    from acp_bridge.core.agents.orphans import ORPHANS
    from acp_bridge.core.runtime.open_files import raise_limit

    ORPHANS.adopt()
    _withhold(options.settings)
    if options.settings.login_shell_path:
        take_path()
    return replace(options.settings, agent_files=raise_limit())


def loaded() -> None:
    """Tune the interpreter for serving, when all is imported that serves."""
    sys.setswitchinterval(_SWITCH_INTERVAL)
    _give_back_large_blocks()
    gc.freeze()  # loaded modules live as long as the process: don't scan them
    gc.enable()


def _give_back_large_blocks() -> None:
    """Have the C library return large blocks to the system as soon as they are free.

    glibc raises this limit to the size of the largest freed block, up to 32 MB. After large
    messages the process would keep their memory. Other C libraries return such blocks anyway.
    """
    with suppress(OSError):
        guard.call("mallopt", _MMAP_THRESHOLD, _LARGE)


def leave_in_time(waiter: keep.Waiter | None = None) -> None:
    """Start a timer that ends the process if its closing takes too long (invariant P2).

    An agent's tree that doesn't die may hold it up, which its guard goes on killing, or a thread
    that waits for a disk. All that has to be kept is written by then. `waiter` is let go first.
    """
    import signal
    import threading

    def leave() -> None:
        if waiter:
            waiter.let_go(0)
        os._exit(0)

    timer = threading.Timer(waits.LEAVE, leave)
    timer.daemon = True
    try:
        timer.start()
    except RuntimeError:  # the system has no room for one more thread
        signal.signal(signal.SIGALRM, lambda *_: leave())
        signal.setitimer(signal.ITIMER_REAL, waits.LEAVE)


def take_path() -> None:
    """Give this process, and so the agent, the PATH of the login shell; logs why it can't.

    An editor that was started from the desktop may have a PATH without node or the agent.
    """
    import subprocess

    from acp_bridge.core.runtime import log

    shell = os.environ.get("SHELL") or "/bin/sh"
    command = [shell, "-l", "-i", "-c", "env"]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_WITHIN,
            start_new_session=True,  # it must not take the terminal of a chat
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as why:
        log.logger.warning("the login shell does not tell its PATH: %s", type(why).__name__)
        return
    lines = done.stdout.decode(errors="surrogateescape").splitlines()
    paths = [line.removeprefix("PATH=") for line in lines if line.startswith("PATH=")]
    if paths and paths[-1]:
        os.environ["PATH"] = paths[-1]
    else:
        log.logger.warning("the login shell does not tell its PATH")
