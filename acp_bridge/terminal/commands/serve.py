"""`acp-bridge serve`: serves clients on other machines, and makes the tokens that let them in."""

from __future__ import annotations

import argparse
import io
import os
from collections.abc import Sequence
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from acp_bridge.core.agents import origin
from acp_bridge.core.clients.rights import May
from acp_bridge.core.protocol import Json, objects
from acp_bridge.core.records import replace
from acp_bridge.core.runtime.own_commands import OWN_COMMANDS
from acp_bridge.terminal.cli import options, stdio
from acp_bridge.terminal.cli.exits import Exit
from acp_bridge.terminal.cli.harmless import exact, one_line
from acp_bridge.terminal.cli.own_agent import lacks_extra
from acp_bridge.terminal.cli.parser import CommandParser
from acp_bridge.terminal.cli.printing import columns, fail, print_text, say_on_stderr
from acp_bridge.terminal.cli.serving_parser import OPTIONS, words_of
from acp_bridge.terminal.shared.table import table

if TYPE_CHECKING:
    from acp_bridge.remote.serve.serving import Plan
    from acp_bridge.remote.serve.tokens import Tokens

_USAGE: Final = """\
acp-bridge serve ADDRESS [OPTIONS] [-- COMMAND ARGS...]
acp-bridge serve token [--phone] [--may look|approve|all] NAME
acp-bridge serve tokens
acp-bridge serve revoke NAME"""
_ABOUT: Final = """\
Serve clients from elsewhere over WebSocket, at ADDRESS/acp, until it is told to end: HOST:PORT, or
unix:PATH behind a proxy. They see all sessions of the data folder, and work with the agent after
--, or the built-in one. A token is a shell: who has one that may all can run what you can.

A token is made by 'serve token', which shows it once; 'serve tokens' lists them, and 'serve revoke'
ends one with its connections. All three work while a server runs. With --phone a code is shown
instead, also as a QR code, which the page at ADDRESS takes once, within five minutes."""
_EXAMPLES: Final = (
    "acp-bridge serve token laptop",
    "acp-bridge serve 127.0.0.1:8765 --root ~/src -- codex-acp",
    "acp-bridge serve 0.0.0.0:8765 --tls cert.pem key.pem",
)
_AFTER: Final = """\
The options of 'acp-bridge' itself may be given too, such as --model and --home. docs/remote.md has
proxies, limits and what a token may.

exit code: 0 it was told to end, or done, 1 not done, or nothing can listen there, 2 wrong usage."""
_TOKEN, _TOKENS, _REVOKE = "token", "tokens", "revoke"
#: the options of the bridge that this command defines itself.
_OWN: Final = ("keep", "home")


def parser() -> CommandParser:
    """Return the parser of the arguments of `acp-bridge serve`."""
    parser = CommandParser("serve", _USAGE, _ABOUT, _EXAMPLES, _AFTER, column=25)
    parser.add_argument("what", metavar="ADDRESS")
    parser.add_argument("name", metavar="NAME", nargs="?")
    _add_of_server(parser)
    _add_of_token(parser)
    parser.add_home()
    unlisted = parser.add_argument_group()
    for option in OPTIONS.values():
        if option.name not in _OWN:
            option.add_to(unlisted, {})
    return parser


def _add_of_server(parser: CommandParser) -> None:
    parser.add_argument(
        "--root",
        metavar="FOLDER",
        action="append",
        help="sessions are made and loaded only below it, links resolved; may\n"
        "be given several times (default: this folder). It is no sandbox",
    )
    parser.add_argument(
        "--tls",
        metavar="CERT KEY",
        nargs=2,
        help="speak TLS with this certificate and its key (PEM), for any address",
    )
    parser.add_argument(
        "--behind-proxy",
        metavar="ORIGIN",
        help="a proxy on this machine speaks TLS, and is reached as ORIGIN,\n"
        "such as https://bridge.example.org",
    )
    parser.add_argument(
        "--allow-local",
        action="store_true",
        help="connections from this machine need the token alone; agents that\n"
        "have got one come in",
    )
    parser.add_argument(
        "--client-mcp",
        action="store_true",
        help="start the MCP servers that a client names by command; they are\ndropped otherwise",
    )
    parser.add_argument(
        "--keep",
        metavar="DURATION",
        help="how long a session goes on that no client has open, such as 30m\n"
        "or 2d (ACP_BRIDGE_KEEP; default 8h)",
    )


def _add_of_token(parser: CommandParser) -> None:
    parser.add_argument(
        "--may", metavar="look|approve|all", help="what a new token may (default all)"
    )
    parser.add_argument(
        "--phone", action="store_true", help="a code with which a browser logs in at the page"
    )


def main(arguments: Sequence[str]) -> int:
    """Run `acp-bridge serve`; returns the exit code.

    Raises SystemExit for wrong usage and for help.
    """
    words, agent = options.split(arguments)
    reader = parser()
    given, rest = reader.parse_known_intermixed_args(
        reader.with_switches(words)
    )  # options stand before a name, too
    if rest:
        reader.error(f"unrecognized arguments: {' '.join(rest)}{reader.meant(rest[0])}")
    if (lacking := lacks_extra("websockets", "remote")) is not None:
        return fail("serve", lacking)
    if given.what not in (_TOKEN, _TOKENS, _REVOKE):
        return _serve(reader, given, agent)
    if agent is not None:
        reader.error(f"'serve {given.what}' starts no agent")
    if (given.what == _TOKENS) != (given.name is None):
        reader.error(f"give {'no ' if given.name else 'the '}name of a token")
    return _change(reader, given)


# --- the tokens


def _change(reader: CommandParser, given: argparse.Namespace) -> int:
    from acp_bridge.remote.serve.tokens import Unusable

    home = options.data_folder(given.home)
    if given.what != _TOKENS and origin.runs_in_agent():
        return fail("serve", "an agent can't change tokens: use a terminal of your own")
    try:
        match given.what:
            case "token":
                make = _make_code if given.phone else _make
                return make(home, given.name, _may(reader, given.may))
            case "revoke":
                return _revoke(home, given.name)
            case _:
                return _list(home)
    except Unusable as why:
        return fail("serve", why)
    except OSError as why:
        return fail("serve", f"the tokens can't be changed: {why.strerror or why}")


def _may(reader: CommandParser, given: str | None) -> May:
    try:
        return May(given or May.ALL)
    except ValueError:
        reader.error(f"--may: choose from {', '.join(May)}")


def _make(home: Path, name: str, may: May) -> int:
    from acp_bridge.remote.serve import control, tokens

    secret = tokens.new_secret()
    token = tokens.new_token(name, may, secret)
    _asked(home, control.ADD, asdict(token))
    say_on_stderr(
        f"The token {name} may {_MEANT[may]}. It is shown this once; keep it like a password:\n"
    )
    return print_text(f"{secret}\n")


def _make_code(home: Path, name: str, may: May) -> int:
    from acp_bridge.remote.serve import control

    found = _asked(home, control.CODE, {"name": name, "may": may})
    code, page = exact(str(found.get("code"))), exact(str(found.get("page")))
    url = f"{page}/#code={code}"
    say_on_stderr(
        f"{name} may {_MEANT[may]}. Within five minutes, and once: open this, or {page} and enter"
        f" {code}\n\n"
    )
    return print_text(f"{drawn(url) if columns() else ''}{url}\n")


def _revoke(home: Path, name: str) -> int:
    from acp_bridge.remote.serve import control

    ended = int(_asked(home, control.REMOVE, {"name": name}).get("ended") or 0)
    told = "1 connection of it has" if ended == 1 else f"{ended or 'no'} connections of it have"
    return print_text(f"The token {exact(name)} is revoked; {told} ended.\n")


def _list(home: Path) -> int:
    from acp_bridge.remote.serve import control

    found = objects(_asked(home, control.LIST, {}).get("tokens"))
    if not found:
        return print_text(f"No tokens. {OWN_COMMANDS.line('serve', 'token NAME')} makes one.\n")
    rows = [[one_line(str(each[key])) for key in ("name", "may", "made", "open")] for each in found]
    return print_text(table(["NAME", "MAY", "MADE", "OPEN"], rows, columns()))


_MEANT: Final = {
    May.LOOK: "look on, and no more",
    May.APPROVE: "look on, answer what agents ask, and stop turns",
    May.ALL: "all that you may, so it is a shell on this machine",
}


def _asked(home: Path, what: str, params: Json) -> Json:
    """Have the running server change or list the tokens, or do it here if no server runs.

    `what` is one of the actions in `remote.control`, `params` its parameters. Returns the answer;
    raises Unusable, OSError.
    """
    from acp_bridge.remote.serve import control, tokens
    from acp_bridge.sharing.listening.peers import Refused

    try:
        with tokens.held(home) as mine:
            return control.done(mine, what, params)
    except tokens.Held as held:
        if held.socket is None:
            raise tokens.Unusable("a server starts or ends just now: try again") from None
        try:
            return control.ask(held.socket, what, params)
        except (Refused, OSError) as why:
            raise tokens.Unusable(
                f"the server that runs does not answer this command ({why}): run it as its user,"
                " where it runs, such as in its container"
            ) from why


# --- serving


def _serve(reader: CommandParser, given: argparse.Namespace, agent: Sequence[str] | None) -> int:
    from acp_bridge.remote.serve import tokens

    if given.name is not None or given.may is not None or given.phone:
        reader.error("an address alone is served; a token is made by 'acp-bridge serve token NAME'")
    plan = _plan(reader, given)
    words = words_of(given, OPTIONS.values())
    parsed = options.parse([*words, *(["--", *agent] if agent is not None else [])], os.environ)
    if not stdio.can_serve(parsed):
        return Exit.USAGE
    home = parsed.settings.home
    try:
        with tokens.held(home) as mine:
            if not mine.all:
                make = OWN_COMMANDS.line("serve", "token NAME")
                return fail("serve", f"there is no token yet, so nobody could come in: {make}")
            return _run(plan, parsed, mine, client_mcp=given.client_mcp)
    except tokens.Held:
        return fail("serve", f"a server runs for {home} already: give this one a --home of its own")
    except tokens.Unusable as why:
        return fail("serve", why)
    except OSError as why:
        return fail("serve", f"{plan.address}: {why.strerror or why}")


def _run(plan: Plan, parsed: options.Options, tokens: Tokens, *, client_mcp: bool) -> int:
    import anyio

    from acp_bridge.remote.serve import serving

    settings = replace(stdio.prepared(parsed), client_mcp=client_mcp)
    stdio.loaded()
    roots = ", ".join(map(exact, plan.roots))

    def ready(url: str, page: str) -> None:
        count = f"{len(tokens.all)} token{'' if len(tokens.all) == 1 else 's'}"
        say_on_stderr(
            f"acp-bridge serve: {url}, for {count}, below {roots}\n"
            f"acp-bridge serve: open the page at {page}\n"
        )

    anyio.run(serving.serve, plan, settings, tokens, ready, stdio.leave_in_time)
    return Exit.DONE


def _plan(reader: CommandParser, given: argparse.Namespace) -> Plan:
    """Return the plan for serving, from the parsed arguments.

    Raises SystemExit after a message for arguments that don't go together, or can't be used.
    """
    from acp_bridge.remote.serve import address
    from acp_bridge.remote.serve.serving import Plan

    if given.tls and given.behind_proxy:
        reader.error("--tls and --behind-proxy: either the server speaks TLS, or the proxy does")
    try:
        where = address.read(given.what)
        origin = address.origin(given.behind_proxy) if given.behind_proxy else None
        tls = address.tls(*given.tls) if given.tls else None
        certified = address.certified(tls, given.tls[0]) if tls else frozenset[str]()
        if not tls and not address.is_loopback(where):
            raise address.Bad(
                f"{where} is reached from other machines: give --tls CERT KEY, or listen on"
                " 127.0.0.1 or a unix: socket behind a proxy, with --behind-proxy ORIGIN"
            )
        if where.path is not None and origin is None:
            raise address.Bad("a unix: socket is for a proxy: give --behind-proxy ORIGIN")
    except address.Bad as why:
        reader.error(str(why))
    roots = tuple(_root(reader, each) for each in given.root or ["."])
    files = (given.tls[0], given.tls[1]) if given.tls else ("", "")
    return Plan(where, roots, tls, files, certified, origin, given.allow_local)


def _root(reader: CommandParser, given: str) -> str:
    found = os.path.realpath(os.path.expanduser(given))
    if not os.path.isdir(found):
        reader.error(f"--root: there is no folder {found}")
    return found


def drawn(text: str) -> str:
    """Return a QR code of a text in block characters; "" if the package `segno` is missing."""
    try:
        segno: Any = import_module("segno")
    except ImportError:
        return ""
    out = io.StringIO()
    segno.make(text, error="m", micro=False).terminal(out, compact=True)
    return out.getvalue() + "\n"
