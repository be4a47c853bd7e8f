"""The address of a database: a URL, read without psycopg and before anything is started.

Invariants
- No secret is in it: a command line is seen by every user of the machine. One with a secret is
  refused, and no message repeats a part of what was given.
- It says by itself which database it means. Host, port and name are not taken from PGHOST, PGPORT
  and PGDATABASE, so that an editor and a shell with other variables don't mean two by one URL.
"""

from __future__ import annotations

import re
from hashlib import sha256
from typing import Final
from urllib.parse import unquote_to_bytes

from acp_bridge.core.settings import DatabaseUrl

__all__ = ["EXAMPLE", "DatabaseUrl", "parse"]

EXAMPLE: Final = "postgresql://db.example.org/sessions"

_SCHEMES: Final = ("postgresql", "postgres")
_PORT: Final = "5432"
_MOST_PORT: Final = 65535
#: the options that may stand behind the question mark, as libpq names them: where the database is,
#: who logs in, and how safe the way there is. Timeouts are the journal's own matter.
_OPTIONS: Final = frozenset(
    {
        *("dbname", "host", "hostaddr", "port", "user"),
        *("load_balance_hosts", "target_session_attrs"),
        *("channel_binding", "require_auth", "requirepeer"),
        *("gssdelegation", "gssencmode", "gsslib", "krbsrvname"),
        *("ssl_max_protocol_version", "ssl_min_protocol_version", "sslmode", "sslnegotiation"),
        *("sslcert", "sslcertmode", "sslcrl", "sslcrldir", "sslkey", "sslrootcert", "sslsni"),
    }
)
#: options that hold a secret, or name a file or service that does.
_SECRETS: Final = frozenset(
    {
        *("passfile", "password", "service", "servicefile", "sslpassword"),
        *("oauth_client_secret", "scram_client_key", "scram_server_key"),
    }
)
_NO_SECRET: Final = (
    "a password, a key's passphrase or a service is not taken from it, since others can see it: the"
    " password comes from .pgpass or PGPASSWORD"
)
_BAD_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")
_HOST_AND_PORT: Final = re.compile(r"(\[[^\[\]]*\]|[^:\[\]]*)(?::(.*))?", re.DOTALL)


def parse(text: str) -> DatabaseUrl:
    """Read the URL of a database. Raises ValueError with a sentence that repeats nothing of it."""
    scheme, found, rest = text.partition("://")
    if not found or scheme.lower() not in _SCHEMES:
        raise ValueError(f"a database's URL begins with postgresql://, such as {EXAMPLE}")
    place, _, query = rest.partition("?")
    given = _place(place)
    for option in query.split("&") if query else ():
        name, equals, value = map(_unescaped, option.partition("="))
        if name in _SECRETS:
            raise ValueError(_NO_SECRET)
        if name not in _OPTIONS or not equals:
            raise ValueError(f"behind ? there may be {', '.join(sorted(_OPTIONS))}")
        if name in given:
            raise ValueError(f"it says twice what {name} is")
        given[name] = value
    servers = _servers(given.get("host", ""), given.get("port", ""))
    if not given.get("dbname"):
        raise ValueError(f"it names no database, as {EXAMPLE} does")
    given["port"] = ",".join(port for _, port in servers)
    words = (f"{name}={_quoted(value)}" for name, value in given.items())
    return DatabaseUrl(" ".join(words), _folder(servers, given["dbname"]))


def _place(place: str) -> dict[str, str]:
    """Return the parts before the question mark by libpq's names for them; empty ones are left out.

    Raises ValueError.
    """
    authority, _, database = place.partition("/")
    login, _, servers = authority.rpartition("@")
    user, has_password, _ = login.partition(":")
    if has_password:
        raise ValueError(_NO_SECRET)
    hosts, ports = [], []
    for server in servers.split(","):
        found = _HOST_AND_PORT.fullmatch(server)
        if found is None:
            raise ValueError("a host is a name or an address, an IPv6 address in brackets")
        hosts.append(_unescaped(found[1].strip("[]")))
        ports.append(_unescaped(found[2] or ""))
    given = {
        "host": ",".join(hosts),
        "port": ",".join(ports) if any(ports) else "",
        "dbname": _unescaped(database),
        "user": _unescaped(user),
    }
    return {name: value for name, value in given.items() if value}


def _servers(hosts: str, ports: str) -> list[tuple[str, str]]:
    """Return each host with its port. Raises ValueError if one is missing, or is none."""
    names, numbers = hosts.split(","), ports.split(",")
    if not all(names):
        raise ValueError(
            f"it names no host, as {EXAMPLE} does; for a socket of this machine it ends with"
            " ?host=/var/run/postgresql"
        )
    if len(numbers) == 1:
        numbers *= len(names)
    numbers = [number or _PORT for number in numbers]
    if len(numbers) != len(names) or not all(map(_is_port, numbers)):
        raise ValueError(f"a port is a number from 1 to {_MOST_PORT}, one for all hosts or each")
    return list(zip(names, numbers, strict=True))


def _is_port(text: str) -> bool:
    return text.isascii() and text.isdecimal() and 0 < int(text[:6]) <= _MOST_PORT


def _folder(servers: list[tuple[str, str]], database: str) -> str:
    """Return a short name of a database for the folder of its copies.

    It is the same in any order of the servers and any case of their names.
    """
    named = sorted(f"{host if host[0] in '/@' else host.lower()}:{port}" for host, port in servers)
    return sha256("\n".join([database, *named]).encode()).hexdigest()[:16]


def _unescaped(text: str) -> str:
    """Return the text with its percent escapes decoded.

    Raises ValueError for a bad escape, or if the result is no UTF-8 or has control characters.
    """
    try:
        if _BAD_ESCAPE.search(text):
            raise ValueError
        plain = unquote_to_bytes(text).decode()
    except ValueError:  # UnicodeError, too, whose message would repeat it
        raise ValueError("a % in it is written %25, and what follows it is UTF-8") from None
    if any(ord(char) < 32 or ord(char) == 127 for char in plain):
        raise ValueError("it has control characters")
    return plain


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
