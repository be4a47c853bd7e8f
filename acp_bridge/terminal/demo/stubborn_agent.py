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
#: how many words it sings at most, which takes a minute.
MAX_WORDS = 4000


class Session:
    """A session's prompts (strings) and cancels (null), kept in a file of JSON lines."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.stop = threading.Event()
        lines = path.read_text("utf-8").splitlines() if path.exists() else []
        self._entries: list[str | None] = [json.loads(line) for line in lines]

    def keep(self, entry: str | None) -> None:
        """Append a prompt to the file, or None for a cancel."""
        self._entries.append(entry)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")

    @property
    def told(self) -> list[str]:
        """The prompts, oldest first."""
        return [entry for entry in self._entries if entry is not None]

    @property
    def cancels(self) -> int:
        """The number of cancels."""
        return self._entries.count(None)


class Agent:
    """An agent that reads on the main thread and streams on others, so it reads cancels at once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._sessions: dict[str, Session] = {}
        self._lock = threading.Lock()

    def run(self) -> None:
        """Read and handle messages until the end of stdin."""
        for line in sys.stdin.buffer:
            message = json.loads(line)
            params = message.get("params") or {}
            if message.get("method") == "session/cancel":
                session = self._sessions[params["sessionId"]]
                session.keep(None)
                session.stop.set()
            elif "method" in message and "id" in message:
                self._on_request(message["id"], message["method"], params)

    def _on_request(self, request: Any, method: str, params: Json) -> None:
        session_id = params.get("sessionId") or f"song-{time.time_ns():x}"
        result: Json = {}
        match method:
            case "initialize":
                capabilities = {"loadSession": True}
                result = {"protocolVersion": 1, "agentCapabilities": capabilities}
                result["authMethods"] = []
            case "session/new":
                self._sessions[session_id] = Session(self._folder / session_id)
                result = {"sessionId": session_id}
            case "session/load" if (path := self._folder / session_id).exists():
                self._sessions[session_id] = session = Session(path)
                for said in session.told:
                    self._show(session_id, "user_message_chunk", said, "replayed")
            case "session/prompt":
                session, text = self._sessions[session_id], params["prompt"][0]["text"]
                turn = (request, session_id, text, session.told)
                session.stop.clear()
                session.keep(text)
                threading.Thread(target=self._turn, args=turn, daemon=True).start()
                return
            case _:
                error = {"code": -32601, "message": f"not known here: {method}"}
                self._send({"id": request, "error": error})
                return
        self._send({"id": request, "result": result})

    def _turn(self, request: Any, session_id: str, prompt: str, earlier: list[str]) -> None:
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
        self._send({"id": request, "result": {"stopReason": reason}})

    def _show(self, session_id: str, kind: str, text: str, message_id: str) -> None:
        content = {"type": "text", "text": text}
        update = {"sessionUpdate": kind, "content": content, "messageId": message_id}
        params = {"sessionId": session_id, "update": update}
        self._send({"method": "session/update", "params": params})

    def _send(self, message: Json) -> None:
        with self._lock:
            sys.stdout.buffer.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
            sys.stdout.buffer.flush()


if __name__ == "__main__":
    Agent(Path(sys.argv[1])).run()
