"""`acp-bridge connect`: serves an editor on stdin and stdout with a bridge on another machine."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from acp_bridge.core.agents import origin
from acp_bridge.core.runtime.own_commands import OWN_COMMANDS
from acp_bridge.remote.connect.folders import Folders
from acp_bridge.remote.connect.logins import (
    Login,
    Unusable,
    Where,
    find,
    keep,
    read_address,
    token_of,
)
from acp_bridge.remote.connect.router import Place, Router
from acp_bridge.remote.connect.rules import LOAD_AGAIN
from acp_bridge.terminal.cli.exits import Exit
from acp_bridge.terminal.cli.harmless import harmless, one_line
from acp_bridge.terminal.cli.options import data_folder
from acp_bridge.terminal.cli.parser import CommandParser
from acp_bridge.terminal.cli.printing import fail, print_text, say_on_stderr
from acp_bridge.terminal.shared.reach import check_package, login_for, token_refused

if TYPE_CHECKING:
    from acp_bridge.core.wire.streams import Streams

_USAGE: Final = """\
acp-bridge connect URL [--folder HERE=THERE]...
acp-bridge connect --login URL"""
_ABOUT: Final = """\
Speak ACP on stdin and stdout with the bridge that 'acp-bridge serve' runs at URL, on another
machine: an editor starts this as its agent. When the line drops it is opened again, without end;
nothing is lost or done twice meanwhile, and what runs there goes on.

A login asks for the token without showing it, and keeps it in the data folder, which nobody else
may read. From a pipe the first line is taken."""
_EXAMPLES: Final = (
    "acp-bridge connect --login https://home.example:8765",
    "acp-bridge connect https://home.example:8765",
    "acp-bridge connect https://home.example:8765 --folder ~/src=/home/me/src",
)
_AFTER: Final = """\
docs/remote.md has the other end, and what is sent again.

exit code: 0 the editor has left, or done, 1 not done, 2 wrong usage, 9 there is no token, or it is
refused."""
#: bytes; the longest line read from stdin.
_LONGEST: Final = 64 * 1024


def parser() -> CommandParser:
    """Return the parser of the arguments of `acp-bridge connect`."""
    parser = CommandParser("connect", _USAGE, _ABOUT, _EXAMPLES, _AFTER, column=22)
    parser.add_argument("url", metavar="URL")
    parser.add_argument(
        "--login", action="store_true", help="ask for the token, try it, and keep it"
    )
    parser.add_argument(
        "--folder",
        metavar="HERE=THERE",
        action="append",
        default=[],
        help="a folder of this machine is that folder there: paths of sessions, of\n"
        "changes and of files that are named are told so, texts never; may be\n"
        "given several times (default: paths are the same on both)",
    )
    parser.add_home("where the token is kept (ACP_BRIDGE_HOME)")
    return parser


def main(arguments: Sequence[str]) -> int:
    """Run `acp-bridge connect`; returns the exit code.

    Raises SystemExit for wrong usage and for help.
    """
    reader = parser()
    given = reader.parse_args(arguments)
    check_package("connect")
    if origin.runs_in_agent():
        return fail("connect", "an agent can't connect to a bridge: use a terminal of your own")
    home = data_folder(given.home)
    try:
        folders = Folders([_pair(reader, text) for text in given.folder])
        if given.login:
            return _log_in(home, read_address(given.url))
    except Unusable as why:
        return fail("connect", why)
    where, login = login_for("connect", home, given.url)
    if sys.stdin is not None and sys.stdin.isatty():
        say_on_stderr(
            "acp-bridge connect speaks ACP on stdin: an editor starts it. Ctrl-D ends it.\n"
        )
    return _serve(home, where, login, folders)


def _pair(reader: CommandParser, text: str) -> tuple[str, str]:
    here, mark, there = text.partition("=")
    local = os.path.abspath(Path(here).expanduser()) if here else ""
    if not mark or not local or not there.startswith("/"):
        reader.error(f"--folder {text}: give HERE=THERE, such as ~/src=/home/me/src")
    return local, there


# --- the editor


class _Ways:
    """The places whose bridges the editor can be connected to, each with the user's login there."""

    def __init__(self, home: Path, where: Where, login: Login) -> None:
        self._home = home
        self.first = Place(where.url, where.place)
        self._logins = {self.first: (where, login)}

    def find(self, address: str) -> Place | str:
        """Return the place at an address; if that can't be used, what the user has to do first."""
        try:
            where = read_address(address)
            login = find(self._home, where)
        except Unusable as why:
            return str(why)
        if login is None:
            login_with = OWN_COMMANDS.line("connect", f"--login {address}")
            return f"{login_with}, then {LOAD_AGAIN}"
        place = Place(where.url, where.place)
        self._logins[place] = where, login
        return place

    @asynccontextmanager
    async def reach(self, place: Place) -> AsyncGenerator[Streams, None]:
        """Connect to a place that `find` returned, for the block; raises Unreached, NotTrusted."""
        from acp_bridge.remote.connect import line

        where, login = self._logins[place]
        async with line.connected(where, login, self._home) as socket:
            yield socket, socket


def _serve(home: Path, where: Where, login: Login, folders: Folders) -> int:
    """Serve the editor on stdin and stdout; returns the exit code."""
    import anyio

    from acp_bridge.core.wire.claim import claim_stdio
    from acp_bridge.core.wire.stdio import Reader, Writer
    from acp_bridge.remote.connect import shell
    from acp_bridge.remote.connect.machine import Machine

    try:
        stdin, stdout = claim_stdio()
    except OSError as exc:
        return fail("connect", exc.strerror)

    def make(name: str, questions: Iterator[int]) -> Machine:
        return Machine(
            secrets.token_urlsafe(24), name, lambda: secrets.token_urlsafe(16), questions
        )

    def tell(place: Place, why: str) -> None:
        say_on_stderr(f"acp-bridge connect: {place.name}: {one_line(why)}\n")

    async def serve() -> None:
        ways = _Ways(home, where, login)
        router = Router(ways.first, make, ways.find)
        editor = Reader(stdin), Writer(stdout)
        await shell.Shell(router, editor, ways.reach, folders, tell).run()

    try:
        anyio.run(serve)
    except shell.Refused as exc:
        return fail("connect", token_refused(where, str(exc)), Exit.AUTHENTICATION)
    return Exit.DONE


# --- the login


def _log_in(home: Path, where: Where) -> int:
    """Ask the user for a token, try it, and keep it; returns the exit code. Raises Unusable."""
    import anyio

    certificate = anyio.run(_certificate, where)
    login = Login(token_of(_asked()), certificate)
    anyio.run(_try, home, where, login)
    keep(home, where, login)
    return print_text(f"The token for {harmless(where.url)} is kept. An editor can start it now.\n")


async def _certificate(where: Where) -> str | None:
    """Return the fingerprint of a certificate that the user confirms, None if it is trusted anyway.

    Raises Unusable if it is not confirmed, or the place can't be reached.
    """
    from acp_bridge.remote.connect.line import NotTrusted, Unreached, look
    from acp_bridge.terminal.shared.consent import says_yes

    try:
        await look(where)
    except Unreached as exc:
        raise Unusable(f"{where.place} can't be reached: {exc}") from exc
    except NotTrusted as exc:
        if not _at_a_terminal():
            what = f"the certificate of {where.place} is not trusted: {exc}"
            raise Unusable(f"{what}. It can be confirmed at a terminal") from exc
        print_text(
            f"The certificate of {harmless(where.place)} is not trusted:"
            f" {one_line(str(exc))}.\nIts SHA-256 fingerprint is\n\n"
            f"  {_in_pairs(exc.fingerprint)}\n\n"
            "On that machine, openssl x509 -noout -fingerprint -sha256 -in CERT shows the one that"
            " it should have.\n"
        )
        if not await says_yes("Is it the same?"):
            raise Unusable("the certificate was not confirmed: nothing is kept") from exc
        return exc.fingerprint
    return None


async def _try(home: Path, where: Where, login: Login) -> None:
    """Connect once with the login, to see that it is accepted; raises Unusable if it is not."""
    from acp_bridge.remote.connect.line import NotTrusted, Unreached, connected

    try:
        async with connected(where, login, home):
            pass
    except (Unreached, NotTrusted) as exc:
        raise Unusable(f"{where.place} did not take it: {exc}. Nothing is kept") from exc


def _in_pairs(fingerprint: str) -> str:
    digits = fingerprint.upper()
    return ":".join(digits[at : at + 2] for at in range(0, len(digits), 2))


def _asked() -> bytes:
    """Return the line with the token, typed without echo or read from a pipe. Raises Unusable."""
    from acp_bridge.terminal.shared import unshown

    if sys.stdin is None:
        raise Unusable("there is no stdin to read the token from")
    if not _at_a_terminal():
        return sys.stdin.buffer.readline(_LONGEST)
    try:
        return unshown.ask("Token (not shown): ", sys.stdin.fileno(), sys.stderr)
    except unshown.WouldShow:
        raise Unusable("this terminal would show the token; give it by a pipe") from None
    except unshown.Cut:
        raise Unusable("it is longer than a terminal takes: give it by a pipe") from None


def _at_a_terminal() -> bool:
    return sys.stdin is not None and sys.stdin.isatty()
