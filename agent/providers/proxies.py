"""Names the variable with the proxy through which a request to a provider goes."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit


def proxy_variable(url: str, env: Mapping[str, str]) -> str:
    """Returns the name of the variable, "" if the request goes straight to the server.

    The HTTP clients of the agent read them in this order. `url` may be empty: then it is HTTPS to
    a host that isn't known.
    """
    try:
        parts = urlsplit(url)
    except ValueError:  # the address is wrong, and no proxy is at fault
        return ""
    names = [f"{parts.scheme or 'https'}_proxy", "all_proxy"]
    found = next((each for name in names for each in (name, name.upper()) if env.get(each)), "")
    return "" if _is_excepted(parts.hostname or "", env) else found


def _is_excepted(host: str, env: Mapping[str, str]) -> bool:
    names = (env.get("no_proxy") or env.get("NO_PROXY") or "").lower().split(",")
    excepted = [name.strip().removeprefix(".") for name in names]
    return any(name and (name == "*" or f".{host}".endswith(f".{name}")) for name in excepted)
