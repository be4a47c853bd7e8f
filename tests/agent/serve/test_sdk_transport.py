"""The official SDK on our transport: what its own stdio gets wrong, over real pipes."""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import acp
import anyio
import pytest

from acp_bridge.core.wire.jsonrpc import Decoder, encode, notification, request, response
from acp_bridge.core.wire.stdio import Reader, Writer
from agent.serve.sdk_transport import SdkTransport

Handler = Callable[..., Awaitable[Any]]


class Agent:
    """Writes down what it is called with; a test sets what `prompt` does."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.prompt_does: Handler = self._end_turn
        self.client: Any = None

    def on_connect(self, connection: Any) -> None:
        self.client = connection

    # Not `**params`: the SDK takes a method with that name in it for an old style one.
    async def initialize(self, **kwargs: Any) -> Any:
        self.calls.append(("initialize", kwargs))
        return acp.InitializeResponse(protocol_version=1)

    async def new_session(self, **kwargs: Any) -> Any:
        self.calls.append(("new_session", kwargs))
        return acp.NewSessionResponse(session_id="s")

    async def prompt(self, **kwargs: Any) -> Any:
        self.calls.append(("prompt", kwargs))
        return await self.prompt_does()

    async def cancel(self, **kwargs: Any) -> None:
        self.calls.append(("cancel", kwargs))

    async def ext_method(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        self.calls.append((method, params))
        return {"params": params}

    async def ext_notification(self, method: str, params: dict[str, Any]) -> None:
        self.calls.append((method, params))

    async def _end_turn(self) -> Any:
        return acp.PromptResponse(stop_reason="end_turn")


class Client:
    """The other ends of the agent's pipes."""

    def __init__(self, reader: Reader, writer: Writer) -> None:
        self.reader, self.writer = reader, writer
        self.ended = anyio.Event()
        self._decoder = Decoder()
        self._heard: list[Any] = []

    def say(self, *lines: dict[str, Any] | bytes) -> None:
        for line in lines:
            self.writer.write(encode(line) if isinstance(line, dict) else line)

    def hang_up(self) -> None:
        self.writer.close()

    async def hear(self) -> Any:
        """The next message, None at the end."""
        while not self._heard:
            data = await self.reader.read()
            if not data:
                return None
            self._heard += self._decoder.feed(data)
        return self._heard.pop(0)

    async def alive(self) -> None:
        """The agent still answers, and has nothing else to say before that."""
        self.say(request("alive?", "_alive"))
        assert (await self.hear())["id"] == "alive?"


@asynccontextmanager
async def running(agent: Agent, **options: Any) -> AsyncIterator[Client]:
    """The agent on the SDK, and its client. The agent must end by itself when the client goes."""
    (in_r, in_w), (out_r, out_w) = os.pipe(), os.pipe()
    client = Client(Reader(out_r), Writer(in_w))

    async def serve() -> None:
        async with SdkTransport(in_r, out_w, **options) as transport:
            await acp.run_agent(agent, transport)  # type: ignore[arg-type]
        client.ended.set()

    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(serve)
            tasks.start_soon(client.writer.run)
            try:
                yield client
            finally:
                client.writer.close()
                client.reader.close()
            await client.ended.wait()


def prompt(id: Any = 1) -> dict[str, Any]:
    return request(id, "session/prompt", {"sessionId": "s", "prompt": []})


@pytest.fixture
def agent() -> Agent:
    return Agent()


@pytest.fixture
def errors(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """What was logged at ERROR, a traceback mostly."""
    caplog.set_level(logging.ERROR)
    return caplog.records


async def test_the_sdk_answers_over_the_transport(agent: Agent) -> None:
    async with running(agent) as client:
        client.say(request(7, "initialize", {"protocolVersion": 1}))
        assert await client.hear() == response(7, {"protocolVersion": 1})


async def test_each_malformed_line_is_answered_and_the_process_lives(
    agent: Agent, errors: list[logging.LogRecord]
) -> None:
    async with running(agent) as client:
        client.say(b'{\n[]\n5\n\n{"id":3,"method":5}\n{"id":4}\n\xff\n')
        codes = [
            (answer["id"], answer["error"]["code"])
            for answer in [await client.hear() for _ in range(6)]
        ]
        await client.alive()
    assert codes == [
        (None, -32700),
        (None, -32600),
        (None, -32600),
        (3, -32600),
        (4, -32600),
        (None, -32700),
    ]
    assert errors == []


@pytest.mark.hazard("P5")
async def test_a_line_over_the_limit_is_refused_alone_at_the_sdk_too(agent: Agent) -> None:
    async with running(agent, limit=1000) as client:
        client.say(b"x" * 100_000 + b"\n")
        assert (await client.hear())["error"]["code"] == -32600
        await client.alive()


@pytest.mark.parametrize("name", ["_meta", "field_meta"])
async def test_meta_overrides_no_parameter(agent: Agent, name: str) -> None:
    meta = {
        "cwd": "/stolen",
        "session_id": "x",
        "self": 1,
        "meta": 2,
        "kwargs": 3,
        "mine": {"a": 1},
    }
    async with running(agent) as client:
        client.say(request(1, "session/new", {"cwd": "/home", "mcpServers": [], name: meta}))
        assert "result" in await client.hear()
    (_, params) = agent.calls[0]
    assert params["cwd"] == "/home"
    assert params.get("meta") == (meta if name == "_meta" else None)
    assert "mine" not in params


async def test_meta_that_is_no_object_is_as_if_absent(agent: Agent) -> None:
    async with running(agent) as client:
        client.say(request(1, "session/new", {"cwd": "/home", "mcpServers": [], "_meta": [1]}))
        assert "result" in await client.hear()
    assert agent.calls[0][1]["cwd"] == "/home"


async def test_parameters_of_an_extension_are_passed_as_they_are(agent: Agent) -> None:
    params = {"_meta": {"cwd": "/x"}, "field_meta": 1}
    async with running(agent) as client:
        client.say(request(1, "_x/y", params), notification("_x/z", params))
        assert await client.hear() == response(1, {"params": params})
    assert agent.calls == [("x/y", params), ("x/z", params)]


async def test_unknown_notifications_and_cancel_requests_are_dropped_quietly(
    agent: Agent, errors: list[logging.LogRecord]
) -> None:
    async with running(agent) as client:
        client.say(
            notification("$/cancel_request", {"requestId": 1}),
            notification("$/progress"),
            notification("session/unknown", {"sessionId": "s"}),
            notification("session/cancel"),
            notification("session/cancel", {"sessionId": 5}),
            notification("session/cancel", {"sessionId": "s"}),
        )
        await client.alive()
    assert [name for name, _ in agent.calls] == ["cancel", "alive"]
    assert errors == []


async def test_an_unknown_request_is_still_answered(agent: Agent) -> None:
    async with running(agent) as client:
        client.say(request(1, "session/unknown", {}))
        assert (await client.hear())["error"]["code"] == -32601


async def test_an_id_in_flight_is_refused_and_the_first_request_goes_on(agent: Agent) -> None:
    go_on = anyio.Event()

    async def wait() -> Any:
        await go_on.wait()
        return acp.PromptResponse(stop_reason="end_turn")

    agent.prompt_does = wait
    async with running(agent) as client:
        client.say(prompt(1), prompt(1))
        assert (await client.hear())["error"]["code"] == -32600
        go_on.set()
        assert await client.hear() == response(1, {"stopReason": "end_turn"})
        client.say(prompt(1))
        assert await client.hear() == response(1, {"stopReason": "end_turn"})
    assert len(agent.calls) == 2


async def test_a_result_that_json_cannot_hold_is_answered(agent: Agent) -> None:
    async def spoil() -> Any:
        return {"stopReason": object()}

    agent.prompt_does = spoil
    async with running(agent) as client:
        client.say(prompt(1))
        assert (await client.hear())["error"] == {
            "code": -32603,
            "message": "Internal error",
            "data": {"details": "Internal error"},
        }


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ({"error": "no"}, (-32603, {"details": "no"})),
        ({"error": {"code": "x"}}, (-32603, {"details": "The answer was malformed"})),
        ({}, (-32603, {"details": "The answer was malformed"})),
        ({"result": None, "error": {"code": -5, "message": "m", "data": [1]}}, (-5, [1])),
    ],
)
async def test_a_spoiled_answer_is_an_error_to_the_agent_and_no_crash(
    agent: Agent, answer: dict[str, Any], told: tuple[int, Any]
) -> None:
    raised: list[tuple[int, Any]] = []

    async def ask_client() -> Any:
        try:
            await agent.client.ext_method("x/ask", {})
        except acp.RequestError as exc:
            raised.append((exc.code, exc.data))
        return acp.PromptResponse(stop_reason="end_turn")

    agent.prompt_does = ask_client
    async with running(agent) as client:
        client.say(response(0, "to nothing"), prompt(1))
        asked = await client.hear()
        client.say({"id": asked["id"], **answer})
        assert await client.hear() == response(1, {"stopReason": "end_turn"})
    assert raised == [told]


@pytest.mark.hazard("P2")
async def test_requests_in_work_are_answered_after_the_clients_stdin_ended(agent: Agent) -> None:
    started, go_on = anyio.Event(), anyio.Event()

    async def wait() -> Any:
        started.set()
        await go_on.wait()
        return acp.PromptResponse(stop_reason="end_turn")

    agent.prompt_does = wait
    async with running(agent, answer_grace=9) as client:
        client.say(prompt(1))
        await started.wait()
        client.hang_up()
        await anyio.wait_all_tasks_blocked()
        go_on.set()
        assert await client.hear() == response(1, {"stopReason": "end_turn"})
        assert await client.hear() is None
        await client.ended.wait()


@pytest.mark.hazard("P2.5")
async def test_the_end_is_bounded_though_a_handler_never_answers(agent: Agent) -> None:
    cancelled = anyio.Event()

    async def never() -> Any:
        try:
            await anyio.sleep_forever()
        finally:
            cancelled.set()

    agent.prompt_does = never
    async with running(agent, answer_grace=0.01) as client:
        client.say(prompt(1))
        client.hang_up()
        await client.ended.wait()
    assert cancelled.is_set()


@pytest.mark.hazard("P2.5")
async def test_the_end_is_bounded_though_stdout_is_full(agent: Agent) -> None:
    async def flood() -> Any:
        while True:
            await agent.client.ext_notification("x/noise", {"text": "x" * 100_000})

    agent.prompt_does = flood
    async with running(agent, answer_grace=0.01, flush_limit=0.01) as client:
        client.say(prompt(1))
        await client.hear()
        client.hang_up()
        await client.ended.wait()


@pytest.mark.hazard("P2")
async def test_a_closed_stdout_ends_the_agent_though_stdin_stays_open(agent: Agent) -> None:
    async def flood() -> Any:
        while True:
            await agent.client.ext_notification("x/noise", {"text": "x" * 100})

    agent.prompt_does = flood
    async with running(agent, answer_grace=99) as client:
        client.say(prompt(1))
        await client.hear()
        client.reader.close()
        await client.ended.wait()


@pytest.mark.hazard("C4.2")
async def test_a_cancel_is_read_while_the_agent_streams_without_a_pause(agent: Agent) -> None:
    sent_at_cancel: list[int] = []
    sent = 0

    async def stream() -> Any:
        nonlocal sent
        while not sent_at_cancel:
            await agent.client.ext_notification("x/token", {"n": sent})
            sent += 1
            if sent == 1000:
                client.say(notification("session/cancel", {"sessionId": "s"}))
        return acp.PromptResponse(stop_reason="cancelled")

    async def cancel(**kwargs: Any) -> None:
        sent_at_cancel.append(sent)

    agent.prompt_does = stream
    agent.cancel = cancel  # type: ignore[method-assign]
    async with running(agent) as client:
        client.say(prompt(1))
        while (await client.hear()).get("id") != 1:
            pass
    assert sent_at_cancel[0] < 2000


async def test_a_client_that_does_not_read_holds_the_agent_back(agent: Agent) -> None:
    sent = 0

    async def stream() -> Any:
        nonlocal sent
        for _ in range(300):
            await agent.client.ext_notification("x/noise", {"text": "x" * 10_000})
            sent += 1
        return acp.PromptResponse(stop_reason="end_turn")

    agent.prompt_does = stream
    async with running(agent) as client:
        client.say(prompt(1))
        await anyio.wait_all_tasks_blocked()
        assert 100 < sent < 150  # 1 MiB pending, and what the pipe holds
        while (await client.hear()).get("id") != 1:
            pass
    assert sent == 300


async def test_a_notification_that_json_cannot_hold_is_the_senders_error(agent: Agent) -> None:
    async def send() -> Any:
        with pytest.raises(TypeError):
            await agent.client.ext_notification("x/y", {"v": object()})
        return acp.PromptResponse(stop_reason="end_turn")

    agent.prompt_does = send
    async with running(agent) as client:
        client.say(prompt(1))
        assert "result" in await client.hear()
