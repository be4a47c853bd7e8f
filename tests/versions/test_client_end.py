"""The end of a client of version 2, by itself: what a living bridge shows only by chance."""

from typing import Any

from acp_bridge.protocol import Json
from acp_bridge.versions.client_end import ClientEnd
from tests.support.v2_schema import V2Connection

HELLO: Json = {"protocolVersion": 2, "info": {"name": "e", "version": "1"}, "capabilities": {}}
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
