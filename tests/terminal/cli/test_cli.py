"""The command line: what the arguments mean, what is refused, and what is set up before serving."""

import gc
import logging
import re
import runpy
import sys
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import anyio
import pytest

from acp_bridge import __main__
from acp_bridge.core.agents import birth, guard
from acp_bridge.core.agents.environment import HANDED_ON
from acp_bridge.core.agents.orphans import ORPHANS
from acp_bridge.core.runtime import log
from acp_bridge.core.settings import AgentProtocol, Delivery, Money, OnCancel, ReloadAfterCancel
from acp_bridge.core.wire import claim
from acp_bridge.postgres import url
from acp_bridge.terminal import cli, demo
from acp_bridge.terminal.cli import options, own_agent, serving_parser
from acp_bridge.terminal.doctor import command as doctor
from acp_bridge.terminal.shared.headless import Order


@pytest.fixture(autouse=True)
def process_as_it_was() -> Iterator[None]:
    """Serving changes what belongs to the process: the log, the collector, the switch interval,
    that it adopts orphans, and what of its environment it hands on."""
    interval, threshold = sys.getswitchinterval(), gc.get_threshold()
    adopted = ORPHANS._adopts
    yield
    if ORPHANS._adopts and not adopted:
        guard.prctl(guard.PR_SET_CHILD_SUBREAPER, 0)
        ORPHANS._adopts = False
    HANDED_ON.withheld = ()
    sys.setswitchinterval(interval)
    gc.set_threshold(*threshold)
    gc.unfreeze()
    for handler in log.logger.handlers:
        handler.close()
    log.logger.handlers.clear()
    log.logger.propagate = True
    log.logger.setLevel(logging.NOTSET)


@pytest.mark.parametrize("words", [["doctor"], ["--version"]])
def test_an_installation_that_lacks_a_package_names_it_and_what_adds_it(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def lacking(arguments: Sequence[str]) -> int:
        raise ModuleNotFoundError("No module named 'anyio'", name="anyio.abc")

    monkeypatch.setattr(doctor, "main", lacking)
    monkeypatch.setattr(cli.stdio, "main", lacking)
    assert cli.run(words) == 2
    said = capsys.readouterr().err
    assert said.startswith("acp-bridge: it is not installed whole: anyio is missing. Run: ")
    assert said.endswith(" acp-stdio-bridge\n")


def test_an_older_python_is_told_which_ones_there_must_be(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delitem(sys.modules, "acp_bridge.__main__", raising=False)
    monkeypatch.setattr(sys, "version_info", (3, 10, 13))
    monkeypatch.setattr(sys, "version", "3.10.13 (main)")
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("acp_bridge.__main__", run_name="not the main one")
    assert ended.value.code == 2
    assert capsys.readouterr().err == "acp-bridge needs Python 3.11 to 3.14; this is 3.10.13.\n"


def test_a_module_of_its_own_that_is_missing_is_a_mistake_and_not_explained_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def mistaken(arguments: Sequence[str]) -> int:
        raise ModuleNotFoundError("No module named 'acp_bridge.x'", name="acp_bridge.x")

    monkeypatch.setattr(cli.stdio, "main", mistaken)
    with pytest.raises(ModuleNotFoundError):
        cli.run([])


def test_without_arguments_it_is_the_built_in_agent_and_the_defaults() -> None:
    parsed = options.parse([], {})
    settings = parsed.settings
    assert settings.command == (sys.executable, "-I", "-m", "agent")
    assert (settings.builtin, settings.agent_name) == (True, "built-in")
    assert (settings.delivery, settings.on_cancel) == (Delivery.QUEUE, OnCancel.KEEP)
    assert settings.reload_after_cancel is ReloadAfterCancel.UNCLEAN
    assert (
        settings.drain_timeout
        == serving_parser.DEFAULTS.drain_timeout
        == Order("p", "/").drain_timeout
    )
    assert (parsed.log_file, parsed.log_level) == (None, None)


def test_the_built_in_agent_sleeps_after_an_hour_and_others_when_the_user_says_so() -> None:
    assert options.parse([], {}).settings.sleep_after == 3600
    assert options.parse(["--", "an-agent"], {}).settings.sleep_after == 0
    assert options.parse(["--sleep-after", "0"], {}).settings.sleep_after == 0


def test_what_waits_behind_a_usage_limit_goes_on_by_itself_only_when_the_user_says_so() -> None:
    assert options.parse([], {}).settings.resume_at_reset is False
    assert options.parse(["--resume-at-reset"], {}).settings.resume_at_reset is True
    env = {"ACP_BRIDGE_RESUME_AT_RESET": "on"}
    assert options.parse(["--resume-at-reset", "off"], env).settings.resume_at_reset is False


def test_a_silent_turn_is_cancelled_only_when_the_user_says_so() -> None:
    assert options.parse([], {}).settings.cancel_silent_after == 0
    given = ["--cancel-silent-after", "30"]
    assert options.parse(given, {}).settings.cancel_silent_after == 1800


@pytest.mark.parametrize(
    ("given", "budget"),
    [
        ("5USD", Money(5, "USD")),
        ("5 USD", Money(5, "USD")),
        ("0.50eur", Money(0.5, "EUR")),
        *[(none, None) for none in ("0", "off", "")],
    ],
)
def test_a_budget_is_an_amount_and_its_currency(given: str, budget: Money | None) -> None:
    assert options.parse(["--budget", given], {}).settings.budget == budget
    assert options.parse([], {"ACP_BRIDGE_BUDGET": given}).settings.budget == budget
    assert options.parse(["--budget", "0"], {"ACP_BRIDGE_BUDGET": "5USD"}).settings.budget is None


@pytest.mark.parametrize(
    "wrong", ["5", "USD", "0USD", "0.0 USD", "-5USD", "5$", "5 US", "1e3USD", "5,5EUR", "nanUSD"]
)
def test_any_other_budget_is_refused_with_an_example(
    capsys: pytest.CaptureFixture[str], wrong: str
) -> None:
    for given, env in ([f"--budget={wrong}"], {}), ([], {"ACP_BRIDGE_BUDGET": wrong}):
        with pytest.raises(SystemExit) as ended:
            options.parse(given, env)
        assert ended.value.code == 2
        place = "--budget" if given else "ACP_BRIDGE_BUDGET"
        told = f"{place}: an amount and its currency, such as 5USD or 0.50EUR; 0: none"
        assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "seconds"),
    [("90s", 90), ("30m", 1800), ("8h", 28800), ("7d", 604800), ("0", 0), ("off", 0), ("", 0)],
)
def test_how_long_work_is_kept_is_a_number_with_a_unit(given: str, seconds: int) -> None:
    assert options.parse(["--keep", given], {}).settings.keep == seconds
    assert options.parse([], {"ACP_BRIDGE_KEEP": given}).settings.keep == seconds


def test_what_follows_two_dashes_is_the_agents_command() -> None:
    settings = options.parse(["--home", "/h", "--", "an-agent", "--home", "x", "--"], {}).settings
    assert settings.command == ("an-agent", "--home", "x", "--")
    assert (settings.builtin, settings.home) == (False, Path("/h"))


def test_the_model_and_the_home_are_given_on_to_the_built_in_agent() -> None:
    settings = options.parse(["--model", "demo", "--home", "/h"], {}).settings
    assert settings.command[4:] == ("--model", "demo", "--home", "/h")


def test_an_agent_server_s_address_starts_its_agent_without_a_key_in_the_arguments() -> None:
    arguments = ["--openhands", "http://h:1/", "--openhands-profile", "p", "--home", "/h"]
    parsed = options.parse(arguments, {"OPENHANDS_SESSION_API_KEY": "the-key"})
    settings = parsed.settings
    agent = (sys.executable, "-I", "-m", "agent.openhands")
    given = ("--url", "http://h:1", "--profile", "p", "--home", "/h")
    assert settings.command == (*agent, *given)
    assert (parsed.own_agent, settings.builtin, settings.agent_name) == (True, False, "openhands")
    assert settings.drain_timeout == 7  # its interrupt waits up to five seconds itself
    shorter = options.parse([*arguments, "--drain-timeout", "3"], {}).settings
    assert shorter.drain_timeout == 3


def test_a_command_wins_over_an_agent_server_of_the_environment() -> None:
    env = {"ACP_BRIDGE_OPENHANDS": "http://h", "ACP_BRIDGE_OPENHANDS_PROFILE": "p"}
    parsed = options.parse(["--", "an-agent"], env)
    assert parsed.settings.command == ("an-agent",)
    assert parsed.settings.drain_timeout == serving_parser.DEFAULTS.drain_timeout
    assert not parsed.own_agent


def test_a_spare_process_is_kept_only_where_the_user_says_so() -> None:
    assert options.parse(["--", "an-agent"], {}).settings.spare == 0
    assert options.parse(["--spare", "--", "an-agent"], {}).settings.spare == 600
    assert options.parse(["--spare", "--model", "demo"], {}).settings.spare == 600
    assert options.parse(["--spare", "off"], {"ACP_BRIDGE_SPARE": "on"}).settings.spare == 0


#: each option's variable but that of `listen`, which nothing but "off" turns off
VARIABLES = {
    "ACP_BRIDGE_AGENT_PROTOCOL": "2",
    "ACP_BRIDGE_DELIVERY": "interrupt",
    "ACP_BRIDGE_ON_CANCEL": "clear",
    "ACP_BRIDGE_DRAIN_TIMEOUT": "7",
    "ACP_BRIDGE_RELOAD_AFTER_CANCEL": "always",
    "ACP_BRIDGE_CANCEL_SILENT_AFTER": "30",
    "ACP_BRIDGE_RESUME_AT_RESET": "on",
    "ACP_BRIDGE_BUDGET": "5USD",
    "ACP_BRIDGE_REQUEST_TIMEOUT": "9",
    "ACP_BRIDGE_START_TIMEOUT": "90",
    "ACP_BRIDGE_LOGIN_SHELL_PATH": "on",
    "ACP_BRIDGE_SLEEP_AFTER": "0.5",
    "ACP_BRIDGE_SPARE": "on",
    "ACP_BRIDGE_PROCESS_PER_SESSION": "on",
    "ACP_BRIDGE_KEEP": "1h",
    "ACP_BRIDGE_RULES": "/rules",
    "ACP_BRIDGE_TRACE": "/trace",
    "ACP_BRIDGE_MODEL": "demo",
    "ACP_BRIDGE_OPENHANDS": "http://server:1",
    "ACP_BRIDGE_OPENHANDS_PROFILE": "bench",
    "ACP_BRIDGE_AGENT_NAME": "mine",
    "ACP_BRIDGE_HOME": "/h",
    "ACP_BRIDGE_JOURNAL": "postgresql://db/sessions",
    "ACP_BRIDGE_LEASE": "90",
    "ACP_BRIDGE_LOG_FILE": "/log",
    "ACP_BRIDGE_LOG_LEVEL": "debug",
}


def test_every_option_may_come_from_the_environment_and_the_argument_wins() -> None:
    names = serving_parser.OPTIONS.keys() - {"listen"}
    assert set(map(serving_parser.variable, names)) == VARIABLES.keys()
    parsed = options.parse(["--drain-timeout", "0.5"], VARIABLES)
    settings = parsed.settings
    assert (settings.delivery, settings.on_cancel) == (Delivery.INTERRUPT, OnCancel.CLEAR)
    assert (settings.agent_protocol, settings.budget) == (AgentProtocol.V2, Money(5, "USD"))
    assert settings.reload_after_cancel is ReloadAfterCancel.ALWAYS
    assert (settings.drain_timeout, settings.request_timeout) == (0.5, 9)
    assert (settings.sleep_after, settings.spare, settings.keep) == (30, 600, 3600)
    assert (settings.home, settings.agent_name, settings.named) == (Path("/h"), "mine", True)
    assert (settings.rules, settings.trace) == (Path("/rules"), Path("/trace"))
    assert (settings.journal, settings.lease) == (url.parse("postgresql://db/sessions"), 90)
    agent = "agent.openhands", "--url", "http://server:1", "--profile", "bench"
    assert (settings.command[3:8], "openhands" in settings.former_names) == (agent, True)
    assert (parsed.log_file, parsed.log_level) == (Path("/log"), "debug")
    # A model of the environment is the built-in agent's; another agent is not meant by it.
    assert options.parse(["--", "an-agent"], VARIABLES).settings.command == ("an-agent",)


@pytest.mark.hazard("K7")
@pytest.mark.parametrize("place", ["--journal", "ACP_BRIDGE_JOURNAL"])
def test_a_databases_url_with_a_password_is_refused_and_not_shown(
    place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = "postgresql://me:hunter2@db/sessions"
    words, env = ([place, wrong], {}) if place.startswith("--") else ([], {place: wrong})
    with pytest.raises(SystemExit) as end:
        options.parse(words, env)
    told = capsys.readouterr().err
    assert end.value.code == 2
    assert told.startswith(f"acp-bridge: {place}: a password")
    assert "hunter2" not in told


@pytest.mark.parametrize(("lease", "taken"), [("14.9", False), ("15", True), ("601", False)])
def test_a_lease_has_room_for_a_kill_and_an_end(
    lease: str, taken: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    if taken:
        assert options.parse(["--lease", lease], {}).settings.lease == float(lease)
        return
    with pytest.raises(SystemExit):
        options.parse(["--lease", lease], {})
    assert "--lease: a number of seconds from 15 to 600" in capsys.readouterr().err


@pytest.mark.hazard("K9")
def test_a_command_that_says_no_name_starts_with_a_warning_that_says_how_to_give_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    settings = options.parse(["--", "node", "/opt/agent/.bin"], {}).settings
    said = capsys.readouterr().err
    assert settings.agent_name == "node"
    assert "sessions are kept under 'node'" in said
    assert "--agent-name NAME" in said
    options.parse(["--agent-name", "mine", "--", "node", "/opt/agent/.bin"], {})
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("arguments", "env", "listens"),
    [
        ([], {}, True),
        (["--no-listen"], {}, False),
        (["--no-listen"], {"ACP_BRIDGE_LISTEN": "on"}, False),
        ([], {"ACP_BRIDGE_LISTEN": "on"}, True),
        ([], {"ACP_BRIDGE_LISTEN": "off"}, False),
        ([], {"ACP_BRIDGE_LISTEN": ""}, True),
    ],
)
def test_a_bridge_listens_unless_an_option_or_the_environment_says_no(
    arguments: list[str], env: dict[str, str], listens: bool
) -> None:
    assert options.parse(arguments, env).settings.listen is listens


@pytest.mark.parametrize(
    ("arguments", "env", "named"),
    [
        (["--keep", "1h", "--no-listen"], {}, "--keep with --no-listen"),
        (["--no-listen"], {"ACP_BRIDGE_KEEP": "1h"}, "ACP_BRIDGE_KEEP with --no-listen"),
        (["--keep", "1h"], {"ACP_BRIDGE_LISTEN": "off"}, "--keep with ACP_BRIDGE_LISTEN=off"),
    ],
)
def test_work_is_not_kept_where_nobody_could_join_it(
    arguments: list[str], env: dict[str, str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as refused:
        options.parse(arguments, env)
    assert refused.value.code == 2
    told = f"acp-bridge: {named}: nobody could reach the work that is kept; leave one of them out\n"
    assert capsys.readouterr().err.startswith(told)
    assert options.parse(["--keep", "0", "--no-listen"], {}).settings.keep == 0


@pytest.mark.parametrize("name", ["delivery", "keep", "drain-timeout", "sleep-after", "log-level"])
def test_a_wrong_value_is_named_as_the_user_has_it_and_an_empty_variable_is_none(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    variable = serving_parser.variable(name)
    with pytest.raises(SystemExit):
        options.parse([], {variable: "x"})
    assert capsys.readouterr().err.startswith(f"acp-bridge: {variable}: ")
    with pytest.raises(SystemExit):
        options.parse([f"--{name}", "x"], {variable: "x"})
    assert capsys.readouterr().err.startswith(f"acp-bridge: --{name}: ")
    options.parse([], {variable: ""})


def test_a_switch_that_is_neither_on_nor_off_is_wrong_usage(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        options.parse([], {"ACP_BRIDGE_LISTEN": "maybe"})
    assert "ACP_BRIDGE_LISTEN: choose from on, off" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--"], "there is no command after --"),
        (["codex-acp"], "unknown argument 'codex-acp'; to run an agent: acp-bridge -- codex-acp"),
        (["doctr"], "did you mean acp-bridge doctor? To run an agent: acp-bridge -- doctr"),
        (["help"], "did you mean acp-bridge --help?"),
        (["rules"], "did you mean acp-bridge permissions? To run an agent: acp-bridge -- rules"),
        (["rule"], "did you mean acp-bridge permissions?"),
        (["usage"], "did you mean acp-bridge cost?"),
        (["status"], "did you mean acp-bridge ps?"),
        (["--home", "h", "ps"], "'ps'; a command stands before its options: acp-bridge ps ..."),
        (["--deliver", "queue"], "unknown argument '--deliver'"),
        (["--modle", "m"], "unknown argument '--modle'; did you mean --model?"),
        (["--kep=8h"], "unknown argument '--kep=8h'; did you mean --keep?"),
        (["--delivery"], "expected one argument"),
        (["--delivery", "later"], "--delivery: choose from queue, interrupt"),
        (["--drain-timeout", "soon"], "--drain-timeout: a number of seconds from 0.05 to 600"),
        (["--drain-timeout", "nan"], "--drain-timeout: a number of seconds from 0.05 to 600"),
        *(
            (["--keep", wrong], "--keep: a duration such as 90s, 30m, 8h or 2d, up to 7d; 0: never")
            for wrong in ("30", "8d", "0s", "1.5h", "h", "forever", "\u0661m")
        ),
        (["--sleep-after", "-1"], "--sleep-after: a number of minutes from 0, for never, to 10080"),
        (
            ["--sleep-after", "nan"],
            "--sleep-after: a number of minutes from 0, for never, to 10080",
        ),
        (["--spare", "two"], "--spare: choose from on, off"),
        (["--request-timeout", "0"], "--request-timeout: a number of seconds from 1 to 600"),
        (["--log-level", "loud"], "--log-level: choose from debug, info, warning, error"),
        (["--model", "m", "--", "an-agent"], "--model is the built-in agent's"),
        (["--model", "m", "--openhands", "http://h"], "--model is the built-in agent's"),
        (["--openhands", "h:8000"], "--openhands: an address such as http://127.0.0.1:8000"),
        (["--openhands", "ftp://h"], "--openhands: an address such as http://127.0.0.1:8000"),
        (["--openhands", "http://h:x"], "--openhands: an address such as http://127.0.0.1:8000"),
        (["--openhands", "http://u:p@h"], "the key goes in OPENHANDS_SESSION_API_KEY"),
        (["--openhands", "http://h?key=x"], "the key goes in OPENHANDS_SESSION_API_KEY"),
        (["--openhands", "http://h", "--", "an-agent"], "are two agents; choose one"),
        (["--openhands-profile", "p"], "--openhands-profile needs --openhands URL"),
    ],
)
def test_wrong_usage_is_told_in_one_line_and_ends_with_2(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(arguments) == 2
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("acp-bridge: ")
    assert told in first
    assert second == "Try 'acp-bridge --help'."


def test_help_names_every_option_variable_and_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["--help", "--"]) == 0
    text = capsys.readouterr().out
    known = serving_parser.OPTIONS
    shown = re.findall(r"^  (--[a-z-]+) ", text, re.M)
    assert shown == [option.argument for option in known.values()]
    assert set(re.findall(r"ACP_BRIDGE_\w+", text)) == set(map(serving_parser.variable, known))
    text = text.replace("approve|deny", "approve acp-bridge deny")
    assert all(f"acp-bridge {name}" in text for name in cli.COMMANDS)


@pytest.mark.parametrize("name", [*cli.COMMANDS, ""])
def test_help_is_no_wider_than_the_text_of_a_page(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run([name, "--help"] if name else ["--help"]) == 0
    assert [line for line in capsys.readouterr().out.splitlines() if len(line) > 100] == []


def test_a_first_word_that_is_a_command_gets_the_arguments_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given: list[Any] = []

    def main(arguments: Any) -> int:
        given.append(arguments)
        return 7

    monkeypatch.setattr(demo, "main", main)
    assert cli.run(["demo", "--record", "file"]) == 7
    assert given == [["--record", "file"]]


def test_a_log_that_can_not_be_written_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["--log-file", str(tmp_path), "--", "agent"]) == 2
    assert "the log file can't be written" in capsys.readouterr().err


def test_worker_threads_are_made_to_let_go_of_the_loop_soon(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[float] = []

    def run(*args: Any) -> None:
        seen.append(sys.getswitchinterval())

    monkeypatch.setattr(anyio, "run", run)
    monkeypatch.setattr(claim, "claim_stdio", lambda: (-1, -1))
    monkeypatch.setattr(birth, "born_early", lambda *_: [])
    assert cli.run(["--", "agent"]) == 0
    assert seen == [pytest.approx(0.0005)]


# the built-in agent


def package(folder: Path, init: str | None, main: str | None) -> list[str]:
    (folder / "agent").mkdir(parents=True)
    for name, content in (("__init__.py", init), ("__main__.py", main)):
        if content is not None:
            (folder / "agent" / name).write_text(content)
    return [str(folder / "none"), str(folder)]


def test_the_built_in_agent_is_known_where_it_lies() -> None:
    root = str(Path(cli.__file__).parents[3])
    assert own_agent.foreign_agent([root]) is None
    assert own_agent.foreign_agent([]) is None


@pytest.mark.hazard("P14")
@pytest.mark.parametrize(
    ("init", "main"),
    [
        ("", "print('hello')"),
        ("", None),
        (None, None),
        ("import acp_bridge.core.wire", "print('over ours')"),
        ("# an agent", "from acp_bridge.core.wire.stdio import Reader"),
    ],
)
def test_another_package_named_agent_is_not_started_and_the_log_names_its_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, init: str | None, main: str | None
) -> None:
    path = package(tmp_path / "site", init, main)
    monkeypatch.setattr(own_agent, "isolated_path", lambda env: path)
    monkeypatch.setattr(sys, "stdin", None)
    monkeypatch.setattr(anyio, "run", lambda *args: None)
    written = tmp_path / "log"
    assert cli.run(["--home", str(tmp_path), "--log-file", str(written)]) == 2
    said = written.read_text()
    assert "another Python package named 'agent'" in said
    assert str(tmp_path / "site" / "agent") in said


def test_what_isolation_leaves_out_is_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", ["/script", "", "/of/the/user", "/site"])
    assert own_agent.isolated_path({"PYTHONPATH": "/of/the/user:/more"}) == ["/site"]


# what an installation may lack


@pytest.mark.parametrize(
    ("arguments", "packages"),
    [
        ([], ("acp", "mcp", "litellm")),
        (["--model", "openai/gpt-5.2"], ("acp", "mcp", "litellm")),
        (["--model", "demo"], ("acp", "mcp")),
        (["--model", "scripted:dialogue.txt"], ("acp", "mcp")),
        (["--openhands", "http://127.0.0.1:8000"], ("acp", "websockets")),
        (["--", "agent"], ()),
    ],
)
def test_each_agent_needs_its_own_packages_and_a_foreign_one_none(
    arguments: list[str], packages: tuple[str, ...]
) -> None:
    assert tuple(options.parse(arguments, {}).packages) == packages


def site_with(folder: Path, *names: str) -> list[str]:
    """An import path on which lie empty packages of these names."""
    for name in names:
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").touch()
    return [str(folder)]


@pytest.mark.parametrize(
    ("arguments", "there", "said"),
    [
        ([], ("acp", "mcp", "pip"), "not installed: litellm. Run: {} -m pip install {}\n"),
        ([], ("acp", "mcp"), "not installed: litellm. Run: uv pip install --python {} {}\n"),
        ([], ("pip",), "not installed: acp, mcp, litellm. Run: {} -m pip install {}\n"),
        (
            ["--openhands", "http://127.0.0.1:8000"],
            ("acp", "pip"),
            "not installed: websockets. Run: {} -m pip install '{}[openhands]'\n",
        ),
    ],
)
def test_an_agent_of_ours_that_lacks_a_package_is_not_started_and_the_command_is_said(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    there: tuple[str, ...],
    said: str,
) -> None:
    path = site_with(tmp_path / "site", *there)
    monkeypatch.setattr(own_agent, "isolated_path", lambda env: path)
    monkeypatch.setattr(sys, "stdin", None)
    monkeypatch.setattr(anyio, "run", lambda *args: pytest.fail("it serves"))
    written = tmp_path / "log"
    assert cli.run([*arguments, "--home", str(tmp_path), "--log-file", str(written)]) == 2
    line = written.read_text()
    assert line.count("\n") == 1
    assert line.endswith(said.format(sys.executable, "acp-stdio-bridge"))


def test_a_package_that_a_finder_of_its_own_knows_is_not_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class InPlace:
        """Finds what was installed in place, as setuptools' own finders do."""

        @staticmethod
        def find_spec(name: str, path: object = None, target: object = None) -> ModuleSpec | None:
            return ModuleSpec(name, None) if name == "litellm" else None

    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, InPlace])
    assert own_agent.missing(("acp", "litellm"), []) == ["acp"]


def test_a_folder_that_a_removed_package_has_left_is_no_package(tmp_path: Path) -> None:
    (tmp_path / "litellm" / "__pycache__").mkdir(parents=True)
    path = site_with(tmp_path, "acp")
    assert own_agent.missing(("acp", "litellm"), path) == ["litellm"]


def test_a_foreign_agent_is_served_whatever_ours_lack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served: list[Any] = []
    monkeypatch.setattr(own_agent, "isolated_path", lambda env: [str(tmp_path)])
    monkeypatch.setattr(anyio, "run", lambda *args: served.append(args))
    monkeypatch.setattr(claim, "claim_stdio", lambda: (-1, -1))
    monkeypatch.setattr(birth, "born_early", lambda *_: [])
    assert cli.run(["--", "agent"]) == 0
    assert served


def test_files_that_another_package_of_the_name_has_overwritten_are_said_to_be(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delattr("acp_bridge.__version__")
    assert __main__.main() == 2
    assert "has overwritten files of this one: uninstall both here" in capsys.readouterr().err
