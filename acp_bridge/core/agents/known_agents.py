"""Reads agents.toml, the table of agents that are known to speak ACP."""

from __future__ import annotations

import datetime
import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_FILE = Path(__file__).with_name("agents.toml")


@dataclass(frozen=True, slots=True)
class KnownAgent:
    """A row of the table."""

    name: str
    install: str
    command: tuple[str, ...]
    instead: tuple[str, ...]
    #: the version that was tried; None: it was not.
    tried: str | None
    date: datetime.date | None
    #: the name that it gives itself, if its sessions share a process well; None if they don't.
    shares: str | None
    #: how they do it, one of `process_pool.Sharing`.
    sharing: str

    @property
    def typed(self) -> str:
        """The command as a person types it."""
        return shlex.join(self.command)

    @property
    def way_to_install(self) -> str:
        """How it is installed, as the end of a sentence."""
        return f"see {self.install}" if "://" in self.install else f"run: {self.install}"


@cache
def known_agents() -> tuple[KnownAgent, ...]:
    """Return the rows of the table, in its order; reads the file once."""
    import tomllib

    rows = tomllib.loads(_FILE.read_text())["agent"]
    return tuple(
        KnownAgent(
            row["name"],
            row["install"],
            tuple(shlex.split(row["command"])),
            tuple(row.get("instead", ())),
            row.get("tried"),
            row.get("date"),
            row.get("shares"),
            row.get("sharing", "resting"),
        )
        for row in rows
    )


@cache
def seen_to_share() -> dict[str, str]:
    """Return how sessions share a process, by the name that the agent gives itself.

    It has only agents for which that was seen to go well.
    """
    return {agent.shares: agent.sharing for agent in known_agents() if agent.shares}


def advice_for(words: Sequence[str], *, missing: bool = False) -> str:
    """Return what to do about a command that did not come to speak ACP; "" if nothing is known.

    `missing`: its program was not found. The argument that an agent lacks is named, the program
    that speaks ACP in the place of another, or how a missing program is installed.
    """
    program = os.path.basename(words[0])
    for agent in known_agents():
        if program in agent.instead:
            return f"{program} does not speak ACP; {agent.typed} does ({agent.way_to_install})"
        if not agent.command or program != agent.command[0]:
            continue
        lacks = not set(agent.command[1:]) <= set(words[1:])
        if missing:
            then = f"; then start it with: {agent.typed}" if lacks else ""
            return f"{agent.name} is not installed: {agent.way_to_install}{then}"
        if lacks:
            return f"{program} speaks ACP with an argument: {agent.typed}"
    return ""
