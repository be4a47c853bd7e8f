"""Words that join a running turn: read by its next model call, after the last result, once."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.client import Update
from agent.model import Completion, Message, ModelError, ModelInfo, OnToken, ToolCall, ToolSpec
from agent.tools import Access, Action, ToolContext
from tests.agent.conversation.records import assert_well_formed
from tests.agent.support import Bench, MemoryClient, Note, NoteArgs, run
from tests.agent.turn.support import Room, with_room

Hook = Callable[[], object]
#: what a call that was not run is told to be
NOT_RUN = "Not run: the user has said something meanwhile"


def calling(*notes: str) -> Completion:
    return Completion(
        tool_calls=tuple(ToolCall(note, "note", f'{{"text": "{note}"}}') for note in notes)
    )


class Speaker:
    """A model with these answers, the last one for ever; `during` is called in each by its number.

    An answer may be an exception.
    """

    id = "speaker"

    def __init__(self, *answers: Completion | Exception, **during: Hook) -> None:
        self.answers = list(answers)
        self.during = {int(name.removeprefix("call_")): hook for name, hook in during.items()}
        self.given: list[list[Message]] = []

    async def info(self) -> ModelInfo:
        return ModelInfo()

    async def complete(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], on_token: OnToken
    ) -> Completion:
        self.given.append(list(messages))
        number = len(self.given)
        await on_token("so ")
        if (hook := self.during.get(number)) is not None:
            hook()
        await on_token(f"{number}. ")
        answer = self.answers[min(number, len(self.answers)) - 1]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def roles(self, call: int) -> list[tuple[str, str]]:
        """What it was given in the call with this number, from 1."""
        return [(m["role"], str(m["content"])) for m in self.given[call - 1]]


def bench_of(folder: Path, model: Speaker, choice: str = "allow_once") -> Bench:
    return Bench(folder, model, MemoryClient(choice))


async def test_words_that_come_while_the_model_speaks_are_read_by_one_more_call(
    tmp_path: Path,
) -> None:
    model = Speaker(Completion(), call_1=lambda: bench.says("in verse"))
    bench = bench_of(tmp_path, model)
    assert await run(bench, "a story") == "end_turn"
    assert model.roles(2) == [("user", "a story"), ("assistant", "so 1. "), ("user", "in verse")]
    assert bench.client.texts() == ["so ", "1. ", "so ", "2. "]
    assert not bench.says("too late")


async def test_the_calls_of_that_answer_are_not_run_and_the_words_follow_their_results(
    tmp_path: Path,
) -> None:
    model = Speaker(calling("a", "b"), Completion(), call_1=lambda: bench.says("stop noting"))
    bench, tool = bench_of(tmp_path, model), Note()
    assert await run(bench, "note", tool=tool) == "end_turn"
    assert (tool.prepared, bench.client.asked) == ([], [])
    roles, contents = zip(*model.roles(2), strict=True)
    assert roles == ("user", "assistant", "tool", "tool", "user")
    assert [text.startswith(NOT_RUN) for text in contents[2:4]] == [True, True]
    assert contents[4] == "stop noting"
    assert [status for _, status in bench.client.card_states()] == ["pending"] * 2 + ["failed"] * 2


async def test_a_tool_that_runs_goes_on_to_its_end_and_the_next_one_is_not_run(
    tmp_path: Path,
) -> None:
    bench = bench_of(tmp_path, model := Speaker(calling("a", "b"), Completion()))
    tool = Note()
    tool.gate = anyio.Event()
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(partial(run, bench, "note", tool=tool))
            await tool.started.wait()
            assert bench.says("enough")
            tool.gate.set()
    told = bench.told()
    assert (tool.notes, told[0]) == (["a"], "kept a")
    assert told[1].startswith(NOT_RUN)
    assert [role for role, _ in model.roles(2)][-3:] == ["tool", "tool", "user"]


async def test_of_calls_that_run_at_once_those_that_have_begun_end(tmp_path: Path) -> None:
    bench = bench_of(tmp_path, Speaker(calling(*"abcdefghij"), Completion()))
    tool = Note("read")
    tool.gate = anyio.Event()
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(partial(run, bench, "note", tool=tool))
            await anyio.wait_all_tasks_blocked()
            begun = list(tool.prepared)
            assert bench.says("enough")
            tool.gate.set()
    assert 0 < len(begun) < 10
    assert tool.notes == tool.prepared == begun
    assert [text.startswith(NOT_RUN) for text in bench.told()].count(True) == 10 - len(begun)


async def test_what_the_user_allows_after_saying_more_is_run_and_then_the_words_are_read(
    tmp_path: Path,
) -> None:
    bench = bench_of(tmp_path, model := Speaker(calling("a", "b"), Completion()))
    tool = Note()

    async def ask(tool_call: dict[str, Any], options: list[dict[str, Any]]) -> str:
        assert bench.says("only this one")
        return "allow_once"

    bench.client.ask = ask  # type: ignore[method-assign]
    await run(bench, "note", tool=tool)
    assert tool.notes == ["a"]
    assert bench.told()[1].startswith(NOT_RUN)
    assert model.roles(2)[-1] == ("user", "only this one")


async def test_words_that_come_during_a_pause_are_read_when_the_turn_goes_on(
    tmp_path: Path,
) -> None:
    bench = bench_of(tmp_path, model := Speaker(calling("a", "b"), Completion()))
    tool = Note()
    tool.gate = anyio.Event()
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(partial(run, bench, "note", tool=tool))
            await tool.started.wait()
            tasks.start_soon(bench.pause.begin)
            tool.gate.set()
            await anyio.wait_all_tasks_blocked()
            assert bench.says("now this")
            await anyio.wait_all_tasks_blocked()
            assert len(model.given) == 1
            bench.pause.go()
    assert (tool.notes, tool.prepared) == (["a"], ["a"])
    assert model.roles(2)[-1] == ("user", "now this")


async def test_room_is_made_for_words_that_wait(tmp_path: Path) -> None:
    model = Speaker(Completion(), call_1=lambda: bench.says("in verse"))
    bench = bench_of(tmp_path, model)
    room: Room = with_room(bench)
    seen: list[str] = []

    async def work() -> None:
        seen.append(str(bench.history.messages()))

    room.work = work
    await run(bench, "a story")
    assert ["in verse" in messages for messages in seen] == [False, True]


async def test_words_that_come_while_room_is_made_are_in_the_call_that_follows(
    tmp_path: Path,
) -> None:
    bench = bench_of(tmp_path, model := Speaker(Completion()))
    room: Room = with_room(bench)

    async def work() -> None:
        bench.says("briefly")

    room.work = work
    await run(bench, "a story")
    assert model.roles(1) == [("user", "a story"), ("user", "briefly")]
    assert len(model.given) == 1


async def test_a_call_that_is_repeated_since_it_did_not_fit_has_them_once(tmp_path: Path) -> None:
    too_long = ModelError("Too long.", "context")

    class Refuses(Speaker):
        async def complete(self, *args: Any) -> Completion:
            if not self.given:
                self.given.append(list(args[0]))
                bench.says("meanwhile")
                raise too_long
            return await super().complete(*args)

    bench = bench_of(tmp_path, model := Refuses(Completion()))
    with_room(bench, True)
    bench.says("first")
    await run(bench, "x")
    assert [text for _, text in model.roles(2)] == ["x", "first", "meanwhile"]


@pytest.mark.parametrize("notes", [(), ("a",)])
async def test_an_answer_that_was_cut_off_ends_no_turn_while_words_wait(
    tmp_path: Path, notes: tuple[str, ...]
) -> None:
    cut = Completion(tool_calls=calling(*notes).tool_calls, stop="max_tokens")
    model = Speaker(cut, Completion(), call_1=lambda: bench.says("shorter"))
    bench, tool = bench_of(tmp_path, model), Note()
    assert await run(bench, "x", tool=tool) == "end_turn"
    assert tool.prepared == []
    assert model.roles(2)[-1] == ("user", "shorter")


async def test_the_last_call_that_a_turn_may_make_takes_no_words(tmp_path: Path) -> None:
    taken: list[bool] = []
    model = Speaker(
        calling("a"),
        call_1=lambda: taken.append(bench.says("one")),
        call_2=lambda: taken.append(bench.says("two")),
    )
    bench = bench_of(tmp_path, model)
    bench.max_calls = 2
    assert await run(bench, "x", tool=Note()) == "max_turn_requests"
    assert taken == [True, False]
    assert model.roles(2)[-1] == ("user", "one")
    assert "two" not in str(bench.history.messages())


async def test_words_let_a_model_go_on_that_went_round_in_circles(tmp_path: Path) -> None:
    tool = Note()
    tool.problem = ValueError("no")
    answers = [calling("a")] * 6 + [Completion()]
    # The third failure tells the model, the fourth would end the turn.
    model = Speaker(*answers, call_4=lambda: bench.says("try it once more"))
    bench = bench_of(tmp_path, model)
    assert await run(bench, "x", tool=tool) == "end_turn"
    assert ("user", "try it once more") in model.roles(5)


async def test_words_that_come_while_the_user_is_told_of_the_circle_are_read(
    tmp_path: Path,
) -> None:
    tool = Note()
    tool.problem = ValueError("no")
    bench = bench_of(tmp_path, model := Speaker(*[calling("a")] * 4, Completion()))
    show = bench.client.update

    async def update(update: Update) -> None:
        await show(update)
        if "The turn was ended" in str(update):
            assert bench.says("try another way")

    bench.client.update = update  # type: ignore[method-assign]
    assert await run(bench, "x", tool=tool) == "end_turn"
    assert model.roles(5)[-1] == ("user", "try another way")


@pytest.mark.hazard("C3")
async def test_a_cancelled_turn_forgets_the_words_that_waited(tmp_path: Path) -> None:
    bench = bench_of(tmp_path, Speaker(calling("a", "b")))
    tool = Note()
    tool.gate = anyio.Event()
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(partial(run, bench, "note", tool=tool))
            await tool.started.wait()
            assert bench.says("gone")
            tasks.cancel_scope.cancel()
    assert "gone" not in str(bench.history.messages()) + str(bench.history.replay())
    assert not bench.says("too late")


async def test_a_turn_that_fails_keeps_the_words_in_the_conversation(tmp_path: Path) -> None:
    model = Speaker(ModelError("Gone."), call_1=lambda: bench.says("in verse"))
    bench = bench_of(tmp_path, model)
    with pytest.raises(ModelError):
        await run(bench, "a story")
    assert [m["content"] for m in bench.history.messages()] == ["a story", "so 1. ", "in verse"]
    assert not bench.says("too late")


@pytest.mark.parametrize("how", [Completion(stop="refusal"), ModelError("No.", "refused")])
async def test_a_turn_that_the_model_refuses_takes_the_words_with_it(
    tmp_path: Path, how: Completion | Exception
) -> None:
    model = Speaker(how, call_1=lambda: bench.says("please"))
    bench = bench_of(tmp_path, model)
    assert await run(bench, "how to") == "refusal"
    assert bench.history.messages() == []
    assert "please" in str(bench.history.replay())
    assert bench.reloaded().history.messages() == []


class Coming:
    """Words that come in these model calls, tools and questions, counted from 1."""

    def __init__(self, **moments: set[int]) -> None:
        self.bench: Bench
        self.taken: list[str] = []
        self._moments = moments
        self._counts = dict.fromkeys(moments, 0)

    def at(self, what: str) -> None:
        self._counts[what] += 1
        if self._counts[what] in self._moments[what]:
            word = f"<{what} {self._counts[what]}>"
            if self.bench.says(word):
                self.taken.append(word)

    def judge(self, messages: Sequence[Message]) -> None:
        """The messages have each of the words once, and none between a call and its result."""
        texts = [m["content"] for m in messages if m["role"] == "user"][1:]
        assert sorted(texts) == sorted(self.taken)
        assert_well_formed(messages)


moments = st.sets(st.integers(1, 8), max_size=8)


@settings(deadline=None)
@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=5),
    st.builds(Coming, call=moments, tool=moments, question=moments),
    st.integers(1, 8),
    st.sampled_from(["read", "execute"]),
)
def test_whenever_words_come_the_next_call_of_the_model_has_each_of_them_once(
    answers: list[int], coming: Coming, max_calls: int, access: Access
) -> None:
    """`answers`: how many tools each calls. Those that only read run at once."""
    with TemporaryDirectory() as folder:
        anyio.run(_judge, Path(folder), answers, coming, max_calls, access)


async def _judge(
    folder: Path, answers: list[int], coming: Coming, max_calls: int, access: Access
) -> None:
    class Model(Speaker):
        async def complete(self, messages: Any, *args: Any) -> Completion:
            coming.judge(messages)
            coming.at("call")
            return await super().complete(messages, *args)

    class Noting(Note):
        async def prepare(self, args: NoteArgs, context: ToolContext) -> Action:
            coming.at("tool")
            return await super().prepare(args, context)

    async def ask(tool_call: dict[str, Any], options: list[dict[str, Any]]) -> str:
        coming.at("question")
        return "allow_once"

    names = iter(f"{n}" for n in range(1000))
    made = [calling(*(next(names) for _ in range(n))) for n in answers]
    bench = coming.bench = bench_of(folder, model := Model(*made, Completion()))
    bench.client.ask = ask  # type: ignore[method-assign]
    bench.max_calls = max_calls
    await run(bench, "go", tool=Noting(access))
    coming.judge(model.given[-1])
    assert bench.reloaded().history.messages() == bench.history.messages()
    assert not bench.says("too late")
