"""What `initialize` tells either side: the other's word, with what the bridge itself can."""

from typing import Any

from acp_bridge.clients import handshake
from acp_bridge.clients.abilities import ClientAbilities

Json = dict[str, Any]
OWN = {"delivery": "queue"}


def for_client(agent: Json, client: Json | None = None) -> Json:
    return handshake.for_client(agent, ClientAbilities(client), OWN)


def test_the_agent_is_told_what_the_client_said_in_our_version() -> None:
    given = {"protocolVersion": 9, "clientCapabilities": {"x": 1}, "_meta": {"y": [None]}}
    assert handshake.for_agent(given) == {**given, "protocolVersion": 1}
    assert given["protocolVersion"] == 9


def test_sessions_are_the_bridges_whatever_the_agent_can() -> None:
    for agent in (
        {},
        {"agentCapabilities": None},
        {"agentCapabilities": {"sessionCapabilities": 5}},
    ):
        capabilities = for_client(agent)["agentCapabilities"]
        assert capabilities["loadSession"] is True
        own = ("list", "resume", "close", "delete")
        assert capabilities["sessionCapabilities"] == {name: {} for name in own}


def test_a_fork_is_not_offered_and_the_agents_other_words_stay_as_they_are() -> None:
    agent: Json = {
        "protocolVersion": 1,
        "agentInfo": {"name": "a"},
        "unknown": [1],
        "agentCapabilities": {
            "promptCapabilities": {"image": True},
            "sessionCapabilities": {"fork": {}, "list": {"kept": 1}, "x": {}, "close": None},
            "_meta": {"kept": 1, "acp_bridge": "not ours"},
        },
    }
    told = for_client(agent)
    assert {key: told[key] for key in ("protocolVersion", "agentInfo", "unknown")} == {
        key: agent[key] for key in ("protocolVersion", "agentInfo", "unknown")
    }
    capabilities = told["agentCapabilities"]
    assert capabilities["promptCapabilities"] == {"image": True}
    sessions = capabilities["sessionCapabilities"]
    assert sessions == {"list": {"kept": 1}, "x": {}, "close": {}, "resume": {}, "delete": {}}
    assert capabilities["_meta"]["kept"] == 1
    assert capabilities["_meta"]["acp_bridge"]["delivery"] == "queue"
    assert "fork" in agent["agentCapabilities"]["sessionCapabilities"]  # untouched


def test_a_method_of_a_terminal_is_offered_only_to_a_client_that_has_one() -> None:
    methods = [{"id": "a"}, {"id": "t", "type": "terminal"}, "odd"]
    agent = {"authMethods": methods}
    assert for_client(agent)["authMethods"] == [{"id": "a"}, "odd"]
    assert for_client(agent, {"auth": {"terminal": False}})["authMethods"] == [{"id": "a"}, "odd"]
    assert for_client(agent, {"auth": {"terminal": True}})["authMethods"] == methods
    assert for_client({"authMethods": None})["authMethods"] == []
