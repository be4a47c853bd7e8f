"""What is said of an agent, by how it was found and how its trial went."""

from typing import Any

import pytest

from acp_bridge.core.keys.masking import Mask
from acp_bridge.core.wire.jsonrpc import RpcError
from acp_bridge.terminal.doctor.agent import Trial, masked, started
from acp_bridge.terminal.doctor.findings import Finding
from tests.terminal.doctor.subjects import levels, texts


def introduced(**result: Any) -> list[Finding]:
    can = {"loadSession": True}
    answer = {"protocolVersion": 1, "agentCapabilities": can, **result}
    return started(Trial(result=answer, seconds=0.25, version=1))


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


@pytest.mark.parametrize("capabilities", [None, [], "x", {"sessionCapabilities": 1}])
def test_odd_capabilities_are_none(capabilities: object) -> None:
    found = introduced(agentCapabilities=capabilities, authMethods={}, agentInfo=[])
    assert "nothing beyond prompts" in texts(found)
    assert "an agent without a name" in texts(found)


def test_an_agent_that_wants_a_login_first_is_a_warning() -> None:
    found = started(Trial(error=RpcError(-32000, "log in")))
    assert levels(found) == ["warning"]
    assert "the agent wants a login: log in" in texts(found)


def test_what_was_no_message_is_told_without_secrets() -> None:
    answer = {"protocolVersion": 1, "agentInfo": {"name": "s3cret-value"}}
    trial = masked(Trial(result=answer, noise="at s3cret-value"), Mask(["s3cret-value"]))
    told = texts(started(trial))
    assert "it writes what is not ACP to its stdout: at ***" in told
    assert "*** answered" in told
