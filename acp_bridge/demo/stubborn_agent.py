"""A small ACP agent for the demo, which counts the cancels that it gets and can ignore them.

`python -I stubborn_agent.py FOLDER` keeps its prompts in FOLDER, so that another process can load
the session. It uses the standard library only and imports nothing of the bridge.

    Sing...        streams until it is cancelled; with "stubborn" in it, until it is killed
    Remember?      "You told me: " and the earlier prompts
    Who are you?   "Process PID, cancelled N times.": N over all processes of the session
"""

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

Json = dict[str, Any]

#: Seconds between two words.
PACE = 0.015
#: It stops singing after a minute if nobody stops it.
MAX_WORDS = 4000


class Session:
    """The prompts of a session and the count of its cancels, kept in a file of JSON lines."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.stop = threading.Event()
        self.told: list[str] = []
        self.cancels = 0
        if path.exists():
            for line in path.read_text("utf-8").splitlines():
                self._fold(json.loads(line))

    def keep(self, entry: str | None) -> None:
        """Keep a prompt, or None for a cancel."""
        self._fold(entry)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")

    def _fold(self, entry: str | None) -> None:
        if entry is None:
            self.cancels += 1
        else:
            self.told.append(entry)


class Agent:
    """An agent that reads on the main thread, so that a cancel counts while a turn streams."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._sessions: dict[str, Session] = {}
        self._lock = threading.Lock()

    def run(self) -> None:
        for line in sys.stdin.buffer:
            message = json.loads(line)
            if message.get("method") == "session/cancel":
                session = self._sessions[message["params"]["sessionId"]]
                session.keep(None)
                session.stop.set()
            elif "method" in message and "id" in message:
                self._on_request(message["id"], message["method"], message.get("params") or {})

    def _on_request(self, request_id: Any, method: str, params: Json) -> None:
        session_id = params.get("sessionId", "")
        match method:
            case "initialize":
                capabilities = {"loadSession": True}
                result: Json = {"protocolVersion": 1, "agentCapabilities": capabilities}
                self._send({"id": request_id, "result": {**result, "authMethods": []}})
            case "session/new":
                session_id = f"song-{time.time_ns():x}"
                self._open(session_id)
                self._send({"id": request_id, "result": {"sessionId": session_id}})
            case "session/load" if (self._folder / session_id).exists():
                for said in self._open(session_id).told:
                    self._show(session_id, "user_message_chunk", said, "replayed")
                self._send({"id": request_id, "result": {}})
            case "session/prompt":
                session, text = self._sessions[session_id], params["prompt"][0]["text"]
                earlier = list(session.told)
                session.stop.clear()
                session.keep(text)
                arguments = (request_id, session_id, text, earlier)
                threading.Thread(target=self._turn, args=arguments, daemon=True).start()
            case _:
                error = {"code": -32601, "message": f"not known here: {method}"}
                self._send({"id": request_id, "error": error})

    def _open(self, session_id: str) -> Session:
        session = self._sessions[session_id] = Session(self._folder / session_id)
        return session

    def _turn(self, request_id: Any, session_id: str, prompt: str, earlier: list[str]) -> None:
        session = self._sessions[session_id]
        if prompt.startswith("Sing"):
            words = [f"la{n} " for n in range(1, MAX_WORDS)]
        elif prompt.startswith("Who"):
            times = "once" if session.cancels == 1 else f"{session.cancels} times"
            words = [f"Process {os.getpid()}, ", "cancelled ", f"{times}."]
        else:
            words = ["You told me: ", "; ".join(earlier) or "nothing yet"]
        for word in words:
            self._show(session_id, "agent_message_chunk", word, f"song-{len(earlier)}")
            time.sleep(PACE)
            if session.stop.is_set() and "stubborn" not in prompt:
                break
        reason = "cancelled" if session.stop.is_set() else "end_turn"
        self._send({"id": request_id, "result": {"stopReason": reason}})

    def _show(self, session_id: str, kind: str, text: str, message_id: str) -> None:
        update: Json = {"sessionUpdate": kind, "content": {"type": "text", "text": text}}
        params = {"sessionId": session_id, "update": {**update, "messageId": message_id}}
        self._send({"method": "session/update", "params": params})

    def _send(self, message: Json) -> None:
        line = json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n"
        with self._lock:
            sys.stdout.buffer.write(line)
            sys.stdout.buffer.flush()


if __name__ == "__main__":
    Agent(Path(sys.argv[1])).run()
