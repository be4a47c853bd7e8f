"""The command line: the first argument may name a command; without one, the bridge serves."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from acp_bridge import signals
from acp_bridge.cli import serve
from acp_bridge.cli.naming import agent_name

__all__ = ["COMMANDS", "agent_name", "run"]


def _demo(arguments: Sequence[str]) -> int:
    signals.default()  # it has handlers of its own
    from acp_bridge.demo import main

    return main(arguments)


def _trust(arguments: Sequence[str]) -> int:
    from acp_bridge.cli.trust import main

    return main(arguments)


def _chat(arguments: Sequence[str]) -> int:
    signals.default()  # until the terminal is its own
    from acp_bridge.cli.chat import main

    return main(arguments)


#: Each takes the arguments after its name, returns the exit code, and imports what it needs only
#: when it is run, so that serving does not wait for it.
COMMANDS: Final[Mapping[str, Callable[[Sequence[str]], int]]] = {
    "chat": _chat,
    "demo": _demo,
    "trust": _trust,
}


def run(arguments: Sequence[str]) -> int:
    """Run the command that the arguments name, or serve; returns the exit code."""
    if arguments and (command := COMMANDS.get(arguments[0])):
        return command(arguments[1:])
    return serve.main(arguments)
