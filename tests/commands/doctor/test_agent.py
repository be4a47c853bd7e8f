"""What is said of an agent, by how it was found and how its trial went."""

from collections import deque
from pathlib import Path
from typing import Any

import pytest

from acp_bridge.agents.process import Exit
from acp_bridge.commands.doctor.agent import found_at, masked, missing, started
from acp_bridge.commands.doctor.findings import Finding
from acp_bridge.commands.doctor.trial import Trial, noise_in
from acp_bridge.keys.masking import Mask
from acp_bridge.wire.jsonrpc import Err, Ok, RpcError
from tests.commands.doctor.subjects import levels, texts

SECRET = "s3cret-value"


def introduced(**result: Any) -> list[Finding]:
    can = {"loadSession": True}
    answer = Ok({"protocolVersion": 1, "agentCapabilities": can, **result})
    return started(Trial(answer=answer, seconds=0.25), 60)


def test_a_program_is_looked_for_in_the_path(tmp_path: Path) -> None:
    program = tmp_path / "my-agent"
    assert found_at("my-agent", str(tmp_path)) is None
    assert "not found in the PATH" in missing("my-agent", str(tmp_path)).text
    program.write_text("#!/bin/sh\n")
    assert missing("my-agent", f"/none:{tmp_path}").next == f"chmod +x {program}"
    assert missing(str(program), "").next == f"chmod +x {program}"
    program.chmod(0o755)
    assert found_at("my-agent", str(tmp_path)) == str(program)
    assert "is not there" in missing("/none/agent", "").text


def test_what_an_agent_says_of_itself_is_told() -> None:
    can = {"promptCapabilities": {"image": True}, "sessionCapabilities": {"resume": {}}}
    found = introduced(agentInfo={"name": "it", "version": "2"}, agentCapabilities=can)
    assert levels(found) == ["ok", "ok", "ok"]
    assert "it 2 answered `initialize` after 250 ms, in ACP version 1" in texts(found)
    assert found[1].data["abilities"] == ["resume", "images"]
    assert "offers no login" in texts(found)


def test_an_agent_that_would_forget_is_a_warning() -> None:
    found = introduced(agentCapabilities={})
    assert levels(found)[1] == "warning"
    assert "neither load nor resume" in texts(found)


def test_ways_to_log_in_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IS_SET", "1")
    monkeypatch.delenv("IS_MISSING", raising=False)
    names = [{"name": "IS_SET"}, {"name": "IS_MISSING"}]
    methods = [
        {"id": "a", "name": "ChatGPT", "description": "in a browser"},
        {"id": "b", "name": "Terminal", "type": "terminal", "args": ["login"]},
        {"id": "c", "name": "Key", "type": "env_var", "vars": names},
        "odd",
    ]
    (*_, found) = introduced(authMethods=methods)
    assert "ChatGPT (in a browser)" in found.text
    assert "Terminal (in a terminal" in found.text
    assert "Key (environment variables, missing here: IS_MISSING)" in found.text
    assert found.data == {"logins": ["a", "b", "c"]}


@pytest.mark.parametrize("version", [2, 0, "1", None, True, 1.5])
def test_another_version_of_the_protocol_is_an_error(version: object) -> None:
    found = introduced(protocolVersion=version)
    assert levels(found)[0] == "error"
    assert "does not speak ACP version 1" in found[0].text


@pytest.mark.parametrize("result", [None, [], "x", 1])
def test_a_result_that_is_no_object_is_an_error(result: object) -> None:
    assert levels(started(Trial(answer=Ok(result)), 60))[0] == "error"


@pytest.mark.parametrize("capabilities", [None, [], "x", {"sessionCapabilities": 1}])
def test_odd_capabilities_are_none(capabilities: object) -> None:
    found = introduced(agentCapabilities=capabilities, authMethods={}, agentInfo=[])
    assert "nothing beyond prompts" in texts(found)
    assert "an agent without a name" in texts(found)


@pytest.mark.parametrize(
    ("trial", "told"),
    [
        (Trial(failed="command not found: x"), "does not start: command not found: x"),
        (Trial(), "not answered `initialize` within 60 s"),
        (Trial(ended=True, exit=Exit(3, None)), "(exit code 3)"),
        (Trial(ended=True), "closed its stdout before"),
        (Trial(answer=Err(RpcError(-32603, "no"))), "with an error: no"),
    ],
)
def test_an_agent_that_does_not_work_is_an_error_that_says_how(trial: Trial, told: str) -> None:
    found = started(trial, 60)
    assert levels(found)[0] == "error"
    assert told in texts(found)
    assert found[0].next
    assert started(Trial(failed="the agent did not start in time"), 60)[0].next == ""


def test_an_agent_that_wants_a_login_first_is_a_warning() -> None:
    found = started(Trial(answer=Err(RpcError(-32000, "log in"))), 60)
    assert levels(found)[0] == "warning"
    assert "wants a login before anything else: log in" in texts(found)


def test_the_end_of_its_stderr_and_what_was_no_message_are_told_cut_and_without_secrets() -> None:
    # Cut at 300 characters, a secret that stands there would be half of one.
    long = "x" * 295 + SECRET
    stderr = deque([*map(str, range(9)), f"key={SECRET}", long])
    trial = Trial(ended=True, noise=long, stderr=stderr)
    answer = Err(RpcError.received(-32603, "no", {"details": long}))
    told = texts(started(masked(trial, Mask([SECRET])), 60))
    told += texts(started(masked(Trial(answer=answer), Mask([SECRET])), 60))
    assert "s3c" not in told
    assert "  8\n" in told
    assert "  5\n" not in told
    assert "no JSON on its stdout: xxx" in told


@pytest.mark.parametrize(
    ("line", "noise"),
    [
        (b'{"jsonrpc":"2.0"}', None),
        (b" \r", None),
        (b"Loading...\r", "Loading..."),
        (b"12", "12"),
        (b"\xff", "\ufffd"),
        (b"[" * 100_000, "[" * 100_000),
    ],
)
def test_noise_is_a_line_that_is_no_message(line: bytes, noise: str | None) -> None:
    assert noise_in(line) == noise
