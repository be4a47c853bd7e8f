"""A bridge to be killed: `python guard_bridge.py LOCK NAME` runs an agent of guard_agent.py.

Says the guard's pid on stdout when the agent is ready, then waits for ever.
"""

import sys
from pathlib import Path

import anyio

from acp_bridge.agents.lease import acquire
from acp_bridge.agents.process import AgentProcess
from tests.agents.guard_support import parent_of, stand_in


async def main(lock: str, name: str) -> None:
    lock_fd = await acquire(Path(lock), 0)
    async with anyio.create_task_group() as tasks:
        process = await AgentProcess.start(tasks, stand_in(name), lock_fd=lock_fd)
        await anyio.wait_readable(process.stdout_fd)
        print(parent_of(process.pid), flush=True)
        await anyio.sleep_forever()


if __name__ == "__main__":
    anyio.run(main, sys.argv[1], sys.argv[2])
