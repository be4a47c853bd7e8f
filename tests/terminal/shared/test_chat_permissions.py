"""How a person answers a permission in a chat: keys mark an answer, and Enter takes it."""

from pathlib import Path

import anyio
import pytest

from acp_bridge.core.protocol import Json, with_own_meta
from acp_bridge.core.wire.jsonrpc import Ok
from tests.terminal.shared.chat_bench import OPTIONS, SESSION, chat


async def test_what_is_typed_to_search_answers_no_question(tmp_path: Path) -> None:
    async with chat(tmp_path) as running:
        call = await running.prompt("do")
        running.type("\x12")
        await running.terminal.shows("search:")
        running.ask()
        await running.terminal.shows("1 or y: Allow")
        running.now += 1
        running.type("y")
        await running.terminal.shows("search: y")
        assert running.bridge.answered == []
        running.type("\x07\r")
        await running.terminal.hides("search:")
        assert running.bridge.answered == []
        running.end_turn(call)


@pytest.mark.hazard("V9")
async def test_a_key_marks_an_answer_on_the_screen_and_enter_takes_it(tmp_path: Path) -> None:
    async with chat(tmp_path) as running:
        await running.prompt("do")
        running.ask()
        await running.terminal.shows("  1 or y: Allow")
        await running.terminal.shows("rm -r /")
        await running.terminal.shows("a key marks, Enter answers")
        running.now += 1
        running.type("y")
        await running.terminal.shows("* 1 or y: Allow\n  2 or a: Always")
        await running.terminal.shows("Enter answers: Allow")
        await running.terminal.shows("» y")
        assert running.bridge.answered == []
        running.type("\r")
        await running.terminal.shows("\nAllow\n")
        await running.bridge.until(lambda: running.bridge.answered)
        outcome = {"outcome": "selected", "optionId": "once"}
        assert running.bridge.answered == [Ok({"outcome": outcome})]
        await running.terminal.hides("1 or y")


@pytest.mark.hazard("V9")
async def test_what_an_answer_holds_for_is_whole_on_a_narrow_terminal(tmp_path: Path) -> None:
    scope = "Always allow `npm run build --watch --all` in the folder /home/me/work this session"
    async with chat(tmp_path, columns=40) as running:
        running.options = [{"optionId": "a", "name": scope, "kind": "allow_always"}]
        await running.prompt("do")
        running.ask()
        await running.terminal.shows("1 or a: Always allow")
        await running.terminal.shows("this session")
        assert scope in " ".join(running.terminal.screen.split())


@pytest.mark.hazard("V9.3", "V9.8")
async def test_a_question_shows_its_command_and_one_that_changes_is_asked_anew(
    tmp_path: Path,
) -> None:
    async with chat(tmp_path) as running:
        await running.prompt("do")
        first = running.ask("List files", rawInput={"command": "ls\x1b[2J"})
        await running.terminal.shows("command: ls\\x1b[2J")
        running.now += 1
        running.bridge.peer.cancel(first)
        places = [{"path": f"/p{n}"} for n in range(7)]
        running.ask("List files", rawInput={"argv": ["rm", "-r", "a b"]}, locations=places)
        await running.terminal.shows("argv: rm -r 'a b'")
        await running.terminal.shows("paths (7):")
        await running.terminal.shows("/p6")
        running.type("y\r")  # for what it was before
        await running.terminal.shows("* 1 or y: Allow")
        assert len(running.bridge.answered) == 1  # the first, withdrawn
        running.now += 1
        running.type("\r")
        await running.terminal.shows("\nAllow\n")


@pytest.mark.hazard("V9")
async def test_what_is_asked_stands_beside_its_answers_however_long_it_is(tmp_path: Path) -> None:
    async with chat(tmp_path) as running:
        await running.prompt("do")
        another = "\n" * 40 + "command: ls\n"
        running.ask("ls", rawInput={"command": "rm -r /", "note": another})
        await running.terminal.shows("about ls: command: rm -r /")
        await running.terminal.shows("1 or y: Allow")


@pytest.mark.hazard("V9")
@pytest.mark.parametrize(("columns", "rows"), [(40, 12), (30, 16), (80, 14)])
async def test_what_is_asked_stands_beside_its_answers_on_a_small_terminal(
    tmp_path: Path, columns: int, rows: int
) -> None:
    scope = "Always allow make install in this project and all folders below it"
    lines = "".join(f"line {number}\n" for number in range(9))
    async with chat(tmp_path, columns=columns, rows=rows) as running:
        running.options = [*OPTIONS[:1], {**OPTIONS[1], "name": scope}, *OPTIONS[2:]]
        await running.prompt("do")
        running.ask("make install", content=[{"type": "diff", "path": "a", "newText": lines}])
        await running.terminal.shows("3 or n: Reject")
        await running.terminal.shows("about make install: ")
        assert scope in " ".join(running.terminal.screen.split())
        assert "»" in running.terminal.screen


async def test_all_answers_are_on_a_terminal_that_has_no_room_for_whole_ones(
    tmp_path: Path,
) -> None:
    scope = "ways exactly `" + "a long command " * 6 + "` in this session"
    async with chat(tmp_path, columns=40, rows=12) as running:
        running.options = [
            {"optionId": "y", "name": "Allow once", "kind": "allow_once"},
            {"optionId": "a", "name": f"Al{scope}", "kind": "allow_always"},
            {"optionId": "n", "name": "Reject once", "kind": "reject_once"},
            {"optionId": "d", "name": f"Reject al{scope}", "kind": "reject_always"},
        ]
        await running.prompt("do")
        running.ask("make install")
        await running.terminal.shows("3 or n: Reject once")
        await running.terminal.shows("2 or a: Always e ...  in this session")
        await running.terminal.shows("4 or d: Reject a ...  in this session")
        await running.terminal.shows("make install")


async def test_what_fits_on_the_screen_is_not_repeated_beside_its_answers(tmp_path: Path) -> None:
    async with chat(tmp_path, columns=40, rows=12) as running:
        await running.prompt("do")
        running.ask("make install")
        await running.terminal.shows("3 or n: Reject")
        assert running.terminal.screen.count("make install") == 1


async def test_what_was_typed_for_something_else_answers_no_permission(tmp_path: Path) -> None:
    async with chat(tmp_path) as running:
        await running.prompt("do")
        running.ask()
        await running.terminal.shows("1 or y: Allow")
        running.type("yes it is")
        await running.terminal.shows("» yes it is")
        running.now += 10
        running.type("y")
        await running.terminal.shows("» yes it isy")
        await running.terminal.shows("Alt-1 or Alt-y: Allow")
        assert not running.bridge.answered
        running.type("\x1bn")
        await running.terminal.shows("* Alt-3 or Alt-n: Reject")
        assert not running.bridge.answered
        running.type("\r")
        await running.terminal.shows("\nReject\n")
        await running.terminal.shows("» yes it isy")


async def test_the_first_letters_of_the_next_prompt_answer_no_permission(tmp_path: Path) -> None:
    async with chat(tmp_path) as running:
        await running.prompt("do")
        running.ask()
        await running.terminal.shows("1 or y: Allow")
        running.now += 10
        running.type("a")
        await running.terminal.shows("* 2 or a: Always")
        running.type("nd then do")
        await running.terminal.shows("» and then do")
        await running.terminal.shows("Alt and a key mark, Enter answers")
        await running.terminal.hides("* ")
        running.type("\r")
        await running.prompted("and then do")
        assert not running.bridge.answered
        await running.terminal.shows("1 or y: Allow")


async def test_what_is_pasted_answers_no_permission(tmp_path: Path) -> None:
    async with chat(tmp_path) as running:
        await running.prompt("do")
        running.ask()
        await running.terminal.shows("1 or y: Allow")
        running.now += 10
        running.type("\x1b[200~y\x1b[201~")
        await running.terminal.shows("Alt-1 or Alt-y: Allow")
        running.type("\r")
        await running.prompted("y")
        running.type("ä\x7fn\x1b[200~o\r\x1b[201~")
        await running.terminal.shows("» no")
        assert not running.bridge.answered


@pytest.mark.parametrize("key", ["\x1b", "\x7f", "\x15"])
async def test_a_mark_is_taken_away_by_escape_and_by_emptying_the_line(
    tmp_path: Path, key: str
) -> None:
    async with chat(tmp_path) as running:
        await running.prompt("do")
        running.ask()
        await running.terminal.shows("1 or y: Allow")
        running.now += 10
        running.type("y")
        await running.terminal.shows("* 1 or y: Allow")
        running.type(key)
        await running.terminal.hides("* 1 or y: Allow")
        await running.terminal.shows("»\n")
        running.type("\r")
        await running.terminal.shows("  1 or y: Allow")
        assert not running.bridge.answered
        assert not running.bridge.notified
        running.type("\x1b")  # without a mark it stops, as ever
        with anyio.fail_after(5):
            assert await running.bridge.told("session/cancel") == {"sessionId": SESSION}


async def test_an_arrow_makes_the_marked_key_text(tmp_path: Path) -> None:
    async with chat(tmp_path) as running:
        await running.prompt("do")
        running.ask()
        await running.terminal.shows("1 or y: Allow")
        running.now += 10
        running.type("y")
        await running.terminal.shows("* 1 or y: Allow")
        running.type("\x1b[D")
        await running.terminal.hides("* 1 or y: Allow")
        running.type("m\r")
        await running.prompted("my")
        assert not running.bridge.answered


async def test_alt_enter_sends_the_marked_key_as_text(tmp_path: Path) -> None:
    async with chat(tmp_path) as running:
        await running.prompt("do")
        running.ask()
        await running.terminal.shows("1 or y: Allow")
        running.now += 10
        running.type("y")
        await running.terminal.shows("* 1 or y: Allow")
        running.type("\x1b\r")
        await running.prompted("y")
        assert not running.bridge.answered


async def test_ctrl_c_stops_while_an_answer_is_marked_and_takes_nothing(tmp_path: Path) -> None:
    async with chat(tmp_path) as running:
        call = await running.prompt("do")
        running.ask()
        await running.terminal.shows("1 or y: Allow")
        running.now += 10
        running.type("y")
        await running.terminal.shows("* 1 or y: Allow")
        running.type("\x03")
        with anyio.fail_after(5):
            await running.bridge.told("session/cancel")
            await running.bridge.until(lambda: running.bridge.answered)
        assert running.bridge.answered == [Ok({"outcome": {"outcome": "cancelled"}})]
        await running.terminal.shows("»\n")
        running.end_turn(call, "cancelled")


async def test_enter_for_a_question_that_was_settled_elsewhere_sends_nothing(
    tmp_path: Path,
) -> None:
    async with chat(tmp_path) as running:
        await running.prompt("do")
        first = running.ask("first")
        await running.terminal.shows("1 or y: Allow")
        running.now += 1
        running.type("y")
        await running.terminal.shows("* 1 or y: Allow")
        running.bridge.peer.cancel(first)
        await running.terminal.shows("no longer asked: first")
        running.now += 1
        running.type("\r")
        await running.terminal.shows("Enter again sends the line")
        assert len([c for c in running.bridge.calls if c.method == "session/prompt"]) == 1
        running.type("es\r")
        await running.prompted("yes")


@pytest.mark.parametrize(
    ("decided", "told"),
    [
        ({"decision": "allow", "by": "client"}, "Allowed by a person"),
        (
            {"decision": "deny", "by": "client", "name": "phone"},
            "Denied by a person (token phone)",
        ),
        ({"decision": "cancelled", "by": "stop"}, "Cancelled by a Stop"),
    ],
)
async def test_a_question_that_ends_elsewhere_is_followed_by_who_has_decided(
    tmp_path: Path, decided: Json, told: str
) -> None:
    async with chat(tmp_path) as running:
        await running.prompt("do")
        request = running.ask("first")
        await running.terminal.shows("1 or y: Allow")
        running.bridge.peer.cancel(request)
        call = {"sessionUpdate": "tool_call_update", "toolCallId": "t1"}
        for _ in range(2):  # one question ends once
            params = {"sessionId": SESSION, "update": call}
            params = with_own_meta(params, {"decided": decided})
            running.bridge.peer.notify("session/update", params)
        await running.terminal.shows(f"no longer asked: first\n{told}\n")
        assert running.terminal.everything.count(told) == 1


async def test_one_own_answer_is_no_news(tmp_path: Path) -> None:
    async with chat(tmp_path) as running:
        await running.prompt("do")
        running.ask("first")
        await running.terminal.shows("1 or y: Allow")
        running.now += 1
        running.type("y\r")
        await running.bridge.until(lambda: running.bridge.answered)
        call = {"sessionUpdate": "tool_call_update", "toolCallId": "t1", "status": "completed"}
        decided = {"decision": "allow", "by": "client", "option": "allow_once"}
        params = with_own_meta({"sessionId": SESSION, "update": call}, {"decided": decided})
        running.bridge.peer.notify("session/update", params)
        await running.terminal.shows("✓ first")
        assert "by a person" not in running.terminal.everything


async def test_a_question_that_takes_the_place_of_another_waits_for_quiet_again(
    tmp_path: Path,
) -> None:
    async with chat(tmp_path) as running:
        await running.prompt("do")
        first = running.ask("first")
        running.ask("second", "t2")
        await running.terminal.shows("1 or y: Allow")
        running.now += 1
        running.bridge.peer.cancel(first)
        await running.terminal.shows("no longer asked: first")
        await running.terminal.shows("second")
        running.type("y\r")
        await running.terminal.shows("* 1 or y: Allow")
        assert len(running.bridge.answered) == 1  # the first, withdrawn
        running.type("\x7f1")
        running.now += 1
        running.type("\r")
        await running.terminal.shows("\nAllow\n")


async def test_an_answer_below_its_question_repeats_neither_title_nor_content(
    tmp_path: Path,
) -> None:
    async with chat(tmp_path) as running:
        await running.prompt("do")
        diff = {"type": "diff", "path": "a.py", "oldText": "x = 1\n", "newText": "x = 2\n"}
        running.ask("Change a.py", content=[diff])
        await running.terminal.shows("1 or y: Allow")
        running.now += 1
        running.type("y\r")
        await running.terminal.shows("\nAllow\n")
        assert running.terminal.everything.count("Change a.py") == 1
        assert running.terminal.everything.count("x = 2") == 1


async def test_an_answer_names_its_question_if_something_was_printed_in_between(
    tmp_path: Path,
) -> None:
    async with chat(tmp_path) as running:
        await running.prompt("do")
        title = "Change it " + "again " * 20
        running.ask(title)
        await running.terminal.shows("1 or y: Allow")
        running.say("while you think\n\n")
        await running.terminal.shows("while you think")
        running.now += 1
        running.type("y\r")
        await running.terminal.shows("\nAllow: Change it again")
        await running.terminal.hides(f"Allow: {title}")


async def test_ctrl_c_stops_the_turn_and_takes_its_question_back(tmp_path: Path) -> None:
    async with chat(tmp_path) as running:
        call = await running.prompt("do")
        running.ask()
        await running.terminal.shows("1 or y: Allow")
        running.type("\x03")
        await running.terminal.shows("Ctrl-C again leaves")
        with anyio.fail_after(5):
            assert await running.bridge.told("session/cancel") == {"sessionId": SESSION}
            await running.bridge.until(lambda: running.bridge.answered)
        assert running.bridge.answered == [Ok({"outcome": {"outcome": "cancelled"}})]
        running.end_turn(call, "cancelled")
        await running.terminal.shows("stopped")
        assert not running.left.is_set()
