"""`acp-bridge key`: asks for a key of the built-in agent without echo and stores it in keys.env."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from acp_bridge.core.agents import origin
from acp_bridge.core.keys import FILE, file
from acp_bridge.core.runtime import log
from acp_bridge.terminal.cli.exits import Exit
from acp_bridge.terminal.cli.harmless import harmless, one_line
from acp_bridge.terminal.cli.options import data_folder
from acp_bridge.terminal.cli.own_agent import foreign_agent, isolated_path
from acp_bridge.terminal.cli.parser import CommandParser
from acp_bridge.terminal.cli.printing import columns, fail, print_text
from acp_bridge.terminal.shared.key_forms import (
    KNOWN,
    NotAKey,
    cleaned,
    nearest,
    oddities,
    same_provider,
    variable_of,
    without_key,
)
from acp_bridge.terminal.shared.table import table

_USAGE: Final = """\
acp-bridge key [NAME] [--home FOLDER]
acp-bridge key --remove NAME
acp-bridge key --list"""
_ABOUT: Final = """\
Ask for a key of the built-in agent, without showing it, and keep it in keys.env in the data folder,
which nobody else may read. NAME is the variable, such as ANTHROPIC_API_KEY, or the provider, such
as anthropic; without it you are asked for that, too. From a pipe the first line is taken."""
_EXAMPLES: Final = (
    "acp-bridge key anthropic",
    "pass show openai | acp-bridge key OPENAI_API_KEY",
    "acp-bridge key --list",
)
_AFTER: Final = """\
The agent reads keys.env whenever it needs a key: open sessions have a new one with their next
prompt. A key in the agent's environment wins over one in keys.env.

exit code: 0 done, 1 not done: nothing was changed, 2 wrong usage."""
#: bytes; the longest line read from stdin.
_LONGEST: Final = 64 * 1024


class _NoAnswer(Exception):
    """The user gave no provider or no key that can be used; the text says what is wrong."""


def parser() -> CommandParser:
    """Return the parser of the arguments of `acp-bridge key`."""
    parser = CommandParser("key", _USAGE, _ABOUT, _EXAMPLES, _AFTER)
    parser.add_argument("name", nargs="?", metavar="PROVIDER")
    parser.add_argument(
        "--list",
        action="store_true",
        help="show which keys the agent finds, in the environment and in keys.env, and which\n"
        "model follows from them; never a key itself",
    )
    parser.add_argument("--remove", action="store_true", help="remove NAME from keys.env")
    parser.add_home("the data folder (ACP_BRIDGE_HOME)")
    return parser


def main(arguments: Sequence[str]) -> int:
    """Run `acp-bridge key`; returns the exit code.

    Raises SystemExit for wrong usage and for help.
    """
    reader = parser()
    given = _parsed(reader, arguments)
    home = data_folder(given.home)
    if given.list:
        return _list(home)
    if origin.runs_in_agent():
        return fail("key", "an agent can't change keys: use a terminal of your own")
    try:
        variable = _variable(reader, given.name)
        return _remove(home, variable) if given.remove else _set(home, variable)
    except (_NoAnswer, NotAKey, file.Unusable) as why:
        return fail("key", why)


def _parsed(parser: CommandParser, arguments: Sequence[str]) -> argparse.Namespace:
    log.configure("error", None)
    given, rest = parser.parse_known_args(list(arguments))
    if rest:  # the argument may be a key: don't print it
        if meant := parser.meant(rest[0]):
            parser.error(f"there is no such option{meant}")
        parser.error("there is an argument too many; the key itself is asked for, and is none")
    if given.list and (given.name or given.remove):
        parser.error("--list stands alone")
    if given.remove and not given.name:
        parser.error("--remove: name the variable that is to be removed")
    return given


def _variable(parser: CommandParser, word: str | None) -> str:
    """Return the variable that the user's word means, asking for the word if it is None.

    Raises _NoAnswer, or SystemExit after a message if the word is unknown.
    """
    asked = word is None
    if word is None:
        if not _at_a_terminal():
            parser.error("name the variable: acp-bridge key ANTHROPIC_API_KEY")
        word = _asked_variable()
    if (name := without_key(word)) is not None:
        raise _NoAnswer(f"{name} needs no key: --model names a model of it")
    found = variable_of(word)
    if found is None:  # the word may be a key: don't print it
        what = "that is neither a variable, such as ANTHROPIC_API_KEY, nor a provider that is known"
        if (meant := nearest(word)) is not None:
            what = f"{what}; did you mean {meant}?"
            raise _NoAnswer(what) if asked else SystemExit(fail("key", what, Exit.USAGE))
        if asked:
            raise _NoAnswer(f"{what}; the key is asked for afterwards, and is not shown then")
        parser.error(
            f"{what}. If it is the key itself, your shell may have kept it in its history: the key"
            " is asked for, and is no argument"
        )
    return found


def _asked_variable() -> str:
    lines = [f"{number:3}  {known.name}" for number, known in enumerate(KNOWN, 1)]
    sys.stderr.write("A key of which provider?\n\n" + "\n".join(lines) + "\n\n")
    sys.stderr.write("Number, provider or variable: ")
    sys.stderr.flush()
    answer = sys.stdin.readline().strip()
    if not answer:
        raise _NoAnswer("no provider was chosen")
    if answer.isdecimal() and 1 <= int(answer) <= len(KNOWN):
        return KNOWN[int(answer) - 1].variables[0]
    return answer


def _set(home: Path, variable: str) -> int:
    """Ask for a key, store it in keys.env, and warn if it looks odd or another one wins over it.

    Returns the exit code. Raises NotAKey, _NoAnswer, file.Unusable.
    """
    key = cleaned(_asked_key(variable))
    file.set_key(home, variable, key)
    for what in oddities(variable, key):
        fail("key", f"it was kept as you gave it, but {what}")
    for other in same_provider(variable):
        if os.environ.get(other, "").strip():
            as_well = " as well" if other == variable else ""
            fail("key", f"{other} is in this environment{as_well}: where it is, that one counts")
    return print_text(
        f"{variable} is in {harmless(str(home / FILE))}. The built-in agent uses it from the"
        " next prompt on, also in open sessions.\n"
    )


def _asked_key(variable: str) -> str:
    """Return the line with the key, typed without echo or read from a pipe.

    Raises NotAKey, _NoAnswer.
    """
    if sys.stdin is None:
        raise _NoAnswer("there is no stdin to read the key from")
    if not _at_a_terminal():
        line = sys.stdin.buffer.readline(_LONGEST + 1)
        if len(line) > _LONGEST:
            raise NotAKey("it is too long for a key")
        return _text(line)
    return _text(_typed(variable))


def _typed(variable: str) -> bytes:
    """Ask for the key at the terminal without echo and return the line.

    Raises NotAKey, _NoAnswer.
    """
    from acp_bridge.terminal.shared import unshown

    try:
        return unshown.ask(f"{variable} (not shown): ", sys.stdin.fileno(), sys.stderr)
    except unshown.WouldShow:
        raise _NoAnswer("this terminal would show the key; give it by a pipe") from None
    except unshown.Cut:
        raise NotAKey("it is longer than a terminal takes: give it by a pipe") from None


def _text(line: bytes) -> str:
    """Decode a line as UTF-8. Raises NotAKey."""
    try:
        return line.decode()
    except ValueError:
        raise NotAKey("it is not UTF-8") from None


def _at_a_terminal() -> bool:
    return sys.stdin is not None and sys.stdin.isatty()


def _remove(home: Path, variable: str) -> int:
    """Remove a variable from keys.env; returns the exit code. Raises file.Unusable."""
    if not file.remove_key(home, variable):
        return fail("key", f"{variable} is not in {home / FILE}")
    if os.environ.get(variable, "").strip():
        fail("key", f"{variable} is still in this environment")
    return print_text(f"{variable} is no more in {harmless(str(home / FILE))}.\n")


def _list(home: Path) -> int:
    import anyio

    from acp_bridge.terminal.key import report as key_report

    # Asking for the report would run it.
    if (other := foreign_agent(isolated_path(os.environ))) is not None:
        return fail("key", f"another Python package named 'agent' is installed at {other}")
    try:
        report = anyio.run(key_report.report, home, None)
    except key_report.NoReport as why:
        return fail("key", why, Exit.FAILED)
    for what in key_report.troubles(report):
        fail("key", what)
    rows = [[key.name, key.origin, key.provider or ""] for key in report.keys if not key.is_address]
    model = f"The built-in agent begins with the model {one_line(report.model)}.\n"
    if not rows:
        return print_text(f"No keys.\n{model}")
    return print_text(table(["NAME", "FROM", "PROVIDER"], rows, columns()) + f"\n{model}")
