"""A server of the page on a port of this machine, with a bridge and an agent in memory."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path

import anyio
from anyio.abc import SocketAttribute, SocketStream
from websockets.http11 import Request

from acp_bridge.protocol import Json
from acp_bridge.remote.page.client import serve_page
from acp_bridge.remote.page.files import respond
from acp_bridge.remote.websocket import opened, server_protocol
from tests.bridge.remote import RemoteBench, remote_bench
from tests.remote.page_bench import KnownLogins
from tests.sessions.agent import Agent, Process, until

EVIL = (
    "<script>document.body.textContent='owned'</script><img src=x onerror=\"owned()\">"
    "<svg onload=owned()> [x](javascript:owned()) ![i](https://images.example/i.png)"
)
PERMISSION: Json = {
    "toolCall": {
        "toolCallId": "t",
        "title": f"Edit parser.py {EVIL}",
        "content": [{"type": "diff", "path": "parser.py", "oldText": "a\n", "newText": "b\n"}],
    },
    "options": [
        {"optionId": "yes", "name": "Allow", "kind": "allow_once"},
        {"optionId": "always", "name": "Always allow", "kind": "allow_always"},
        {"optionId": "no", "name": "Reject", "kind": "reject_once"},
    ],
}
MARKDOWN = f"""Some **words** about `code`, {EVIL}

- a list
- of two

| case | result |
|---|--:|
| one | 1 |

```python
print("hello")
```

See [the docs](https://docs.example/)."""


@dataclass
class Working:
    """An agent that works on each prompt until the test lets it go on."""

    agent: Agent = field(default_factory=Agent)
    go_on: anyio.Event = field(default_factory=anyio.Event)

    def __post_init__(self) -> None:
        modes = {
            "currentModeId": "ask",
            "availableModes": [
                {"id": "ask", "name": "Ask first"},
                {"id": "auto", "name": "Edit freely"},
            ],
        }

        async def new(process: Process, params: Json) -> Json:
            number = self.agent.processes.index(process) + 1
            return {"sessionId": f"agent-{number}", "modes": modes}

        self.agent.script |= {
            "session/new": new,
            "session/set_mode": {},
            "session/prompt": self._prompt,
        }

    async def _prompt(self, process: Process, params: Json) -> Json:
        session, said = params["sessionId"], params["prompt"][0]["text"]

        def say(text: str, kind: str = "agent_message_chunk", of: str = "") -> None:
            content = {"type": "text", "text": text}
            process.shows(
                session, {"sessionUpdate": kind, "content": content, "messageId": of + said}
            )

        say("Let me think.", "agent_thought_chunk", "thought ")
        half = len(MARKDOWN) // 2
        say(MARKDOWN[:half])
        say(MARKDOWN[half:])
        steps = [
            {"content": f"step {EVIL}", "status": "completed"},
            {"content": "another", "status": "in_progress"},
        ]
        process.shows(session, {"sessionUpdate": "plan", "entries": steps})
        if "ask" in said:
            asked = {**PERMISSION, "sessionId": session}
            process.says({"id": 77, "method": "session/request_permission", "params": asked})
            (answer,) = await until(
                lambda: (
                    [each for each in process.received if each.get("id") == 77]
                    or process.params("session/cancel")
                )
            )
            outcome = answer.get("result", {}).get("outcome", {})
            say(f"It was {outcome.get('optionId', 'cancelled')}.", of="then ")
        elif "wait" in said:
            await until(lambda: self.go_on.is_set() or process.params("session/cancel"))
        say(f"Done with {said}.", of="end ")
        cancelled = process.params("session/cancel")
        return {"stopReason": "cancelled" if cancelled else "end_turn"}


@dataclass
class Site:
    """A server that runs; `logins` has one login, which each use of its code gives."""

    url: str
    it: RemoteBench
    logins: KnownLogins

    def at(self, fragment: str = "") -> str:
        """The address that a phone opens."""
        return f"{self.url}/{fragment}"


@asynccontextmanager
async def site(
    home: Path, working: Working, port: int = 0, may: str = "all"
) -> AsyncIterator[Site]:
    """Serve until the block ends, which cuts every connection."""
    await anyio.Path(home).mkdir(exist_ok=True)
    async with remote_bench(home, working.agent) as it:
        logins = KnownLogins(it, may)
        logins.codes = ["code"] * 20

        async def take(stream: SocketStream) -> None:
            with suppress(anyio.BrokenResourceError, anyio.EndOfStream, anyio.ClosedResourceError):
                await _take(stream, logins)

        async with (
            await anyio.create_tcp_listener(
                local_host="127.0.0.1", local_port=port, reuse_port=True
            ) as listener,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(listener.serve, take)
            bound = listener.extra(SocketAttribute.local_port)
            yield Site(f"http://127.0.0.1:{bound}", it, logins)
            tasks.cancel_scope.cancel()


async def _take(stream: SocketStream, logins: KnownLogins) -> None:
    protocol = server_protocol()
    while not protocol.events and protocol.handshake_exc is None:
        protocol.receive_data(await stream.receive())
    (request,) = protocol.events_received()
    assert isinstance(request, Request)
    if request.path == "/page":
        protocol.send_response(protocol.accept(request))
        await stream.send(b"".join(protocol.data_to_send()))
        async with opened(stream, protocol) as socket:
            await serve_page(socket, socket, logins)
        return
    found = respond(request.path)
    response = protocol.reject(found[0] if found else HTTPStatus.NOT_FOUND, "")
    if found:
        for name, value in [*found[1], ("Content-Length", str(len(found[2])))]:
            if name in response.headers:
                del response.headers[name]
            response.headers[name] = value
        response.body = found[2]
    protocol.send_response(response)
    await stream.send(b"".join(protocol.data_to_send()))
    await stream.aclose()
