"""Decides from the header of a request alone if a remote client may connect. Sans-IO.

The order of the checks matters: the answer to a request for another host tells nothing about paths,
that to a page of another origin nothing about tokens. A request that such a page can make a browser
send is not counted as a failed login, or the page could lock out the user.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from ipaddress import IPv6Address, ip_address
from typing import Final, Protocol
from urllib.parse import urlsplit

from acp_bridge.remote.serve.tokens import Token

#: the path of the WebSocket for ACP clients.
PATH: Final = "/acp"
HEALTH: Final = "/health"
#: the path of the WebSocket for the page in a browser.
PAGE: Final = "/page"
#: wrong tokens after which an address is refused, and the seconds for which each counts.
FAILURES: Final = 10
WITHIN: Final = 60.0
#: the part of all time for looks at those who send wrong tokens, and seconds of it that are saved.
_LOOKING: Final = 0.1
_MOST_SAVED: Final = 1.0
#: addresses and processes whose wrong tokens are remembered.
_ADDRESSES: Final = 1000
_BEARER: Final = "bearer "
_PORTS: Final = {"http": 80, "https": 443}


class Headers(Protocol):
    """The header of a request."""

    def get_all(self, key: str) -> Sequence[str]: ...


@dataclass(frozen=True, slots=True)
class Refusal:
    """An HTTP answer that opens no WebSocket; the text says what to do, or is the file's."""

    status: HTTPStatus
    text: str
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Stranger:
    """A page of this server, which has yet to log in by the first message of its WebSocket.

    A browser lets no script add a header with a token to the request.
    """


@dataclass(frozen=True, slots=True)
class Names:
    """The names of this server.

    `hosts`: the values that `Host` may have, HOST or HOST:PORT in small letters; `*` stands for one
    label, as in `*.example.org`. `origins`: the origins of its own page; None: the one with
    `scheme` and the request's own host.
    """

    hosts: frozenset[str]
    scheme: str
    origins: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class Wrong:
    """A request with a wrong token, or none, of which it is not known yet whom it counts against.

    `counts`: False if it has no token at all, which is not counted.
    """

    text: str
    counts: bool = True


class Looks:
    """Bounds the time in which processes are looked at that have sent a wrong token.

    It is a tenth of all time, and a second of it can be saved up. `now` is in seconds, by any
    clock.
    """

    def __init__(self) -> None:
        self._saved = _MOST_SAVED
        self._at: float | None = None

    def may(self, now: float) -> bool:
        """Return True if a process may be looked at now."""
        past = now - self._at if self._at is not None else 0.0
        self._saved, self._at = min(_MOST_SAVED, self._saved + past * _LOOKING), now
        return self._saved > 0

    def took(self, seconds: float) -> None:
        """Note how long a look has taken."""
        self._saved -= seconds


class Failures:
    """Counts wrong tokens by whom they came from: an address, or a process of this machine.

    `now` is in seconds, by any clock.
    """

    def __init__(self) -> None:
        self._times: OrderedDict[str, list[float]] = OrderedDict()

    def too_many(self, address: str, now: float) -> bool:
        """Return True if `FAILURES` wrong tokens came from an address within `WITHIN` seconds."""
        return len(self._counting(address, now)) >= FAILURES

    def note(self, address: str, now: float) -> None:
        """Count a wrong token from an address."""
        key = of_one(address)
        self._times[key] = [*self._counting(address, now), now]
        self._times.move_to_end(key)
        while len(self._times) > _ADDRESSES:
            self._times.popitem(last=False)

    def __len__(self) -> int:
        return len(self._times)

    def _counting(self, address: str, now: float) -> list[float]:
        return [at for at in self._times.get(of_one(address), ()) if now - at < WITHIN]


class Door:
    """Judges requests: a client needs a token, and no page of another origin may send one."""

    def __init__(
        self,
        names: Names,
        find: Callable[[str], Token | None],
        file: Callable[[str], Refusal | None] = lambda _: None,
    ) -> None:
        """`find` returns the token that a secret belongs to, in a time that does not depend on it.

        `file` returns the answer with the page's file at a path.
        """
        self._file = file
        self._names = names
        self._find = find
        self._failures, self._failures_here = Failures(), Failures()
        self.looks = Looks()

    def answer(
        self, path: str, headers: Headers, address: str | None, now: float
    ) -> Token | Stranger | Wrong | Refusal:
        """Return the token of a request that may connect, a Stranger for a page, else its answer.

        `address`: the client's IP address; None for a client of this machine, whose process is
        looked at later: a wrong token is then `Wrong`. `now` in seconds, by any clock.
        """
        host = _only(headers.get_all("Host"))
        if host is None or not _is_named(host, self._names.hosts):
            return _refusal(
                HTTPStatus.MISDIRECTED_REQUEST,
                "this server is not reached under that name: use the address that it has said",
            )
        if path == HEALTH:
            return _refusal(HTTPStatus.OK, "ok")
        if (file := self._file(path)) is not None:
            return file
        if path not in (PATH, PAGE):
            return _refusal(HTTPStatus.NOT_FOUND, f"there is nothing here: the path is {PATH}")
        if (path == PAGE or headers.get_all("Origin")) and not self._is_own(headers, host):
            return _refusal(HTTPStatus.FORBIDDEN, "pages of another origin may not connect")
        if address is not None and (refusal := self.too_many(address, now)):
            return refusal
        if path == PAGE:
            return Stranger()
        found = self._login(headers)
        if isinstance(found, Wrong) and address is not None:
            return self.wrong(found, address, now)
        return found

    def too_many(self, key: str, now: float) -> Refusal | None:
        """Return the refusal of anything from `key`, if too many wrong tokens came from there.

        `key`: an IP address, or the key of a process of this machine.
        """
        return _TOO_MANY if self._failures_of(key).too_many(key, now) else None

    def wrong(self, found: Wrong, key: str | None, now: float) -> Refusal:
        """Count a wrong token against `key`, and return its answer.

        `key` is None if it can't be known whom the token came from. Then it counts for nobody.
        """
        if not found.counts:
            return _unauthorized(found.text)
        if key is None:
            return _TOO_MANY
        if refusal := self.too_many(key, now):
            return refusal
        self.failed(key, now)
        return _unauthorized(found.text)

    def failed(self, key: str, now: float) -> None:
        """Count a failed login of a page like a wrong token that came from `key`."""
        self._failures_of(key).note(key, now)

    @property
    def has_failures_here(self) -> bool:
        """True if wrong tokens from this machine were counted."""
        return bool(self._failures_here)

    def _failures_of(self, key: str) -> Failures:
        # Of their own: agents of this machine could else have those of an address forgotten.
        return self._failures_here if " " in key else self._failures

    def _is_own(self, headers: Headers, host: str) -> bool:
        origin = (_only(headers.get_all("Origin")) or "").lower()
        if self._names.origins is not None:
            return origin in self._names.origins
        return _without_port(origin) == _without_port(f"{self._names.scheme}://{host.lower()}")

    def _login(self, headers: Headers) -> Token | Wrong:
        given = _only(headers.get_all("Authorization")) or ""
        if not given.lower().startswith(_BEARER):
            text = "a token is needed, in the header Authorization: Bearer TOKEN"
            return Wrong(text, counts=False)
        if (token := self._find(given[len(_BEARER) :].strip())) is not None:
            return token
        return Wrong(
            "there is no such token: it was revoked, or is another server's;"
            " acp-bridge serve token NAME makes one, on the machine of the server"
        )


def _unauthorized(text: str) -> Refusal:
    return _refusal(HTTPStatus.UNAUTHORIZED, text, {"WWW-Authenticate": "Bearer"})


def _refusal(status: HTTPStatus, text: str, headers: Mapping[str, str] | None = None) -> Refusal:
    return Refusal(status, text, headers or {})


#: the answer to a client that may connect, and asks by HTTP for something else than a WebSocket.
NO_WEBSOCKET: Final = Refusal(
    HTTPStatus.UPGRADE_REQUIRED,
    f"only ACP's WebSocket transport is spoken here: send GET {PATH} with Upgrade: websocket;"
    " a proxy must pass on Upgrade and Connection",
    {"Upgrade": "websocket", "Connection": "Upgrade, close"},
)
_TOO_MANY: Final = Refusal(
    HTTPStatus.TOO_MANY_REQUESTS,
    f"too many wrong tokens: try again in {WITHIN:g} s",
    {"Retry-After": f"{WITHIN:g}"},
)


def _only(values: Sequence[str]) -> str | None:
    """Return the value of a header that a request has exactly once; else None."""
    return values[0].strip() if len(values) == 1 else None


def _is_named(host: str, names: Iterable[str]) -> bool:
    host = host.lower()
    _, _, behind = host.partition(".")
    return host in names or (bool(behind) and f"*.{behind}" in names)


def _without_port(origin: str) -> str:
    """Return an origin without its port, if that is the default one of its scheme."""
    try:
        parts = urlsplit(origin)
        usual = parts.port == _PORTS.get(parts.scheme)
    except ValueError:
        return origin
    return origin.rpartition(":")[0] if usual else origin


def of_one(address: str) -> str:
    """Return a key for all addresses that one machine may have: of IPv6, the /64 network."""
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, IPv6Address) and found.ipv4_mapped is None:
        return found.exploded[:19]
    return str(getattr(found, "ipv4_mapped", None) or found)
