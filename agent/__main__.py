"""`python -m agent`: the built-in agent on stdin and stdout.

Little is imported before it is needed: `--help` and a wrong setting don't wait for the SDK, and
nothing waits for the model library, which is imported after `initialize` has been answered.
"""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
from functools import cache
from typing import TYPE_CHECKING, NoReturn

from msgspec import Struct

if TYPE_CHECKING:
    from agent.providers.all_models import AllModels
    from agent.secrets import Secrets
    from agent.settings import Settings

_HELP = """\
usage: acp-bridge agent [--model MODEL] [--home FOLDER]
       python -m agent [--model MODEL] [--home FOLDER]

The built-in coding agent of acp-bridge. It speaks ACP (Agent Client Protocol)
on stdin and stdout: an editor starts it, or acp-bridge does, and keeps the
conversation going when it dies.

  --model MODEL   a model as LiteLLM names it, such as
                    anthropic/claude-sonnet-5-5
                    openai/gpt-5.2
                    ollama_chat/qwen3
                  or one that needs no network:
                    demo            a few prepared answers
                    scripted:FILE   says what the dialogue in FILE says
                  Without it: the first model whose key is there, else demo.
  --home FOLDER   the data folder: conversations and keys.env
  -h, --help      show this

A key is looked for in the environment, under the name that the provider gives
it (ANTHROPIC_API_KEY, OPENAI_API_KEY, GEMINI_API_KEY, ...), and in the file
keys.env in the data folder: a line NAME=value each. The file may be written
while the agent runs.

environment:
  ACP_BRIDGE_MODEL           the model, if --model is not given
  ACP_BRIDGE_MODELS          more models to choose from in the editor, separated
                             by commas
  ACP_BRIDGE_MODEL_ABILITIES what models of your own server can do, such as
                             "openai/mine window=32768 images thinking"
  ACP_BRIDGE_SUMMARY_MODEL   the model that summarises a conversation that has
                             grown too long (default: the session's own)
  ACP_BRIDGE_MAX_CALLS       how often the model may be called for one prompt
                             (default 100)
  ACP_BRIDGE_STUCK_DETECTION off: a model that goes round in circles is neither
                             told nor stopped (default on)
  ACP_BRIDGE_MODEL_SILENCE   after how many seconds without a word from it a
                             provider is given up (default 120)
  ACP_BRIDGE_HOME            the data folder, if --home is not given
                             (default: acp-bridge in the user's data folder)

exit code: 0 the client has left, 2 wrong usage.
"""


class Prepared(Struct, frozen=True):
    """The agent's settings, known secrets and models, made before it has a connection."""

    settings: Settings
    secrets: Secrets
    models: AllModels


def main() -> int:
    """Serves, and ends the process; returns an exit code only if it can't begin."""
    if sys.platform == "win32":
        print("acp-bridge's agent does not run on Windows yet.", file=sys.stderr)
        return 2
    end_on_signals()
    model, home = arguments(sys.argv[1:])
    from acp_bridge.core.agents.guard import keep_private, take_keys

    keep_private()
    take_keys()
    return run(model, home)


def end_on_signals() -> None:
    """Makes signals end the process at once; the SDK's handlers replace this later."""
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, lambda *_: os._exit(0))


@cache
def prepare(model: str | None, home: str | None) -> Prepared:
    """Reads the arguments and the environment, cached: a forked agent has its parent's result.

    Raises ValueError if a setting is wrong.
    """
    from agent.providers.all_models import AllModels
    from agent.secrets import Secrets
    from agent.settings import read_settings

    settings = read_settings(model, os.environ, home)
    secrets = Secrets.from_environment(os.environ)
    secrets.watch(settings.keys_file)
    models = AllModels(settings, os.environ, on_key=secrets.add, mask=secrets.mask)
    return Prepared(settings, secrets, models)


def run(model: str | None, home: str | None, *, light: bool = False) -> int:
    """Serves, and ends the process; returns an exit code only if it can't begin.

    `light`: another process replaces this one before a prompt comes, so that this one loads no
    model library and starts no MCP server.
    """
    from acp_bridge.core.agents.orphans import ORPHANS
    from acp_bridge.core.wire.lossy import text_stream

    ORPHANS.adopt()  # the children of a guard that a tool has killed
    # Lossy: a client that doesn't read stderr can't block us; prints go there too.
    if sys.stderr is not None:
        sys.stdout = sys.stderr = text_stream(2)
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        from acp_bridge.core.wire.claim import claim_stdio

        prepared = prepare(model, home)
        prepared.secrets.guard_logs()
        if light:
            from agent.providers import library

            library.withhold()
        _check_dialogue(prepared)
        stdin, stdout = claim_stdio()  # before the SDK, so that its prints go to stderr
    except (ValueError, OSError) as error:
        print(f"agent: {error}", file=sys.stderr)
        return 2
    import anyio

    anyio.run(_serve, stdin, stdout, prepared, light)
    return 0


def arguments(argv: list[str]) -> tuple[str | None, str | None]:
    """Returns the model and the data folder in the arguments; None for one that is not given."""
    if not argv:
        return None, None
    import argparse

    class Parser(argparse.ArgumentParser):
        def format_help(self) -> str:
            return _HELP

    usage = _HELP.partition("\n\n")[0].removeprefix("usage: ")
    parser = Parser(prog="acp-bridge agent", usage=usage)
    parser.add_argument("--model")
    parser.add_argument("--home")
    given = parser.parse_args(argv)
    return given.model, given.home


def _check_dialogue(prepared: Prepared) -> None:
    """Raises ValueError if the model is a dialogue that can't be read.

    Problems of other models are reported in the session.
    """
    from agent.model import ModelError

    if prepared.settings.model.startswith("scripted:"):
        try:
            prepared.models.open(prepared.settings.model)
        except ModelError as error:
            raise ValueError(str(error)) from error


async def _serve(stdin: int, stdout: int, prepared: Prepared, light: bool) -> NoReturn:
    gc.disable()  # it would take a sixth of the imports' time
    from agent.secrets import child_environment
    from agent.serve.connection import serve
    from agent.serve.sdk_transport import SdkTransport

    gc.freeze()  # modules live as long as the process
    gc.enable()
    environment = child_environment(os.environ)
    async with SdkTransport(stdin, stdout) as transport:
        await serve(
            transport,
            prepared.models,
            prepared.settings,
            prepared.secrets,
            environment,
            light=light,
        )
    # The end of the event loop would wait for every task, and a model that ignores cancellation
    # would keep the process for ever (invariant P2). All records have been written by now.
    logging.shutdown()
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
