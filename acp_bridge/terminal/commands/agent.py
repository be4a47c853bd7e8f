"""`acp-bridge agent`: becomes the built-in agent, which needs no bridge.

It is a command, since `python -m agent` is out of reach where a tool such as pipx has installed
acp-bridge.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Final

from acp_bridge.terminal.cli.exits import Exit
from acp_bridge.terminal.cli.own_agent import built_in, hindrance
from acp_bridge.terminal.cli.parser import CommandParser
from acp_bridge.terminal.cli.printing import fail, print_text, say_on_stderr

_ABOUT: Final = """\
Run the built-in agent alone, without a bridge: an ACP agent on stdin and stdout, as 'python -m
agent' does. --help shows its own help, with the environment variables that it reads."""
_AT_A_TERMINAL: Final = (
    "acp-bridge agent speaks ACP on stdin and stdout: a client starts it. Ctrl-D ends it.\n"
    "'acp-bridge chat' talks with it here.\n"
)


def parser() -> CommandParser:
    """Return the parser of the arguments of `acp-bridge agent`; the agent itself reads them."""
    parser = CommandParser(
        "agent",
        "acp-bridge agent [--model MODEL] [--home FOLDER]",
        _ABOUT,
        ["acp-bridge agent --help"],
        "exit code: 0 the client has left, 2 wrong usage, or the agent can't be started.",
    )
    parser.add_argument("--model", metavar="MODEL", help="the model (ACP_BRIDGE_MODEL)")
    parser.add_home("the data folder: conversations and keys.env (ACP_BRIDGE_HOME)")
    return parser


def main(arguments: Sequence[str]) -> int:
    """Replace this process by the agent; return an exit code after its help, or if that fails."""
    why = hindrance(os.environ, built_in("demo"), openhands=False)
    if why is not None:
        return fail("agent", why, Exit.USAGE)
    command = [sys.executable, "-I", "-m", "agent", *arguments]
    try:
        if {"-h", "--help"} & set(arguments):
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
            return print_text(done.stdout) or done.returncode
        if sys.stdin is not None and sys.stdin.isatty():
            say_on_stderr(_AT_A_TERMINAL)
        os.execv(sys.executable, command)
    except OSError as exc:
        return fail("agent", f"{sys.executable}: {exc.strerror}", Exit.USAGE)
