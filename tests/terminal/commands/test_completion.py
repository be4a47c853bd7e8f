"""`acp-bridge completion`: what the real shells complete, and that it is what the parsers take."""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from acp_bridge.core.journal import Journal
from acp_bridge.terminal import cli
from acp_bridge.terminal.cli import serving_parser
from acp_bridge.terminal.cli.commands import COMMANDS
from acp_bridge.terminal.commands import completion
from acp_bridge.terminal.setup.editors import EDITORS
from tests.support.terminal import on_a_terminal

#: seconds for a shell, on a machine that is busy.
LIMIT = 60


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the shells are started: a folder, a file and sessions to be completed, and commands."""
    (tmp_path / "work" / "my folder").mkdir(parents=True)
    (tmp_path / "work" / "my file").touch()
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "acp-bridge-an-agent").touch(mode=0o755)
    program = tmp_path / "bin" / "acp-bridge"
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m acp_bridge "$@"\n')
    program.chmod(0o755)
    anyio.run(keep_sessions, tmp_path / "home")
    return tmp_path / "work"


async def keep_sessions(home: Path) -> None:
    """Two sessions, and one whose id a shell would run."""
    journal = Journal(home)
    for session_id in ("3f2a0001", "3f2b0002", "3$(touch run)"):
        session = await journal.create(session_id, cwd="/w", agent="an-agent")
        session.start_turn(session.accept("p", {"prompt": [{"type": "text", "text": "please"}]}))
        await journal.touch(session_id, title="It's: a $(touch run) `title`")
    await journal.close()


def written(tmp_path: Path, shell: str) -> Path:
    script = tmp_path / f"completion.{shell}"
    script.write_text(completion.script(shell))
    return script


def shell(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"there is no {name} here")
    return path


def test_every_command_and_each_of_its_options_is_explained() -> None:
    parsers = {name: command.parser() for name, command in COMMANDS.items()}
    assert all(command.about for command in COMMANDS.values())
    for parser in (serving_parser.parser({}), *parsers.values()):
        assert not [
            action.option_strings
            for action in parser._actions
            if action.option_strings and not action.help and action.dest not in ("help", "version")
        ]


@pytest.mark.parametrize("name", completion.SHELLS)
def test_the_command_prints_the_script(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["completion", name]) == 0
    assert capsys.readouterr().out == completion.script(name)
    assert cli.run(["completion", "csh"]) == 2


#: What is typed, and everything that may follow.
CASES = {
    "acp-bridge se": {"send", "serve", "sessions", "setup"},
    "acp-bridge setup ": set(EDITORS),
    "acp-bridge setup z": {"zed"},
    "acp-bridge setup zed --wr": {"--write"},
    "acp-bridge --deliv": {"--delivery"},
    "acp-bridge --delivery ": {"queue", "interrupt", "steer"},
    "acp-stdio-bridge --delivery int": {"interrupt"},
    "acp-bridge run --permissions ": {"allow", "deny"},
    "acp-bridge run --perm": {"--permissions"},
    "acp-bridge ps --js": {"--json"},
    "acp-bridge send --wa": {"--wait"},
    "acp-bridge ps --wr": set(),
    "acp-bridge completion f": {"fish"},
    "acp-bridge chat --model x": set(),
    "acp-bridge chat --resume --mod": {"--model"},
    "acp-bridge --model demo --deliv": {"--delivery"},
    "acp-bridge --spare --deliv": {"--delivery"},
    "acp-bridge run --model demo --js": {"--json"},
    "acp-bridge key anth": {"anthropic"},
    "acp-bridge journal c": {"copy"},
    "acp-bridge journal copy --j": {"--json"},
    "acp-bridge key --remove fire": {"fireworks_ai"},
    "acp-bridge cancel 3": {"3f2a0001", "3f2b0002"},
    "acp-bridge show 3f2a": {"3f2a0001"},
    "acp-bridge chat --resume 3f2b": {"3f2b0002"},
    "acp-bridge run --session 3f2b": {"3f2b0002"},
    "acp-bridge send 3f2a0001 x": set(),
    "acp-bridge -- acp-bridge-an-ag": {"acp-bridge-an-agent"},
    "acp-bridge -- approv": set(),
}
#: What bash makes of --delivery=, of which it sees the = as a word.
EQUALS = {
    "acp-bridge --delivery =": {"queue", "interrupt", "steer"},
    "acp-bridge --delivery = int": {"interrupt"},
    "acp-bridge run --permissions = d": {"deny"},
}
HOME, FILE = "acp-bridge --home my", "acp-bridge demo --record my"


@pytest.mark.process
def test_bash_completes(tmp_path: Path, folder: Path) -> None:
    script = written(tmp_path, "bash")
    lines = [f"source {script}"]
    for line in [*CASES, HOME, FILE, *EQUALS]:
        *before, word = line.split(" ")
        lines += [
            f"COMP_WORDS=({' '.join(before)} '{word}'); COMP_CWORD={len(before)}; _acp_bridge",
            'printf "%s\\n" "${COMPREPLY[@]}"; echo END',
        ]
    command = [shell("bash"), "--norc", "--noprofile", "-c", "\n".join(lines)]
    found = [set(part.split("\n")) - {""} for part in printed(command, folder).split("END\n")]
    assert dict(zip([*CASES, HOME, FILE, *EQUALS], found, strict=False)) == {
        **CASES,
        HOME: {"my folder"},
        FILE: {"my file", "my folder"},
        **EQUALS,
    }
    assert not (folder / "run").exists()


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
    told = dict(line.split("\t") for part in parts for line in part.splitlines() if "\t" in line)
    assert told["--wait"].startswith("stay, and write the answer")
    assert told["3f2a0001"] == "It's: a $(touch run) `title`"
    assert not (folder / "run").exists()


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
    home = {"HOME": str(cwd.parent), "ACP_BRIDGE_HOME": str(cwd.parent / "home")}
    return {"PATH": path, "TERM": "dumb", **home}


#: What is typed on a terminal, with < for the Tab key, and what acp-bridge gets.
TYPED = {
    "setup z< --wri<": "setup|zed|--write",
    "--deliv<int<": "--delivery|interrupt",
    "run --perm<al< x": "run|--permissions|allow|x",
    "completion f<": "completion|fish",
    "--home my<": "--home|my folder",
    "--spare --deliv<": "--spare|--delivery",
    "--model demo --deliv<": "--model|demo|--delivery",
    "key anth<": "key|anthropic",
    "cancel 3f2a<": "cancel|3f2a0001",
    "chat --resume 3f2b<": "chat|--resume|3f2b0002",
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
    assert not (folder / "run").exists()
