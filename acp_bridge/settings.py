"""What the user may choose, from the command line or the environment."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path


class Delivery(StrEnum):
    """What a prompt does that comes during a turn."""

    QUEUE = "queue"
    INTERRUPT = "interrupt"


class OnCancel(StrEnum):
    """What a cancel does to the prompts that wait."""

    KEEP = "keep"
    CLEAR = "clear"


class ReloadAfterCancel(StrEnum):
    """When the agent is restarted after a cancel that it answered."""

    UNCLEAN = "unclean"
    ALWAYS = "always"


@dataclass(frozen=True, slots=True)
class Settings:
    """How one bridge behaves; times in seconds."""

    #: the agent's command, and the name under which its sessions are kept.
    command: tuple[str, ...]
    agent_name: str
    home: Path
    #: the agent is the built-in one: its answer to `initialize` is known beforehand.
    builtin: bool = False
    delivery: Delivery = Delivery.QUEUE
    on_cancel: OnCancel = OnCancel.KEEP
    reload_after_cancel: ReloadAfterCancel = ReloadAfterCancel.UNCLEAN
    drain_timeout: float = 2.0
    #: for a process without a session to start and answer `initialize`.
    start_timeout: float = 60.0
    #: all tries of one restart together.
    restart_timeout: float = 60.0
    #: a tree that is not dead by then is reported as such.
    kill_timeout: float = 6.0
    #: for an agent to end by itself when its session or the bridge closes.
    close_grace: float = 1.0
    #: for another bridge to let go of a session.
    lease_timeout: float = 5.0
    #: bytes that may wait for a client that doesn't read.
    client_limit: int = 8 * 1024 * 1024
