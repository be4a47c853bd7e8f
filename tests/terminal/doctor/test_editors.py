"""Editors' settings: what in them starts acp-bridge, and if it still can."""

import json
from pathlib import Path

import pytest

from acp_bridge.terminal.doctor import editors
from tests.terminal.doctor.subjects import levels, texts

ZED = ".config/zed/settings.json"
SECRET = "s3cret-value"


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "bin" / "acp-bridge"
    path.parent.mkdir()
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def looked(home: Path, path: str = "/none") -> tuple[list[str], str]:
    found = editors.look({"HOME": str(home), "PATH": path})
    return levels(found), texts(found)


def write(home: Path, name: str, text: str) -> None:
    (home / name).parent.mkdir(parents=True, exist_ok=True)
    (home / name).write_text(text)


def servers(command: object, *args: str) -> str:
    entry = {"type": "custom", "command": command, "args": args, "env": {"KEY": SECRET}}
    other = {"type": "custom", "command": "/gone/codex-acp", "args": []}
    return json.dumps({"agent_servers": {"ours": entry, "theirs": other}})


def test_without_settings_all_is_well(tmp_path: Path) -> None:
    assert looked(tmp_path)[0] == ["ok"]


@pytest.mark.parametrize("file", [ZED, ".jetbrains/acp.json"])
def test_a_path_that_works_is_well_and_one_that_does_not_is_an_error(
    tmp_path: Path, program: Path, file: str
) -> None:
    write(tmp_path, file, servers(str(program)))
    assert looked(tmp_path)[0] == ["ok"]
    program.chmod(0o644)
    assert looked(tmp_path)[0] == ["error"]
    program.unlink()
    found, told = looked(tmp_path)
    assert found == ["error"]
    assert f"{program} is not there" in told
    assert "in its place" in told
    assert SECRET not in told
    assert "codex-acp" not in told


def test_comments_commas_and_a_mark_at_the_beginning_are_no_trouble(
    tmp_path: Path, program: Path
) -> None:
    text = f"""\ufeff// Zed settings
    {{ /* a "comment" */
      "theme": "http://one // no comment, ]",
      "agent_servers": {{
        "x": {{"command": "{program}", "args": ["a",],}}, // the last
      }},
    }}
    """
    write(tmp_path, ZED, text)
    found, told = looked(tmp_path)
    assert found == ["ok"]
    assert f"{program} is there" in told


@pytest.mark.parametrize("text", ["{", "nothing", "[]", "1", '{"a": }', "[" * 100_000, "\x00"])
def test_settings_that_are_no_json_are_a_warning(tmp_path: Path, text: str) -> None:
    write(tmp_path, ZED, text)
    found, told = looked(tmp_path)
    assert (found, "can't be read: it" in told) == (["warning"], True)


@pytest.mark.parametrize(
    "text", ["", "{}", '{"agent_servers": []}', '{"agent_servers": {"a": 1, "b": {}}}']
)
def test_settings_without_acp_bridge_say_where_to_read_on(tmp_path: Path, text: str) -> None:
    write(tmp_path, ZED, text)
    found, told = looked(tmp_path)
    assert (found, "does not have acp-bridge" in told) == (["ok"], True)


def test_a_name_is_looked_for_in_the_path(tmp_path: Path, program: Path) -> None:
    write(tmp_path, ZED, servers("acp-bridge"))
    assert looked(tmp_path)[0] == ["warning"]
    assert looked(tmp_path, str(program.parent))[0] == ["ok"]


def test_the_agent_behind_it_is_looked_for_too(tmp_path: Path, program: Path) -> None:
    write(tmp_path, ZED, servers(str(program), "--home", "/h", "--", "/gone/agent", "acp"))
    found, told = looked(tmp_path)
    assert found == ["ok", "error"]
    assert "/gone/agent is not there" in told
    assert "/h" not in told.replace(str(tmp_path), "")


@pytest.mark.parametrize(
    ("words", "is_ours"),
    [
        (["/a/acp-bridge"], True),
        (["uvx", "--from", "acp-stdio-bridge@1.2", "x"], True),
        (["/v/python", "-m", "acp_bridge"], True),
        (["codex-acp"], False),
        (["codex-acp", "--", "acp-bridge"], False),
    ],
)
def test_a_command_is_ours_by_itself_or_by_what_starts_it(words: list[str], is_ours: bool) -> None:
    assert editors.is_ours(words) is is_ours


def test_older_and_other_forms_of_entries_are_read() -> None:
    older = {"agent_servers": {"a": {"command": {"path": "/p", "args": ["x"]}}}}
    acpx = {"agents": {"a": {"argv": ["/p", "x"]}, "b": {"command": "/q"}}}
    acpx["agents"]["c"] = {"command": "'/my bin/acp-bridge' --keep 8h -- codex-acp"}
    acpx["agents"]["d"] = {"command": "/q 'open"}
    assert list(editors.commands(older)) == [["/p", "x"]]
    assert list(editors.commands(acpx)) == [
        ["/p", "x"],
        ["/q"],
        ["/my bin/acp-bridge", "--keep", "8h", "--", "codex-acp"],
        ["/q 'open"],
    ]


def test_paths_in_programs_are_found(tmp_path: Path, program: Path) -> None:
    write(tmp_path, ".config/nvim/lua/ai.lua", f'commands = {{ default = {{ "{program}" }} }}')
    write(tmp_path, ".emacs.d/init.el", '(acp-make-client :command "~/gone/acp-bridge")')
    found, told = looked(tmp_path)
    assert found == ["ok", "error"]
    assert f"Neovim ({tmp_path}/.config/nvim/lua/ai.lua): {program} is there" in told
