"""An agent whose answers a test writes itself, where no fixture agent behaves so badly."""

import sys
from pathlib import Path

_AGENT = """
import json, os, sys, time

def send(**message):
    os.write(1, json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\\n")

def update(session, **update):
    send(method="session/update", params={"sessionId": session, "update": update})

def text(words, **more):
    content = {"type": "text", "text": words}
    return {"sessionUpdate": "agent_message_chunk", "content": content, **more}

def initialize(id, params):
    return {"protocolVersion": 1, "agentCapabilities": CAN}

def session_new(id, params):
    return {"sessionId": "s"}

def session_prompt(id, params):
    return {"stopReason": "end_turn"}

CAN = {}
"""
_LOOP = """
for line in sys.stdin:
    message = json.loads(line)
    method = message.get("method", "answer").replace("/", "_")
    handle = globals().get(method)
    if handle:
        given = message.get("params") if "method" in message else message
        result = handle(message.get("id"), given)
        if "id" in message and "method" in message and result is not None:
            known = {"error", "result"} & result.keys() == result.keys() and result
            send(id=message["id"], **(result if known else {"result": result}))
    elif "id" in message and "method" in message:
        send(id=message["id"], error={"code": -32601, "message": "unknown"})
"""


def tiny_agent(folder: Path, code: str) -> list[str]:
    """The command of an agent; `code`: functions named as methods, `session_new(id, params)`,
    that return the result, `{"error": ...}` or None for no answer."""
    path = folder / "tiny_agent.py"
    path.write_text(_AGENT + code + _LOOP)
    return [sys.executable, str(path)]
