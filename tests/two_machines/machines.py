"""The two machines."""

from dataclasses import dataclass

PORT = 8765


@dataclass(frozen=True, slots=True)
class Machine:
    """A network namespace, its address, and its end of the cable."""

    name: str
    address: str
    end: str


HOME = Machine("acp-home", "10.99.0.1", "home0")
AWAY = Machine("acp-away", "10.99.0.2", "away0")


def at(machine: Machine, *command: str) -> list[str]:
    """Return the words that run a command on a machine."""
    return ["ip", "netns", "exec", machine.name, *command]
