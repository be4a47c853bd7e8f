"""Ending the task group behind an object that is used with `async with`."""

import anyio
from anyio.abc import TaskGroup


async def end_tasks(tasks: TaskGroup, error: BaseException | None) -> bool | None:
    """Cancels the tasks and waits for them; for `__aexit__`, which returns what this returns.

    The body's own error goes on as it is, never swallowed and not in a group; the error of a task
    is raised in a group.
    """
    tasks.cancel_scope.cancel()
    if error is None or isinstance(error, anyio.get_cancelled_exc_class()):
        return await tasks.__aexit__(type(error) if error else None, error, None)
    # Its result says that its own cancellation is done with, not the body's error.
    await tasks.__aexit__(None, None, None)
    return False
