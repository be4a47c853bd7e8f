"""A conductor, and a proxy for it, written from the draft of ACP about chains of proxies.

`conductor.py COMPONENT... AGENT`, a command line each in one word, is an agent to its client.
`conductor.py --proxy WORDS` is a component that puts WORDS in front of each prompt.
"""

import json
import os
import shlex
import subprocess
import sys
import threading
from itertools import count
from typing import IO, Any

Json = dict[str, Any]
SUCCESSOR = "proxy/successor"


class End:
    """The stream to one component, or to the client, and the requests that it was sent."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._asked: dict[int, tuple[End, Any]] = {}

    def tell(self, message: Json) -> None:
        self._stream.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        self._stream.flush()

    def pass_on(self, origin: "End", message: Json, method: str, params: Any) -> None:
        """Send a request or notification of `origin` under a method of its own."""
        sent: Json = {"method": method, "params": params}
        if "id" in message:
            sent["id"] = len(self._asked) + 1
            self._asked[sent["id"]] = origin, message["id"]
        self.tell(sent)

    def answer(self, message: Json) -> None:
        origin, request_id = self._asked[message["id"]]
        origin.tell({**message, "id": request_id})


class Conductor:
    """Passes messages along the chain: the client, the proxies, the agent."""

    def __init__(self, commands: list[str]) -> None:
        self._lock = threading.Lock()
        pipe = subprocess.PIPE
        self._processes = [
            subprocess.Popen(shlex.split(each), stdin=pipe, stdout=pipe, text=True)
            for each in commands
        ]
        inputs = [process.stdin for process in self._processes]
        self._ends = [End(sys.stdout), *(End(stream) for stream in inputs if stream)]
        self._streams = [sys.stdin, *(each.stdout for each in self._processes if each.stdout)]

    def run(self) -> None:
        """Conduct until the client has left, or a component has ended."""
        for place in range(1, len(self._ends)):
            threading.Thread(target=self._read, args=(place, self._streams[place])).start()
        self._read(0, sys.stdin)
        if self._processes[0].stdin:  # each component ends with the one before
            self._processes[0].stdin.close()
        for process in self._processes:
            process.wait()

    def _read(self, place: int, stream: IO[str]) -> None:
        for line in stream:
            with self._lock:
                self._take(place, json.loads(line))
        if place:  # the chain is broken
            os._exit(1)

    def _take(self, place: int, message: Json) -> None:
        if "method" not in message:
            self._ends[place].answer(message)
        elif place == 0:
            self._to_successor(0, message, message["method"], message.get("params"))
        elif message["method"] == SUCCESSOR:
            inner = message["params"]
            self._to_successor(place, message, inner["method"], inner.get("params"))
        elif place == 1:
            self._ends[0].pass_on(self._ends[1], message, message["method"], message.get("params"))
        else:
            inner = {"method": message["method"], "params": message.get("params")}
            self._ends[place - 1].pass_on(self._ends[place], message, SUCCESSOR, inner)

    def _to_successor(self, place: int, message: Json, method: str, params: Any) -> None:
        is_proxy = place + 2 < len(self._ends)
        method = "proxy/initialize" if method == "initialize" and is_proxy else method
        self._ends[place + 1].pass_on(self._ends[place], message, method, params)


def proxy(words: str) -> None:
    """Pass all on, and put words in front of each prompt."""
    conductor, asked, ids = End(sys.stdout), dict[int, Any](), count(1)
    for line in sys.stdin:
        message = json.loads(line)
        method, params = message.get("method"), message.get("params")
        if method is None:
            conductor.tell({**message, "id": asked.pop(message["id"])})
            continue
        if method == SUCCESSOR:
            sent = {"method": params["method"], "params": params.get("params")}
        else:
            if method == "session/prompt":
                block = {"type": "text", "text": words}
                params = {**params, "prompt": [block, *params["prompt"]]}
            inner = "initialize" if method == "proxy/initialize" else method
            sent = {"method": SUCCESSOR, "params": {"method": inner, "params": params}}
        if "id" in message:
            sent["id"] = next(ids)
            asked[sent["id"]] = message["id"]
        conductor.tell(sent)


if __name__ == "__main__":
    if sys.argv[1] == "--proxy":
        proxy(sys.argv[2])
    else:
        Conductor(sys.argv[1:]).run()
