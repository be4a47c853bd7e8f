"""The end of a client of version 2, by itself: what a living bridge shows only by chance."""

from typing import Any

from acp_bridge.core.protocol import Json
from acp_bridge.versions.client_end import ClientEnd
from tests.support.v2_schema import HELLO, V2Connection

WORDS: Json = {"type": "text", "text": "hi"}


class End:
    """A client that has a session, every message to which is judged."""

    def __init__(self) -> None:
        self.got: list[Json] = []
        self.end = ClientEnd(self.got.append, "m")
        self._judged = V2Connection()
        asked = self.asks(0, "initialize", HELLO)
        self.answers(asked, {"protocolVersion": 1, "agentCapabilities": {}})

    def asks(self, request: int, method: str, params: Json) -> Any:
        """The id under which the bridge gets a request."""
        message = {"jsonrpc": "2.0", "id": request, "method": method, "params": params}
        self._judged.judge("client", message)
        (asked,) = self.end.from_client(message)
        return asked["id"]

    def answers(self, request: Any, result: Json) -> None:
        self._hears({"jsonrpc": "2.0", "id": request, "result": result})

    def tells(self, method: str, **params: object) -> None:
        told = {"sessionId": "s", **params}
        self._hears({"jsonrpc": "2.0", "method": method, "params": told})

    def _hears(self, message: Json) -> None:
        since = len(self.got)
        if self.end.from_bridge(message):
            self.got.append(message)
        for each in self.got[since:]:
            self._judged.judge("agent", each)

    def updates(self, *kinds: str) -> list[Json]:
        told = [each["params"]["update"] for each in self.got if "params" in each]
        return [each for each in told if each["sessionUpdate"] in kinds]


def test_the_words_of_a_prompt_whose_turn_begins_in_a_replay_are_shown_once() -> None:
    it = End()
    session: Json = {"sessionId": "s"}
    it.answers(it.asks(1, "session/resume", {**session, "cwd": "/w"}), {})
    prompt = it.asks(2, "session/prompt", {**session, "prompt": [WORDS]})
    it.tells("_acp_bridge/accepted", requestId=prompt, promptId="p")
    start = {"replayFrom": {"type": "start"}}
    resume = it.asks(3, "session/resume", {**session, "cwd": "/w", **start})
    it.tells("session/update", update={"sessionUpdate": "user_message_chunk", "content": WORDS})
    turn = {"promptId": "p", "mine": True, "text": "hi"}
    it.answers(resume, {"_meta": {"acp_bridge": {"state": {"state": "running", "turn": turn}}}})
    it.tells("_acp_bridge/state", state="running", turn=turn)
    (shown,) = it.updates("user_message", "user_message_chunk")
    (answer,) = [each for each in it.got if each.get("id") == 2]
    assert answer["result"] == {"messageId": shown["messageId"]}


def test_a_turn_that_has_ended_in_a_replay_ends_before_the_next_one_is_told() -> None:
    it = End()
    session: Json = {"sessionId": "s"}
    it.answers(it.asks(1, "session/resume", {**session, "cwd": "/w"}), {})
    prompts = [it.asks(n, "session/prompt", {**session, "prompt": [WORDS]}) for n in (2, 3)]
    for n, prompt in enumerate(prompts):
        it.tells("_acp_bridge/accepted", requestId=prompt, promptId=f"p{n}")
    first, second = ({"promptId": f"p{n}", "mine": True, "text": "hi"} for n in range(2))
    it.tells("_acp_bridge/state", state="running", turn=first)
    start = {"replayFrom": {"type": "start"}}
    resume = it.asks(4, "session/resume", {**session, "cwd": "/w", **start})
    last = {"promptId": "p0", "stopReason": "max_tokens"}
    stands = {"state": "running", "turn": second, "last": last}
    it.answers(resume, {"_meta": {"acp_bridge": {"state": stands}}})
    it.answers(prompts[0], {"stopReason": "max_tokens"})  # it waited behind the replay
    it.tells("_acp_bridge/state", **stands)
    it.answers(prompts[1], {"stopReason": "end_turn"})
    states = [(x["state"], x.get("stopReason")) for x in it.updates("state_update")]
    ended = [("running", None), ("idle", "max_tokens"), ("running", None), ("idle", "end_turn")]
    assert states == [("idle", None), *ended]
    answered = [each["id"] for each in it.got if "result" in each]
    assert answered == [0, 1, 2, 3, 4]


def test_a_turn_that_a_close_has_ended_has_no_second_end_where_the_client_comes_back() -> None:
    it = End()
    session: Json = {"sessionId": "s"}
    it.answers(it.asks(1, "session/resume", {**session, "cwd": "/w"}), {})
    prompt = it.asks(2, "session/prompt", {**session, "prompt": [WORDS]})
    it.tells("_acp_bridge/accepted", requestId=prompt, promptId="p")
    it.tells("_acp_bridge/state", state="running", turn={"promptId": "p", "mine": True})
    it.answers(it.asks(3, "session/close", session), {})
    start = {"replayFrom": {"type": "start"}}
    it.asks(4, "session/resume", {**session, "cwd": "/w", **start})
    it.tells("session/update", update={"sessionUpdate": "user_message_chunk", "content": WORDS})
    it.answers(prompt, {"stopReason": "cancelled"})  # the replay is broken off
    ends = [each["stopReason"] for each in it.updates("state_update") if "stopReason" in each]
    assert ends == ["cancelled"]
