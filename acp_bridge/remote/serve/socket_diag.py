"""Asks Linux for the other end of a TCP connection within this machine (netlink, sock_diag(7)).

/proc/net/tcp tells the same, and is read whole: a client that connects again and again fills it
with the connections that it has closed.
"""

from __future__ import annotations

import socket
import struct
from ipaddress import IPv4Address, IPv6Address
from typing import Final, TypeAlias

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
