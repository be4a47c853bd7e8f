"""The smaller parts of the chat: mentions, files, history, settings, how a session is found."""

import json
import os
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import pytest

from acp_bridge.terminal.chat.conversation import Conversation
from acp_bridge.terminal.chat.files import Files
from acp_bridge.terminal.chat.history import FileHistory
from acp_bridge.terminal.chat.local_commands import HELP, LOCAL
from acp_bridge.terminal.chat.main import is_kept
from acp_bridge.terminal.chat.mentions import blocks_of, written
from acp_bridge.terminal.chat.questions import question
from acp_bridge.terminal.chat.session_commands import SessionCommands
from acp_bridge.terminal.view.blocks import Tone
from acp_bridge.terminal.view.settings_shown import SettingsShown
from acp_bridge.terminal.view.standing import standing
from tests.sharing.bridge_client.fake_bridge import FakeBridge, connection_to
from tests.support.waiting import until

OPTIONS = [
    {
        "id": "m",
        "category": "model",
        "type": "select",
        "currentValue": "small",
        "options": [
            {"group": "g", "name": "G", "options": [{"value": "small", "name": "Small one"}]},
            {"value": "smart", "name": "Smart"},
        ],
    }
]


# --- mentions


def names(blocks: list[dict[str, Any]]) -> list[str]:
    return [block.get("name") or block["text"] for block in blocks]


def test_a_mentioned_file_becomes_a_link_and_the_text_around_it_stays(tmp_path: Path) -> None:
    (tmp_path / "a.py").touch()
    (tmp_path / "b c").mkdir()
    blocks = blocks_of('see @a.py, and @"b c"!', tmp_path)
    assert names(blocks) == ["see ", "a.py", ", and ", "b c", "!"]
    assert blocks[1] == {
        "type": "resource_link",
        "uri": (tmp_path / "a.py").as_uri(),
        "name": "a.py",
    }
    assert [written("a.py"), written("b c")] == ["@a.py", '@"b c"']


@pytest.mark.parametrize(
    "text",
    ["mail me@a.py", "@nothing.py", "@../secret", "@/etc/passwd", "@", '@""', "@a\x00b", "x@"],
)
def test_what_names_no_file_below_the_folder_stays_text(tmp_path: Path, text: str) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "a.py").touch()
    (tmp_path / "secret").touch()
    assert blocks_of(text, tmp_path / "inner") == [{"type": "text", "text": text}]


# --- files


def test_files_near_the_top_and_of_that_name_come_first_and_big_folders_not_at_all(
    tmp_path: Path,
) -> None:
    for path in ("src/deep/main.py", "main.py", "domain/x.py", ".git/main", "node_modules/main.js"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()
    files = Files(tmp_path, lambda: 0.0)
    assert files.matching("MAIN", 10) == ["main.py", "src/deep/main.py", "domain/", "domain/x.py"]
    assert files.matching("main", 1) == ["main.py"]
    assert files.matching("nowhere", 10) == []


def test_a_walk_ends_when_its_time_is_over_and_follows_no_link(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "a").mkdir()
    times = iter([0.0, 0.0, 5.0, 5.0, 5.0, 5.0])
    assert Files(tmp_path, lambda: next(times)).matching("", 10) == ["a/", "loop"]
    assert Files(tmp_path / "gone", lambda: 0.0).matching("", 10) == []


# --- history


def test_the_history_is_kept_for_the_user_alone_and_bounded(tmp_path: Path) -> None:
    file = tmp_path / "history"
    history = FileHistory(file)
    history.store_string("one\ntwo")
    history.store_string("x" * 20_000)
    history.store_string("three")
    assert [*FileHistory(file).load_history_strings()] == ["three", "one\ntwo"]
    assert os.stat(file).st_mode & 0o777 == 0o600
    file.write_text("".join(f"{json.dumps(str(n))}\n" for n in range(3_000)) + "no JSON\n7\n")
    assert len([*FileHistory(file).load_history_strings()]) == 500
    assert len(file.read_text().splitlines()) == 500


def test_a_pipe_in_place_of_the_history_is_not_waited_for(tmp_path: Path) -> None:
    file = tmp_path / "history"
    os.mkfifo(file)
    history = FileHistory(file)
    history.store_string("one")
    assert [*history.load_history_strings()] == []


def test_a_history_that_can_not_be_kept_is_none(tmp_path: Path) -> None:
    history = FileHistory(tmp_path / "nowhere" / "history")
    history.store_string("one")
    assert [*history.load_history_strings()] == []


# --- modes and models


def test_options_count_before_modes_and_models_of_the_old_kind() -> None:
    shown = SettingsShown()
    shown.opened(
        {
            "configOptions": OPTIONS,
            "models": {"currentModelId": "old", "availableModels": [{"modelId": "old"}]},
            "modes": {"currentModeId": "a", "availableModes": [{"id": "a"}, {"id": "b"}]},
        }
    )
    model, mode = shown.choices("model"), shown.choices("mode")
    assert model is not None
    assert (model.current, model.name) == ("small", "Small one")
    assert [value.id for value in model.values] == ["small", "smart"]
    assert shown.chosen("model", "smart") == (
        "session/set_config_option",
        {"configId": "m", "value": "smart"},
    )
    assert shown.chosen("mode", "b") == ("session/set_mode", {"modeId": "b"})
    assert mode is not None
    assert mode.after() == mode.values[1]


def test_a_value_is_named_by_the_beginning_that_only_it_has() -> None:
    shown = SettingsShown()
    shown.opened({"configOptions": OPTIONS})
    model = shown.choices("model")
    assert model is not None
    assert model.named("SMALL") == model.values[0]
    assert model.named("sma") is None
    assert model.named("smar") == model.values[1]
    assert model.named("other") is None


def test_a_change_by_another_client_is_told_and_the_same_value_is_not() -> None:
    shown = SettingsShown()
    shown.opened({"modes": {"currentModeId": "a", "availableModes": [{"id": "a"}, {"id": "b"}]}})
    change = {"sessionUpdate": "current_mode_update", "currentModeId": "b"}
    assert shown.note_update(change) == "mode: b"
    assert shown.note_update(change) is None


def test_a_mode_that_was_not_announced_is_told_harmless() -> None:
    shown = SettingsShown()
    shown.opened({"modes": {"currentModeId": "a", "availableModes": [{"id": "a"}]}})
    change = {"sessionUpdate": "current_mode_update", "currentModeId": "b\x1b]0;c\x07\n" + 99 * "d"}
    told = shown.note_update(change)
    assert told is not None
    assert told.startswith("mode: b\\x1b]0;c\\x07 ddd")
    assert len(told) < 80


def test_a_word_that_the_hint_of_a_command_has_twice_is_offered_once() -> None:
    shown = SettingsShown()
    hint = "run | move NUMBER before NUMBER | move NUMBER last"
    commands = [{"name": "queue", "input": {"hint": hint}}]
    shown.note_update({"sessionUpdate": "available_commands_update", "availableCommands": commands})
    assert shown.commands[0].words == ("run", "move")


@pytest.mark.parametrize("name", ["queue", *(each.name for each in LOCAL)])
def test_the_help_names_each_command_that_every_agent_has(name: str) -> None:
    assert re.search(rf"(?<!\S)/{name}\b", HELP)


def test_usage_title_and_odd_announcements() -> None:
    shown = SettingsShown()
    update: dict[str, Any]
    for update in (
        {"sessionUpdate": "usage_update", "used": "x", "size": 0, "cost": 7},
        {"sessionUpdate": "usage_update", "used": 1, "size": 10**400},
        {"sessionUpdate": "usage_update", "cost": {"amount": 10**400, "currency": "USD"}},
        {"sessionUpdate": "usage_update", "cost": {"amount": -1, "currency": "USD"}},
        {"sessionUpdate": "available_commands_update", "availableCommands": [7, {"name": "a b"}]},
        {"sessionUpdate": "config_option_update", "configOptions": [{"id": "mode", "options": 7}]},
        {"sessionUpdate": "session_info_update", "title": None},
        {"sessionUpdate": []},
    ):
        assert shown.note_update(update) is None
    assert (shown.used, shown.cost, shown.title, shown.commands) == (None, "", "", ())
    cost = {"amount": 0.125, "currency": "USD"}
    shown.note_update({"sessionUpdate": "usage_update", "used": 10, "size": 100, "cost": cost})
    assert (shown.used, shown.cost) == ((10, 100), "0.12 USD")


# --- questions


def test_each_option_has_a_number_and_the_first_of_a_kind_its_letter() -> None:
    kinds = ["allow_once", "allow_once", "reject_once", "reject_always", "odd"]
    offered = [{"optionId": str(n), "kind": kind} for n, kind in enumerate(kinds)]
    asked = question(None, {"options": [*offered, 7]})
    keys = [option.keys for option in asked.options]
    assert keys == [("1", "y"), ("2",), ("3", "n"), ("4", "d"), ("5",)]


def test_an_option_without_a_name_is_shown_by_its_id_harmless() -> None:
    given = "a\x1b[2J\n  1 or y: No"
    (option,) = question(None, {"options": [{"optionId": given, "kind": "allow_once"}]}).options
    assert (option.id, option.name) == (given, "a\\x1b[2J 1 or y: No")


@pytest.mark.parametrize("before", [None, {"state": "idle", "seconds": 60}])
def test_a_turn_is_counted_from_when_its_prompt_is_being_written(
    before: dict[str, Any] | None,
) -> None:
    was = None if before is None else standing(before)
    accepts = standing({"state": "running", "seconds": 0, "waiting": 1})
    runs = standing({"state": "running", "seconds": 2, "turn": {"promptId": "p"}})
    asks = standing({"state": "permission", "seconds": 0, "turn": {"promptId": "p"}})
    follows = standing({"state": "running", "seconds": 0, "turn": {"promptId": "q"}})
    assert (accepts.begins(was), runs.begins(accepts), asks.begins(runs)) == (True, True, False)
    assert (follows.begins(runs), standing({"state": "idle"}).begins(follows)) == (True, False)


# --- sessions


async def test_a_list_of_sessions_that_can_not_be_read_is_not_taken_for_one_without_this_session(
    tmp_path: Path,
) -> None:
    with closing(sqlite3.connect(tmp_path / "index.db")) as newer:
        newer.execute("PRAGMA user_version = 999")
    assert is_kept(tmp_path, "s1")  # as far as anybody can say
    said: list[str] = []

    class Talk(Conversation):
        def say(self, text: str, tone: Tone = Tone.NEWS) -> None:
            said.append(text)

    talk = Talk(tmp_path, lambda: None, lambda: 0.0)
    commands = SessionCommands(talk, tmp_path, lambda session: None)
    async with connection_to(FakeBridge(), talk) as connection, anyio.create_task_group() as tasks:
        talk.opened("s1", {})
        said.clear()
        tasks.start_soon(commands.serve, connection)
        commands.run("export", "")
        commands.run("fork", "")
        await until(lambda: len(said) == 2)
        tasks.cancel_scope.cancel()
    commands._send.close()
    commands._asked.close()
    assert said == ["the list of sessions (index.db) is of a newer acp-bridge"] * 2
