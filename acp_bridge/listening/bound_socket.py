"""The socket of this bridge, with the run file that tells of it."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from pathlib import Path
from typing import Final

from acp_bridge import __version__
from acp_bridge.listening.places import private_folder
from acp_bridge.listening.run_files import RunFile, this_bridge
from acp_bridge.protocol import SOCKET_PROTOCOL

#: connections that wait to be accepted.
_BACKLOG: Final = 128


class BoundSocket:
    """A socket that listens, until `close`. Everything here belongs in a thread."""

    def __init__(self, home: Path, path: Path, agent: str) -> None:
        """Bind it and have it listed; raises OSError, and then nothing is left of it."""
        self.path = path
        self.run_file = RunFile(home)
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            private_folder(path.parent)
            told = this_bridge(path, protocol=SOCKET_PROTOCOL, agent=agent, version=__version__)
            self.run_file.write(told)
            self.listener.bind(str(self.path))
            os.chmod(self.path, 0o600)  # before it listens, so that nobody has connected yet
            self.listener.listen(_BACKLOG)
            self.listener.setblocking(False)
            self.run_file.publish()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Remove the socket and its run file, and let nobody connect any more. Never raises."""
        with suppress(OSError):
            os.unlink(self.path)
        self.run_file.remove()
        self.listener.close()
