"""The settings of one bridge: what the user chose, and bounds that tests may shorten."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from acp_bridge.runtime import waits

#: seconds that an agent may take to stop.
DRAIN: Final = 2.0
#: the file in the data folder that says how the user is told that a session waits.
NOTIFY_FILE: Final = "notify.toml"


class Delivery(StrEnum):
    """Says what happens to a prompt that comes during a turn: it waits, cancels or joins it."""

    QUEUE = "queue"
    INTERRUPT = "interrupt"
    STEER = "steer"


class OnCancel(StrEnum):
    """Says what a cancel does to the prompts that wait: they stay, or are cancelled too."""

    KEEP = "keep"
    CLEAR = "clear"


class ReloadAfterCancel(StrEnum):
    """Says when an agent that answered a cancel is restarted: if it went wrong, or always."""

    UNCLEAN = "unclean"
    ALWAYS = "always"


class AgentProtocol(StrEnum):
    """Says which version of ACP is spoken with the agent: the first client's, or this one."""

    AUTO = "auto"
    V1 = "1"
    V2 = "2"


@dataclass(frozen=True, slots=True)
class Money:
    """An amount in one currency."""

    amount: float
    #: its code of three letters, in capitals.
    currency: str


@dataclass(frozen=True, slots=True)
class DatabaseUrl:
    """One database, and how it is reached; `journal/postgres/url.py` makes one of a URL."""

    #: what libpq is given: words of the form name='value', without a password.
    conninfo: str
    #: the name of the folder for what this machine keeps of the database; the same for the same
    #: servers and database, whoever logs in and however the way there is made safe.
    folder: str


@dataclass(frozen=True, slots=True)
class Settings:
    """How one bridge behaves; times in seconds."""

    #: the agent's command, and the name under which its sessions are kept.
    command: tuple[str, ...]
    agent_name: str
    home: Path
    #: the database in which sessions are kept; None: they are kept in the home folder.
    journal: DatabaseUrl | None = None
    #: a bridge that has not reached the database for so long has its sessions no more.
    lease: float = 60.0
    #: names under which earlier versions kept this agent's sessions.
    former_names: frozenset[str] = frozenset()
    #: the user gave the agent's name: its sessions are not known by what it says of itself.
    named: bool = False
    #: the agent is the built-in one: its answer to `initialize` is known beforehand.
    builtin: bool = False
    #: the agent is of this project: its stderr is a log without secrets, and goes into the log.
    ours: bool = False
    #: the command of the process that the agent's are forked from; empty if there is none.
    parent: tuple[str, ...] = ()
    agent_protocol: AgentProtocol = AgentProtocol.AUTO
    delivery: Delivery = Delivery.QUEUE
    on_cancel: OnCancel = OnCancel.KEEP
    reload_after_cancel: ReloadAfterCancel = ReloadAfterCancel.UNCLEAN
    #: for an agent to stop, from the cancel on.
    drain_timeout: float = DRAIN
    #: an agent without a prompt that is silent for so long, with nothing open, does nothing.
    work_silence: float = waits.WORK
    #: a turn of which the agent says nothing for so long is silent, and the session says so; the
    #: same with a tool call open.
    silence: float = waits.SILENCE
    silence_in_call: float = waits.SILENCE_IN_CALL
    #: a turn that is silent for so long, with no tool call open and no program that computes, is
    #: cancelled; 0: never.
    cancel_silent_after: float = 0.0
    #: a Stop of what an agent does without a prompt waits for a prompt of the same client.
    stop_delay: float = waits.STOP
    #: other clients may connect, over a socket in the home folder.
    listen: bool = True
    #: MCP servers that a remote client names are started here as commands, too.
    client_mcp: bool = False
    #: the file of the user's rules; None: the one in the home folder, if it is there.
    rules: Path | None = None
    #: the file that gets what goes over the wires of the bridge; None: none does.
    trace: Path | None = None
    #: what waits behind a usage limit goes on by itself when the agent has said that it resets.
    resume_at_reset: bool = False
    #: what a session may cost until the user lets it go on; None: it is not looked at.
    budget: Money | None = None
    #: how long work may go on without a client; 0: the bridge ends with its client.
    keep: float = 0.0
    #: the folder in which agents start; None: that of the bridge.
    folder: str | None = None
    #: how many files an agent may have open; None: as many as the bridge.
    agent_files: int | None = None
    #: for a process without a session to start and answer `initialize`.
    start_timeout: float = waits.START
    #: for an agent to open a session, and to take a setting that a client chose.
    request_timeout: float = waits.REQUEST
    #: all tries of one restart together.
    restart_timeout: float = waits.RESTART
    #: a tree that is not dead by then is reported as such.
    kill_timeout: float = waits.GIVE_UP
    #: for an agent to end by itself when its session or the bridge closes.
    close_grace: float = waits.CLOSE_GRACE
    #: a session's agent that was at rest for so long is ended until it is needed; 0: never.
    sleep_after: float = 0.0
    #: a process is kept ready for the next session, and ended when unused for so long; 0: none is.
    spare: float = 0.0
    #: from the moment in which a session took one to the start of the next.
    spare_pause: float = waits.SPARE_PAUSE
    #: from one sign of life to the next while a prompt waits for the end of a pause or a hold.
    sign_interval: float = waits.SIGN
    #: for another bridge to let go of a session.
    lease_timeout: float = waits.LEASE
    #: for the bridge that holds a session to say that it is live there.
    reach_timeout: float = waits.REACH
    #: bytes that may wait for a client that doesn't read.
    client_limit: int = 8 * 1024 * 1024
    #: without a byte taken by the client on stdin a session that others have goes on without it.
    unread: float = waits.UNREAD
