"""Refuses TCP connections of agents on this machine, and of what they have started (V6).

A token that an agent has got hold of is to be of no use to it here. Linux tells the user of a
connection's other end and the inode of its socket, and the sockets of each process. A process that
isn't found so may be an agent: it is private, as an agent can make itself, or is in another
namespace. The processes of acp-bridge are private, too; they vouch for their connection on the
server's private socket (`control.VOUCH`), where the system always tells who is there.

`check` and `sender` belong in a thread: they read /proc. /proc/net/tcp is not read: a client that
connects again and again fills it with the connections that it has closed.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from sys import byteorder
from typing import Final, TypeAlias

from acp_bridge.core.agents.guard import LINUX
from acp_bridge.core.agents.origin import Unseen, is_from_agent
from acp_bridge.sharing.listening.peers import AN_AGENT, ANOTHER_USER, UNSEEN, Refused

Address: TypeAlias = tuple[str, int]
"""An IP address and a port."""

#: stands for the user of a connection that no process has any more.
NOBODY: Final = -1
_HINT: Final = "; acp-bridge serve --allow-local lets in whoever has a token"
_TABLES: Final = ("/proc/net/tcp", "/proc/net/tcp6")

End: TypeAlias = tuple[IPv4Address | IPv6Address, int]
"""An address and a port."""

_SOCK_DIAG: Final = 4
_BY_FAMILY: Final = 20
_REQUEST: Final = 1
_ANY_STATE: Final = 0xFFFFFFFF
_ANY_COOKIE: Final = b"\xff" * 8
#: the header of a message; of a request family, protocol, two bytes and states; of an answer four
#: bytes, the socket's id, three numbers, user id and inode.
_HEADER: Final = struct.Struct("=IHHII")
_ASKS: Final = struct.Struct("=BBBBI")
_PORTS: Final = struct.Struct("!HH")
_AT_ID: Final = _HEADER.size + 4
_AT_OWNER: Final = _AT_ID + 48 + 12
_OWNER: Final = struct.Struct("=II")


@dataclass(frozen=True, slots=True)
class Process:
    """A process that has one end of a connection, or whom it belongs to if it can't be seen.

    `pid`: 0 if it can't be seen; `start`: when it was started, in the system's ticks.
    """

    uid: int
    pid: int = 0
    start: int = 0
    agent: bool = False

    @property
    def key(self) -> str:
        """A text for this process, or, if it can't be seen, for all unseen ones of its user."""
        return f"process {self.pid} {self.start}" if self.pid else f"user {self.uid}"


def check(peer: Address, own: Address, *, proxied: bool) -> Process | None:
    """Raise Refused if a connection from this machine is an agent's, or may be one's.

    `peer` and `own` are the connection's two ends. `proxied`: processes of other users may connect,
    as a proxy does. Returns the process; None for a connection from elsewhere.
    """
    if not _is_here(peer, own):
        return None
    if not LINUX:
        raise Refused(UNSEEN + _HINT)
    try:
        found = _other_end(peer, own)
        if found is None or not found[1]:  # no process has that end any more
            raise Refused(UNSEEN + _HINT)
        uid, inode = found
        if uid != os.getuid():
            if proxied:
                return Process(uid)
            raise Refused(ANOTHER_USER + _HINT)
        return _checked_holder(inode, uid)
    except (OSError, Unseen) as exc:
        raise Refused(UNSEEN + _HINT) from exc


def sender(peer: Address, own: Address, likely: Iterable[int] = ()) -> Process:
    """Return the process at the other end of a connection within this machine.

    `likely`: pids of processes that are looked at first.
    """
    uid = NOBODY
    with suppress(OSError, ValueError):
        if LINUX and (found := _other_end(peer, own)) and found[1]:
            uid, inode = found
            return _holder(inode, uid, likely) or Process(uid)
    return Process(uid)


def is_own(address: str) -> bool:
    """Return True if an IP address is one of this machine's."""
    try:
        found = plain(address)
        if found.is_loopback:
            return True
        family = socket.AF_INET if found.version == 4 else socket.AF_INET6
        with socket.socket(family, socket.SOCK_DGRAM) as trying:
            trying.bind((found.compressed, 0))
    except (OSError, ValueError):
        return False
    return True


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
    if (found := find(*ends)) is not None:
        return found
    if find(*reversed(ends)) is not None:  # the system tells, and there is none
        return None
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


def _checked_holder(inode: int, uid: int) -> Process:
    """Return a process that has the socket.

    Raises Refused if a process of an agent has it, or no visible process, and Unseen if it can't
    be seen where a process comes from.
    """
    link, seen = f"socket:[{inode}]", None
    for pid in _processes(uid):
        if not _has(pid, link):
            continue
        began = start(pid)
        if is_from_agent(pid):
            raise Refused(AN_AGENT)
        if seen is None and _has(pid, link):  # the pid was that of the same process meanwhile
            seen = Process(uid, pid, began)
    if seen is None:
        raise Refused(UNSEEN + _HINT)
    return seen


def _holder(inode: int, uid: int, likely: Iterable[int]) -> Process | None:
    """Return the first process that is found to have the socket; None if none is seen."""
    link = f"socket:[{inode}]"
    for pid in (*likely, *_processes(uid)):
        with suppress(OSError, ValueError, IndexError, Unseen):
            if _has(pid, link):
                began, agent = start(pid), is_from_agent(pid)
                if _has(pid, link):
                    return Process(uid, pid, began, agent)
    return None


def start(pid: int) -> int:
    """Return when a process was started, in the system's ticks; raises OSError."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        return int(file.read().rpartition(b")")[2].split()[19])


def _processes(uid: int) -> Iterator[int]:
    """Yield the pids of a user's processes, mostly those first that were started last."""
    found = (int(name) for name in os.listdir("/proc") if name.isdecimal())
    for pid in sorted(found, reverse=True):
        with suppress(OSError, ValueError, IndexError):
            status = Path(f"/proc/{pid}/status").read_bytes()
            ids = status.partition(b"\nUid:")[2].split(b"\n", 1)[0].split()
            if uid in map(int, ids):
                yield pid


def _has(pid: int, link: str) -> bool:
    """Return True if a process has the socket `link` open; False if that can't be seen."""
    folder = f"/proc/{pid}/fd"
    with suppress(OSError):
        for name in os.listdir(folder):
            with suppress(OSError):  # it was closed meanwhile
                if os.readlink(f"{folder}/{name}") == link:
                    return True
    return False


def find(own: End, other: End) -> tuple[int, int] | None:
    """Return user id and inode of the socket on this machine with these two ends.

    None if there is none, or the system does not tell. It does not block.
    """
    family = socket.AF_INET if own[0].version == 4 else socket.AF_INET6
    ends = own[0].packed.ljust(16, b"\0") + other[0].packed.ljust(16, b"\0")
    ports = _PORTS.pack(own[1], other[1])
    asked = _ASKS.pack(family, socket.IPPROTO_TCP, 0, 0, _ANY_STATE)
    asked += ports + ends + bytes(4) + _ANY_COOKIE
    head = _HEADER.pack(_HEADER.size + len(asked), _BY_FAMILY, _REQUEST, 1, 0)
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, _SOCK_DIAG) as kernel:
            kernel.setblocking(False)
            kernel.send(head + asked)
            told = kernel.recv(4096)
    except (OSError, AttributeError):  # no netlink
        return None
    if len(told) < _AT_OWNER + _OWNER.size or _HEADER.unpack_from(told)[1] != _BY_FAMILY:
        return None
    if told[_AT_ID : _AT_ID + 4] != ports:  # a socket that listens there
        return None
    uid, inode = _OWNER.unpack_from(told, _AT_OWNER)
    return uid, inode
