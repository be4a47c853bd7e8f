"""A pytest plugin that notes how much CPU each test takes (`-p tests.support.cpu_times`).

The test is charged with what its worker and all processes below it ran while it ran: setup, call
and teardown. Where this process may make a control group, the kernel counts there, also orphans.
Otherwise the sums are those of getrusage: a process counts when its parent waits for it, and one
that is adopted by init never counts.
What a test leaves running is charged to the next test of that worker.
"""

import json
import os
import resource
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest

#: Names the folder for the notes; unset, the plugin does nothing.
FOLDER = "TEST_TIMES"
GROUPS = Path("/sys/fs/cgroup")
#: Seconds of CPU so far.
Clock = Callable[[], float]


class Group(NamedTuple):
    """A control group of ours."""

    folder: Path

    @classmethod
    def made(cls, name: str) -> "Group | None":
        """Make a group below that of this process; None where that is not allowed."""
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers in ("", "cpuacct", "cpu,cpuacct"):
                above = GROUPS.joinpath(controllers, path.lstrip("/"))
                try:
                    (above / name).mkdir()
                    (group := cls(above / name)).used()
                except OSError:
                    continue
                return group
        return None

    def join(self) -> None:
        """Move this process into the group."""
        (self.folder / "cgroup.procs").write_text(str(os.getpid()))

    def used(self) -> float:
        """Seconds of CPU of all that ever ran in it."""
        if (nanoseconds := self.folder / "cpuacct.usage").exists():
            return int(nanoseconds.read_text()) / 1e9
        return int((self.folder / "cpu.stat").read_text().split()[1]) / 1e6

    def remove(self) -> None:
        """Remove the group and those below it; one with a living process stays."""
        for folder in (*(each for each in self.folder.iterdir() if each.is_dir()), self.folder):
            with suppress(OSError):
                folder.rmdir()


def used_and_waited_for() -> float:
    """Seconds of CPU of this process, and of those that it and they have waited for."""
    both = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in both)


def pytest_configure(config: pytest.Config) -> None:
    """Begin to count, in a worker of xdist or in the only process."""
    folder = os.environ.get(FOLDER)
    if folder is None or getattr(config.option, "dist", "no") != "no":
        return
    clock = used_and_waited_for
    if group := Group.made(f"tests-{os.getpid()}"):
        group.join()
        clock = group.used
    config.pluginmanager.register(_Times(Path(folder), clock))


class _Times:
    """Writes a line for each test: its name and its seconds of CPU."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        self._file = folder / f"{os.getpid()}.jsons"
        self._clock = clock

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        before = self._clock()
        try:
            return (yield)
        finally:
            line = json.dumps([item.nodeid, round(self._clock() - before, 4)])
            with self._file.open("a") as file:
                file.write(f"{line}\n")
