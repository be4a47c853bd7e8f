"""A model that goes round in circles in a turn: told once, then stopped; no process, no wire."""

from pathlib import Path

import pytest

from agent.model import NOTE, Completion, ModelError, ToolCall
from agent.tools import ToolError, ToolResult
from tests.agent.support import Bench, MemoryClient, Note, run
from tests.agent.turn.support import Saying, with_room

ANNOUNCING = "when: .\n" + "text: Let me look at the file.\n---\n" * 9


def calling(*notes: str) -> str:
    """A dialogue that makes these calls one after the other, then says "Done."."""
    lines = [f'call: note {{"text": "{note}"}}\n---' for note in notes]
    return "\n".join(["when: .", *lines, "text: Done."])


def never_ending() -> Saying:
    """A model that makes the same call for ever."""
    return Saying(completion=Completion(tool_calls=(ToolCall("c", "note", '{"text": "a"}'),)))


def same() -> Note:
    tool = Note("read")
    tool.result = ToolResult("the same as ever")
    return tool


def notes(bench: Bench) -> list[str]:
    """What the model was told."""
    told = [str(m["content"]) for m in bench.history.messages() if m["role"] == "user"]
    return [content for content in told if content.startswith(NOTE)]


def shown(bench: Bench) -> list[str]:
    return [text for text in bench.client.texts() if "[acp-bridge]" in text]


async def test_it_is_told_the_first_time_and_the_second_time_the_turn_ends(tmp_path: Path) -> None:
    bench, tool = Bench(tmp_path, never_ending()), same()
    assert await run(bench, "go", tool=tool) == "max_turn_requests"
    assert len(tool.notes) == 5
    (told,) = notes(bench)
    assert "the same call 4 times" in told
    (ended,) = shown(bench)
    assert "The turn was ended" in ended
    assert "the same call 4 times" in ended


async def test_a_model_that_listens_goes_on(tmp_path: Path) -> None:
    bench = Bench(tmp_path, calling(*"aaaabcd"))
    assert await run(bench, "go", tool=same()) == "end_turn"
    assert bench.client.texts() == ["Done."]
    assert len(notes(bench)) == 1


async def test_an_answer_after_being_told_ends_the_turn_as_ever(tmp_path: Path) -> None:
    bench = Bench(tmp_path, calling(*"aaaa"))
    assert await run(bench, "go", tool=same()) == "end_turn"
    assert len(notes(bench)) == 1
    assert not shown(bench)


async def test_below_the_limit_nobody_is_told(tmp_path: Path) -> None:
    bench = Bench(tmp_path, calling(*"aaa"))
    assert await run(bench, "go", tool=same()) == "end_turn"
    assert not shown(bench)
    assert not notes(bench)


async def test_results_that_change_are_no_circle(tmp_path: Path) -> None:
    bench, tool = Bench(tmp_path, never_ending()), Note("read")
    results = iter(range(1000))

    async def changing(text: str, show: object) -> ToolResult:
        return ToolResult(f"line {next(results)}")

    tool._run = changing  # type: ignore[method-assign]
    bench.max_calls = 30
    assert await run(bench, "go", tool=tool) == "max_turn_requests"
    assert next(results) == 30
    assert not notes(bench)


async def test_a_call_that_fails_is_noticed_earlier(tmp_path: Path) -> None:
    bench, tool = Bench(tmp_path, never_ending()), Note("read")
    tool.problem = ToolError("There is no such note.")
    assert await run(bench, "go", tool=tool) == "max_turn_requests"
    assert len(tool.prepared) == 4


async def test_two_calls_in_turn_are_noticed(tmp_path: Path) -> None:
    bench, tool = Bench(tmp_path, calling(*"abababababab")), same()
    assert await run(bench, "go", tool=tool) == "max_turn_requests"
    assert len(tool.notes) == 7


async def test_the_turns_before_do_not_count(tmp_path: Path) -> None:
    bench = Bench(tmp_path, calling(*"aaa"))
    for _ in range(3):
        assert await run(bench, "go", tool=same()) == "end_turn"
    assert not notes(bench)


async def test_a_call_that_is_announced_again_and_again_is_asked_for(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ANNOUNCING)
    for _ in range(2):
        assert await run(bench, "go on") == "end_turn"
    assert not notes(bench)
    assert await run(bench, "go on") == "max_turn_requests"
    (told,) = notes(bench)
    assert "announced a tool call 3 times" in told
    assert bench.client.texts().count("Let") == 4, "it may answer once more"


async def test_a_model_that_then_makes_the_call_goes_on(tmp_path: Path) -> None:
    said = "text: I will make a note now.\n"
    call = 'call: note {"text": "a"}\n---\ntext: Kept.'
    bench = Bench(tmp_path, f"turn\n{said}turn\n{said}turn\n{said}---\n{call}")
    tool = same()
    for _ in range(3):
        assert await run(bench, "go on", tool=tool) == "end_turn"
    assert len(tool.notes) == 1
    assert bench.client.texts()[-1] == "Kept."


async def test_room_that_is_needed_again_and_again_for_the_same_call_is_noticed(
    tmp_path: Path,
) -> None:
    bench, tool = Bench(tmp_path, calling(*"abacad")), same()
    room = with_room(bench)
    room.needed = True
    assert await run(bench, "go", tool=tool) == "max_turn_requests"
    assert tool.notes == ["a", "b", "a", "c", "a"]
    (told,) = notes(bench)
    assert "ran out of room twice" in told


async def test_room_that_is_needed_for_new_calls_is_none_of_its_business(tmp_path: Path) -> None:
    bench = Bench(tmp_path, calling(*"abcdef"))
    with_room(bench).needed = True
    assert await run(bench, "go", tool=same()) == "end_turn"
    assert not notes(bench)


async def test_a_request_that_is_made_smaller_several_times_is_no_circle(tmp_path: Path) -> None:
    model = Saying("fits")
    model.instead = [ModelError("too long", "context")] * 4
    bench = Bench(tmp_path, model)
    with_room(bench, *[True] * 4).needed = True
    assert await run(bench, "x") == "end_turn"
    assert bench.client.texts() == ["fits"]


async def test_switched_off_it_says_nothing(tmp_path: Path) -> None:
    bench, tool = Bench(tmp_path, never_ending()), same()
    bench.watch, bench.max_calls = False, 12
    assert await run(bench, "go", tool=tool) == "max_turn_requests"
    assert len(tool.notes) == 12
    assert not shown(bench)
    assert not notes(bench)


@pytest.mark.hazard("C17")
async def test_what_the_model_was_told_is_kept_and_given_after_a_reload(tmp_path: Path) -> None:
    bench = Bench(tmp_path, calling(*"aaaa"), MemoryClient("allow_once"))
    await run(bench, "go", tool=same())
    reloaded = bench.reloaded().history
    assert reloaded.messages() == bench.history.messages()
    assert reloaded.replay() == bench.history.replay()
    assert notes(bench)[0] in str(reloaded.messages())
    assert "circles" not in str(reloaded.replay())


async def test_a_model_that_was_told_may_answer_though_room_has_to_be_made_first(
    tmp_path: Path,
) -> None:
    bench, tool = Bench(tmp_path, never_ending()), same()
    room = with_room(bench)

    async def needed_once_it_was_told() -> None:
        room.needed = bool(notes(bench))

    room.work = needed_once_it_was_told
    assert await run(bench, "go", tool=tool) == "max_turn_requests"
    assert len(tool.notes) == 5
