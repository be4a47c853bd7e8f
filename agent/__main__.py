"""`python -m agent`: the built-in agent on stdin and stdout.

Little is imported before it is needed: `--help` and a wrong `--model` don't wait for the SDK.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from agent.model import Model

_HELP = """\
usage: python -m agent [--model MODEL]

The built-in coding agent of acp-bridge. It speaks ACP (Agent Client Protocol)
on stdin and stdout: an editor starts it, or acp-bridge does, and stays up when
it doesn't.

  --model MODEL   demo            a few prepared answers, no network (default)
                  scripted:PATH   says what the dialogue in the file PATH says
  -h, --help      show this

environment:
  ACP_BRIDGE_MODEL   the model, if --model is not given
  ACP_BRIDGE_HOME    where sessions are kept (default: the user's data folder)
"""


def main() -> int:
    """Returns the exit code when there is nothing to serve; else the process ends here."""
    if sys.platform == "win32":
        print("acp-bridge's agent does not run on Windows yet.", file=sys.stderr)
        return 2
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, lambda *_: os._exit(0))  # until the SDK is there and we serve
    spec = _model_argument(sys.argv[1:])
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        from acp_bridge.wire.stdio import claim_stdio
        from agent.model import open_model

        model = open_model(spec)
        stdin, stdout = claim_stdio()  # before the SDK: whatever prints, prints to stderr
    except (ValueError, OSError) as error:
        print(f"agent: {error}", file=sys.stderr)
        return 2
    import anyio

    anyio.run(_serve, stdin, stdout, model)
    return 0


def _model_argument(argv: list[str]) -> str:
    default = os.environ.get("ACP_BRIDGE_MODEL") or "demo"
    if not argv:
        return default
    import argparse

    class Parser(argparse.ArgumentParser):
        def format_help(self) -> str:
            return _HELP

    parser = Parser(prog="python -m agent", usage="python -m agent [--model MODEL]")
    parser.add_argument("--model", default=default)
    model: str = parser.parse_args(argv).model
    return model


async def _serve(stdin: int, stdout: int, model: Model) -> NoReturn:
    from acp_bridge.wire.sdk_transport import SdkTransport
    from agent.connection import serve
    from agent.transcript import default_folder

    async with SdkTransport(stdin, stdout) as transport:
        await serve(transport, model, default_folder())
    # Not by way of the loop's end, which waits for every task: a model that ignores cancellation
    # would keep the process for ever (HAZARDS P2). What is kept on disk has been written.
    logging.shutdown()
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
