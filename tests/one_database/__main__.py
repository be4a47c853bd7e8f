"""`make test-database`: sessions in one database, and the machines that have them.

Machines are network namespaces with a cable to that of the database, so this needs root.
Exit 0: all of it held.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import anyio

from tests.one_database import cut, errors, follow, hangs, kill, short, taken
from tests.one_database.machines import ADDRESS, DATABASE, A, B, at, network
from tests.one_database.report import Report
from tests.one_database.site import Place, Site
from tests.support.gates import Gates
from tests.support.postgres import PASSWORD, Cluster, cluster
from tests.support.recording import RpcError

Story = Callable[[Place], Awaitable[None]]

STORIES: dict[str, Story] = {
    "kill": kill.killed,
    "cut": cut.cut_at_the_database,
    "unplug": cut.cut_at_the_machine,
    "alone": cut.cut_and_not_taken_up,
    "follow": follow.followed,
    "slow": short.slow,
    "full": short.full,
    "errors": errors.answered_with_errors,
    "hangs": hangs.hung,
    "taken": taken.taken_from_a_living_bridge,
}


def main() -> int:
    """Tell the stories that are named, or all."""
    names = sys.argv[1:] or list(STORIES)
    if not STORIES.keys() >= set(names):
        print(f"There are {', '.join(STORIES)}.")
        return 2
    if os.geteuid() or not shutil.which("ip") or not shutil.which("unshare"):
        print("This needs root, and the commands ip and unshare (iproute2, util-linux).")
        return 2
    os.environ["ACP_BRIDGE_DEBUGGABLE"] = "1"
    report = Report()
    with network():
        for name in names:
            _tell_on_new_folders(report, name)
    return report.end()


def _tell_on_new_folders(report: Report, name: str) -> None:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="one-")))
        options: dict[str, Any] = {}
        if name == "slow":
            options["settings"] = short.SLOW
        if name == "full":
            options["where"] = stack.enter_context(short.small_disk())
        options |= {"tcp": True, "address": ADDRESS, "at": at(DATABASE)}
        server = stack.enter_context(cluster(**options))
        anyio.run(_tell, report, STORIES[name], server, folder)


async def _tell(report: Report, story: Story, server: Cluster, folder: Path) -> None:
    """Tell a story on new folders and a new database; machine B has its password in a file."""
    url = server.new_database()
    passwords = folder / "pgpass"
    passwords.write_text(f"{ADDRESS}:*:*:*:{PASSWORD}\n")
    passwords.chmod(0o600)
    async with Gates() as gates:
        over_tcp = server.over_tcp(url)
        a = Site(A, folder, over_tcp, {"PGPASSWORD": PASSWORD, **gates.env})
        b = Site(B, folder, over_tcp, {"PGPASSFILE": str(passwords), **gates.env})
        place = Place(report, url, folder, a, b, server, gates)
        try:
            await story(place)
        except (AssertionError, OSError, RpcError, subprocess.SubprocessError) as error:
            report.row("the story goes to its end", story.__name__, repr(error), holds=False)
        finally:
            for machine in (A, B):
                machine.kill()


if __name__ == "__main__":
    sys.exit(main())
