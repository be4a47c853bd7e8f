"""What the arguments of `acp-bridge run` mean, and what is refused before anything is started."""

import io
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from acp_bridge.core.journal import Journal
from acp_bridge.sharing.bridge_client.own_process import BRIDGE
from acp_bridge.terminal import cli
from acp_bridge.terminal.cli import serving_parser
from acp_bridge.terminal.commands import own_bridge, run_command
from acp_bridge.terminal.shared.headless import Order
from acp_bridge.terminal.shared.permissions import Policy


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ACP_BRIDGE_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "home"


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Order, tuple[str, ...]]]:
    """What would be run: the order, and the command of the bridge."""
    found: list[Any] = []

    def note(work: Any, order: Order, bridge: Any) -> int:
        found.append((order, bridge.command))
        return 0

    monkeypatch.setattr(anyio, "run", note)
    return found


async def keep(home: Path, session_id: str, cwd: Path, agent: str) -> None:
    journal = Journal(home)
    await journal.create(session_id, cwd=str(cwd), agent=agent)
    await journal.close()


def test_a_prompt_alone_is_for_the_built_in_agent_in_this_folder(
    home: Path, ran: list[Any], tmp_path: Path
) -> None:
    assert cli.run(["run", "do it"]) == 0
    ((order, command),) = ran
    assert (order.prompt, order.cwd, order.session_id) == ("do it", str(tmp_path), None)
    assert (order.policy, order.json, order.timeout) == (None, False, None)
    assert command == BRIDGE


def test_the_options_of_the_bridge_are_given_on_to_it(home: Path, ran: list[Any]) -> None:
    words = ["--json", "--permissions", "allow", "--timeout", "9", "--drain-timeout", "5"]
    assert cli.run(["run", *words, "p", "--request-timeout", "7", "--", "agent", "--json"]) == 0
    ((order, command),) = ran
    assert (order.json, order.policy, order.timeout) == (True, Policy.ALLOW, 9)
    assert (order.drain_timeout, order.open_timeout) == (5, 7)
    own = ("--drain-timeout", "5", "--request-timeout", "7")
    assert command == (*BRIDGE, *own, "--", "agent", "--json")


def test_every_option_of_the_bridge_is_taken(home: Path, ran: list[Any], tmp_path: Path) -> None:
    values = {
        "delivery": "steer",
        "on-cancel": "clear",
        "budget": "5USD",
        "reload-after-cancel": "always",
        "agent-protocol": "1",
        "keep": "8h",
        "rules": str(tmp_path / "rules.toml"),
        "home": str(home),
        "journal": "postgresql://db.example.org/sessions",
        "log-file": str(tmp_path / "log"),
        "log-level": "debug",
        "trace": str(tmp_path / "trace"),
    }
    others = {"openhands", "openhands-profile", "journal"}  # another agent's, or a database's
    for option in serving_parser.OPTIONS.values():
        if option.name in others:
            continue
        words = [option.argument]
        if option.value is not None and not option.optional:
            words.append(values.get(option.name, "60"))
        ran.clear()
        assert cli.run(["run", *words, "do it"]) == 0, option.name
        ((order, command),) = ran
        assert order.prompt == "do it"
        assert command[len(BRIDGE) :] == (*words, *(["on"] if option.optional else []))


def test_a_switch_takes_a_value_and_leaves_the_prompt_alone(home: Path, ran: list[Any]) -> None:
    assert cli.run(["run", "--spare", "off", "--resume-at-reset", "do it"]) == 0
    ((order, command),) = ran
    assert order.prompt == "do it"
    assert command == (*BRIDGE, "--resume-at-reset", "on", "--spare", "off")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "give it a prompt"),
        (["--", "agent"], "give it a prompt"),
        (["fix", "the", "typo"], 'the prompt needs quotes around it: "fix the typo"'),
        (["fix", "--json", "it"], 'the prompt needs quotes around it: "fix it"'),
        (["say", 'a "word"'], """the prompt needs quotes around it: 'say a "word"'"""),
        (["p", "--resume", "3f2a"], "--resume: run has --continue, for the last session"),
        (["p", "--bell"], "--bell: nobody is waited for here"),
        (["p", "--spare", "maybe"], 'the prompt needs quotes around it: "p maybe"'),
        (["p", "--keep", "soon"], "--keep: a duration such as 90s, 30m, 8h or 2d"),
        (["p", "--keep", "8h", "--no-listen"], "--keep with --no-listen: nobody could reach"),
        (["p", "--permissions", "ask"], "--permissions: choose from deny, allow"),
        (["p", "--timeout", "0"], "--timeout: a number of seconds above 0"),
        (["p", "--timeout", "soon"], "--timeout: a number of seconds above 0"),
        (["p", "--odd\x1b[31m"], "unrecognized arguments: --odd\\x1b[31m"),
        (["p", "--contineu"], "unrecognized arguments: --contineu; did you mean --continue?"),
        (["p", "--opnehands", "u"], "--opnehands u; did you mean --openhands?"),
        (["p", "--timeout", "nan"], "--timeout: a number of seconds above 0"),
        (["p", "--continue", "--session", "x"], "choose one"),
        (["p", "--"], "there is no command after --"),
        (["p", "--model", "m", "--", "agent"], "--model is the built-in agent's"),
        (["p", "--deliver", "queue"], "unrecognized arguments"),
        (["  "], "the prompt is empty"),
    ],
)
def test_wrong_usage_is_told_and_starts_nothing(
    home: Path,
    ran: list[Any],
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    told: str,
) -> None:
    assert cli.run(["run", *arguments]) == 2
    assert told in capsys.readouterr().err
    assert not ran


def test_a_prompt_that_can_not_be_read_is_told(
    home: Path, ran: list[Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    assert cli.run(["run", "-"]) == 2
    assert "there is no stdin" in capsys.readouterr().err


@pytest.mark.parametrize("given", ["12345678901", "-", '""""""', "\x01\x01"])
def test_a_prompt_that_no_bridge_would_read_is_refused_before_anything_is_sent(
    home: Path,
    ran: list[Any],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    given: str,
) -> None:
    monkeypatch.setattr(own_bridge, "DEFAULT_LIMIT", own_bridge._AROUND + 10)
    piped = io.BytesIO(b"x" * 1000)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(piped))
    assert cli.run(["run", given]) == 2
    assert "longer than 1010 bytes" in capsys.readouterr().err
    assert not ran


def test_ctrl_c_before_it_begins_is_an_interruption(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*given: Any) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr(run_command, "prompt_given", interrupted)
    assert cli.run(["run", "-"]) == 130


async def test_a_session_goes_on_in_its_own_folder_with_the_agent_it_belongs_to(
    home: Path, tmp_path: Path, ran: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    await keep(home, "a" * 32, tmp_path / "elsewhere", "built-in")
    await keep(home, "b" * 32, tmp_path, "codex-acp")
    assert cli.run(["run", "--session", "aa", "p"]) == 0
    assert (ran[-1][0].session_id, ran[-1][0].cwd) == ("a" * 32, str(tmp_path / "elsewhere"))
    assert cli.run(["run", "--session", "bb", "p"]) == 2
    assert "is of the agent 'codex-acp': give its command after --" in capsys.readouterr().err
    assert cli.run(["run", "--session", "bb", "p", "--", "gemini"]) == 2
    assert "is of the agent 'codex-acp'\n" in capsys.readouterr().err
    assert cli.run(["run", "--session", "bb", "p", "--", "codex-acp"]) == 0
    assert ran[-1][0].session_id == "b" * 32


async def test_to_go_on_is_with_the_last_session_of_this_folder_and_of_the_agent_if_one_is_named(
    home: Path, tmp_path: Path, ran: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    await keep(home, "a" * 32, tmp_path, "built-in")
    await keep(home, "b" * 32, tmp_path, "codex-acp")
    await keep(home, "c" * 32, tmp_path / "elsewhere", "built-in")
    assert cli.run(["run", "--continue", "p"]) == 2  # not silently with an older one
    assert "session bbbbbbbb is of the agent 'codex-acp'" in capsys.readouterr().err
    assert cli.run(["run", "--continue", "p", "--", "codex-acp"]) == 0
    assert ran[-1][0].session_id == "b" * 32
    assert cli.run(["run", "--continue", "p", "--", "gemini"]) == 1
    assert "no session was used in this folder" in capsys.readouterr().err
