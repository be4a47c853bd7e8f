"""Room in the model's window: what goes, what stays, and that no turn suffers."""

from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.conversation.compaction import Compactor
from agent.conversation.entries import Record, Spent
from agent.conversation.messages import TRIMMED
from agent.conversation.transcript import Transcript
from agent.model import (
    Completion,
    ErrorKind,
    Message,
    Model,
    ModelError,
    ModelInfo,
    OnToken,
    ToolSpec,
    Usage,
)
from tests.agent.conversation.records import (
    assert_well_formed,
    call,
    records,
    result,
    steer,
    text,
    usage,
    user,
)

SPECS: list[ToolSpec] = []
SYSTEM: Record = {"t": "system", "text": "You are."}


class Summariser:
    """A model that gives `answers` one after the other, the last one for ever."""

    def __init__(
        self, *answers: str | ModelError | Completion, window: int | None = None, id: str = "m"
    ) -> None:
        self.id = id
        self.window = window
        self.answers = list(answers or ["the summary"])
        self.asked: list[str] = []
        self.hangs = False
        self.was_asked = anyio.Event()

    async def info(self) -> ModelInfo:
        return ModelInfo(self.window)

    async def complete(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], on_token: OnToken
    ) -> Completion:
        self.asked.append(str(messages[-1]["content"]))
        self.was_asked.set()
        if self.hangs:
            await anyio.sleep_forever()
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, ModelError):
            raise answer
        if isinstance(answer, Completion):
            return answer
        await on_token(answer)
        return Completion(answer, usage=Usage(100, 10, cost=0.5))


class Bench:
    def __init__(
        self,
        folder: Path,
        found: Sequence[Record],
        model: Model,
        summariser: Callable[[], Model] | None = None,
    ) -> None:
        self.folder = folder
        self.transcript = Transcript.create(folder, "s1", "/there")
        for record in found:
            self.transcript.append(record)
        self.model = model
        self.told: list[str] = []
        self.compactor = Compactor(self.transcript, summariser, self.tell)

    async def tell(self, sentence: str) -> None:
        self.told.append(sentence)

    async def fit(self) -> None:
        with anyio.fail_after(5):
            await self.compactor.fit(self.model, SPECS)

    async def shrink(self) -> bool:
        with anyio.fail_after(5):
            return await self.compactor.shrink(self.model, SPECS)

    async def compact(self) -> str:
        with anyio.fail_after(5):
            return await self.compactor.compact(self.model)

    @property
    def messages(self) -> list[Message]:
        messages = self.transcript.history.messages()
        assert_well_formed(messages)
        assert Transcript.load(self.folder, "s1").history.messages() == messages
        return messages

    @property
    def contents(self) -> list[str]:
        return [str(m["content"]) for m in self.messages]

    @property
    def chars(self) -> int:
        return sum(map(len, self.contents))

    @property
    def file(self) -> bytes:
        return (self.folder / "s1.jsonl").read_bytes()


def working(steps: int, size: int = 1_000, prompt: str = "mend it") -> list[Record]:
    """A turn in which a tool was called so often, each result of so many characters."""
    found: list[Record] = [SYSTEM, user(prompt)]
    for n in range(1, steps + 1):
        found += [call(n), result(n, f"<{n}>".ljust(size, "."))]
    return found


def talking(turns: int, size: int = 1_000) -> list[Record]:
    found: list[Record] = [SYSTEM]
    for n in range(1, turns + 1):
        found += [user(f"<q{n}>".ljust(size, ".")), text(f"<a{n}>".ljust(size, "."))]
    return found


@pytest.mark.parametrize("window", [None, 3_000])
async def test_what_fits_is_left_as_it_is(tmp_path: Path, window: int | None) -> None:
    bench = Bench(tmp_path, working(10), Summariser(window=window))
    before = bench.file
    await bench.fit()
    assert bench.file == before
    assert bench.told == []


async def test_old_results_go_first_until_there_is_room(tmp_path: Path) -> None:
    model = Summariser(window=2_800)  # 10,000 characters are 2,500 tokens: more than 85 %
    bench = Bench(tmp_path, working(10), model)
    await bench.fit()
    results = [m["content"] for m in bench.messages if m["role"] == "tool"]
    assert results[:3] == [TRIMMED] * 3
    assert TRIMMED not in results[3:]
    assert bench.chars / 4 < 0.7 * 2_800
    assert bench.told == ["3 old tool results were left out for the model, to make room."]
    assert model.asked == []
    await bench.fit()
    assert len(bench.told) == 1


async def test_the_last_two_answers_stay_whole_until_the_provider_refuses(tmp_path: Path) -> None:
    found = [SYSTEM, user("mend it")]
    for n, size in enumerate([400, 6_000, 4_000]):
        found += [call(n), result(n, f"<{n}>".ljust(size))]
    bench = Bench(tmp_path, found, Summariser(window=2_000))
    await bench.fit()
    assert [c[:3] for c in bench.contents if c][-2:] == ["<1>", "<2>"]
    assert await bench.shrink()
    assert [c[:3] for c in bench.contents if c][-2:] == [TRIMMED[:3], "<2>"]
    assert await bench.shrink()
    assert [c for c in bench.contents if c][-2:] == [TRIMMED, TRIMMED]


async def test_then_the_middle_gives_way_to_a_summary(tmp_path: Path) -> None:
    model = Summariser(window=2_000)
    bench = Bench(tmp_path, [*talking(5), user("<now>")], model)
    shown = bench.transcript.history.replay()
    await bench.fit()
    system, summary, *last = bench.contents
    assert system == "You are."
    assert summary.endswith("the summary")
    assert [c[:4] for c in last] == ["<q5>", "<a5>", "<now"]
    assert "<q1>" in model.asked[0]
    assert "<q5>" not in model.asked[0]
    assert bench.told == ["The conversation is long: its older part is being summarised."]
    assert bench.transcript.history.spent == Spent(0.5, 0, 100, 10)
    assert bench.transcript.history.replay() == shown


async def test_the_prompt_that_is_being_answered_stays(tmp_path: Path) -> None:
    found = [*working(1), *(r for n in range(2, 30) for r in (call(n), result(n, "r")))]
    found = [{**r, "arguments": '"' + "x" * 500 + '"'} if r["t"] == "call" else r for r in found]
    bench = Bench(tmp_path, found, Summariser(window=2_000))
    await bench.fit()
    assert bench.contents[2] == "mend it"
    assert [m["role"] for m in bench.messages][:4] == ["system", "user", "user", "assistant"]
    assert bench.messages[-1]["tool_call_id"] == "c29"


async def test_an_earlier_summary_is_summed_up_again(tmp_path: Path) -> None:
    model = Summariser("the first", "the second", window=2_000)
    bench = Bench(tmp_path, talking(5), model)
    await bench.fit()
    for record in talking(9)[-10:]:
        bench.transcript.append(record)
    await bench.fit()
    assert "the first" in model.asked[1]
    assert "<q5>" in model.asked[1]
    assert "<q1>" not in model.asked[1]
    assert "the second" in bench.contents[1]
    assert "the first" not in str(bench.contents)


async def test_the_summariser_may_be_a_model_of_its_own(tmp_path: Path) -> None:
    own, model = Summariser("from another", id="other"), Summariser(window=2_000)
    bench = Bench(tmp_path, talking(5), model, lambda: own)
    await bench.fit()
    assert "from another" in bench.contents[1]
    assert model.asked == []
    assert b'"model":"other"' in bench.file


async def test_if_it_fails_the_sessions_model_is_asked(tmp_path: Path) -> None:
    def opened() -> Model:
        raise ModelError("No key.", "missing_key")

    bench = Bench(tmp_path, talking(5), Summariser(window=2_000), opened)
    await bench.fit()
    assert "the summary" in bench.contents[1]


async def test_what_the_summariser_gets_fits_its_window(tmp_path: Path) -> None:
    small = Summariser(window=1_000, id="small")
    bench = Bench(tmp_path, talking(10), Summariser(window=2_000), lambda: small)
    await bench.fit()
    (asked,) = small.asked
    assert len(asked) < 0.7 * 1_000 * 4
    assert "<q1>" in asked
    assert "characters left out" in asked


async def test_a_summariser_that_still_refuses_gets_less(tmp_path: Path) -> None:
    model = Summariser(ModelError("Too long.", "context"), "the summary", window=2_000)
    bench = Bench(tmp_path, talking(5), model)
    await bench.fit()
    assert len(model.asked[1]) < 0.6 * len(model.asked[0])
    assert "the summary" in bench.contents[1]


NO_SUMMARY = [ModelError("Too many requests."), " ", Completion("I can't.", stop="refusal")]


@pytest.mark.parametrize("answer", NO_SUMMARY)
async def test_without_a_summary_the_oldest_goes_and_the_user_is_told(
    tmp_path: Path, answer: str | ModelError | Completion
) -> None:
    bench = Bench(tmp_path, talking(5), Summariser("the first", answer, window=2_000))
    await bench.fit()
    for record in talking(5):
        bench.transcript.append(record)
    await bench.fit()
    assert "the first" in bench.contents[1]
    assert "could not be summarised" in bench.contents[1]
    assert bench.contents[-1][:4] == "<a5>"
    assert bench.told[-1].startswith("It could not be summarised and was left out instead.")


@pytest.mark.parametrize(
    "kind", ["missing_key", "auth", "rate_limit", "unreachable", "unknown_model"]
)
async def test_what_may_work_later_costs_no_memory(tmp_path: Path, kind: ErrorKind) -> None:
    """The call that room is made for would fail in the same way."""
    bench = Bench(tmp_path, talking(5), model := Summariser(ModelError("Not now.", kind), "so far"))
    model.window = 2_000
    before = bench.file
    with pytest.raises(ModelError, match="Not now"):
        await bench.fit()
    model.answers.insert(0, ModelError("Not now.", kind))
    with pytest.raises(ModelError, match="Not now"):
        await bench.shrink()
    assert bench.file == before
    await bench.fit()
    assert "so far" in bench.contents[1]


async def test_a_summary_that_refuses_to_end_is_shortened(tmp_path: Path) -> None:
    bench = Bench(tmp_path, talking(5), Summariser("long " * 100_000, window=2_000))
    await bench.fit()
    assert len(bench.contents[1]) < 10_000


async def test_a_cancelled_compaction_leaves_the_transcript_as_it_was(tmp_path: Path) -> None:
    model = Summariser(window=2_000)
    model.hangs = True
    bench = Bench(tmp_path, [*talking(5), *working(9)], model)
    before, messages = bench.file, bench.messages
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(bench.fit)
        with anyio.fail_after(5):
            await model.was_asked.wait()
        tasks.cancel_scope.cancel()
    assert bench.file == before
    assert bench.messages == messages


async def test_a_user_who_can_not_be_told_stops_nothing(tmp_path: Path) -> None:
    async def gone(sentence: str) -> None:
        raise RuntimeError

    bench = Bench(tmp_path, talking(5), Summariser(window=2_000))
    bench.compactor = Compactor(bench.transcript, None, gone)
    await bench.fit()
    assert "the summary" in bench.contents[1]


async def test_a_provider_that_counted_is_believed(tmp_path: Path) -> None:
    counted = [usage(5_000, 10), call(11)]  # of 10,000 characters: twice as much as usual
    bench = Bench(tmp_path, [*working(10), *counted], Summariser(window=5_800))
    await bench.fit()
    assert bench.contents.count(TRIMMED) == 3
    await bench.fit()
    assert bench.contents.count(TRIMMED) == 3
    bench.transcript.append(user("x" * 3_000))  # not counted yet: what is known still holds
    await bench.fit()
    assert bench.contents.count(TRIMMED) > 3


async def test_after_a_refusal_half_of_it_goes(tmp_path: Path) -> None:
    bench = Bench(tmp_path, working(20), Summariser())
    before = bench.chars
    assert await bench.shrink()
    assert before / 3 < bench.chars < before * 0.52


async def test_after_a_refusal_that_names_the_window_as_much_goes_as_has_to(tmp_path: Path) -> None:
    bench = Bench(tmp_path, working(20), model := Summariser())
    model.window = 1_600  # learnt from the refusal; half of the conversation would be 2,500
    assert await bench.shrink()
    assert bench.chars / 4 < 0.7 * 1_600


async def test_a_turn_that_was_refused_is_not_summarised(tmp_path: Path) -> None:
    refused = [user("<bad>"), text("<no>"), {"t": "refused"}]
    bench = Bench(tmp_path, [*talking(1), *refused], model := Summariser())
    assert "summarised" in await bench.compact()
    assert "<q1>" in model.asked[0]
    assert "<bad>" not in model.asked[0]
    assert "<no>" not in model.asked[0]
    for record in refused:
        bench.transcript.append(record)
    assert await bench.compact() == "There is nothing to summarise yet."


async def test_a_window_that_proved_smaller_is_remembered(tmp_path: Path) -> None:
    bench = Bench(tmp_path, working(20), Summariser(window=1_000_000))
    await bench.shrink()
    trimmed = bench.contents.count(TRIMMED)
    for n in range(21, 31):
        for record in (call(n), result(n, "." * 1_000)):
            bench.transcript.append(record)
    await bench.fit()
    assert bench.contents.count(TRIMMED) > trimmed


async def test_a_single_result_that_is_too_long_goes_at_last(tmp_path: Path) -> None:
    bench = Bench(tmp_path, working(1, 100_000), Summariser())
    assert await bench.shrink()
    assert bench.contents[-1] == TRIMMED
    assert bench.contents[1] == "mend it"


async def test_nothing_more_can_go_of_a_prompt_alone(tmp_path: Path) -> None:
    model = Summariser()
    bench = Bench(tmp_path, [SYSTEM, user("x" * 100_000)], model)
    before = bench.file
    assert not await bench.shrink()
    assert bench.file == before
    assert model.asked == []


async def test_a_long_prompt_that_stays_is_not_worth_a_summary(tmp_path: Path) -> None:
    model = Summariser(window=5_000)
    bench = Bench(tmp_path, working(8, 50, prompt="x" * 20_000), model)
    before = bench.file
    await bench.fit()
    assert bench.file == before
    assert model.asked == []


async def test_on_demand_all_of_it_is_summarised(tmp_path: Path) -> None:
    bench = Bench(tmp_path, talking(3, 10_000), Summariser())
    assert await bench.compact() == (
        "The conversation was summarised: about 15,002 tokens are 21 now."
    )
    assert len(bench.messages) == 2
    assert await bench.compact() == "There is nothing to summarise yet."


async def test_on_demand_a_failure_is_said_and_nothing_goes(tmp_path: Path) -> None:
    bench = Bench(tmp_path, talking(3), Summariser(ModelError("Too many requests.")))
    messages = bench.messages
    said = await bench.compact()
    assert said == "The conversation could not be summarised. Too many requests."
    assert bench.messages == messages


steps = st.lists(
    st.one_of(records, st.sampled_from([*working(5, 300), *talking(3, 200)])), max_size=30
)


@settings(max_examples=60, deadline=None)
@given(steps, st.integers(1, 400), st.booleans())
async def test_whatever_goes_the_messages_stay_well_formed_and_reload(
    found: list[Record], window: int, fails: bool
) -> None:
    answers: tuple[str | ModelError, ...] = (ModelError("No."),) if fails else ()
    with TemporaryDirectory() as folder:
        bench = Bench(Path(folder), found, Summariser(*answers, window=window))
        shown = bench.transcript.history.replay()
        await bench.fit()
        assert bench.messages is not None
        for _ in range(len(found) + 1):
            if not await bench.shrink():
                break
        else:
            pytest.fail("it never ended")
        await bench.compact()
        assert bench.messages is not None
        assert bench.transcript.history.replay() == shown


async def test_words_that_joined_the_turn_stay_with_its_prompt_until_it_ends(
    tmp_path: Path,
) -> None:
    found = working(1)
    for n in range(2, 30):
        found += [steer(f"<w{n}>")] if n in (2, 20, 29) else []
        found += [{**call(n), "arguments": '"' + "x" * 500 + '"'}, result(n, "r")]
    bench = Bench(tmp_path, found, Summariser(window=2_000))
    await bench.fit()
    assert "the summary" in bench.contents[1]
    assert bench.contents[2:5] == ["mend it", "<w2>", "<w20>"]
    assert bench.contents.count("<w29>") == 1
    bench.transcript.append(user("<next>"))
    await bench.compact()
    assert not {"mend it", "<w2>"} & set(bench.contents)
