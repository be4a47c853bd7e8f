"""`python -m agent.openhands`: drives an OpenHands agent-server, speaking ACP on stdin and stdout.

The key is taken from the environment or the file of keys, never from the arguments, which other
users of the machine can read.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from agent.openhands.settings import ServerSettings
    from agent.secrets import Secrets

_HELP = """\
usage: python -m agent.openhands --url URL [--profile NAME] [--home FOLDER]

An ACP agent that drives a running OpenHands agent-server. It speaks ACP (Agent
Client Protocol) on stdin and stdout: an editor starts it, or
'acp-bridge --openhands URL' does.

  --url URL       the agent-server's address, such as http://127.0.0.1:8000
  --profile NAME  the agent profile of new conversations (default: the active one)
  --home FOLDER   the data folder, where keys.env may stand
  -h, --help      show this

environment:
  OPENHANDS_SESSION_API_KEY    the server's key; it may stand in keys.env instead
  ACP_BRIDGE_OPENHANDS         the address, if --url is not given
  ACP_BRIDGE_OPENHANDS_PROFILE the profile, if --profile is not given
  ACP_BRIDGE_HOME              the data folder, if --home is not given
"""
_MISSING = (
    "the packages for OpenHands are not installed. In the clone of acp-bridge, run:"
    " pipx install --force '.[openhands]'"
)


class _Parser(argparse.ArgumentParser):
    def format_help(self) -> str:
        return _HELP


def main() -> int:
    """Serves, and ends the process; returns an exit code only if it can't begin."""
    if sys.platform == "win32":
        print("acp-bridge's agents do not run on Windows yet.", file=sys.stderr)
        return 2
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, lambda *_: os._exit(0))  # until the SDK is imported and handles them
    given = _arguments(sys.argv[1:])
    from acp_bridge.core.agents.guard import keep_private, take_keys

    keep_private()
    take_keys()
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        from acp_bridge.core.wire.claim import claim_stdio
        from agent.openhands.settings import read_server_settings
        from agent.secrets import Secrets

        settings = read_server_settings(given.url, given.profile, given.home, os.environ)
        secrets = Secrets.from_environment(os.environ)
        if settings.key:
            secrets.add(settings.key)
        secrets.guard_logs()
        stdin, stdout = claim_stdio()  # before the SDK, so that its prints go to stderr
    except (ValueError, OSError) as error:
        print(f"agent: {error}", file=sys.stderr)
        return 2
    try:
        import websockets  # noqa: F401
    except ImportError:
        print(f"agent: {_MISSING}", file=sys.stderr)
        return 2
    import anyio

    anyio.run(_serve, stdin, stdout, settings, secrets)
    return 0


def _arguments(argv: list[str]) -> argparse.Namespace:
    parser = _Parser(prog="python -m agent.openhands")
    for name in ("--url", "--profile", "--home"):
        parser.add_argument(name)
    return parser.parse_args(argv)


async def _serve(stdin: int, stdout: int, settings: ServerSettings, secrets: Secrets) -> NoReturn:
    from agent.openhands.acp_agent import OpenHandsAgent
    from agent.openhands.server import Server
    from agent.serve.sdk_connection import serve_agent
    from agent.serve.sdk_transport import SdkTransport

    server = Server(settings.url, settings.key, secrets.mask)
    async with SdkTransport(stdin, stdout) as transport:
        await serve_agent(
            transport, lambda wire: OpenHandsAgent(server, settings, wire), secrets.mask
        )
    logging.shutdown()
    os._exit(0)  # the end of the event loop would wait for every task (invariant P2)


if __name__ == "__main__":
    sys.exit(main())
