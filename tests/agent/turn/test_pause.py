"""A turn that is paused: what has begun ends, nothing begins, and a cancel ends it at once."""

from pathlib import Path
from typing import Any

import anyio
import pytest

from agent.model import Completion, ToolCall
from agent.tools import Toolbox
from agent.turn.loop import StopReason
from agent.turn.pause import Pause
from tests.agent.support import NOTES, Bench, MemoryClient, Note, user
from tests.agent.turn.support import Saying, allowing, calls, with_room


class Playing:
    """A turn in a task of its own, and what its pauses were answered."""

    def __init__(self, bench: Bench, tool: Note | None = None) -> None:
        self.bench = bench
        self.tool = tool
        self.scope = anyio.CancelScope()
        self.ended: StopReason | None = None
        self.paused: list[bool] = []

    async def play(self) -> None:
        with self.scope:
            tools = Toolbox([self.tool] if self.tool else [])
            self.ended = await self.bench.turn(tools=tools).run(user("note"))
        self.bench.pause.end()

    async def pause(self) -> None:
        self.paused.append(await self.bench.pause.begin())


async def quiet() -> None:
    await anyio.wait_all_tasks_blocked()


async def test_the_tool_call_in_flight_ends_and_the_next_one_waits_for_go(tmp_path: Path) -> None:
    tool, play = Note(), Playing(allowing(tmp_path))
    play.tool = tool
    tool.gate = anyio.Event()
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(play.play)
            await tool.started.wait()
            tasks.start_soon(play.pause)
            await quiet()
            assert play.paused == []  # the call that had begun runs
            tool.gate.set()
            await quiet()
            assert play.paused == [True]
            assert tool.notes == ["a"]
            play.bench.pause.go()
    assert (play.ended, tool.notes) == ("end_turn", ["a", "b"])


async def test_the_model_call_in_flight_ends_with_its_words_and_its_calls_wait(
    tmp_path: Path,
) -> None:
    going, said = anyio.Event(), anyio.Event()

    class Slow(Saying):
        async def complete(self, *args: object, **more: object) -> Completion:
            said.set()
            await going.wait()
            return await super().complete(*args, **more)  # type: ignore[arg-type]

    call = ToolCall("1", "note", '{"text": "a"}')
    model = Slow("words", completion=Completion(tool_calls=(call,)))
    tool, play = Note(), Playing(Bench(tmp_path, model, MemoryClient("allow_once")))
    play.tool = tool
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(play.play)
            await said.wait()
            tasks.start_soon(play.pause)
            await quiet()
            going.set()
            await quiet()
            assert play.paused == [True]
            assert play.bench.client.texts() == ["words"]
            assert (tool.prepared, play.bench.client.asked) == ([], [])
            play.scope.cancel()


async def test_a_call_that_is_allowed_during_a_pause_runs_after_it(tmp_path: Path) -> None:
    bench = Bench(tmp_path, NOTES, MemoryClient())
    tool, play = Note(), Playing(bench)
    play.tool = tool
    answered = anyio.Event()

    async def ask(tool_call: dict[str, Any], options: list[dict[str, Any]]) -> str | None:
        bench.client.was_asked.set()
        await answered.wait()
        return "allow_once"

    bench.client.ask = ask  # type: ignore[method-assign]
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(play.play)
            await bench.client.was_asked.wait()
            tasks.start_soon(play.pause)
            await quiet()
            assert play.paused == []  # the question is open
            answered.set()
            await quiet()
            assert (play.paused, tool.notes) == ([True], [])
            bench.pause.go()
    assert tool.notes == ["a", "b"]


async def test_of_calls_that_run_at_once_all_that_have_begun_end_first(tmp_path: Path) -> None:
    tool = Note("read")
    tool.gate = anyio.Event()
    play = Playing(allowing(tmp_path, calls(*"abcdefghij")))
    play.tool = tool
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(play.play)
            await quiet()
            assert tool.running == 8
            tasks.start_soon(play.pause)
            await quiet()
            assert play.paused == []
            tool.gate.set()
            await quiet()
            assert (play.paused, tool.running, len(tool.notes)) == ([True], 0, 8)
            play.bench.pause.go()
    assert len(tool.notes) == 10


async def test_no_model_is_called_after_room_was_made_in_a_pause(tmp_path: Path) -> None:
    bench = Bench(tmp_path, model := Saying("a"))
    room, summarised = with_room(bench), anyio.Event()
    play = Playing(bench)

    async def summarise() -> None:
        await summarised.wait()

    room.work = summarise
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(play.play)
            await quiet()
            tasks.start_soon(play.pause)
            await quiet()
            summarised.set()
            await quiet()
            assert (play.paused, model.given) == ([True], [])
            bench.pause.go()
    assert len(model.given) == 1


@pytest.mark.hazard("C3.2", "C10.3", "C17")
async def test_a_cancel_ends_a_paused_turn_at_once_and_nothing_begins(tmp_path: Path) -> None:
    tool, play = Note(), Playing(allowing(tmp_path))
    play.tool = tool
    tool.gate = anyio.Event()
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(play.play)
            await tool.started.wait()
            tasks.start_soon(play.pause)
            await quiet()
            tool.gate.set()
            await quiet()
            play.scope.cancel()
    assert (play.ended, tool.notes) == (None, ["a"])
    assert [m["role"] for m in play.bench.history.messages()].count("tool") == 2


async def test_a_pause_that_the_turn_outruns_is_answered_no_and_so_is_one_of_an_ended_turn(
    tmp_path: Path,
) -> None:
    bench = Bench(tmp_path, "turn\ntext: done")
    play = Playing(bench)
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            bench.pause.go()  # nothing to end
            tasks.start_soon(play.play)
        assert await bench.pause.begin() is False


async def test_go_ends_a_pause_that_was_not_answered_yet_and_a_new_one_counts_again() -> None:
    pause, answers = Pause(), list[bool]()

    async def begin() -> None:
        answers.append(await pause.begin())

    async def next_call() -> None:
        async with pause.call():
            pass

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            async with pause.call():
                tasks.start_soon(begin)
                await quiet()
                pause.go()
                await quiet()
                assert answers == [False]
                tasks.start_soon(begin)
                tasks.start_soon(begin)
                tasks.start_soon(next_call)
                await quiet()
                assert answers == [False]  # a call is in flight, though another waits
            await quiet()
            assert answers == [False, True, True]
            pause.go()
