"""Refuses TCP connections of agents on this machine, and of what they have started (V6).

A token that an agent has got hold of is to be of no use to it here. Linux tells the user of a
connection's other end and the inode of its socket, and the sockets of each process. A process that
isn't found so may be an agent: it is private, as an agent can make itself, or is in another
namespace. The processes of acp-bridge are private, too; they vouch for their connection on the
server's private socket (`control.VOUCH`), where the system always tells who is there.

`check` belongs in a thread: it reads all of /proc.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from sys import byteorder
from typing import Final, TypeAlias

from acp_bridge.agents.guard import LINUX
from acp_bridge.agents.origin import Unseen, is_from_agent
from acp_bridge.listening.peers import AN_AGENT, ANOTHER_USER, UNSEEN, Refused

Address: TypeAlias = tuple[str, int]
"""An IP address and a port."""

_HINT: Final = "; acp-bridge serve --allow-local lets in whoever has a token"
_TABLES: Final = ("/proc/net/tcp", "/proc/net/tcp6")


def check(peer: Address, own: Address, *, proxied: bool) -> None:
    """Raise Refused if a connection from this machine is an agent's, or may be one's.

    `peer` and `own` are the connection's two ends. `proxied`: processes of other users may connect,
    as a proxy does.
    """
    if not _is_here(peer, own):
        return
    if not LINUX:
        raise Refused(UNSEEN + _HINT)
    try:
        found = _other_end(peer, own)
        if found is None or not found[1]:  # no process has that end any more
            raise Refused(UNSEEN + _HINT)
        uid, inode = found
        if uid != os.getuid():
            if proxied:
                return
            raise Refused(ANOTHER_USER + _HINT)
        _check_holders(inode, uid)
    except (OSError, Unseen) as exc:
        raise Refused(UNSEEN + _HINT) from exc


def _is_here(peer: Address, own: Address) -> bool:
    """Return True if a connection comes from this machine, as far as the system tells."""
    if plain(peer[0]).is_loopback or plain(peer[0]) == plain(own[0]):
        return True
    try:  # another address of this machine's
        return LINUX and _other_end(peer, own) is not None
    except OSError:
        return False


def plain(address: str) -> IPv4Address | IPv6Address:
    """Return the IP address that a text names; an IPv4 address in the form of IPv6 as IPv4."""
    found = ip_address(address.partition("%")[0])
    return getattr(found, "ipv4_mapped", None) or found


def _other_end(peer: Address, own: Address) -> tuple[int, int] | None:
    """Return the user id and the inode of the socket at the other end of a local connection.

    None if it is not on this machine. Raises OSError.
    """
    ends = (plain(peer[0]), peer[1]), (plain(own[0]), own[1])
    for table in _TABLES:
        with suppress(FileNotFoundError), open(table, encoding="ascii") as lines:
            next(lines, None)
            for line in lines:
                words = line.split()
                if (_end(words[1]), _end(words[2])) == ends:
                    return int(words[7]), int(words[9])
    return None


def _end(text: str) -> tuple[IPv4Address | IPv6Address, int]:
    """Return the address and port that a text of /proc/net/tcp means.

    There an address is written in words of four bytes, in the machine's byte order.
    """
    address, _, port = text.partition(":")
    raw = b"".join(
        int(address[at : at + 8], 16).to_bytes(4, byteorder) for at in range(0, len(address), 8)
    )
    return plain(str(ip_address(raw))), int(port, 16)


def _check_holders(inode: int, uid: int) -> None:
    """Raise Refused if a process of an agent has the socket, or no visible process has it.

    Raises Unseen if it can't be seen where a process comes from.
    """
    link, seen = f"socket:[{inode}]", False
    for pid in _processes(uid):
        if not _has(pid, link):
            continue
        if is_from_agent(pid):
            raise Refused(AN_AGENT)
        seen = seen or _has(pid, link)  # the pid was that of the same process meanwhile
    if not seen:
        raise Refused(UNSEEN + _HINT)


def _processes(uid: int) -> Iterator[int]:
    """Yield the pids of a user's processes."""
    for name in os.listdir("/proc"):
        with suppress(OSError, ValueError, IndexError):
            status = Path(f"/proc/{int(name)}/status").read_bytes()
            ids = status.partition(b"\nUid:")[2].split(b"\n", 1)[0].split()
            if uid in map(int, ids):
                yield int(name)


def _has(pid: int, link: str) -> bool:
    """Return True if a process has the socket `link` open; False if that can't be seen."""
    folder = f"/proc/{pid}/fd"
    with suppress(OSError):
        for name in os.listdir(folder):
            with suppress(OSError):  # it was closed meanwhile
                if os.readlink(f"{folder}/{name}") == link:
                    return True
    return False
