"""Compares addresses with the domains of rules, as forgiving programs would read them. SANS-IO."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Final
from urllib.parse import unquote, urlsplit

#: the beginning of an address as forgiving programs read it: `https:example.org`.
_FORGIVEN: Final = re.compile(r"^([a-zA-Z][a-zA-Z0-9+.-]*):/*")
#: an address that every program reads alike.
_PLAIN: Final = re.compile(r"https?://[^/%\s?#]+([/?#]\S*)?", re.IGNORECASE)


def is_from(pattern: str, url: str, *, below: bool) -> bool:
    """Return True if an address is of the domain in a rule's pattern; an empty one is of any.

    `below`, for refusals: domains below it count too, and any way in which programs may read it.
    """
    if not pattern:
        return True
    domain = _plain_host(pattern.removeprefix("domain:"))
    if below:
        hosts = {
            _host(url),
            _host(_FORGIVEN.sub(r"\1://", unquote(url).replace("\\", "/").strip())),
        }
        hosts |= {_host(f"https://{url}")} if "://" not in url else set()
        below_it = domain.removeprefix("*").removeprefix(".")
        only_below = domain.startswith("*.")
        return any(
            host.endswith(f".{below_it}") or (host == below_it and not only_below) for host in hosts
        )
    if not _PLAIN.fullmatch(url) or "\\" in url:
        return False
    host = _host(url)
    return host.endswith(domain[1:]) if domain.startswith("*.") else bool(host) and host == domain


def _host(url: str) -> str:
    try:
        return _plain_host(urlsplit(url).hostname or "")
    except ValueError:
        return ""


def _plain_host(host: str) -> str:
    """Return a host's name as it is looked up: in small letters, others than ASCII as `xn--`."""
    star = "*." if host.startswith("*.") else ""
    host = host.removeprefix("*.").lower()
    with suppress(UnicodeError):
        host = host.encode("idna").decode().lower()
    return star + host.rstrip(".")
