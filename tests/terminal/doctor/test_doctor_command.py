"""`acp-bridge doctor`: the report of a real agent and data folder, which stay as they are."""

import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from acp_bridge.terminal import cli
from acp_bridge.terminal.cli import own_agent
from acp_bridge.terminal.doctor import examination
from tests.terminal.doctor.test_data_folder import tree
from tests.whole.tiny_agent import tiny_agent

Said = Callable[..., tuple[int, str, str]]
SECRET = "s3cret-value-of-the-user"


@pytest.fixture
def said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Said:
    """Run `acp-bridge doctor`: its exit code, stdout and stderr."""
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setenv("SOME_TOKEN", SECRET)
    (tmp_path / "user").mkdir()

    def said(*words: str) -> tuple[int, str, str]:
        code = cli.run(["doctor", *words])
        found = capsys.readouterr()
        assert SECRET not in found.out + found.err
        return code, found.out, found.err

    return said


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A data folder in which much is wrong."""
    home = tmp_path / "home"
    (home / "run").mkdir(parents=True)
    (home / "run" / "dead.json").write_text("{}")
    (home / "index.db").write_bytes(b"no database" * 500)
    (home / "keys.env").write_text(f"{SECRET}\n")
    home.chmod(0o700)
    return home


def only(monkeypatch: pytest.MonkeyPatch, area: str) -> None:
    """Leave out the checks of other areas."""
    checks = tuple(check for check in examination.CHECKS if check[0] == area)
    monkeypatch.setattr(examination, "CHECKS", checks)


def areas(out: str) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for finding in json.loads(out)["findings"]:
        found.setdefault(finding["area"], []).append(finding)
    return found


@pytest.mark.process
def test_everything_is_looked_at_and_nothing_is_changed(
    said: Said, home: Path, tmp_path: Path
) -> None:
    says = f"print({SECRET!r}, file=sys.stderr, flush=True); os.write(1, b'hello\\n')"
    agent = tiny_agent(tmp_path, f"{says}\nCAN = {{'loadSession': True}}")
    before = tree(home)
    code, out, err = said("--json", "--home", str(home), "--", *agent, f"--key={SECRET}")
    assert tree(home) == before
    assert err == ""
    found = areas(out)
    assert list(found) == [area for area, _ in examination.CHECKS]
    assert found["agent"][1]["data"]["protocolVersion"] == 1
    assert "hello" in found["agent"][-1]["text"]
    assert found["sessions"][0]["data"]["index"] == "damaged"
    assert json.loads(out)["exitCode"] == code


@pytest.mark.process
def test_a_home_that_is_not_there_is_not_made(said: Said, tmp_path: Path) -> None:
    agent = tiny_agent(tmp_path, "CAN = {'loadSession': True}")
    before = tree(tmp_path)
    code, out, _ = said("--home", str(tmp_path / "none" / "home"), "--", *agent)
    assert tree(tmp_path) == before
    assert code == 0
    assert "the first session makes it" in out


def test_an_agent_that_is_not_there_is_an_error_and_the_exit_code_says_so(
    said: Said, tmp_path: Path
) -> None:
    code, out, _ = said("--home", str(tmp_path / "none"), "--", "no-such-agent")
    assert code == 2
    assert "no-such-agent is not found in the PATH" in out
    assert out.splitlines()[-1].startswith("1 error")


@pytest.mark.parametrize("what", ["a file", "closed", "below a file"])
def test_a_data_folder_that_can_not_be_used_is_one_finding(
    said: Said, tmp_path: Path, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    if what == "closed":
        home.mkdir()
        monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != home)
    else:
        home.touch()
    named = home / "more" if what == "below a file" else home
    code, out, _ = said("--json", "--home", str(named), "--", "cat")
    troubled = {area for area, all_ in areas(out).items() for each in all_ if each["level"] != "ok"}
    assert code == 2
    assert troubled - {"installation", "agent"} == {"data folder"}
    assert [each["level"] for each in areas(out)["data folder"]].count("error") == 1


def test_what_keeps_the_agent_from_starting_is_one_finding(
    said: Said, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_agent, "isolated_path", lambda env: [])
    monkeypatch.setattr(own_agent, "missing", lambda packages, path: ["litellm"])
    _, out, _ = said("--json", "--home", str(tmp_path / "none"))
    assert areas(out)["keys and model"][0]["level"] == "ok"
    assert areas(out)["agent"][0]["level"] == "error"


def test_warnings_count_when_that_is_asked_for(
    said: Said, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    only(monkeypatch, "data folder")
    (tmp_path / "open").mkdir()
    os.chmod(tmp_path / "open", 0o777)
    words = ("--home", str(tmp_path / "open"), "--", "x")
    assert said(*words)[0] == 0
    assert said("--strict", *words)[0] == 1
    os.chmod(tmp_path / "open", 0o700)
    assert said("--strict", *words)[0] == 0


@pytest.mark.parametrize(
    "words",
    [
        ["--online", "--", "codex-acp"],
        ["--online", "--openhands", "http://h:1"],
        ["--none"],
        ["--"],
    ],
)
def test_wrong_usage_is_refused_before_anything_is_looked_at(said: Said, words: list[str]) -> None:
    code, out, err = said(*words)
    assert (code, out) == (2, "")
    assert err


def test_another_package_named_agent_is_an_error_and_is_not_started(
    said: Said, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "site" / "agent").mkdir(parents=True)
    (tmp_path / "site" / "agent" / "__init__.py").write_text("print('not ours')")
    monkeypatch.setattr(own_agent, "isolated_path", lambda env: [str(tmp_path / "site")])
    code, out, _ = said("--json", "--home", str(tmp_path / "none"))
    assert code == 2
    assert "another Python package named 'agent'" in areas(out)["agent"][0]["text"]


@pytest.mark.process
def test_the_built_in_agent_is_asked_which_keys_it_finds(
    said: Said, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    only(monkeypatch, "keys and model")
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    home = tmp_path / "none"
    code, out, _ = said("--json", "--home", str(home))
    found = areas(out)
    assert code == 0
    assert found["keys and model"][0]["data"]["keys"] == [
        {"name": "OPENAI_API_KEY", "from": "environment"}
    ]
    assert found["keys and model"][1]["data"]["model"].startswith("openai/")
    assert not home.exists()


@pytest.mark.process
def test_what_the_agents_say_never_sends_the_user_to_the_doctor_again(
    said: Said, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bridge = [sys.executable, "-m", "acp_bridge"]
    monkeypatch.setenv("ACP_BRIDGE_HOME", str(tmp_path / "none"))
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    shown = said("--json", "--model", "anthropic/claude-x")[1] + said("--json", "--", *bridge)[1]
    assert "`acp-bridge key" in shown
    assert "acp-bridge doctor" not in shown


@pytest.mark.process
def test_the_agents_name_and_its_program_are_two_facts(said: Said, tmp_path: Path) -> None:
    _, out, _ = said("--home", str(tmp_path / "none"), "--", "sh", "-c", "exit 3")
    shell = shutil.which("sh")
    assert f"the agent's name is exit, its program is {shell}" in " ".join(out.split())
