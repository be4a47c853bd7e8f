"""The settings of OpenHands' agent, from its arguments, its environment and the file of keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from agent.providers.keys import Keys
from agent.settings import read_settings

KEY_VARIABLE = "OPENHANDS_SESSION_API_KEY"


@dataclass(frozen=True, slots=True)
class ServerSettings:
    #: the server's address, without a slash at its end
    url: str
    #: the session API key; None if the server wants none
    key: str | None = field(default=None, repr=False)
    #: the name of the agent profile; None for the server's active one
    profile: str | None = None


def read_server_settings(
    url: str | None, profile: str | None, home: str | None, env: Mapping[str, str]
) -> ServerSettings:
    """Returns the settings; arguments win over the environment. Raises ValueError for a bad URL."""
    keys = Keys(read_settings(None, {}, home or env.get("ACP_BRIDGE_HOME")).keys_file, env)
    found = keys.look().find([KEY_VARIABLE])
    return ServerSettings(
        checked_url(url or env.get("ACP_BRIDGE_OPENHANDS") or ""),
        found[1] if found else None,
        profile or env.get("ACP_BRIDGE_OPENHANDS_PROFILE") or None,
    )


def checked_url(url: str) -> str:
    """Returns the address without a slash at its end. Raises ValueError if it is no http(s) URL."""
    try:
        parts = urlsplit(url.strip())
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        valid = False
    if not valid or parts.query or parts.fragment:
        raise ValueError("--url: the agent-server's address, such as http://127.0.0.1:8000")
    if parts.username or parts.password:
        raise ValueError(
            f"--url: no user or password in the address; the key goes in {KEY_VARIABLE}"
        )
    return url.strip().rstrip("/")
