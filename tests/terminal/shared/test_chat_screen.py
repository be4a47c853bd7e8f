"""What a person sees and types, on a model of a terminal."""

from pathlib import Path
from typing import Any

import anyio
import pytest
from prompt_toolkit.input import create_pipe_input

from acp_bridge.core.wire.jsonrpc import Ok
from acp_bridge.terminal.view.look import Look
from tests.sharing.bridge_client.fake_bridge import FakeBridge
from tests.terminal.shared.chat_bench import SESSION, Chat, chat, parts
from tests.terminal.shared.terminal_model import TerminalModel

MODES = {
    "modes": {
        "currentModeId": "ask",
        "availableModes": [{"id": "ask", "name": "Ask"}, {"id": "auto", "name": "Auto"}],
    }
}


async def test_what_streams_is_on_the_screen_and_stays_once_in_the_scrollback(
    tmp_path: Path,
) -> None:
    async with chat(tmp_path, rows=8) as running:
        call = await running.prompt("tell me")
        for number in range(40):
            running.say(f"paragraph {number} ")
            running.say("goes on\n\n")
        await running.terminal.shows("paragraph 39 goes on")
        running.end_turn(call)
        running.type("next")
        await running.terminal.shows("» next")
        paragraphs = [f"paragraph {number} goes on" for number in range(40)]
        await running.terminal.until(
            lambda: all(running.terminal.everything.count(each) == 1 for each in paragraphs)
        )
    for each in [*paragraphs, "» tell me"]:
        assert running.terminal.everything.count(each) == 1


async def test_typing_goes_on_during_a_turn_and_what_is_entered_waits_visibly(
    tmp_path: Path,
) -> None:
    async with chat(tmp_path) as running:
        first = await running.prompt("one")
        await running.terminal.shows("working")
        second = await running.prompt("two")
        await running.terminal.shows("waits: two")
        running.type("half a")
        running.say("the answer")
        await running.terminal.shows("the answer")
        await running.terminal.shows("» half a")
        running.end_turn(first)
        await running.terminal.hides("waits: two")
        await running.terminal.shows("» two")
        running.end_turn(second)
        await running.terminal.hides("working")
        await running.terminal.shows("» half a")


async def test_ctrl_r_searches_what_was_entered_and_enter_takes_it_into_the_line(
    tmp_path: Path,
) -> None:
    async with chat(tmp_path) as running:
        for text in ("mend the parser", "run the tests"):
            running.end_turn(await running.prompt(text))
        await running.terminal.hides("Esc stops")
        running.type("\x12PARS")
        await running.terminal.shows("search: PARS")
        await running.terminal.shows("» mend the parser\n")
        running.type("\r")
        await running.terminal.hides("search:")
        assert len([c for c in running.bridge.calls if c.method == "session/prompt"]) == 2
        running.type(" again\r")
        await running.prompted("mend the parser again")
        running.type("\x12tests")
        await running.terminal.shows("search: tests")
        running.type("\x07")
        await running.terminal.hides("search:")
        assert not running.left.is_set()


async def test_up_takes_the_last_waiting_prompt_back_into_the_line(tmp_path: Path) -> None:
    async with chat(tmp_path) as running:
        first = await running.prompt("one")
        await running.prompt("two")
        third = await running.prompt("three")
        await running.terminal.shows("waits: three")
        running.type("\x1b[A")
        await running.terminal.shows("» three")
        await running.terminal.hides("waits: three")
        with anyio.fail_after(5):
            told = await running.bridge.told("$/cancel_request")
        assert told == {"requestId": third.id}
        running.bridge.peer.answer(third.id, {"stopReason": "cancelled"})  # as the bridge does
        running.type(" more")
        await running.terminal.shows("» three more")
        running.type("\x1b[A")  # with something in the line it is the history
        await running.terminal.shows("waits: two")
        running.end_turn(first)
        await running.terminal.hides("waits: two")
        await running.terminal.shows("» two")
        assert running.terminal.everything.count("three") == 1  # only in the line


async def test_words_of_the_next_turn_stand_below_its_prompt(tmp_path: Path) -> None:
    async with chat(tmp_path) as running:
        first = await running.prompt("one")
        await running.prompt("two")
        running.say("to one")
        running.end_turn(first)
        running.say("to two")
        await running.terminal.shows("to two")
        screen = running.terminal.screen
        places = [screen.index(word) for word in ("» one", "to one", "» two", "to two")]
        assert places == sorted(places)


async def test_a_line_that_is_cut_on_a_narrow_terminal_says_so(tmp_path: Path) -> None:
    async with chat(tmp_path, columns=40, opened=MODES) as running:
        await running.prompt("do")
        await running.prompt("and then all that is left to be done in the parser")
        await running.terminal.shows("waits: and then all that is left to...\n")
        info = {"title": "a title that is as long as a line and more"}
        running.bridge.update(SESSION, "session_info_update", **info)
        await running.terminal.shows("Ask · a titl...")


async def test_ctrl_o_opens_the_whole_of_the_last_output_and_then_of_the_one_before(
    tmp_path: Path,
) -> None:
    async with chat(tmp_path, rows=20) as running:
        call = await running.prompt("go")
        running.type("\x0f")
        await running.terminal.shows("no tool call with output is left to open")
        for name, count in (("first", 30), ("second", 700)):
            lines = "\n".join(f"{name} {number} of it" for number in range(count))
            running.bridge.update(
                SESSION, "tool_call", toolCallId=name, title=name, kind="execute",
                status="completed",
                content=[{"type": "content", "content": {"type": "text", "text": lines}}],
            )  # fmt: skip
        await running.terminal.shows("692 earlier lines (Ctrl-O shows all)")
        assert "second 5 of it" not in running.terminal.everything
        running.type("\x0f")
        await running.terminal.until(lambda: "second 5 of it" in running.terminal.everything)
        assert "first 5 of it" not in running.terminal.everything
        running.type("\x0f")
        await running.terminal.until(lambda: "first 5 of it" in running.terminal.everything)
        running.end_turn(call)


async def test_escape_alone_stops_the_turn_and_as_the_begin_of_a_key_does_not(
    tmp_path: Path,
) -> None:
    async with chat(tmp_path) as running:
        call = await running.prompt("do")
        await running.terminal.shows("Esc stops")
        running.type("one\x1b\r")
        steered = await running.prompted("one")
        running.type("two\x1b[D")
        await running.terminal.shows("two")
        running.ask()
        await running.terminal.shows("Alt-1 or Alt-y: Allow")
        assert not running.bridge.notified
        running.type("\x1b")
        with anyio.fail_after(5):
            assert await running.bridge.told("session/cancel") == {"sessionId": SESSION}
            await running.bridge.until(lambda: running.bridge.answered)
        assert running.bridge.answered == [Ok({"outcome": {"outcome": "cancelled"}})]
        running.end_turn(steered, "cancelled")
        running.end_turn(call, "cancelled")
        await running.terminal.shows("stopped")
        running.type("\x1b\x1b")
        running.type("\x15again")
        await running.terminal.shows("again")
        assert len(running.bridge.notified) == 1
        assert not running.left.is_set()


async def test_escape_closes_the_list_of_completions_first(tmp_path: Path) -> None:
    async with chat(tmp_path) as running:
        await running.prompt("do")
        running.type("/mod")
        await running.terminal.shows("model  show the models")
        running.type("\x1b")
        await running.terminal.hides("model  show the models")
        assert not running.bridge.notified


async def test_ctrl_c_twice_leaves_and_ctrl_c_long_after_does_not(tmp_path: Path) -> None:
    async with chat(tmp_path) as running:
        running.type("\x03")
        await running.terminal.shows("again leaves")
        running.now += 3
        running.type("\x03x")
        await running.terminal.shows("» x")
        running.type("\x03")  # idle with something typed: that is what goes
        await running.terminal.hides("» x")
        running.type("\x03")
        with anyio.fail_after(5):
            await running.left.wait()


async def test_one_who_is_to_leave_before_anything_is_drawn_leaves(tmp_path: Path) -> None:
    with create_pipe_input() as keys:
        bridge = FakeBridge()
        bridge.close()
        for each in bridge.end:
            each.close()
        running = Chat(bridge, keys, TerminalModel())
        conversation, screen = parts(running, tmp_path, Look())
        conversation.end()
        conversation.say("why")
        screen.leave()
        with anyio.fail_after(5):
            await screen.run()
        assert running.terminal.screen.strip() == "why"


async def test_ctrl_d_leaves_on_an_empty_line_alone(tmp_path: Path) -> None:
    async with chat(tmp_path) as running:
        running.type("ab\x01\x04")
        await running.terminal.shows("» b")
        running.type("\x04\x04")
        with anyio.fail_after(5):
            await running.left.wait()


async def test_a_paste_of_many_lines_and_ctrl_j_send_nothing(tmp_path: Path) -> None:
    async with chat(tmp_path) as running:
        running.type("\x1b[200~one\rtwo\nthree\x1b[201~")
        await running.terminal.shows("three")
        running.type("\nfour\nfive")
        await running.terminal.shows("five")
        assert not [call for call in running.bridge.calls if call.method == "session/prompt"]
        running.type("\r")
        await running.prompted("one\ntwo\nthree\nfour\nfive")


async def test_ctrl_u_empties_all_rows_before_the_cursor_and_ctrl_y_brings_them_back(
    tmp_path: Path,
) -> None:
    async with chat(tmp_path) as running:
        await running.terminal.shows("»")
        running.type("one\x0atwo\x0athree")
        await running.terminal.shows("» one\n  two\n  three")
        running.type("\x15")
        await running.terminal.hides("one")
        await running.terminal.hides("two")
        running.type("\x19\r")
        await running.prompted("one\ntwo\nthree")


async def test_shift_tab_sets_the_next_mode_and_mode_lists_them(tmp_path: Path) -> None:
    answers: Any = {"session/set_mode": {}}
    async with chat(tmp_path, opened=MODES, **answers) as running:
        await running.terminal.shows("Ask")
        running.type("\x1b[Z")
        await running.terminal.shows("mode: Auto")
        call = await running.bridge.asked("session/set_mode")
        assert call.params == {"sessionId": SESSION, "modeId": "auto"}
        running.type("/mode\r")
        await running.terminal.shows("* auto  Auto")
        running.type("/mode as\r")
        await running.terminal.shows("mode: Ask")


async def test_a_model_outside_of_the_list_is_the_agents_to_take_or_to_refuse(
    tmp_path: Path,
) -> None:
    models = [{"value": each, "name": each} for each in ("openai/one", "openai/two")]
    option = {"id": "m", "category": "model", "type": "select", "currentValue": "openai/one"}
    settings = [{**option, "options": models}]
    async with chat(tmp_path, opened={"configOptions": settings}) as running:
        running.type("/model openai\r")
        await running.terminal.shows("more than one model begins so: openai")
        running.type("/model mistral/new\r")
        with anyio.fail_after(5):
            call = await running.bridge.asked("session/set_config_option")
        assert call.params == {"sessionId": SESSION, "configId": "m", "value": "mistral/new"}
        taken = [*models, {"value": "mistral/new", "name": "mistral/new"}]
        now = [{**option, "currentValue": "mistral/new", "options": taken}]
        running.bridge.peer.answer(call.id, {"configOptions": now})
        await running.terminal.shows("model: mistral/new")


async def test_a_command_that_nobody_has_is_refused_with_the_nearest_names_and_a_path_is_sent(
    tmp_path: Path,
) -> None:
    commands = [{"name": "compact", "description": "shorten"}, {"name": "queue"}]
    async with chat(tmp_path) as running:
        first = await running.prompt("/early")  # nobody has said yet which commands there are
        running.end_turn(first)
        running.bridge.update(SESSION, "available_commands_update", availableCommands=commands)
        running.type("/comp")
        await running.terminal.shows("compact  shorten")
        running.type("cat\r")
        await running.terminal.shows("there is no command /compcat; did you mean /compact?")
        running.type("/mod\r")
        await running.terminal.shows("did you mean /mode, /model?")
        running.type("/zzz\r")
        await running.terminal.shows("no command /zzz")
        for text in ("/etc/hosts is wrong", "/etc/hosts", "/compact", " /odd", "/odd but more"):
            running.end_turn(await running.prompt(text))
        sent = [call for call in running.bridge.calls if call.method == "session/prompt"]
        assert len(sent) == 6


@pytest.mark.parametrize("typed", ["!ls", "!git log -3", "!"])
async def test_a_line_for_a_shell_is_refused_and_with_a_space_before_it_sent(
    tmp_path: Path, typed: str
) -> None:
    async with chat(tmp_path) as running:
        await running.terminal.shows("»")
        running.type(f"{typed}\r")
        await running.terminal.shows("the chat runs no commands of a shell")
        assert not [call for call in running.bridge.calls if call.method == "session/prompt"]
        await running.prompt(f" {typed}")


@pytest.mark.parametrize("typed", ["!important: read this first\nthen that", "no! stop it", "!!"])
async def test_an_exclamation_that_is_no_command_is_sent(tmp_path: Path, typed: str) -> None:
    async with chat(tmp_path) as running:
        await running.terminal.shows("»")
        running.type(typed.replace("\n", "\x0a") + "\r")
        await running.prompted(typed)


async def test_slash_commands_and_files_are_completed(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "main file.py").touch()
    async with chat(tmp_path) as running:
        commands = [{"name": "review", "description": "looks at it"}]
        running.bridge.update(SESSION, "available_commands_update", availableCommands=commands)
        running.type("/rev")
        await running.terminal.shows("review  looks at it")
        running.type("\t @mai")
        await running.terminal.shows("src/main file.py")
        running.type("\t\r\r")
        with anyio.fail_after(5):
            call = await running.bridge.asked("session/prompt")
        assert call.params["prompt"] == [
            {"type": "text", "text": "/review "},
            {
                "type": "resource_link",
                "uri": (tmp_path / "src" / "main file.py").as_uri(),
                "name": "src/main file.py",
            },
        ]


async def test_enter_after_tab_sends_the_line_and_after_an_arrow_takes_the_choice(
    tmp_path: Path,
) -> None:
    for name in ("one.py", "other.py"):
        (tmp_path / name).touch()
    async with chat(tmp_path, opened=MODES) as running:
        await running.terminal.shows("»")
        running.type("/mo")
        await running.terminal.shows("  mode  show")
        running.type("\t")
        await running.terminal.shows("» /mode\n")
        running.type("\r")
        await running.terminal.shows("modes; /mode NAME sets one:")
        running.type("look at @o")
        await running.terminal.shows("  other.py")
        running.type("\x1b[B\r")
        await running.terminal.hides("  other.py")
        await running.terminal.shows("» look at @one.py")
        assert not [call for call in running.bridge.calls if call.method == "session/prompt"]
        running.type("\r")
        with anyio.fail_after(5):
            await running.bridge.asked("session/prompt")


async def test_a_completion_that_is_cut_says_so(tmp_path: Path) -> None:
    async with chat(tmp_path, columns=40) as running:
        commands = [{"name": "review", "description": "looks at all changes of this branch"}]
        running.bridge.update(SESSION, "available_commands_update", availableCommands=commands)
        await running.terminal.shows("»")
        running.type("/rev")
        await running.terminal.shows("  review  looks at all changes of thi...\n")


async def test_the_words_that_a_command_lists_are_completed(tmp_path: Path) -> None:
    hint = "pause | drop [number] | memory restore | title WORDS | NUMBER"
    async with chat(tmp_path) as running:
        commands = [
            {"name": "queue", "input": {"hint": hint}},
            {"name": "review", "input": {"hint": "what to look at"}},
        ]
        running.bridge.update(SESSION, "available_commands_update", availableCommands=commands)
        await running.terminal.shows("»")
        running.type("/queue ")
        for word in ("pause", "drop", "memory restore", "title"):
            await running.terminal.shows(f"  {word}\n")
        assert "NUMBER" not in running.terminal.screen
        running.type("mem")
        await running.terminal.hides("pause")
        await running.terminal.shows("  memory restore\n")
        running.type("\t")
        await running.terminal.shows("» /queue memory restore")
        running.type("\x15/review w")
        await running.terminal.shows("» /review w")
        assert "what" not in running.terminal.screen


async def test_nothing_of_an_agent_reaches_the_terminal_as_a_sequence(tmp_path: Path) -> None:
    bad = "\x1b]0;owned\x07\x1b[2J\x1b[31m\x9b2J\u202e\r"
    async with chat(tmp_path, columns=100) as running:
        call = await running.prompt("do")
        commands = [{"name": "x\x1b[2J", "description": bad}]
        running.bridge.update(SESSION, "available_commands_update", availableCommands=commands)
        running.bridge.update(SESSION, "session_info_update", title=bad)
        running.bridge.update(
            SESSION, "tool_call", toolCallId="t", title=bad, locations=[{"path": bad}]
        )
        running.say(bad)
        running.ask(bad)
        await running.terminal.shows("a permission is asked")
        running.type("/")
        await running.terminal.shows(r"x\x1b[2J")
        running.end_turn(call)
        assert "\x1b]" not in "".join(running.terminal.written)  # the model refuses others
        assert running.terminal.bells == 0


@pytest.mark.parametrize(("columns", "rows"), [(20, 6), (20, 3), (8, 4), (200, 50)])
async def test_a_small_terminal_shows_what_it_can(tmp_path: Path, columns: int, rows: int) -> None:
    async with chat(tmp_path, columns=columns, rows=rows) as running:
        call = await running.prompt("go")
        for number in range(30):
            running.say(f"word {number} and more\n\n" if number % 3 else f"`code {number}` 你好 ")
        running.ask()
        await running.terminal.shows("»")
        running.end_turn(call)
        running.type("typed")
        await running.terminal.shows("typed")
        assert "too small" not in running.terminal.everything


async def test_without_unicode_and_colours_plain_ascii_is_written(tmp_path: Path) -> None:
    async with chat(tmp_path, look=Look(unicode=False, colours=False)) as running:
        await running.prompt("go")
        running.say("• 你好\n\n")
        running.bridge.update(SESSION, "plan", entries=[{"content": "é"}])
        await running.terminal.shows(r"\u4f60\u597d")
        await running.terminal.shows(r"[ ] \xe9")
        assert "".join(running.terminal.written).isascii()


@pytest.mark.parametrize("said", ["end", "end\n\nmore"])
async def test_a_terminal_that_becomes_narrower_keeps_no_rows_of_what_was_drawn(
    tmp_path: Path, said: str
) -> None:
    async with chat(tmp_path) as running:
        await running.prompt("go")
        running.say("word " * 30)
        await running.terminal.shows("word word")
        running.terminal.resize(23)
        running.say(said)
        await running.terminal.shows(said[-4:].strip())
        assert running.terminal.everything.count("word") == 30
        assert running.terminal.everything.count("»") == 2


async def test_nothing_is_erased_without_being_drawn_by_the_same_write(tmp_path: Path) -> None:
    async with chat(tmp_path) as running:
        await running.prompt("go")
        for number in range(20):
            running.say(f"{number}\n\n")
            running.type("x")
        running.say("end\n\nmore")
        await running.terminal.shows("more")
        erasing = [text for text in running.terminal.written if "\x1b[J" in text]
        assert erasing
        assert all("»" in text for text in erasing)
