"""The tool calls of an answer: cards, arguments, order, permission, results, cancellation."""

from pathlib import Path
from typing import Any

import anyio
import pytest
from pydantic_core import to_json

from agent.conversation.entries import INTERRUPTED
from agent.model import Completion, ToolCall
from agent.secrets import Secrets
from agent.tools import Toolbox, ToolError, ToolResult
from agent.tools.plan import Plan
from agent.turn.permissions import PromptCancelled
from tests.agent.support import NOTES, Bench, MemoryClient, Note, run, user
from tests.agent.turn.support import Saying, allowing, calls, states

DIFF = {"type": "diff", "path": "/p/a", "oldText": "x", "newText": "y"}
TERMINAL = {"type": "terminal", "terminalId": "t1"}


def text(said: str) -> dict[str, Any]:
    return {"type": "content", "content": {"type": "text", "text": said}}


# cards


async def test_calls_run_in_order_and_their_results_go_to_the_model(tmp_path: Path) -> None:
    bench, tool = allowing(tmp_path), Note()
    assert await run(bench, "note", tool=tool) == "end_turn"
    assert tool.notes == ["a", "b"]
    assert bench.client.card_states() == states(
        "1 pending",
        "2 pending",
        "1 in_progress",
        "1 completed",
        "2 in_progress",
        "2 completed",
    )
    roles = [m["role"] for m in bench.history.messages()]
    assert roles == ["user", "assistant", "tool", "tool", "assistant"]
    assert bench.told() == ["kept a", "kept b"]
    assert bench.client.texts() == ["Kept."]


async def test_a_card_shows_kind_title_locations_and_raw_input_and_output(tmp_path: Path) -> None:
    bench = allowing(tmp_path)
    await run(bench, "note", tool=Note())
    start = bench.client.updates[0]
    assert start == {
        "sessionUpdate": "tool_call",
        "status": "pending",
        "toolCallId": "call-1",
        "title": "Note a",
        "kind": "other",
        "rawInput": {"text": "a"},
        "locations": [{"path": str(bench.cwd / "a")}],
    }
    end = next(u for u in bench.client.updates if u.get("status") == "completed")
    assert end["rawOutput"] == {"n": 1}
    assert end["content"] == [text("kept a")]


async def test_a_diff_is_shown_before_it_is_asked_for_and_stays(tmp_path: Path) -> None:
    bench, tool = Bench(tmp_path, calls("a")), Note("edit")
    tool.content = (DIFF,)
    await run(bench, "note", tool=tool)
    assert bench.client.updates[1]["content"] == [DIFF]
    assert bench.client.asked[0]["content"] == [DIFF]
    assert bench.client.updates[2]["content"] == [DIFF, text("The user did not allow it.")]
    replayed = bench.reloaded().history.replay()
    assert replayed == bench.history.replay()
    assert [u["content"] for u in replayed if u.get("status") == "failed"] == [
        bench.client.updates[2]["content"]
    ]


async def test_a_file_with_a_second_name_is_asked_for_in_every_mode_as_a_person_s_to_allow(
    tmp_path: Path,
) -> None:
    bench = Bench(
        tmp_path,
        'when: note\ncall: read_file {"path": "a"}\n---\n'
        'call: edit_file {"path": "a", "old": "old", "new": "new"}\n---\ntext: Done.\n',
    )
    (bench.folder.parent / "config").write_text("old")
    (bench.cwd / "a").hardlink_to(bench.folder.parent / "config")
    bench.permissions.mode = "auto"
    with anyio.fail_after(5):
        await bench.turn().run(user("note"))
    (asked,) = bench.client.asked
    assert asked["_meta"] == {"acpBridgeAgent": {"onlyPerson": True}}
    assert "2 names" in asked["content"][1]["content"]["text"]
    assert (bench.cwd / "a").read_text() == "old"


@pytest.mark.hazard("K1.3", "T2.1")
async def test_a_diff_that_was_shown_is_still_there_after_a_kill(tmp_path: Path) -> None:
    bench, tool = Bench(tmp_path, calls("a")), Note("edit")
    tool.content = (DIFF,)
    bench.client.answers_permission = False
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(bench.turn(tools=Toolbox([tool])).run, user("note"))
            await bench.client.was_asked.wait()
            killed = bench.reloaded().history.replay()
            tasks.cancel_scope.cancel()
    card, end = killed[-2:]
    assert card["content"] == [DIFF]
    assert end["content"] == [DIFF, text(INTERRUPTED)]
    assert bench.client.updates[-1]["content"] == end["content"]


async def test_a_card_s_id_is_new_even_if_some_of_the_transcript_is_lost(tmp_path: Path) -> None:
    bench = allowing(tmp_path)
    await run(bench, "note", tool=Note())
    file = bench.folder / "s1.jsonl"
    kept = [
        line
        for line in file.read_text().splitlines(True)
        if '"card":{"toolCallId":"call-1"' not in line
    ]
    file.write_text("".join(kept))
    bench.transcript = bench.reloaded()
    await run(bench, "note", tool=Note())
    opened = [card for card, status in bench.client.card_states() if status == "pending"]
    assert opened == ["call-1", "call-2", "call-3", "call-4"]


async def test_a_secret_that_the_model_saw_masked_is_not_overwritten_by_its_mask(
    tmp_path: Path,
) -> None:
    secret = "hunter2hunter2"
    old = f"a\nkey={secret}\n"
    for new, runs in [
        ("b\nkey=***\n", False),
        (f"b\nkey={secret}\n", True),
        ("b\n", True),
        (f"***\nkey={secret}\n", True),
    ]:
        bench, tool = allowing(tmp_path, calls("a")), Note("edit")
        bench.secrets = Secrets([secret])
        tool.content = ({**DIFF, "oldText": old, "newText": new},)
        await run(bench, "note", tool=tool)
        assert bool(tool.notes) == runs == bool(bench.client.asked)
    assert "***" in str(bench.client.updates)


async def test_what_the_tool_gives_for_the_card_replaces_what_was_there(tmp_path: Path) -> None:
    bench, tool = allowing(tmp_path, calls("a")), Note("edit")
    tool.content, tool.result = (DIFF,), ToolResult("done", content=(text("shown"),))
    await run(bench, "note", tool=tool)
    ends = [u for u in bench.client.updates if u.get("status") == "completed"]
    assert [u["content"] for u in ends] == [[text("shown")]]
    assert bench.told() == ["done"]


async def test_what_a_tool_shows_while_it_runs_is_on_its_card(tmp_path: Path) -> None:
    bench, tool = allowing(tmp_path, calls("a")), Note()
    tool.shows = (TERMINAL,)
    await run(bench, "note", tool=tool)
    updates = [u for u in bench.client.updates if u.get("content") == [TERMINAL]]
    assert updates == [
        {"sessionUpdate": "tool_call_update", "toolCallId": "call-1", "content": [TERMINAL]}
    ]


@pytest.mark.hazard("C16")
async def test_a_card_that_has_ended_shows_nothing_more(tmp_path: Path) -> None:
    class Late(Note):
        async def _run(self, text: str, show: Any) -> ToolResult:
            self.show = show
            return await super()._run(text, show)

    bench, tool = allowing(tmp_path, calls("a")), Late()
    await run(bench, "note", tool=tool)
    shown = len(bench.client.updates)
    await tool.show([TERMINAL])
    assert len(bench.client.updates) == shown


async def test_images_of_a_result_are_kept_for_the_model(tmp_path: Path) -> None:
    bench, tool = allowing(tmp_path, calls("a")), Note("read")
    tool.result = ToolResult("a picture", images=("data:image/png;base64,aGk=",))
    await run(bench, "note", tool=tool)
    for history in (bench.history, bench.reloaded().history):
        assert "data:image/png;base64,aGk=" in str(history.messages())


async def test_an_image_that_providers_would_refuse_is_not_given_to_the_model(
    tmp_path: Path,
) -> None:
    bench, tool = allowing(tmp_path, calls("a")), Note("read")
    odd = ("data:image/png;base64,no!", "data:image/tiff;base64,aGk=", "https://x/a.png")
    tool.result = ToolResult("pictures", images=odd)
    await run(bench, "note", tool=tool)
    assert bench.told() == ["pictures\n(An image of it can't be read and was left out.)"]
    assert not any(url in str(bench.history.messages()) for url in odd)


async def test_a_plan_is_recorded_before_it_is_shown_and_replayed(tmp_path: Path) -> None:
    entries = [{"content": "look", "priority": "high", "status": "pending"}]
    call = 'call: plan {"entries": [{"content": "look", "priority": "high"}]}'
    bench = Bench(tmp_path, f"turn\n{call}\n---\ntext: So.")
    update = bench.client.update
    on_disk: list[list[Any]] = []

    async def compare(shown: dict[str, Any]) -> None:
        await update(shown)
        if shown["sessionUpdate"] == "plan":
            replay = bench.reloaded().history.replay(running=True)
            on_disk.append([u for u in replay if u["sessionUpdate"] == "plan"])

    bench.client.update = compare  # type: ignore[method-assign,assignment]
    with anyio.fail_after(5):
        await bench.turn(tools=Toolbox([Plan()])).run(user("x"))
    shown = {"sessionUpdate": "plan", "entries": entries}
    assert bench.client.of_kind("plan") == [shown]
    assert on_disk == [[shown]]
    assert "tool_call" not in str([bench.client.updates, bench.history.replay()])
    assert bench.told() == ["The user sees the plan: 0 of 1 done."]


async def test_a_call_that_is_no_plan_has_a_card_that_failed(tmp_path: Path) -> None:
    bench = Bench(tmp_path, 'turn\ncall: plan {"entries": "all"}\n---\ntext: So.')
    with anyio.fail_after(5):
        await bench.turn(tools=Toolbox([Plan()])).run(user("x"))
    assert [status for _, status in bench.client.card_states()] == ["pending", "failed"]
    assert bench.client.of_kind("plan") == []


async def test_of_two_plans_of_an_answer_the_last_one_stays(tmp_path: Path) -> None:
    plans = [f'call: plan {{"entries": [{{"content": "{n}"}}]}}' for n in range(2)]
    bench = Bench(tmp_path, "\n".join(["turn", *plans, "---", "text: So."]))
    update = bench.client.update
    held = anyio.Event()

    async def slow(shown: dict[str, Any]) -> None:
        """A client that takes its time for the first plan."""
        if shown["sessionUpdate"] == "plan" and not held.is_set():
            held.set()
            for _ in range(50):
                await anyio.lowlevel.checkpoint()
        await update(shown)

    bench.client.update = slow  # type: ignore[method-assign,assignment]
    with anyio.fail_after(5):
        await bench.turn(tools=Toolbox([Plan()])).run(user("x"))
    shown = bench.client.of_kind("plan")
    assert [plan["entries"][0]["content"] for plan in shown] == ["0", "1"]
    assert shown[-1] in bench.reloaded().history.replay()


# arguments and errors


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("dance {}", "no tool named dance"),
        ("note {}", "text: Field required"),
        ('note {"text": 7}', "text: "),
    ],
)
async def test_a_call_that_can_t_be_run_is_told_to_the_model(
    tmp_path: Path, call: str, said: str
) -> None:
    bench, tool = allowing(tmp_path, f"turn\ncall: {call}\n---\ntext: oh"), Note()
    assert await run(bench, "x", tool=tool) == "end_turn"
    assert said in bench.told()[0]
    assert bench.client.card_states() == states("1 pending", "1 failed")
    assert (bench.client.asked, tool.prepared) == ([], [])


@pytest.mark.parametrize(
    "written",
    ['{"text": "cu', "[1]", '{"text": NaN}', "[" * 100_000, '{"text": "\\ud800"}', "\ud800"],
)
async def test_arguments_that_make_no_sense_are_shown_as_they_were_written(
    tmp_path: Path, written: str
) -> None:
    call = ToolCall("c1", "note", written)
    bench, tool = Bench(tmp_path, Saying(completion=Completion(tool_calls=(call,)))), Note()
    bench.max_calls = 1
    assert await run(bench, "x", tool=tool) == "max_turn_requests"
    shown = bench.client.updates[0]["rawInput"]
    assert shown == {"[1]": [1], "\ud800": "?"}.get(written, written)
    to_json(bench.client.updates)  # whatever it is, it can be sent
    assert bench.client.card_states() == states("1 pending", "1 failed")


@pytest.mark.parametrize("where", ["refusal", "problem"])
async def test_a_tool_s_error_is_told_and_a_bug_s_text_is_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, where: str
) -> None:
    bench, tool = allowing(tmp_path), Note()
    setattr(tool, where, ToolError("the book is closed"))
    await run(bench, "note", tool=tool)
    setattr(tool, where, RuntimeError("/secret/path"))
    await run(bench, "note", tool=tool)
    assert (
        bench.told() == ["the book is closed"] * 2 + ["The tool failed; see the agent's log."] * 2
    )
    assert "/secret/path" not in str(bench.client.updates)
    assert "/secret/path" in caplog.text


async def test_a_tool_that_can_t_show_its_call_fails_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Odd(Note):
        def title(self, args: Any) -> str:
            if args.text == "a":
                raise ValueError("odd")
            return "Note"

    bench, tool = allowing(tmp_path), Odd()
    assert await run(bench, "note", tool=tool) == "end_turn"
    assert bench.told() == ["The tool failed; see the agent's log.", "kept b"]


async def test_the_next_call_goes_on_after_one_that_failed(tmp_path: Path) -> None:
    bench, tool = allowing(tmp_path, calls("a", "b").replace('"a"', "1")), Note()
    await run(bench, "note", tool=tool)
    assert tool.notes == ["b"]


@pytest.mark.hazard("K5")
async def test_secrets_are_masked_in_all_that_a_tool_gives_but_not_in_images(
    tmp_path: Path,
) -> None:
    secret = "c2VjcmV0LXZhbHVl"
    bench, tool = allowing(tmp_path, calls("a")), Note()
    bench.secrets = Secrets([secret])
    image = {
        "type": "content",
        "content": {"type": "image", "data": secret, "mimeType": "image/png"},
    }
    tool.content = ({**DIFF, "newText": secret},)
    tool.shows = (text(secret),)
    tool.result = ToolResult(
        secret, {"output": secret}, (text(secret), image), (f"data:image/png;base64,{secret}",)
    )
    await run(bench, "note", tool=tool)
    assert str(bench.client.updates).count(secret) == 1  # the image
    assert secret not in str(bench.client.asked)
    written = (bench.folder / "s1.jsonl").read_text()
    assert written.count(secret) == 2  # the image, shown and for the model
    assert "***" in bench.told()[0]


@pytest.mark.hazard("K5.2")
@pytest.mark.parametrize("form", ["{}", "```\n{}\n```", "````\n```\n{}\n````"])
async def test_half_a_secret_is_not_shown_while_the_other_half_is_still_to_come(
    tmp_path: Path, form: str
) -> None:
    bench, tool = allowing(tmp_path, calls("a")), Note()
    bench.secrets = Secrets(["hunter2hunter2"])
    tool.shows = (text(form.format("it is hunter2hunt")),)
    await run(bench, "note", tool=tool)
    tool.shows = (text(form.format("it is hunter2hunted")),)
    await run(bench, "note", tool=tool)
    updates = bench.client.of_kind("tool_call_update")
    shown = [u["content"] for u in updates if "content" in u and "status" not in u]
    assert shown == [[text(form.format("it is "))], [text(form.format("it is hunter2hunted"))]]


@pytest.mark.hazard("K5.1")
async def test_secrets_are_masked_in_errors_too(tmp_path: Path) -> None:
    bench, tool = allowing(tmp_path, calls("a")), Note()
    bench.secrets = Secrets(["hunter2hunter2"])
    tool.problem = ToolError("no such user: hunter2hunter2")
    await run(bench, "note", tool=tool)
    assert bench.told() == ["no such user: ***"]


# order


async def test_neighbours_that_only_read_run_at_once_but_not_too_many(tmp_path: Path) -> None:
    bench, tool = allowing(tmp_path, calls(*map(str, range(12)))), Note("read")
    tool.gate = anyio.Event()
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(bench.turn(tools=Toolbox([tool])).run, user("note"))
            while tool.running < 8:
                await anyio.lowlevel.checkpoint()
            for _ in range(20):
                await anyio.lowlevel.checkpoint()
            tool.gate.set()
    assert tool.most == 8
    assert bench.told() == [f"kept {number}" for number in range(12)]


async def test_all_others_run_alone_and_see_what_those_before_them_did(tmp_path: Path) -> None:
    class Watching(Note):
        async def prepare(self, args: Any, context: Any) -> Any:
            self.seen = [*getattr(self, "seen", []), len(self.notes)]
            return await super().prepare(args, context)

    bench, tool = allowing(tmp_path, calls("a", "b", "c")), Watching()
    await run(bench, "note", tool=tool)
    assert (tool.most, tool.seen) == (1, [0, 1, 2])


async def test_a_change_between_reads_waits_for_those_before_it_and_holds_those_after_it(
    tmp_path: Path,
) -> None:
    class Order(Note):
        def __init__(self, name: str, log: list[str]) -> None:
            super().__init__("read" if name == "look" else "edit")
            self.name, self.log = name, log

        async def _run(self, text: str, show: Any) -> ToolResult:
            self.log.append(f"+{text}")
            for _ in range(3):
                await anyio.lowlevel.checkpoint()
            self.log.append(f"-{text}")
            return ToolResult("")

    lines = [
        f'call: {name} {{"text": "{n}"}}' for n, name in enumerate(["look", "look", "put", "look"])
    ]
    log: list[str] = []
    bench = allowing(tmp_path, "\n".join(["turn", *lines, "---"]))
    with anyio.fail_after(5):
        tools = Toolbox([Order("look", log), Order("put", log)])
        await bench.turn(tools=tools).run(user("x"))
    assert log == ["+0", "+1", "-0", "-1", "+2", "-2", "+3", "-3"]


# permission


async def test_each_call_is_asked_for_on_its_own_card(tmp_path: Path) -> None:
    bench, tool = allowing(tmp_path), Note()
    await run(bench, "note", tool=tool)
    assert [asked["toolCallId"] for asked in bench.client.asked] == ["call-1", "call-2"]
    assert [asked["title"] for asked in bench.client.asked] == ["Note a", "Note b"]


@pytest.mark.hazard("C18")
@pytest.mark.parametrize("choice", ["reject_once", "reject_always", "unknown"])
async def test_after_a_rejection_the_rest_of_the_answer_is_neither_run_nor_asked_for(
    tmp_path: Path, choice: str
) -> None:
    bench, tool = Bench(tmp_path, calls("a", "b", "c"), MemoryClient("allow_once")), Note()
    bench.client.choices["Note b"] = choice
    assert await run(bench, "note", tool=tool) == "end_turn"
    assert tool.notes == ["a"]
    assert len(bench.client.asked) == 2
    after = "Not run: the user did not allow an earlier call of this answer."
    assert bench.told() == ["kept a", "The user did not allow it.", after]
    assert bench.client.texts() == ["Kept."]


async def test_the_next_answer_is_asked_for_again(tmp_path: Path) -> None:
    bench, tool = Bench(tmp_path, calls("a") + '\ncall: note {"text": "b"}\n---'), Note()
    bench.client.choices["Note b"] = "allow_once"
    await run(bench, "note", tool=tool)
    assert tool.notes == ["b"]


async def test_what_plan_mode_refuses_stops_no_other_call(tmp_path: Path) -> None:
    read = Note("read")
    read.name = "look"
    dialogue = calls("a").replace("---", 'call: look {"text": "b"}\n---')
    bench, edit = Bench(tmp_path, dialogue), Note("edit")
    bench.permissions.mode = "plan"
    with anyio.fail_after(5):
        await bench.turn(tools=Toolbox([edit, read])).run(user("note"))
    assert (edit.notes, read.notes, bench.client.asked) == ([], ["b"], [])
    assert "plan mode" in bench.told()[0]


@pytest.mark.hazard("P10.1")
async def test_reads_outside_are_asked_for_at_the_same_time_and_answered_each(
    tmp_path: Path,
) -> None:
    class Both(MemoryClient):
        """Answers no request before there are two."""

        def __init__(self) -> None:
            super().__init__()
            self.both = anyio.Event()

        async def ask(self, tool_call: dict[str, Any], options: list[dict[str, Any]]) -> str | None:
            self.asked.append(tool_call)
            if len(self.asked) == 2:
                self.both.set()
            await self.both.wait()
            return "allow_once" if tool_call["title"] == "Note b" else "reject_once"

    bench, tool = Bench(tmp_path, NOTES, Both()), Note("read")
    tool.outside = True
    await run(bench, "note", tool=tool)
    assert bench.told() == ["The user did not allow it.", "kept b"]


@pytest.mark.hazard("C18", "C16", "C3")
@pytest.mark.parametrize("access", ["execute", "read"])
async def test_a_cancelled_permission_ends_the_turn_and_its_cards(
    tmp_path: Path, access: Any
) -> None:
    bench, tool = Bench(tmp_path, NOTES, MemoryClient(None)), Note(access)
    tool.outside = True
    with pytest.raises(PromptCancelled):
        await run(bench, "note", tool=tool)
    assert tool.notes == []
    assert bench.client.card_states() == states("1 pending", "2 pending", "1 failed", "2 failed")
    assert bench.told() == [INTERRUPTED] * 2
    assert bench.client.texts() == []
