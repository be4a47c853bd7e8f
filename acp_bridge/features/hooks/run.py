"""Runs one hook, behind a guard that kills its whole tree.

Invariants
- When `run` returns or is cancelled, every process that the hook has started is dead, also one with
  a session of its own (invariants C10, P1).
- Memory is bounded, whatever the hook prints; it never waits for somebody to read that.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

import anyio

from acp_bridge.core.agents.birth import ByCommand, standard_streams
from acp_bridge.core.agents.deadline import Deadline
from acp_bridge.core.agents.process import NO_ROOM, StartFailed, Tree
from acp_bridge.core.runtime import waits
from acp_bridge.core.runtime.threads import NoThread, in_thread
from acp_bridge.core.wire.stdio import Reader, Writer
from acp_bridge.features.hooks.definitions import Hook
from acp_bridge.features.hooks.verdict import Ran

#: bytes of each stream that are kept.
OUTPUT: Final = 64 * 1024
#: seconds to read the rest of the output when the hook has ended.
_LAST_WORDS: Final = 0.2


class _Kept:
    """Collects the first `OUTPUT` bytes of a stream."""

    def __init__(self) -> None:
        self._bytes = bytearray()
        self.cut = False

    def add(self, data: bytes) -> None:
        room = OUTPUT - len(self._bytes)
        self._bytes += data[:room]
        self.cut |= len(data) > room

    def text(self) -> str:
        return self._bytes.decode("utf-8", "replace")


class _Pipes:
    """The hook's ends of its standard streams, and the bridge's ends."""

    def __init__(self) -> None:
        """Open the streams. Raises OSError; nothing is left open then."""
        ours, self.hooks = standard_streams()
        self.stdin = Writer(ours[0])
        self.out, self.err = Reader(ours[1]), Reader(ours[2])

    def close_hooks(self) -> None:
        """Close the hook's ends, which the bridge has no use for once the hook runs."""
        hooks, self.hooks = self.hooks, []
        for fd in hooks:
            os.close(fd)

    def close(self) -> None:
        """Close both ends of all streams."""
        self.close_hooks()
        for end in (self.stdin, self.out, self.err):
            end.close()


async def run(
    hook: Hook,
    given: bytes,
    cwd: str,
    env: Mapping[str, str],
    deadline: Deadline | None = None,
) -> Ran:
    """Run the hook to its end or its timeout, and return how it ended, or why it did not start.

    `given` is its standard input. Its guard follows `deadline`.
    """
    try:
        pipes = _Pipes()
    except OSError:
        return Ran(problem=NO_ROOM)
    tree = Tree(deadline)
    try:
        with anyio.fail_after(waits.SPAWN):
            birth = ByCommand(hook.words, None, cwd, env)
            await in_thread(tree.newborn.start, birth, pipes.hooks)
            pipes.close_hooks()
            await tree.wait_started(hook.words[0])
        return await _to_the_end(hook, tree, pipes, given)
    except TimeoutError:
        tree.give_up_start()
        return Ran(problem="it did not start in time")
    except NoThread:
        return Ran(problem=NO_ROOM)
    except (OSError, ValueError):
        return Ran(problem="it could not be started: is its folder there?")
    except StartFailed as failed:
        return Ran(problem=str(failed))
    finally:
        try:
            await tree.finish()
        finally:
            pipes.close()


async def _to_the_end(hook: Hook, tree: Tree, pipes: _Pipes, given: bytes) -> Ran:
    out, err = _Kept(), _Kept()
    async with anyio.create_task_group() as tasks:
        readers = [anyio.Event(), anyio.Event()]
        tasks.start_soon(_collect, pipes.out, out, readers[0])
        tasks.start_soon(_collect, pipes.err, err, readers[1])
        tasks.start_soon(_write, pipes.stdin, given)
        tasks.start_soon(tree.follow)
        with anyio.move_on_after(hook.timeout):
            await tree.exited.wait()
        with anyio.move_on_after(_LAST_WORDS):
            for read_all in readers if tree.exited.is_set() else ():
                await read_all.wait()
        tasks.cancel_scope.cancel()
    if not tree.exited.is_set():
        return Ran(problem=f"it was killed after {hook.timeout:g} s")
    if tree.exit.code is None:
        return Ran(problem=f"it was ended by {tree.exit.describe()}")
    return Ran(tree.exit.code, out.text(), err.text(), cut=out.cut)


async def _collect(stream: Reader, kept: _Kept, read_all: anyio.Event) -> None:
    while data := await stream.read():
        kept.add(data)
    read_all.set()


async def _write(stdin: Writer, given: bytes) -> None:
    stdin.write(given)
    await stdin.drain_below(1)
    stdin.close()
