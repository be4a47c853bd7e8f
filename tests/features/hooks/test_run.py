"""One run of a hook: its input, its output, and that nothing of it is left."""

from __future__ import annotations

import os
from pathlib import Path

import anyio
import pytest

from acp_bridge.core.agents.deadline import Deadline, now
from acp_bridge.features.hooks.definitions import Hook, HookEvent
from acp_bridge.features.hooks.run import OUTPUT, run
from acp_bridge.features.hooks.verdict import Ran
from tests.features.hooks.hooked import alive
from tests.support.waiting import until

pytestmark = pytest.mark.process


async def ran(tmp_path: Path, command: str | tuple[str, ...], given: bytes = b"{}") -> Ran:
    """Return how a hook ended that is run in this folder."""
    with anyio.fail_after(5):
        hook = Hook(HookEvent.TURN_END, command, timeout=60)
        return await run(hook, given, str(tmp_path), os.environ)


async def test_it_reads_its_input_and_runs_in_its_folder(tmp_path: Path) -> None:
    found = await ran(tmp_path, "cat; pwd >&2; exit 7", b'{"a": 1}')
    assert found == Ran(7, '{"a": 1}', f"{tmp_path}\n")


async def test_a_list_of_words_is_run_without_a_shell(tmp_path: Path) -> None:
    assert (await ran(tmp_path, ("echo", "$HOME", "a b"))).stdout == "$HOME a b\n"


@pytest.mark.hazard("P15.1")
async def test_what_it_prints_is_bounded_and_it_never_waits_for_a_reader(tmp_path: Path) -> None:
    found = await ran(tmp_path, "yes | head -c 5000000; yes | head -c 5000000 >&2")
    assert (len(found.stdout), len(found.stderr), found.cut) == (OUTPUT, OUTPUT, True)
    assert found.exit_code == 0


async def test_an_input_that_nobody_reads_holds_up_nothing(tmp_path: Path) -> None:
    assert await ran(tmp_path, "echo done", b"x" * 5_000_000) == Ran(0, "done\n")
    assert await ran(tmp_path, "exec <&-; echo done", b"x" * 5_000_000) == Ran(0, "done\n")


async def test_an_output_that_is_no_text_is_read_all_the_same(tmp_path: Path) -> None:
    assert (await ran(tmp_path, r"printf 'a\377b'")).stdout == "a\ufffdb"


@pytest.fixture
def bounds(monkeypatch: pytest.MonkeyPatch) -> dict[float, anyio.CancelScope]:
    """By its seconds, the last block that was bounded: the test can let its time be over."""
    noted, move_on_after = dict[float, anyio.CancelScope](), anyio.move_on_after

    def note(seconds: float, *, shield: bool = False) -> anyio.CancelScope:
        noted[seconds] = scope = move_on_after(seconds, shield=shield)
        return scope

    monkeypatch.setattr(anyio, "move_on_after", note)
    return noted


@pytest.mark.hazard("P1")
@pytest.mark.parametrize("how", ["timeout", "cancel", "end", "deadline"])
async def test_its_whole_tree_is_dead_when_it_has_ended_or_was_stopped(
    tmp_path: Path, how: str, bounds: dict[float, anyio.CancelScope]
) -> None:
    stays = "setsid sh -c 'echo $$ > new; mv new pid; sleep 60' & until test -e pid; do :; done"
    hook = Hook(HookEvent.TURN_END, stays if how == "end" else f"{stays}; sleep 60", timeout=61)
    found, deadline = list[Ran](), Deadline()

    async def work() -> None:
        found.append(await run(hook, b"", str(tmp_path), os.environ, deadline))

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(work)
            await until((tmp_path / "pid").exists)
            if how == "cancel":
                tasks.cancel_scope.cancel()
            elif how == "deadline":
                deadline.set(now())
            elif how == "timeout":
                await until(lambda: 61 in bounds)
                bounds[61].deadline = anyio.current_time()
    pid = int((tmp_path / "pid").read_text())
    assert not alive(pid)
    if how == "timeout":
        assert found == [Ran(problem="it was killed after 61 s")]
    elif how == "end":
        assert found == [Ran(0)]
    elif how == "deadline":
        assert found == [Ran(problem="it was ended by signal SIGKILL")]
    else:
        assert found == []


async def test_what_it_leaves_behind_with_its_pipes_open_is_not_waited_for(
    tmp_path: Path,
) -> None:
    assert await ran(tmp_path, "sleep 60 & echo done") == Ran(0, "done\n")


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (("no-such-command",), "command not found: no-such-command"),
        (("/etc/passwd",), "command is not executable: /etc/passwd"),
        ("kill -9 $$", "it was ended by signal SIGKILL"),
    ],
)
async def test_what_went_wrong_is_said(
    tmp_path: Path, command: str | tuple[str, ...], why: str
) -> None:
    assert await ran(tmp_path, command) == Ran(problem=why)


async def test_a_folder_that_is_gone_is_said(tmp_path: Path) -> None:
    problem = (await ran(tmp_path / "gone", "true")).problem
    assert problem == "it could not be started: is its folder there?"


async def test_it_leaves_no_descriptor_open(tmp_path: Path) -> None:
    await ran(tmp_path, "true")
    before = len(os.listdir("/proc/self/fd"))
    for command in ("true", ("no-such-command",), "sleep 60 & true"):
        await ran(tmp_path, command)
    await ran(tmp_path / "gone", "true")
    assert len(os.listdir("/proc/self/fd")) == before
