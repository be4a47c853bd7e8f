"""What `initialize` tells either side: the other's word, with what the bridge itself can."""

from typing import Any

import pytest

from acp_bridge import __version__
from acp_bridge.core.clients import handshake

Json = dict[str, Any]
OWN = {"delivery": "queue"}
#: what every agent is told of any client.
QUOTA: Json = {"session": {"quota": {}}}
ALWAYS: Json = {**QUOTA, "subagents": {}}


def for_client(agent: Json) -> Json:
    return handshake.for_client(agent, OWN)


def test_the_agent_is_told_what_the_client_said_in_our_version() -> None:
    given = {"protocolVersion": 9, "clientCapabilities": {"x": 1}, "_meta": {"y": [None]}}
    told = {"x": 1, **ALWAYS}
    assert handshake.for_agent(given) == {
        **given,
        "protocolVersion": 1,
        "clientCapabilities": told,
    }
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


def test_the_agents_other_words_stay_as_they_are() -> None:
    agent: Json = {
        "protocolVersion": 1,
        "agentInfo": {"name": "a", "version": "1"},
        "unknown": [1],
        "agentCapabilities": {
            "promptCapabilities": {"image": True},
            "sessionCapabilities": {"subagents": {}, "list": {"kept": 1}, "x": {}, "close": None},
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
    assert "subagents" in agent["agentCapabilities"]["sessionCapabilities"]  # untouched


@pytest.mark.parametrize(
    ("capabilities", "offered"),
    [
        ({"sessionCapabilities": {"fork": {}}}, False),
        ({"loadSession": True, "sessionCapabilities": {"fork": {}}}, True),
        ({"sessionCapabilities": {"fork": {"k": 1}, "resume": {}}}, True),
        ({"loadSession": True, "sessionCapabilities": {"fork": None}}, False),
        ({"loadSession": True}, False),
        (None, False),
    ],
)
def test_a_fork_is_offered_only_where_another_process_can_be_given_it(
    capabilities: Json | None, offered: bool
) -> None:
    told = for_client({"agentCapabilities": capabilities})["agentCapabilities"]
    assert ("fork" in told["sessionCapabilities"]) is offered
    assert handshake.can_fork(capabilities) is offered


def test_what_an_agent_says_under_a_name_of_the_bridges_is_no_word_of_the_bridge() -> None:
    meta: Json = {"steering": {"supported": True}, "acp_bridge": {"methods": ["x"]}, "kept": 1}
    assert for_client({"_meta": meta})["_meta"] == {"kept": 1}
    odds: list[Any] = [None, 5, []]
    for odd in odds:
        assert for_client({"_meta": odd})["_meta"] == {}


@pytest.mark.parametrize("can", [{}, {"subagents": {}}, {"subagents": None}, {"_meta": {"x": 1}}])
def test_every_agent_is_told_that_the_sessions_of_subagents_are_shown(can: Json) -> None:
    told = handshake.for_agent({"protocolVersion": 1, "clientCapabilities": can})
    assert told["clientCapabilities"] == {**can, **ALWAYS}
    assert handshake.for_agent({})["clientCapabilities"] == ALWAYS
    agent: Json = {"agentCapabilities": {"sessionCapabilities": {"subagents": {}}}}
    assert "subagents" not in for_client(agent)["agentCapabilities"]["sessionCapabilities"]
    odds: list[Any] = [None, 5, []]
    for odd in odds:
        assert handshake.for_agent({"clientCapabilities": odd})["clientCapabilities"] == odd


@pytest.mark.parametrize("session", [{}, {"quota": None}, {"quota": {}}, {"notices": {}}, None])
def test_every_agent_is_told_that_limits_are_taken(session: Any) -> None:
    told = handshake.for_agent({"clientCapabilities": {"session": session}})
    assert told["clientCapabilities"]["session"] == {**(session or {}), "quota": {}}


def test_an_agent_that_would_tell_subagents_in_a_form_of_jetbrains_is_told_of_neither() -> None:
    air: Json = {"version": 1, "capabilities": ["nativeSubagentSessions", "asyncTasks"]}
    can: Json = {"subagents": {}, "_meta": {"jetbrains": {"air": air}}}
    told = handshake.for_agent({"clientCapabilities": can})["clientCapabilities"]
    left = {**air, "capabilities": ["asyncTasks"]}
    assert told == {"_meta": {"jetbrains": {"air": left}}, **QUOTA}


@pytest.mark.parametrize("side", ["client", "agent", "agent's capabilities"])
def test_other_forms_of_subagents_and_an_index_are_kept_from_both_sides(side: str) -> None:
    kept_back = ["nativeSubagentSessions", "sessionIndex"]
    air: Json = {"version": 1, "capabilities": ["asyncTasks", *kept_back]}
    can: Json = {
        "_meta": {"subagents": {}, "sessionIndex": {}, "jetbrains": {"air": air, "a": 1}, "b": 2}
    }
    match side:
        case "client":
            told = handshake.for_agent({"clientCapabilities": can})["clientCapabilities"]
        case "agent":
            told = for_client(can)
        case _:
            told = for_client({"agentCapabilities": can})["agentCapabilities"]
    assert (told["_meta"]["jetbrains"], told["_meta"]["b"]) == (
        {"air": {"version": 1, "capabilities": ["asyncTasks"]}, "a": 1},
        2,
    )
    assert not told["_meta"].keys() & {"subagents", "sessionIndex"}
    assert "nativeSubagentSessions" in air["capabilities"]


@pytest.mark.parametrize("odd", [None, 5, [], {"air": None}, {"air": {"capabilities": 5}}])
def test_capabilities_of_an_unknown_form_come_through_as_they_are(odd: Any) -> None:
    for can in ({"_meta": {"jetbrains": odd}}, {"_meta": odd}):
        told = handshake.for_agent({"clientCapabilities": can})["clientCapabilities"]
        assert told in ({**can, **QUOTA}, {**can, **ALWAYS})


def test_every_way_to_log_in_is_offered_as_the_agent_offers_it() -> None:
    methods: list[dict[str, Any]] = [
        {"id": "a"},
        {"id": "t", "type": "terminal", "args": ["--cli"]},
        {"id": "m", "_meta": {"terminal-auth": {"command": "x", "args": ["login"]}}},
    ]
    told = for_client({"authMethods": [*methods, "odd", {"name": "x"}]})["authMethods"]
    assert told == [{"name": each["id"], **each} for each in methods]
    assert for_client({"authMethods": None})["authMethods"] == []


@pytest.mark.hazard("X1")
@pytest.mark.parametrize(("version", "told"), [(None, ""), (3, ""), ("3", "3")])
def test_an_agent_s_version_is_a_text(version: Any, told: str) -> None:
    info = {"name": "a", "x": 1} if version is None else {"name": "a", "x": 1, "version": version}
    shown = for_client({"agentInfo": info})["agentInfo"]
    assert shown == {"name": "a", "x": 1, "version": told}


@pytest.mark.parametrize("info", [None, "odd", {}, {"name": "theirs", "version": "3"}])
def test_an_agent_that_says_nothing_of_itself_is_presented_by_the_bridge(info: Any) -> None:
    told = for_client({"agentInfo": info})["agentInfo"]
    own = {"name": "acp-bridge", "title": "acp-bridge", "version": __version__}
    assert told == (info if isinstance(info, dict) and info else own)
    assert for_client({})["agentInfo"] == own
