"""`--openhands URL`: makes the command line of the agent that drives an OpenHands agent-server."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

#: the name under which the sessions of agent-servers are kept.
NAME: Final = "openhands"
#: seconds that a cancelled turn has to end; an agent-server's interrupt waits up to five itself.
DRAIN: Final = 7.0


def command(url: str, profile: str | None, home: str | None) -> list[str]:
    """Return the command line of the agent.

    The server's key is not in it, since `ps` shows it to all.

    Raises ValueError if `url` is no http address, or holds what may be a secret.
    """
    words = [sys.executable, "-I", "-m", "agent.openhands", "--url", _address(url)]
    if profile:
        words += ["--profile", profile]
    if home:
        words += ["--home", str(Path(home).expanduser().absolute())]
    return words


def misused(
    url: str | None, profile: str | None, *, other: bool, env: Mapping[str, str]
) -> str | None:
    """Return why these options can't be used together; None if they can.

    `other`: another agent's command is given after `--`; it wins over `--openhands` from the
    environment.
    """
    if other and url and "ACP_BRIDGE_OPENHANDS" not in env:
        return "--openhands and a command after -- are two agents; choose one"
    if profile and "ACP_BRIDGE_OPENHANDS_PROFILE" not in env and (other or not url):
        return "--openhands-profile needs --openhands URL"
    return None


def _address(url: str) -> str:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        port, parts = 0, urlsplit("")
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise ValueError("--openhands: an address such as http://127.0.0.1:8000")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ValueError(
            "--openhands: nothing but the address; the key goes in OPENHANDS_SESSION_API_KEY"
        )
    return url.rstrip("/")
