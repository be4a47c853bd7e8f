"""`acp-bridge setup`: what is printed, written, and said to be wrong."""

import json
import os
import shlex
import shutil
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest

from acp_bridge.terminal import cli
from acp_bridge.terminal.cli.serving_parser import OPTIONS
from acp_bridge.terminal.setup import installation
from acp_bridge.terminal.setup.editors import EDITORS

JSON_ONES = ("zed", "jetbrains", "acpx")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("XDG_CONFIG_HOME", "NVIM_APPNAME"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The command that was started, in a folder of its own."""
    command = tmp_path / "bin" / "acp-bridge"
    command.parent.mkdir()
    command.touch(mode=0o755)
    monkeypatch.setattr(sys, "argv", [str(command), "setup"])
    return str(command)


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = cli.run(["setup", *arguments])
    said = capsys.readouterr()
    return code, said.out, said.err


def document(printed: str) -> Any:
    """The JSON that stands in what was printed."""
    start = printed.index("{\n")
    return json.JSONDecoder().raw_decode(printed[start:])[0]


@pytest.mark.parametrize("name", EDITORS)
def test_the_path_of_this_installation_and_of_the_settings_are_printed(
    name: str, program: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(capsys, name)
    assert (code, err) == (0, "")
    file = EDITORS[name].file({"HOME": str(home)})
    assert program in out
    assert f"Into {file}:" in out if file else "In a terminal" in out
    assert "\nThen: " in out
    assert [path.name for path in home.iterdir()] == ["bin"]


def test_the_agent_s_command_and_the_bridge_s_options_are_the_arguments(
    program: str, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--keep", "8h", "--spare", "--on-cancel", "clear", "--delivery", "interrupt")
    code, out, _ = run(capsys, "zed", *options, "--", "sh", "-c", "an agent")
    assert code == 0
    (entry,) = document(out)["agent_servers"].values()
    assert entry["command"] == program
    given = entry["args"]
    assert given[given.index("--") :] == ["--", "sh", "-c", "an agent"]
    own = given[: given.index("--")]
    assert sorted(own) == sorted([*options[:3], "on", *options[3:]])


def test_a_relative_path_does_not_depend_on_the_editor_s_folder(
    program: str, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(home)
    _, out, _ = run(capsys, "jetbrains", "--home", "kept", "--", "./bin/acp-bridge")
    (entry,) = document(out)["agent_servers"].values()
    assert entry["args"] == ["--home", str(home / "kept"), "--", program]


@pytest.mark.parametrize("name", JSON_ONES)
def test_writing_twice_changes_nothing_the_second_time(
    name: str, program: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = Path(EDITORS[name].file({"HOME": str(home)}) or "")
    file.parent.mkdir(parents=True)
    file.write_text('{"mine": true}')
    code, out, _ = run(capsys, name, "--write")
    assert code == 0
    assert f"Written: {file}\nAs it was: {file}.before-acp-bridge\n" in out
    assert "\nThen: " in out
    content = file.read_text()
    assert json.loads(content)["mine"] is True
    assert program in content
    code, out, _ = run(capsys, name, "--write")
    assert code == 0
    assert f"{file} has it already: nothing was changed." in out
    assert file.read_text() == content
    assert len(list(file.parent.iterdir())) == 2


@pytest.mark.parametrize("name", sorted(EDITORS.keys() - JSON_ONES))
def test_what_can_not_be_written_is_printed_with_the_reason(
    name: str, program: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(capsys, name, "--write")
    assert code == 1
    assert program in out
    assert f"not written. {EDITORS[name].why_not}" in err
    assert [path.name for path in home.iterdir()] == ["bin"]


def test_a_file_that_can_not_be_changed_is_named_with_the_reason_and_the_snippet_printed(
    program: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = home / ".jetbrains" / "acp.json"
    file.parent.mkdir()
    file.write_text("{oops")
    code, out, err = run(capsys, "jetbrains", "--write")
    assert code == 1
    assert f"{file} was not changed: it is no JSON: line 1" in err
    assert program in out
    assert file.read_text() == "{oops"


def test_the_command_that_writes_it_is_told_whole_and_not_after_it_failed(
    program: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, out, _ = run(capsys, "zed", "--keep", "8h", "--", "sh", "-c", "an agent")
    assert out.endswith(": acp-bridge setup zed --write --keep 8h -- sh -c 'an agent'\n")
    file = home / ".config" / "zed" / "settings.json"
    file.mkdir(parents=True)
    code, out, _ = run(capsys, "zed", "--write")
    assert (code, "--write" in out) == (1, False)


@pytest.mark.parametrize("name", ["codecompanion", "avante"])
def test_settings_that_are_there_may_have_the_call_already(
    name: str, program: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "would undo" not in run(capsys, name)[1]
    file = home / ".config" / "nvim" / "init.lua"
    file.parent.mkdir(parents=True)
    file.touch()
    assert f'require("{name}").setup already' in run(capsys, name)[1]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "EDITOR"),
        (("frob",), "no editor is called 'frob' here; choose from zed, jetbrains, "),
        (("vscode",), "it needs an extension that speaks ACP, and that is given this command: /"),
        (("Zedd",), "acp-bridge setup zed fits it"),
        (("pycharm",), "acp-bridge setup jetbrains fits it"),
        (("nvim",), "acp-bridge setup codecompanion or avante fits it"),
        (("zed", "--"), "no command after --"),
        (("zed", "--keep", "soon"), "--keep"),
        (("zed", "--model", "demo", "--", "sh"), "--model"),
        (("zed", "--nothing"), "--nothing"),
        (("zed", "--", "a\udcff"), "text"),
    ],
)
def test_wrong_usage_is_said_in_a_line(
    arguments: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (2, "")
    assert said in err


def test_an_agent_that_is_not_here_is_said(
    program: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "no command an-agent-of-nobody" in run(capsys, "toad", "--", "an-agent-of-nobody")[1]
    assert "Note:" not in run(capsys, "toad", "--", "sh")[1]


def test_a_key_for_the_built_in_agent_is_thought_of(
    program: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "'acp-bridge key' keeps one" in run(capsys, "toad")[1]
    assert "acp-bridge key" not in run(capsys, "toad", "--openhands", "http://h:1")[1]


def test_the_link_that_was_started_is_named_and_not_what_it_leads_to(
    program: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = home / "acp-stdio-bridge"
    link.symlink_to(program)
    monkeypatch.setattr(sys, "argv", [str(link)])
    assert installation.program() == str(link)
    monkeypatch.chdir(home)
    monkeypatch.setattr(sys, "argv", ["./acp-stdio-bridge"])
    assert installation.program() == str(link)


def test_python_s_module_means_the_command_beside_that_python(
    monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    monkeypatch.setattr(sys, "argv", [str(home / "acp_bridge" / "__main__.py")])
    monkeypatch.setattr(sysconfig, "get_path", lambda *_: str(home / "bin"))
    monkeypatch.setattr(sys, "executable", str(home / "other" / "python"))
    with pytest.raises(installation.NotInstalled):
        installation.program()
    (home / "bin").mkdir()
    (home / "bin" / "acp-bridge").touch(mode=0o644)
    with pytest.raises(installation.NotInstalled):
        installation.program()
    os.chmod(home / "bin" / "acp-bridge", 0o755)
    monkeypatch.setattr(sys, "argv", [shutil.which("sh") or ""])  # any other program
    assert installation.program() == str(home / "bin" / "acp-bridge")


def test_a_command_that_a_tool_may_throw_away_is_warned_of(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = home / "uv" / "archive-v0" / "x" / "bin" / "acp-bridge"
    command.parent.mkdir(parents=True)
    command.touch(mode=0o755)
    monkeypatch.setattr(sys, "argv", [str(command)])
    assert "may be thrown away" in run(capsys, "zed")[1]
    assert "may be thrown away" in run(capsys, "zed", "--write")[1]


def test_options_are_written_in_one_order_however_they_were_given(
    program: str, capsys: pytest.CaptureFixture[str]
) -> None:
    values = {
        "queue|interrupt|steer": "queue",
        "keep|clear": "keep",
        "unclean|always": "always",
        "on|off": "on",
        "auto|1|2": "2",
        "SECONDS": "19",
        "MINUTES": "9",
        "DURATION": "9m",
        "AMOUNT": "9USD",
        "debug|info|warning|error": "info",
        "FOLDER": "/h",
        "FILE": "/log",
    }
    urls = {"openhands": "http://h", "journal": "postgresql://h/s", "agent-name": "n"}
    without = ("openhands-profile", "model", "keep")  # which go with some others alone
    options = [each for each in OPTIONS.values() if each.name not in without]
    own = [
        [each.argument, *([values.get(each.value, urls.get(each.name, ""))] if each.value else [])]
        for each in options
    ]
    _, out, _ = run(capsys, "zed", *(word for words in own for word in words))
    _, again, _ = run(capsys, "zed", *(word for words in reversed(own) for word in words))
    assert out == again
    (server,) = document(out)["agent_servers"].values()
    names = [word for word in server["args"] if word.startswith("--")]
    assert sorted(names) == sorted(each.argument for each in options)
    assert names[4:] == [
        *("--request-timeout", "--openhands", "--agent-name", "--rules", "--home", "--log-file"),
        *("--log-level", "--sleep-after", "--spare", "--no-listen"),
        *("--cancel-silent-after", "--resume-at-reset", "--agent-protocol"),
        *("--trace", "--budget", "--journal", "--lease", "--start-timeout"),
        *("--login-shell-path", "--process-per-session"),
    ]


def test_every_version_of_acpx_can_read_its_entry(
    program: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """0.1.15, which npm takes on Node 20, wants one text; later ones refuse `argv` beside it."""
    file = home / ".acpx" / "config.json"
    file.parent.mkdir()
    file.write_text('{"agents": {"acp-bridge": {"argv": ["old"], "env": {}}}}')
    words = ("acpx", "--write", "--home", str(home / "my data"))
    assert run(capsys, *words)[0] == 0
    entry = json.loads(file.read_text())["agents"]["acp-bridge"]
    assert entry.keys() == {"env", "command"}
    assert shlex.split(entry["command"]) == [program, "--home", str(home / "my data")]
