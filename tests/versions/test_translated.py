"""The wire to an agent of version 2, at the bytes."""

import json
from typing import Any

import pytest

from acp_bridge.core.agents.spoken_version import OtherVersion, SpokenVersion
from acp_bridge.core.settings import AgentProtocol
from acp_bridge.core.wire.jsonrpc import UNSET, Answer, Malformed, Ok, RpcError
from acp_bridge.core.wire.peer import Call, Peer
from acp_bridge.versions.agent_end import AgentEnd
from acp_bridge.versions.translated import Translated


class Side:
    """The bridge's end, which notes what it is told."""

    def __init__(self) -> None:
        self.told: list[Any] = []
        self.sent: list[Any] = []
        self.peer = Peer(self, lambda line: self.wire.send(line), towards_client=False)
        self.wire = Translated(self.peer, self._sends, lambda: self.told.append(self.activity))
        self.peer.request("session/resume", {"sessionId": "s"}, lambda answer: None)
        self.sent.clear()

    def _sends(self, line: bytes) -> None:
        self.sent.append(json.loads(line))

    @property
    def activity(self) -> str:
        """What the agent does and lists, in a line."""
        activity = self.wire.activity("s")
        listed = [each.id.rpartition("/")[2] for each in activity.background or ()]
        return " ".join(["runs" if activity.runs else "rests", *listed])

    def on_request(self, call: Call) -> None:
        self.told.append(call.method)

    def on_notification(self, method: str, params: Any) -> None:
        self.told.append(params["update"]["content"]["text"] if params is not UNSET else method)

    def on_malformed(self, line: Malformed) -> None:
        self.told.append(line)

    def on_batch_end(self) -> None:
        self.told.append("end of read")


def chunk(text: str) -> bytes:
    content = {"type": "text", "text": text}
    return said("agent_message_chunk", messageId="m", content=content)


def said(kind: str, **members: Any) -> bytes:
    params = {"sessionId": "s", "update": {"sessionUpdate": kind, **members}}
    message = {"jsonrpc": "2.0", "method": "session/update", "params": params}
    return json.dumps(message).encode() + b"\n"


def test_what_is_read_at_once_is_handed_over_at_once() -> None:
    side = Side()
    both = chunk("one") + chunk("two")
    side.wire.feed(both[:-5])
    side.wire.feed(both[-5:])
    assert side.told == ["one", "end of read", "two", "end of read"]
    side.told.clear()
    side.wire.feed(both + chunk("three")[:-1])
    side.wire.eof()
    assert side.told == ["one", "two", "end of read", "three", "end of read"]


def test_each_state_counts_behind_what_came_before_it_and_before_what_follows() -> None:
    side, listed = Side(), [{"type": "terminal", "terminalId": "t"}]
    running = said("state_update", state="running", background=listed)
    side.wire.feed(chunk("one") + running + said("state_update", state="idle") + chunk("two"))
    assert side.told == ["one", "end of read", "runs t", "rests t", "two", "end of read"]
    side.told.clear()
    side.wire.feed(running[:-1])
    assert side.told == []
    side.wire.feed(running[-1:])
    assert set(side.told) == {"runs t"}


def test_a_request_that_is_refused_here_is_answered_and_never_sent() -> None:
    side, answers = Side(), list[Answer]()
    side.peer.request("session/set_model", {}, answers.append)
    (answer,) = answers
    assert not isinstance(answer, Ok)
    assert answer.error.code == -32601
    assert side.sent == []


def test_a_message_that_can_not_be_translated_ends_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    side, answers = Side(), list[Answer]()
    side.peer.request("session/list", {}, answers.append)
    with monkeypatch.context() as patch:
        patch.setattr(AgentEnd, "take_from_agent", lambda self, message: 1 / 0)
        side.wire.feed(b'{"jsonrpc":"2.0","id":2,"result":{}}\n')
        side.wire.feed(b'{"jsonrpc":"2.0","id":"q","method":"_x"}\n')
        side.wire.feed(chunk("lost"))
    assert [isinstance(each, Ok) for each in answers] == [False]
    assert [each["id"] for each in side.sent if "error" in each] == ["q"]
    side.wire.feed(chunk("told"))
    assert side.told[-2:] == ["told", "end of read"]


# --- which version is asked for -----------------------------------------------------------------


@pytest.mark.parametrize("code", [-32022, -32602])
def test_version_2_is_asked_for_once_version_1_is_refused(code: int) -> None:
    version = SpokenVersion()
    assert version.asks == 1
    refusal = RpcError(code, "no")
    assert isinstance(version.refused(1, refusal), OtherVersion)
    assert isinstance(version.refused(1, refusal), OtherVersion)  # of one started beside it
    assert version.asks == 2
    version.settle(2)
    assert version.asks == 2


def test_an_agent_that_refuses_both_is_refused_with_its_word_and_asked_anew_later() -> None:
    version = SpokenVersion()
    version.refused(1, RpcError(-32602, "first"))
    last = version.refused(2, RpcError(-32603, "last"))
    assert isinstance(last, RpcError)
    assert (last.message, version.asks) == ("last", 1)


@pytest.mark.parametrize("code", [-32000, -32603])
def test_another_error_is_no_word_about_the_version(code: int) -> None:
    version, refusal = SpokenVersion(), RpcError(code, "no")
    assert version.refused(1, refusal) is refusal
    assert version.asks == 1


def test_the_user_s_version_1_is_the_only_one_and_version_2_the_first() -> None:
    refusal = RpcError(-32022, "no")
    assert SpokenVersion(AgentProtocol.V1).refused(1, refusal) is refusal
    version = SpokenVersion(AgentProtocol.V2)
    assert version.asks == 2
    assert isinstance(version.refused(2, None), OtherVersion)
    assert version.asks == 1
