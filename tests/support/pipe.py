"""Both ends of a pipe pair as lines, with reading that can be paused.

Writing never waits: what the pipe does not take at once is kept, in order, and sent as it drains.
"""

import os

import anyio


class Pipe:
    """Owns the two file descriptors; `run` must be running for reads and for late writes."""

    def __init__(self, read_fd: int, write_fd: int) -> None:
        self._read_fd = read_fd
        self._write_fd: int | None = write_fd
        os.set_blocking(read_fd, False)
        os.set_blocking(write_fd, False)
        self._unsent = bytearray()
        self._has_unsent = anyio.Event()
        self._may_read = anyio.Event()
        self._may_read.set()

    def write(self, raw: bytes) -> None:
        """Raises BrokenPipeError if the other side is gone, or the pipe was closed."""
        if self._write_fd is None:
            raise BrokenPipeError
        self._unsent += raw
        if len(self._unsent) == len(raw):
            self._flush()
        if self._unsent:
            self._has_unsent.set()

    @property
    def unsent_bytes(self) -> int:
        return len(self._unsent)

    async def read(self) -> bytes:
        """What there is; empty at the end."""
        while True:
            await self._may_read.wait()
            await anyio.wait_readable(self._read_fd)
            if self._may_read.is_set():
                try:
                    return os.read(self._read_fd, 1 << 20)
                except BlockingIOError:
                    continue
                except ConnectionResetError:  # a socket whose other side has not read all
                    return b""

    async def send_late(self) -> None:
        """Runs beside the reader: sends what a full pipe did not take."""
        while True:
            await self._has_unsent.wait()
            self._has_unsent = anyio.Event()
            while self._unsent and self._write_fd is not None:
                try:
                    await anyio.wait_writable(self._write_fd)
                    self._flush()
                except (BrokenPipeError, anyio.ClosedResourceError):
                    self._unsent.clear()

    def pause_reading(self) -> None:
        """Do nothing if reading is paused: who waits for its end would wait for ever."""
        if self._may_read.is_set():
            self._may_read = anyio.Event()

    def resume_reading(self) -> None:
        self._may_read.set()

    def close_writing(self) -> None:
        if self._write_fd is not None:
            anyio.notify_closing(self._write_fd)
            os.close(self._write_fd)
            self._write_fd = None

    def close(self) -> None:
        self.close_writing()
        os.close(self._read_fd)

    def _flush(self) -> None:
        while self._unsent and self._write_fd is not None:
            try:
                sent = os.write(self._write_fd, self._unsent)
            except BlockingIOError:
                return
            del self._unsent[:sent]
