"""`acp-bridge replay`: an ACP agent that answers as the agent in a recorded trace did."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from acp_bridge.terminal.cli.exits import Exit
from acp_bridge.terminal.cli.parser import CommandParser
from acp_bridge.terminal.cli.printing import fail, say_on_stderr
from acp_bridge.trace.exchanges import Exchange, NoTrace, read_exchanges

_ABOUT: Final = """\
Play the agent's side of a trace to the client on stdin and stdout, as an ACP agent: to see again
what somebody has reported, or as an agent for tests that always does the same. The trace is one of
'acp-bridge --trace', or of the conductor of the protocol's Rust SDK."""
_EXAMPLES: Final = (
    "acp-bridge --trace trace.jsons -- codex-acp",
    "acp-bridge -- acp-bridge replay trace.jsons",
    "acp-bridge chat -- acp-bridge replay trace.jsons --timing",
)
_AFTER: Final = """\
A request gets what the agent has answered to the same method, in order, with all that the agent has
said before; what the trace has no more of is an error. docs/trace.md says more.

exit code: 0 the client has left, 2 wrong usage, or the file is no trace."""
_AT_A_TERMINAL: Final = (
    "acp-bridge replay speaks ACP on stdin and stdout: a client starts it. Ctrl-D ends it.\n"
)


def parser() -> CommandParser:
    """Return the parser of the arguments of `acp-bridge replay`."""
    usage = "acp-bridge replay FILE [--timing]"
    parser = CommandParser("replay", usage, _ABOUT, _EXAMPLES, _AFTER)
    parser.add_argument("file", metavar="FILE")
    parser.add_argument(
        "--timing", action="store_true", help="with the pauses that the agent has made"
    )
    return parser


def main(arguments: Sequence[str]) -> int:
    """Run `acp-bridge replay`: answer as the trace's agent until the client leaves.

    Returns the exit code.
    """
    try:
        given = parser().parse_args(arguments)
    except SystemExit as exc:
        return exc.code if isinstance(exc.code, int) else Exit.USAGE
    try:
        exchanges = read_exchanges(Path(given.file).read_bytes())
    except OSError as exc:
        return fail("replay", f"{given.file}: {exc.strerror}", Exit.USAGE)
    except NoTrace as exc:
        return fail("replay", f"{given.file}: {exc}", Exit.USAGE)
    if sys.stdin is not None and sys.stdin.isatty():
        say_on_stderr(_AT_A_TERMINAL)
    return _play(exchanges, timing=given.timing)


def _play(exchanges: Sequence[Exchange], *, timing: bool) -> int:
    import anyio

    from acp_bridge.core.wire.claim import claim_stdio
    from acp_bridge.core.wire.stdio import Reader, Writer
    from acp_bridge.trace.player import Player

    try:
        stdin, stdout = claim_stdio()
    except OSError as exc:
        return fail("replay", str(exc.strerror), Exit.USAGE)

    async def serve() -> None:
        incoming, outgoing = Reader(stdin), Writer(stdout)
        try:
            await Player(exchanges, timing=timing).serve(incoming, outgoing)
        finally:
            incoming.close()
            outgoing.close()

    anyio.run(serve)
    return Exit.DONE
