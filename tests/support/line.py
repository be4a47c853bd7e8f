"""A line to a server that is far away: it delays each direction, and counts round trips."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import SimpleQueue


class Line:
    """Takes connections on a port of the loopback, and passes them on to a port or a socket there.

    A round trip is counted when a client is sent something after it has sent something itself. What
    it sends without an answer in between is one trip, however much it is.
    """

    def __init__(self, server: Path | int, delay: float = 0.0) -> None:
        """`server`: its Unix socket, or its port. `delay`: the seconds of each direction."""
        self._server, self.delay = server, delay
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self.trips = 0
        self.connections = 0
        threading.Thread(target=self._listen, daemon=True).start()

    @property
    def port(self) -> int:
        """The port on the loopback."""
        return int(self._listener.getsockname()[1])

    def url(self, url: str, user: str = "guest") -> str:
        """Return the URL of the same database over this line."""
        name = url.partition("?")[0].rpartition("/")[2]
        return f"postgresql://{user}@127.0.0.1:{self.port}/{name}"

    def close(self) -> None:
        """Take no more connections, and cut those that are open."""
        for each in (self._listener, *self._open):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _listen(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                try:
                    server = self._connected()
                except OSError:
                    client.close()
                    continue
                self.connections += 1
                self._open += [client, server]
                self._pass(client, server)

    def _connected(self) -> socket.socket:
        if isinstance(self._server, int):
            return socket.create_connection(("127.0.0.1", self._server))
        server = socket.socket(socket.AF_UNIX)
        server.connect(str(self._server))
        return server

    def _pass(self, client: socket.socket, server: socket.socket) -> None:
        asked = [False]

        def sent() -> None:
            asked[0] = True

        def got() -> None:
            if asked[0]:
                asked[0] = False
                self.trips += 1

        nothing = lambda: None  # noqa: E731
        for source, target, read, written in (
            (client, server, sent, nothing),
            (server, client, nothing, got),
        ):
            queue: SimpleQueue[tuple[float, bytes]] = SimpleQueue()
            for work in (
                lambda a=source, q=queue, r=read: self._read(a, q, r),
                lambda b=target, q=queue, w=written: self._write(b, q, w),
            ):
                threading.Thread(target=work, daemon=True).start()

    def _read(self, source: socket.socket, queue, read) -> None:  # type: ignore[no-untyped-def]
        data = b"-"
        while data:
            try:
                data = source.recv(65536)
            except OSError:
                data = b""
            if data:
                read()
            queue.put((time.monotonic() + self.delay, data))

    def _write(self, target: socket.socket, queue, written) -> None:  # type: ignore[no-untyped-def]
        with suppress(OSError):
            while True:
                at, data = queue.get()
                if (wait := at - time.monotonic()) > 0:
                    time.sleep(wait)
                if not data:
                    target.shutdown(socket.SHUT_WR)
                    return
                target.sendall(data)
                written()


@contextmanager
def line(server: Path | int, delay: float = 0.0) -> Iterator[Line]:
    """Give a line for the block, to a Unix socket or a port."""
    made = Line(server, delay)
    try:
        yield made
    finally:
        made.close()
