"""Reads and writes file descriptors on the event loop. Linux is tested; macOS is written for.

Invariants:
- No call here blocks the event loop, whatever the other end does. An open file description that
  another process may share is changed back when it is closed.
- `Reader` and `Writer` own their descriptor from construction on; `close` gives it back.
- `Writer.write` never waits and never raises; what the other end doesn't take is kept, in order,
  and counted in `pending`. A producer of output waits with `drain_below`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable
from typing import Final

import anyio
import anyio.lowlevel

#: These say that the other end is gone; EIO comes from a terminal that hung up.
_GONE: Final = frozenset({errno.EPIPE, errno.ECONNRESET, errno.EIO, errno.ESHUTDOWN})
#: Bytes given to one os.write. A pipe takes fewer at once, so that one call fills it.
_WRITE_SIZE: Final = 1 << 18


class _Descriptor:
    """An owned descriptor that does not block, unless it is a regular file."""

    def __init__(self, fd: int, flags: int) -> None:
        self.fd = fd
        self._restore = False
        mode = os.fstat(fd).st_mode
        self.regular = stat.S_ISREG(mode)
        if self.regular or not os.get_blocking(fd):
            return
        # O_NONBLOCK belongs to the open file description, which we may share with our parent's
        # shell or with stderr: open a description of our own where the system can.
        if stat.S_ISFIFO(mode) or stat.S_ISCHR(mode):
            try:
                own = os.open(f"/proc/self/fd/{fd}", flags | os.O_NONBLOCK | os.O_NOCTTY)
            except OSError:
                pass  # no /proc, another user's pipe, or nobody at the other end
            else:
                os.close(fd)
                self.fd = own
                return
        os.set_blocking(fd, False)
        self._restore = True

    def close(self) -> None:
        if self.fd < 0:
            return
        fd, self.fd = self.fd, -1
        with contextlib.suppress(anyio.NoEventLoopError):
            anyio.notify_closing(fd)
        if self._restore:
            os.set_blocking(fd, True)
        os.close(fd)


class Reader:
    """Reads the bytes that a descriptor has ready, at most `chunk` at a time."""

    def __init__(self, fd: int, chunk: int = 1 << 18) -> None:
        self._descriptor = _Descriptor(fd, os.O_RDONLY)
        self._chunk = chunk
        self._in_thread = self._descriptor.regular

    async def read(self) -> bytes:
        """Return the next bytes, b"" at the end and after `close`. Cancelling loses nothing.

        Only one task may read.
        """
        await anyio.lowlevel.checkpoint()
        while True:
            fd = self._descriptor.fd
            if fd < 0:
                return b""
            try:
                if self._in_thread:
                    return await anyio.to_thread.run_sync(
                        os.read, fd, self._chunk, abandon_on_cancel=True
                    )
                return os.read(fd, self._chunk)
            except BlockingIOError:
                pass
            except OSError as exc:
                if exc.errno in _GONE:
                    return b""
                raise
            try:
                await anyio.wait_readable(fd)
            except PermissionError:  # the system's poller refuses it: a file, an odd device
                os.set_blocking(fd, True)
                self._in_thread = True
            except anyio.ClosedResourceError:
                pass

    def close(self) -> None:
        """Close the descriptor; a read that waits returns b""."""
        self._descriptor.close()


class Writer:
    """Writes in order without ever making the caller wait. `run` must be running.

    The first write of a loop iteration goes straight to the system when nothing is waiting; later
    ones are joined and written by `run` one iteration later, or when there is room. So a lone
    message costs no round trip, and a burst costs one system call for many.

    `on_broken` is called by `run` when the other end is gone, but not after `close`.
    """

    def __init__(self, fd: int, *, on_broken: Callable[[], None] | None = None) -> None:
        self._descriptor = _Descriptor(fd, os.O_WRONLY)
        self._on_broken = on_broken
        self._buffer = bytearray()
        self._direct = True
        self._wake = anyio.Event()
        self._progress: anyio.Event | None = None
        self._flushing = False
        #: The other end is gone, or `close` was called: output is dropped from now on.
        self.broken = False
        #: Why writing failed where the other end may still be there: a full disk, say.
        self.failure: OSError | None = None
        #: The number of bytes that the system has taken since the start.
        self.taken = 0

    @property
    def pending(self) -> int:
        """The number of bytes that the system has not taken yet."""
        return len(self._buffer)

    def write(self, data: bytes) -> None:
        """Send `data` now or as soon as there is room; drop it if the other end is gone."""
        if self.broken:
            return
        if self._direct:
            self._direct = False
            self._wake.set()
            taken = self._write(data)
            if taken == len(data) or self.broken:
                return
            data = data[taken:]
        self._buffer += data

    async def run(self) -> None:
        """Write what is pending, until cancelled or until the other end is gone."""
        while not self.broken:
            if self._buffer:
                await self.drain_below(1)
            if not self.broken:
                self._direct = True
                self._wake = anyio.Event()
                await self._wake.wait()
        if self._on_broken is not None and self._descriptor.fd >= 0:
            self._on_broken()

    async def drain_below(self, limit: int) -> None:
        """Wait until fewer than `limit` bytes are pending, or the other end is gone.

        One of the tasks that wait does the writing, so this also works after `run` was cancelled.
        """
        while len(self._buffer) >= limit and not self.broken:
            if self._flushing:
                if self._progress is None:
                    self._progress = anyio.Event()
                await self._progress.wait()
                continue
            self._flushing = True
            try:
                await self._flush_some()
            finally:
                self._flushing = False
                self._report_progress()

    async def flush(self, seconds: float) -> bool:
        """Wait at most `seconds` seconds until all is written; returns whether it is."""
        with anyio.move_on_after(seconds):
            await self.drain_below(1)
        return not self._buffer and not self.broken

    def close(self) -> None:
        """Close the descriptor; what is pending is dropped, `run` and every waiter return."""
        self._break()
        self._descriptor.close()

    async def _flush_some(self) -> None:
        """Write a part of what is pending; if the system takes nothing, wait until it has room."""
        with memoryview(self._buffer)[:_WRITE_SIZE] as piece:
            taken = self._write(piece)
        if self.broken:
            return
        del self._buffer[:taken]
        if taken:
            await anyio.lowlevel.checkpoint()
        else:
            try:
                await anyio.wait_writable(self._descriptor.fd)
            except anyio.ClosedResourceError:
                self._break()

    def _write(self, data: bytes | memoryview) -> int:
        """Write what the system has room for; returns how many bytes it took, 0 on failure."""
        try:
            taken = os.write(self._descriptor.fd, data)
            self.taken += taken
            return taken
        except BlockingIOError:
            return 0
        except OSError as exc:
            # Gone, or a full disk behind a redirected stdout: either way nobody reads on.
            self.failure = None if exc.errno in _GONE else exc
            self._break()
            return 0

    def _break(self) -> None:
        self.broken = True
        # A new one: the old one may be exported to the write that failed.
        self._buffer = bytearray()
        self._wake.set()
        self._report_progress()

    def _report_progress(self) -> None:
        if self._progress is not None:
            self._progress.set()
            self._progress = None
