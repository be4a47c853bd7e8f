"""The floor: an agent in plain Python, without SDK, model or journal; the least there can be.

A prompt `stream N GAP` sends N updates GAP milliseconds apart, each with the monotonic time in
microseconds at which it was written. An argument is the seconds that its start takes longer.
"""

import json
import os
import sys
import threading
import time
from typing import Any

_write = threading.Lock()
_stops: dict[str, threading.Event] = {}


def put(message: dict[str, Any]) -> None:
    send(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")


def send(line: bytes) -> None:
    with _write:
        while line:
            line = line[os.write(1, line) :]


def turn(request: Any, session_id: str, words: list[str], stop: threading.Event) -> None:
    count, gap = int(words[1]), float(words[2]) / 1000
    head = (
        f'{{"jsonrpc":"2.0","method":"session/update","params":{{"sessionId":"{session_id}",'
        '"update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"'
    ).encode()
    for number in range(count):
        if (gap and number and stop.wait(gap)) or stop.is_set():
            break
        send(b'%s@%d "}}}}\n' % (head, time.monotonic() * 1e6))
    reason = "cancelled" if stop.is_set() else "end_turn"
    put({"id": request, "result": {"stopReason": reason}})


def main() -> None:
    time.sleep(float(sys.argv[1]) if sys.argv[1:] else 0)
    sessions = 0
    for line in sys.stdin.buffer:
        message = json.loads(line)
        method, request, params = message.get("method"), message.get("id"), message.get("params")
        match method:
            case "initialize":
                able: dict[str, object] = {"resume": {}, "close": {}}
                capabilities = {"loadSession": False, "sessionCapabilities": able}
                result = {"protocolVersion": 1, "agentCapabilities": capabilities}
                put({"id": request, "result": result})
            case "session/new":
                sessions += 1
                put({"id": request, "result": {"sessionId": f"floor-{os.getpid()}-{sessions}"}})
            case "session/resume" | "session/close":
                put({"id": request, "result": {}})
            case "session/prompt":
                session_id = params["sessionId"]
                stop = _stops[session_id] = threading.Event()
                words = params["prompt"][0]["text"].split()
                work = (request, session_id, words, stop)
                threading.Thread(target=turn, args=work, daemon=True).start()
            case "session/cancel":
                if params["sessionId"] in _stops:
                    _stops[params["sessionId"]].set()
            case _ if request is not None:
                put({"id": request, "error": {"code": -32601, "message": "unknown method"}})


if __name__ == "__main__":
    main()
