"""The two ends of a translator in front of an agent of version 2, every message of which is judged.

What goes to and fro at the bridge's end is judged by the schema of version 1, at the agent's end by
that of version 2.
"""

import json
from itertools import count
from typing import Any

from acp_bridge.core.protocol import SAID_UPDATE, Json, kind_of, without_said
from acp_bridge.core.wire.jsonrpc import Malformed, Message
from acp_bridge.versions.agent_end import AgentEnd, Out
from tests.clients_not_ours.judge import Connection
from tests.support.v1_schema import v1_schema
from tests.support.v2_schema import V2Connection

INFO = {"name": "v2", "version": "1"}
SESSION: Json = {"mcp": {"http": {}, "stdio": {}}, "prompt": {"image": {}}, "delete": {}}
#: what a client says of itself, which can do all that version 1 has for agents of version 2.
ABLE = {
    "session": {"configOptions": {"boolean": {}}, "compaction": {}},
    "elicitation": {"form": {}},
    "auth": {"terminal": True},
}
TEXT = {"type": "text", "text": "hi"}


class Wire:
    """An agent of version 2 that has been initialized, with the session `s` if it is opened."""

    def __init__(self, *, opened: bool = True, able: Json = ABLE) -> None:
        self.end = AgentEnd()
        self._v1, self._v2 = Connection(v1_schema()), V2Connection()
        self._ids = count(1)
        self.told: Json = {}
        asked = self.ask("initialize", {"protocolVersion": 1, "clientCapabilities": able})
        (answer,) = self.agent_answers(
            asked["id"],
            {"protocolVersion": 2, "info": INFO, "capabilities": {"session": SESSION}},
        )
        self.initialized: Json = answer["result"]
        if opened:
            self.open()

    # --- the bridge's end ----------------------------------------------------------------------

    def bridge(self, message: Message) -> Out:
        """A message of the bridge; what comes out of it is judged."""
        self._v1.judge("client", json.dumps(message))
        return self._judged(self.end.take_from_bridge(message))

    def ask(self, method: str, params: Json) -> Json:
        """A request of the bridge; the one message that the agent gets."""
        out = self.request(method, params)
        assert not out.to_bridge
        (message,) = out.to_agent
        return message

    def request(self, method: str, params: Json) -> Out:
        message = {"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": params}
        return self.bridge(message)

    def notify(self, method: str, params: Json) -> list[Json]:
        """A notification of the bridge; what the agent gets."""
        out = self.bridge({"jsonrpc": "2.0", "method": method, "params": params})
        assert not out.to_bridge
        return out.to_agent

    # --- the agent's end -----------------------------------------------------------------------

    def agent(self, message: Message) -> Out:
        """A message of the agent; what comes out of it is judged."""
        self._v2.judge("agent", message)
        return self._judged(self.end.take_from_agent(message))

    def agent_answers(self, request_id: Any, result: Json) -> list[Json]:
        """What the bridge gets when the agent answers."""
        return self._messages({"jsonrpc": "2.0", "id": request_id, "result": result})

    def agent_fails(self, request_id: Any, code: int, message: str = "no") -> list[Json]:
        error = {"code": code, "message": message}
        return self._messages({"jsonrpc": "2.0", "id": request_id, "error": error})

    def agent_asks(self, method: str, params: Json) -> Out:
        message = {"jsonrpc": "2.0", "id": f"a{next(self._ids)}", "method": method}
        return self.agent({**message, "params": params})

    def says(self, kind: str, /, of: str = "s", **members: Any) -> list[Json]:
        """The messages that the bridge gets for one update of a session, mostly `s`."""
        params = {"sessionId": of, "update": {"sessionUpdate": kind, **members}}
        return self._messages({"jsonrpc": "2.0", "method": "session/update", "params": params})

    def shows(self, kind: str, /, **members: Any) -> list[Json]:
        """The updates that the bridge gets for one update of the session `s`."""
        return updates(self.says(kind, **members))

    def state(self, state: str, **members: Any) -> list[Json]:
        return self.says("state_update", state=state, **members)

    def _messages(self, message: Message) -> list[Json]:
        out = self.agent(message)
        assert not out.to_agent
        assert not any(isinstance(each, Malformed) for each in out.to_bridge)
        return [each for each in out.to_bridge if isinstance(each, dict)]

    def _judged(self, out: Out) -> Out:
        for message in out.to_agent:
            self._v2.judge("client", message)
        told = Out(out.to_agent, for_version_1(out.to_bridge))
        for each in told.to_bridge:
            self._v1.judge("agent", json.dumps(each))
        return told

    # --- what most tests begin with ------------------------------------------------------------

    def open(self, **answer: Any) -> list[Json]:
        asked = self.ask("session/new", {"cwd": "/w", "mcpServers": []})
        return self.agent_answers(asked["id"], {"sessionId": "s", **answer})

    def prompt(self, *, inserted: bool = True) -> Any:
        """A prompt, which the agent has put in unless it is to wait; the id of its request."""
        asked = self.ask("session/prompt", {"sessionId": "s", "prompt": [TEXT]})
        if inserted:
            assert not self.agent_answers(asked["id"], {"messageId": "u1"})
        return asked["id"]


def for_version_1(messages: list[Message | Malformed]) -> list[Message | Malformed]:
    """What of these messages is for clients of version 1, as the session hands it on."""
    found: list[Message | Malformed] = []
    for each in messages:
        params = each.get("params") if isinstance(each, dict) else None
        if not isinstance(each, dict) or not isinstance(params, dict):
            found.append(each)
        elif kind_of(params) != SAID_UPDATE:
            found.append({**each, "params": without_said(params)})
    return found


def updates(messages: list[Json]) -> list[Json]:
    """The updates in some messages that are nothing else."""
    assert all(each["method"] == "session/update" for each in messages)
    return [each["params"]["update"] for each in messages]


def result(request_id: Any, **members: Any) -> Json:
    return {"jsonrpc": "2.0", "id": request_id, "result": members}


def texts(found: list[Json]) -> str:
    """The text of some chunks."""
    return "".join(each["content"]["text"] for each in found)
