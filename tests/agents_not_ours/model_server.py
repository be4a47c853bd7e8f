"""A model on the loopback: what OpenAI, Anthropic and Gemini speak, streamed.

The last order in what a request holds decides. `COUNT n GAP TAG`: n words `TAG0 TAG1 ...`, GAP
milliseconds apart. `RUN command END`: the agent's own tool for commands is called with it, and
when there is a result, the word is `RAN0`. `USE name END`: the same with the tool `echo` of an MCP
server of this name. `LIMIT`: the usage limit of a subscription is reached, in the form of OpenAI's
and Anthropic's servers. Everything that a request gave the model is kept, so that a test can see
what is remembered.
"""

from __future__ import annotations

import itertools
import json
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self

from tests.support.model_more_replies import GeminiWriter, ResponsesWriter
from tests.support.model_replies import Call, ChatWriter, Json, MessagesWriter, Text, Writer

_ORDER = re.compile(r"COUNT (\d+) (\d+) ([A-Z]+)|RUN (.+?) END|USE (\w+) END|LIMIT")
_RESULT = re.compile(r'"(?:tool_result|function_call_output|functionResponse)"|"role": "tool"')
#: the agents' tools for commands -> how they name the command.
_TOOLS = {
    "bash": "command",
    "Bash": "command",
    "exec_command": "cmd",
    "run_shell_command": "command",
    "shell": "command",
    "shell_command": "command",
}
_TOOL = re.compile(rf'"name": "({"|".join(_TOOLS)})"')
#: a tool of an MCP server, which each agent names in a way of its own.
_MCP_TOOL = r'"name": "((?:mcp_+)?{0}_+echo)"|"(mcp__{0})"'
#: without it codex runs a command in its sandbox, and asks nobody.
_CODEX_ASKS = {"sandbox_permissions": "require_escalated", "justification": "The test asked."}
#: seconds from a limit to its reset.
RESET = 3 * 3600
#: the end of a request's path -> how its answer is written
_WRITERS: dict[str, Callable[[Json], Writer]] = {
    "completions": ChatWriter,
    "responses": ResponsesWriter,
    "messages": MessagesWriter,
    "streamGenerateContent": GeminiWriter,
}


class ModelServer(ThreadingHTTPServer):
    """`with ModelServer() as server`; `given` is what each request held, as JSON."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.given: list[str] = []
        #: the whole of each request, as JSON.
        self.bodies: list[str] = []
        #: the tools of each request, as JSON.
        self.tools: list[str] = []
        self.port = self.server_address[1]
        self._calls = itertools.count(1)

    def __enter__(self) -> Self:
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.shutdown()
        self.server_close()

    def given_for(self, tag: str) -> str:
        """What the longest request for these words held: one for a title has them alone."""
        asked = [text for text in self.given if (last := _last_order(text)) and last[3] == tag]
        return max(asked, key=len, default="")

    def was_told(self, words: str, tag: str) -> bool:
        """True if a request for the words of `tag` held these words, wherever."""
        return any(
            words in body
            for text, body in zip(self.given, self.bodies, strict=True)
            if (last := _last_order(text)) and last[3] == tag
        )

    def offers(self, tag: str, server: str) -> bool:
        """True if a request for these words had the tool `echo` of an MCP server."""
        tool = re.compile(_MCP_TOOL.format(server))
        return any(
            tool.search(tools)
            for text, tools in zip(self.given, self.tools, strict=True)
            if (last := _last_order(text)) and last[3] == tag
        )

    def answer(self, body: Json) -> Iterator[Text | Call] | None:
        """Words, or one call; None if the limit is reached."""
        text = json.dumps(body.get("messages") or body.get("input") or body.get("contents"))
        self.given.append(text)
        self.bodies.append(json.dumps(body))
        self.tools.append(json.dumps(body.get("tools")))
        order = _last_order(text)
        if order is None:
            return iter([Text("OK0 ")])
        if order[0] == "LIMIT":
            return None
        if order[3]:
            return _count(int(order[1]), int(order[2]), order[3])
        command, tools = order[4], json.dumps(body.get("tools"))
        tool = re.search(_TOOL if command else _MCP_TOOL.format(order[5]), tools)
        if tool is None or _RESULT.search(text, order.end()):
            return iter([Text("RAN0 ")])
        call_id = f"call_{next(self._calls)}"
        if not command:
            name = tool[1] or f"{tool[2]}.echo"  # codex has a namespace of them
            return iter([Call(name, json.dumps({"text": "x"}), call_id)])
        arguments = {_TOOLS[tool[1]]: command, "description": "What the test asked for."}
        more = _CODEX_ASKS if "sandbox_permissions" in tools else {}
        return iter([Call(tool[1], json.dumps({**arguments, **more}), call_id)])


def _unified(resets: int) -> dict[str, str]:
    """The headers with which Anthropic's server tells a subscription's limit."""
    window = {"status": "rejected", "reset": str(resets)}
    told = {
        **window,
        **{f"5h-{name}": text for name, text in window.items()},
        "5h-utilization": "1.0",
        "representative-claim": "five_hour",
        "overage-status": "rejected",
        "overage-disabled-reason": "org_level_disabled",
    }
    own = {f"anthropic-ratelimit-unified-{name}": text for name, text in told.items()}
    return {**own, "retry-after": str(RESET)}


def _last_order(text: str) -> re.Match[str] | None:
    *_, last = [None, *_ORDER.finditer(text)]
    return last


def _count(count: int, gap: int, tag: str) -> Iterator[Text]:
    for number in range(count):
        if number:
            time.sleep(gap / 1000)
        yield Text(f"{tag}{number} ")


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: ModelServer

    def log_message(self, *args: object) -> None:
        """Nothing."""

    def do_GET(self) -> None:
        self._whole({"object": "list", "data": [{"id": "bench", "object": "model"}]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        ending = re.split("[/:]", self.path.partition("?")[0])[-1]
        if ending not in _WRITERS:
            return self.send_error(404)
        if ending in ("completions", "messages") and not body.get("stream"):
            return self.send_error(400)
        answer = self.server.answer(body)
        if answer is None:
            return self._refuse(ending)
        return self._stream(_WRITERS[ending](body), answer)

    def _refuse(self, ending: str) -> None:
        resets = int(time.time()) + RESET
        if ending == "messages":
            said = {"type": "rate_limit_error", "message": "This would exceed your rate limit."}
            self._whole({"type": "error", "error": said}, 429, _unified(resets))
        else:
            said = {"type": "usage_limit_reached", "message": "The usage limit has been reached"}
            more = {"plan_type": "plus", "resets_at": resets, "resets_in_seconds": RESET}
            self._whole({"error": {**said, **more}}, 429, {})

    def _whole(
        self, value: Json, status: int = 200, headers: Mapping[str, str] | None = None
    ) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        for name, text in (headers or {}).items():
            self.send_header(name, text)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _stream(self, writer: Writer, parts: Iterator[Text | Call]) -> None:
        self.close_connection = True
        try:
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(writer.begin())
            for part in parts:
                self.wfile.write(writer.write(part))
                self.wfile.flush()
            self.wfile.write(writer.end())
        except OSError:
            return
