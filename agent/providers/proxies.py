"""Finds the environment variable with the proxy for a provider's requests."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit


def proxy_variable(url: str, env: Mapping[str, str]) -> str:
    """Returns the variable's name; "" if the request goes straight to the server.

    The agent's HTTP clients read the variables in this order. `url` may be empty: then it counts as
    HTTPS to an unknown host.
    """
    try:
        parts = urlsplit(url)
    except ValueError:  # the address is wrong, which is no proxy's fault
        return ""
    names = [f"{parts.scheme or 'https'}_proxy", "all_proxy"]
    found = next((each for name in names for each in (name, name.upper()) if env.get(each)), "")
    return "" if _is_excepted(parts.hostname or "", env) else found


def _is_excepted(host: str, env: Mapping[str, str]) -> bool:
    names = (env.get("no_proxy") or env.get("NO_PROXY") or "").lower().split(",")
    excepted = [name.strip().removeprefix(".") for name in names]
    return any(name and (name == "*" or f".{host}".endswith(f".{name}")) for name in excepted)
