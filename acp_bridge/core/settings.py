"""The settings of one bridge: what the user chose, and bounds that tests may shorten.

Annotations are evaluated here: Python would compile those of a NamedTuple one by one.
"""

import os
import sys
from enum import StrEnum
from pathlib import Path
from typing import Final, NamedTuple

from acp_bridge.core.runtime import waits

#: seconds that an agent may take to stop after a cancel.
DRAIN: Final = 2.0
#: the file in the data folder that says how the user is told that a session waits.
NOTIFY_FILE: Final = "notify.toml"


def default_home() -> Path:
    """Return the data folder of a user who has chosen none.

    It is where programs of this system keep data (XDG Base Directory Specification; on macOS
    Application Support). A package that knows all systems would take a tenth of the start.
    Raises KeyError if neither HOME nor the system says where this user's home is.
    """
    chosen = os.environ.get("XDG_DATA_HOME", "")
    if os.path.isabs(chosen):
        return Path(chosen, "acp-bridge")
    home = os.environ.get("HOME", "")
    if not os.path.isabs(home):
        import pwd

        home = pwd.getpwuid(os.getuid()).pw_dir
    data = "Library/Application Support" if sys.platform == "darwin" else ".local/share"
    return Path(home, data, "acp-bridge")


class Delivery(StrEnum):
    """Says what a prompt does that comes during a turn: it waits, cancels the turn, or joins it."""

    QUEUE = "queue"
    INTERRUPT = "interrupt"
    STEER = "steer"


class OnCancel(StrEnum):
    """Says what a cancel does to the prompts that wait: they stay, or are cancelled too."""

    KEEP = "keep"
    CLEAR = "clear"


class ReloadAfterCancel(StrEnum):
    """Says when an agent that answered a cancel is restarted: if it leaked, or always."""

    UNCLEAN = "unclean"
    ALWAYS = "always"


class AgentProtocol(StrEnum):
    """Says which version of ACP is spoken with the agent: the first client's, 1 or 2."""

    AUTO = "auto"
    V1 = "1"
    V2 = "2"


class Money(NamedTuple):
    """An amount in one currency."""

    amount: float
    #: its code of three letters, in capitals.
    currency: str


class DatabaseUrl(NamedTuple):
    """One database, and how it is reached; `postgres/url.py` reads it from a URL."""

    #: what libpq is given: words of the form name='value', without a password.
    conninfo: str
    #: the name of the folder for what this machine keeps of the database; the same for the same
    #: servers and database, whoever logs in and however the connection is secured.
    folder: str


class Settings(NamedTuple):
    """How one bridge behaves; times in seconds."""

    #: the agent's command, and the name under which its sessions are kept.
    command: tuple[str, ...]
    agent_name: str
    home: Path
    #: the database in which sessions are kept; None: they are kept in the data folder.
    journal: DatabaseUrl | None = None
    #: a bridge that has not reached the database for this long has lost its sessions.
    lease: float = 60.0
    #: names under which earlier versions kept this agent's sessions.
    former_names: frozenset[str] = frozenset()
    #: the user gave the agent's name: its sessions are not known by what it says of itself.
    named: bool = False
    #: the agent is the built-in one: its answer to `initialize` is known beforehand.
    builtin: bool = False
    #: the agent is of this project: its stderr is a log without secrets, and goes into the log.
    ours: bool = False
    #: the command of the process from which the agent's are forked; empty: none is forked.
    parent: tuple[str, ...] = ()
    agent_protocol: AgentProtocol = AgentProtocol.AUTO
    delivery: Delivery = Delivery.QUEUE
    on_cancel: OnCancel = OnCancel.KEEP
    reload_after_cancel: ReloadAfterCancel = ReloadAfterCancel.UNCLEAN
    #: how long an agent may take to stop after a cancel.
    drain_timeout: float = DRAIN
    #: an agent without a prompt that is silent for this long, with nothing open, counts as idle.
    work_silence: float = waits.WORK
    #: a turn of which the agent says nothing for this long is silent, and the session says so; the
    #: second time counts while a tool call is open.
    silence: float = waits.SILENCE
    silence_in_call: float = waits.SILENCE_IN_CALL
    #: a turn that is silent for this long, with no tool call open and no program that computes, is
    #: cancelled; 0: never.
    cancel_silent_after: float = 0.0
    #: how long a Stop of an agent's work without a prompt waits for a prompt of the same client.
    stop_delay: float = waits.STOP
    #: other clients may connect, over a socket in the data folder.
    listen: bool = True
    #: MCP servers that a remote client names are started here as commands, too.
    client_mcp: bool = False
    #: the file of the user's rules; None: the one in the data folder, if it is there.
    rules: Path | None = None
    #: the file that records the messages to and from clients and agents; None: there is none.
    trace: Path | None = None
    #: prompts behind a usage limit go on by themselves when the limit resets as the agent said.
    resume_at_reset: bool = False
    #: what a session may cost until the user lets it go on; None: any amount.
    budget: Money | None = None
    #: how long work may go on without a client; 0: the bridge ends with the client on stdin.
    keep: float = 0.0
    #: the folder in which agents start; None: that of the bridge.
    folder: str | None = None
    #: how many files an agent may have open; None: as many as the bridge.
    agent_files: int | None = None
    #: how long a process without a session may take to start and answer `initialize`.
    start_timeout: float = waits.START
    #: the PATH of the user's login shell takes the place of that of the bridge.
    login_shell_path: bool = False
    #: how long an agent may take to open a session, or to take a setting that a client chose.
    request_timeout: float = waits.REQUEST
    #: how long all tries of one restart may take together.
    restart_timeout: float = waits.RESTART
    #: how long after the kill an agent's tree that is not dead yet is reported.
    kill_timeout: float = waits.GIVE_UP
    #: how long an agent may take to end by itself when its session or the bridge closes.
    close_grace: float = waits.CLOSE_GRACE
    #: no process of the agent has two sessions; None: unless the agent was seen to share one well.
    process_per_session: bool | None = None
    #: a session's agent that was at rest for this long is ended until it is needed; 0: never.
    sleep_after: float = 0.0
    #: how long a process that is kept ready for the next session may stay unused; 0: none is kept.
    spare: float = 0.0
    #: how long after a session took the spare process the next one is started.
    spare_pause: float = waits.SPARE_PAUSE
    #: how often clients get a sign of life while a prompt waits for the end of a pause or a hold.
    sign_interval: float = waits.SIGN
    #: how long to wait for another bridge to let go of a session.
    lease_timeout: float = waits.LEASE
    #: how long to wait for the bridge that holds a session to say that it is live there.
    reach_timeout: float = waits.REACH
    #: bytes that may wait for a client that doesn't read.
    client_limit: int = 8 * 1024 * 1024
    #: when the client on stdin has read no byte for this long, a session that others have goes on
    #: without it.
    unread: float = waits.UNREAD
