"""The address at which a server listens, and the host names under which it may be reached."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from acp_bridge.remote.serve.door import Names

_UNIX: Final = "unix:"
#: names both 127.0.0.1 and ::1, at either of which an agent may listen: one origin for browsers.
_LOCALHOST: Final = "localhost"
_PORTS: Final = {"http": 80, "https": 443}
_FORM: Final = "an address such as 127.0.0.1:8765, or unix:/path/of/a/socket"


class Bad(ValueError):
    """An address, an origin or a certificate that can't be used; the text says why."""


@dataclass(frozen=True, slots=True)
class Address:
    """A host and a port, or, if it is not None, the path of a Unix socket."""

    host: str
    port: int
    path: Path | None = None

    def __str__(self) -> str:
        if self.path is not None:
            return f"{_UNIX}{self.path}"
        return f"{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"


def read(text: str) -> Address:
    """Return the address that a text names: HOST:PORT or unix:PATH; raises Bad."""
    if text.startswith(_UNIX) and len(text) > len(_UNIX):
        return Address("", 0, Path(text[len(_UNIX) :]).expanduser().absolute())
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise Bad(f"{text}: an IPv6 address stands in brackets, as in [::1]:8765")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise Bad(f"{text}: {_FORM}")
    return Address("127.0.0.1" if host.lower() in ("", _LOCALHOST) else host, int(port))


def is_loopback(address: Address) -> bool:
    """Return True if only this machine reaches an address; raises Bad for an unknown host."""
    if address.path is not None:
        return True
    try:
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    except OSError as exc:
        raise Bad(f"{address.host}: {exc.strerror}") from exc
    return all(ip_address(str(each[4][0]).partition("%")[0]).is_loopback for each in found)


def origin(text: str) -> str:
    """Return the origin that a text names, as browsers write it: `https://HOST`; raises Bad."""
    try:
        parts = urlsplit(text.lower())
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    if parts.scheme not in _PORTS or not parts.hostname or parts.username is not None:
        raise Bad(f"{text}: an origin such as https://bridge.example.org")
    if parts.path not in ("", "/") or parts.query or parts.fragment:
        raise Bad(f"{text}: an origin has no path: https://{parts.hostname}")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    usual = port in (None, _PORTS[parts.scheme])
    return f"{parts.scheme}://{host}{'' if usual else f':{port}'}"


def names(address: Address, certified: Iterable[str], named: str | None) -> Names:
    """Return the names of a server that listens at an address.

    `certified`: the names in its certificate; `named`: the origin of the proxy before it.
    """
    hosts = {host.lower() for host in (*certified, *_hosts(address))}
    found = {f"{host}:{address.port}" for host in hosts}
    if address.path is not None or address.port in _PORTS.values():
        found |= hosts
    if named is not None:
        host = named.partition("://")[2]
        usual = _PORTS[named.partition("://")[0]]
        found |= {host} if ":" in host.rpartition("]")[2] else {host, f"{host}:{usual}"}
    scheme = "https" if certified else "http"
    return Names(frozenset(found), scheme, frozenset({named}) if named is not None else None)


def main_name(certified: Iterable[str]) -> str | None:
    """Return the name in a certificate that clients should use; None if there is none.

    Names that other machines can reach are preferred to those of this machine alone, then host
    names to IP addresses.
    """
    usable = [name for name in certified if not name.startswith("*")]
    return min(usable, key=lambda each: (_is_own(each), _is_ip(each), each), default=None)


def from_elsewhere(address: Address, certified: Iterable[str], named: str | None) -> str | None:
    """Return the https origin under which other machines reach a server; None if they can't.

    The parameters are those of `names`.
    """
    if named is not None:
        return named if named.startswith("https:") else None
    name = main_name(certified)
    if name is None or _is_own(name) or is_loopback(address):
        return None
    return origin(f"https://{name}:{address.port}")


def _is_ip(name: str) -> bool:
    try:
        return bool(ip_address(name.strip("[]")))
    except ValueError:
        return False


def _is_own(name: str) -> bool:
    """Return True for a name that means the local machine: localhost or a loopback address."""
    return name == _LOCALHOST or (_is_ip(name) and ip_address(name.strip("[]")).is_loopback)


def _hosts(address: Address) -> set[str]:
    if address.path is not None:
        return {_LOCALHOST}
    return {f"[{address.host}]" if ":" in address.host else address.host}


def tls(certificate: str, key: str) -> ssl.SSLContext:
    """Return a server's TLS context with the certificate and key in two files; raises Bad."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    for file in (certificate, key):
        if not Path(file).is_file():
            raise Bad(f"there is no file {file}")
    try:
        context.load_cert_chain(certificate, key, password=_no_password)
    except (OSError, ssl.SSLError) as exc:
        raise Bad(f"{certificate} and {key} are no certificate and its key: {exc}") from exc
    return context


def renew(context: ssl.SSLContext, certificate: str, key: str) -> None:
    """Load a renewed certificate into `context` for new connections.

    Raises Bad if it can't be used; then the old one stays.
    """
    tls(certificate, key)  # in a context of its own: half a change would serve nobody
    context.load_cert_chain(certificate, key)


def _no_password() -> str:
    raise Bad("the key has a password: a server can't ask for it")


def certified(context: ssl.SSLContext, certificate: str) -> frozenset[str]:
    """Return the host names in a server's certificate; raises Bad.

    Python tells them only of a connection's peer, so a connection in memory is made here.
    """
    client = ssl.create_default_context(cafile=certificate)
    client.check_hostname = False
    client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        client.wrap_bio(to_client, to_server),
        context.wrap_bio(to_server, to_client, server_side=True),
    )
    try:
        for _ in range(4):
            for end in ends:
                try:
                    end.do_handshake()
                except ssl.SSLWantReadError:
                    continue
        found: Any = ends[0].getpeercert()
    except (ssl.SSLError, ValueError) as exc:
        raise Bad(f"{certificate} can't be used: {exc}") from exc
    names = {
        f"[{value}]" if kind == "IP Address" and ":" in value else value.lower()
        for kind, value in (found or {}).get("subjectAltName", ())
        if kind in ("DNS", "IP Address")
    }
    if not names:
        raise Bad(f"{certificate} names no host (subjectAltName)")
    return frozenset(names)
