"""The command line: the first argument may name a command; without one, the bridge serves."""

import os
import sys
from collections.abc import Sequence
from typing import Final

from acp_bridge.core.runtime import signals
from acp_bridge.core.runtime.own_commands import OWN_COMMANDS
from acp_bridge.terminal.cli import stdio
from acp_bridge.terminal.cli.commands import COMMANDS, Command

__all__ = ["COMMANDS", "run"]


def _run(command: Command, arguments: Sequence[str]) -> int:
    """Import a command's module, run its function; returns the exit code.

    The import is done only here, so that serving an editor never waits for it.
    """
    _fill_standard_descriptors()
    try:
        # No bridge is closed here, so Ctrl-C may raise; some commands have handlers of their own.
        signals.interrupt()
        return command.main(arguments)
    except SystemExit as exc:
        return exc.code if isinstance(exc.code, int) else 2
    except KeyboardInterrupt:
        return signals.INTERRUPTED


def _fill_standard_descriptors() -> None:
    """Open /dev/null for each of the descriptors 0 to 2 that is closed.

    Otherwise the next file that is opened would become stdin, stdout or stderr.
    """
    for _ in range(3):
        opened = os.open(os.devnull, os.O_RDWR)
        if opened > 2:
            os.close(opened)
            return


#: the packages of this project.
_OURS: Final = ("acp_bridge", "agent")


def run(arguments: Sequence[str]) -> int:
    """Run the command that the arguments name, or serve; returns the exit code."""
    command = COMMANDS.get(arguments[0]) if arguments else None
    OWN_COMMANDS.use_home(None)
    try:
        return _run(command, arguments[1:]) if command else stdio.main(arguments)
    except ModuleNotFoundError as missing:
        return _not_whole((missing.name or "").partition(".")[0], missing)
    except FileNotFoundError:
        if _has_folder():
            raise
        sys.stderr.write(
            "acp-bridge: the working folder is not there any more: change into another\n"
        )
        return 1


def _has_folder() -> bool:
    try:
        os.getcwd()
    except FileNotFoundError:
        return False
    return True


def _not_whole(package: str, missing: ModuleNotFoundError) -> int:
    """Print to stderr how to install a missing package; return the exit code.

    Raises `missing` if the package is Python's or ours.
    """
    if package in _OURS or package in sys.stdlib_module_names:
        raise missing
    from acp_bridge.terminal.cli.own_agent import install_command, isolated_path

    how = install_command("", isolated_path(os.environ))
    sys.stderr.write(f"acp-bridge: it is not installed whole: {package} is missing. Run: {how}\n")
    return 2
