"""`acp-bridge completion`: what the real shells complete, and that it is what the parsers take."""

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from acp_bridge import cli
from acp_bridge.cli import options
from acp_bridge.cli.completion import SHELLS
from acp_bridge.cli.described import Command, commands
from acp_bridge.cli.own_bridge import parsers_caught
from acp_bridge.setup.editors import EDITORS
from tests.support.terminal import on_a_terminal

#: seconds for a shell, on a machine that is busy.
LIMIT = 60


@pytest.fixture(scope="module")
def described() -> Mapping[str, Command]:
    return {command.name: command for command in commands()}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the shells are started: a folder and a file to be completed, and an agent's command."""
    (tmp_path / "work" / "my folder").mkdir(parents=True)
    (tmp_path / "work" / "my file").touch()
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "acp-bridge-an-agent").touch(mode=0o755)
    return tmp_path / "work"


def written(tmp_path: Path, shell: str) -> Path:
    script = tmp_path / f"completion.{shell}"
    script.write_text(SHELLS[shell](commands()))
    return script


def shell(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"there is no {name} here")
    return path


def test_every_command_and_each_of_its_options_is_described(
    described: Mapping[str, Command],
) -> None:
    assert described.keys() == {"", *cli.COMMANDS}
    for name, command in described.items():
        assert command.about or not name
        assert not [
            option
            for option in command.options
            if option.names[0][:2] == "--"
            and not option.about
            and option.names[0] not in ("--version", "--help")
        ]


def test_the_parsers_themselves_are_what_is_described(described: Mapping[str, Command]) -> None:
    for name in cli.COMMANDS:
        with parsers_caught() as caught:
            assert cli.run([name, "--help"]) == 0
        (parser,) = caught
        taken = {text for action in parser._actions for text in action.option_strings}
        assert {text for option in described[name].options for text in option.names} == taken
    own = {f"--{name}" for name in options.NAMES}
    assert own <= {text for option in described[""].options for text in option.names}


def test_asking_for_a_parser_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    commands()
    assert capsys.readouterr() == ("", "")
    cli.run(["ps", "--help"])
    assert capsys.readouterr().out.startswith("usage: acp-bridge ps")


@pytest.mark.parametrize("name", SHELLS)
def test_the_command_prints_the_script(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["completion", name]) == 0
    assert capsys.readouterr().out == SHELLS[name](commands())
    assert cli.run(["completion", "csh"]) == 2


#: What is typed, and everything that may follow.
CASES = {
    "acp-bridge se": {"sessions", "send", "setup"},
    "acp-bridge setup ": set(EDITORS),
    "acp-bridge setup z": {"zed"},
    "acp-bridge setup zed --wr": {"--write"},
    "acp-bridge --deliv": {"--delivery"},
    "acp-bridge --delivery ": {"queue", "interrupt"},
    "acp-stdio-bridge --delivery int": {"interrupt"},
    "acp-bridge run --permissions ": {"allow", "deny"},
    "acp-bridge run --perm": {"--permissions"},
    "acp-bridge ps --j": {"--json"},
    "acp-bridge ps --wr": set(),
    "acp-bridge completion f": {"fish"},
    "acp-bridge chat --model x": set(),
    "acp-bridge chat --resume --mod": {"--model"},
    "acp-bridge -- acp-bridge-an-ag": {"acp-bridge-an-agent"},
}
HOME, FILE = "acp-bridge --home my", "acp-bridge demo --record my"


@pytest.mark.process
def test_bash_completes(tmp_path: Path, folder: Path) -> None:
    script = written(tmp_path, "bash")
    lines = [f"source {script}"]
    for line in [*CASES, HOME, FILE]:
        *before, word = line.split(" ")
        lines += [
            f"COMP_WORDS=({' '.join(before)} '{word}'); COMP_CWORD={len(before)}; _acp_bridge",
            'printf "%s\\n" "${COMPREPLY[@]}"; echo END',
        ]
    command = [shell("bash"), "--norc", "--noprofile", "-c", "\n".join(lines)]
    found = [set(part.split("\n")) - {""} for part in printed(command, folder).split("END\n")]
    assert dict(zip([*CASES, HOME, FILE], found, strict=False)) == {
        **CASES,
        HOME: {"my folder"},
        FILE: {"my file", "my folder"},
    }


@pytest.mark.process
def test_fish_completes(tmp_path: Path, folder: Path) -> None:
    script = written(tmp_path, "fish")
    lines = [f"source {script}"]
    for line in [*CASES, HOME, FILE]:
        lines += [f"complete -C '{line}'", "echo END"]
    command = [shell("fish"), "--no-config", "-c", "\n".join(lines)]
    parts = printed(command, folder).split("END\n")
    found = [{line.partition("\t")[0] for line in part.splitlines()} for part in parts]
    assert dict(zip([*CASES, HOME, FILE], found, strict=False)) == {
        **CASES,
        HOME: {"my folder/"},
        FILE: {"my file", "my folder/"},
    }


def printed(command: list[str], cwd: Path) -> str:
    done = subprocess.run(
        command,
        cwd=cwd,
        env=environment(cwd),
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def environment(cwd: Path) -> dict[str, str]:
    path = f"{cwd.parent / 'bin'}:{os.environ['PATH']}"
    return {"PATH": path, "HOME": str(cwd.parent), "TERM": "dumb"}


#: What is typed on a terminal, with < for the Tab key, and what acp-bridge gets.
TYPED = {
    "setup z< --wri<": "setup|zed|--write",
    "--deliv<int<": "--delivery|interrupt",
    "run --perm<al< x": "run|--permissions|allow|x",
    "completion f<": "completion|fish",
    "--home my<": "--home|my folder",
    "-- acp-bridge-an-ag<": "--|acp-bridge-an-agent",
    "chat -- acp-bridge-an-ag< my\\ fi<": "chat|--|acp-bridge-an-agent|my file",
}


@pytest.mark.process
@pytest.mark.parametrize("installed", [True, False])
def test_zsh_completes(tmp_path: Path, folder: Path, installed: bool) -> None:
    script = written(tmp_path, "zsh")
    if installed:  # as a package puts it; loaded when it is needed
        script = script.rename(tmp_path / "_acp-bridge")
    take = f"fpath+={tmp_path}" if installed else ":"
    load = ":" if installed else f"source {script}"
    got = 'print -r -- "G""OT:${(j:|:)@}:E""ND"'
    command = [shell("zsh"), "-f", "-i"]
    with on_a_terminal(command, folder, environment(folder), LIMIT) as terminal:
        terminal.type(
            f"PS1='REA''DY> '; {take}; autoload -Uz compinit; compinit -D -u; {load};"
            f" acp-bridge() {{ {got} }}\n"
        )
        for line, words in TYPED.items():
            terminal.until("READY> ")
            terminal.type(f"acp-bridge {line.replace('<', chr(9))}\n")
            assert terminal.until(":END").rpartition("GOT:")[2] == f"{words}:END"
