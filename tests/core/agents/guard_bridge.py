"""A bridge to be killed: `python guard_bridge.py LOCK NAME [AHEAD]` runs one of guard_agent.py.

Says the guard's pid on stdout when the agent is ready, gives it a deadline so many seconds ahead,
and waits for ever.
"""

import sys
from pathlib import Path

import anyio

from acp_bridge.core.agents.deadline import Deadline, now
from acp_bridge.core.agents.lease import acquire
from acp_bridge.core.agents.process import AgentProcess
from tests.core.agents.guard_support import parent_of, stand_in


async def main(lock: str, name: str, ahead: str = "") -> None:
    deadline = Deadline()
    lock_fd = await acquire(Path(lock), 0)
    async with anyio.create_task_group() as tasks:
        process = await AgentProcess.start(
            tasks, stand_in(name), lock_fd=lock_fd, deadline=deadline
        )
        await anyio.wait_readable(process.stdout_fd)
        guard = parent_of(process.pid)
        if ahead:
            deadline.set(now() + float(ahead))
        print(guard, flush=True)
        await anyio.sleep_forever()


if __name__ == "__main__":
    anyio.run(main, sys.argv[1], sys.argv[2], "".join(sys.argv[3:]))
