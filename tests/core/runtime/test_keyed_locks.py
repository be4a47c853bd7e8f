"""Locks by key: one task at a time, in order, and nothing is kept of a key that nobody has."""

import anyio
import pytest

from acp_bridge.core.runtime.keyed_locks import KeyedLocks


@pytest.mark.hazard("P11.2")
async def test_a_key_goes_from_one_to_the_next_in_order_and_other_keys_wait_for_nobody() -> None:
    locks, order, entered = KeyedLocks(), list[str](), anyio.Event()

    async def work(name: str, key: str) -> None:
        async with locks.hold(key):
            order.append(name)
            if name == "first":
                await entered.wait()

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            for name in ("first", "second", "third"):
                tasks.start_soon(work, name, "a")
            tasks.start_soon(work, "other", "b")
            await anyio.wait_all_tasks_blocked()
            assert order == ["first", "other"]
            assert len(locks) == 1
            entered.set()
    assert order == ["first", "other", "second", "third"]
    assert len(locks) == 0


async def test_who_gives_up_waiting_takes_no_key_along() -> None:
    locks, order = KeyedLocks(), list[str]()

    async def work(name: str) -> None:
        async with locks.hold("a"):
            order.append(name)

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks, locks.hold("a"):
            async with anyio.create_task_group() as impatient:
                impatient.start_soon(work, "impatient")
                tasks.start_soon(work, "patient")
                await anyio.wait_all_tasks_blocked()
                impatient.cancel_scope.cancel()
            assert len(locks) == 1
    assert order == ["patient"]
    assert len(locks) == 0
