"""Reads the text of `notify.toml`. A file with any error is not used. SANS-IO.

An error quotes no word of the file: an address is a secret.
"""

from __future__ import annotations

import re
from base64 import b64encode
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Final
from urllib.parse import unquote, urlsplit

from acp_bridge.core.runtime import toml_text

_KEYS: Final = frozenset({"notify", "words"})
_NTFY: Final = "ntfy:"
#: the characters that may stand in the first line of an HTTP request.
_PLAIN: Final = re.compile(r"[\x21-\x7e]+")
_WAYS: Final = '"desktop", "bell" or "ntfy:ADDRESS"'


class BadNotify(Exception):
    """The file can't be used; the text says why, without a word of the file."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where a notification is posted to; no part of it is shown or logged."""

    host: str = field(repr=False)
    port: int = field(repr=False)
    #: path and query, as they are sent.
    target: str = field(repr=False)
    secure: bool
    #: the header that says who posts, if the address does; empty if not.
    authorization: str = field(default="", repr=False)

    @property
    def place(self) -> str:
        """Host and port, as a request names them."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.secure else 80) else f"{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Notify:
    """The ways in which the user wants to be told."""

    desktop: bool = False
    bell: bool = False
    addresses: tuple[Address, ...] = ()
    #: a notification quotes what the agent asks, where it asks something.
    words: bool = False

    @property
    def named(self) -> list[str]:
        """The names of the chosen ways, without the addresses, which are secret."""
        shown = {"desktop": self.desktop, "bell": self.bell, "ntfy": bool(self.addresses)}
        return [name for name, chosen in shown.items() if chosen]


def parse(text: str) -> Notify:
    """Return what the text of `notify.toml` says. Raises BadNotify."""
    try:
        table = toml_text.loads(text)
    except toml_text.BadToml as bad:
        raise BadNotify(str(bad)) from None  # which quotes nothing of the file
    if table.keys() - _KEYS:
        raise BadNotify("it may have the keys notify and words, and no other")
    ways, words = table.get("notify", []), table.get("words", False)
    if not isinstance(ways, list) or not all(isinstance(each, str) for each in ways):
        raise BadNotify(f"notify is a list of texts, each {_WAYS}")
    if not isinstance(words, bool):
        raise BadNotify("words is true or false")
    if any(way not in ("desktop", "bell") and not way.startswith(_NTFY) for way in ways):
        raise BadNotify(f"one of notify is not {_WAYS}")
    addresses = dict.fromkeys(address(way[len(_NTFY) :]) for way in ways if way.startswith(_NTFY))
    return Notify("desktop" in ways, "bell" in ways, tuple(addresses), words)


def address(text: str) -> Address:
    """Return the address that the user has written behind `ntfy:`. Raises BadNotify."""
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise BadNotify("the address behind ntfy: is none") from None
    if parts.scheme not in ("https", "http") or not host or not _PLAIN.fullmatch(text):
        raise BadNotify("an address is written as in ntfy:https://ntfy.sh/your-secret-topic")
    secure = parts.scheme == "https"
    if not secure and not _is_this_machine(host):
        raise BadNotify("the address behind ntfy: has to begin with https://")
    target = f"{parts.path or '/'}{'?' if parts.query else ''}{parts.query}"
    who = ""
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        who = f"Basic {b64encode(pair.encode()).decode()}"
    return Address(host, port or (443 if secure else 80), target, secure, who)


def _is_this_machine(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
