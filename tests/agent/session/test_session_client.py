"""The client over a connection: what is asked of it, and that its answers are checked."""

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest
from acp import RequestError

from agent.client import ClientError, NotOffered
from agent.conversation.replay import notice
from agent.session.session_client import SessionClient

Answer = Callable[[], Awaitable[Any]]


class Wire:
    """Records the requests and gives one answer to all."""

    def __init__(self, answer: Any = None) -> None:
        self.requests: list[tuple[str, dict[str, Any]]] = []
        self.answer = answer
        self.asked = anyio.Event()
        self.cancelled = False

    async def request(self, method: str, params: dict[str, Any]) -> Any:
        self.requests.append((method, params))
        self.asked.set()
        if self.answer is Ellipsis:
            try:
                await anyio.sleep_forever()
            finally:
                self.cancelled = True
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    async def notify(self, method: str, params: dict[str, Any]) -> None:
        raise AssertionError("no notification")

    def client(self, **options: Any) -> SessionClient:
        return SessionClient("s1", request=self.request, notify=self.notify, **options)


Call = Callable[[SessionClient], Awaitable[Any]]

#: by method: a call, and what is asked beside the session
CALLS: dict[str, tuple[Call, dict[str, Any]]] = {
    "fs/read_text_file": (lambda c: c.read_file("/a", 2, None), {"path": "/a", "line": 2}),
    "fs/write_text_file": (lambda c: c.write_file("/a", "x"), {"path": "/a", "content": "x"}),
    "terminal/create": (
        lambda c: c.create_terminal("/bin/sh", ("-c", "ls"), "/p", 9),
        {
            "command": "/bin/sh",
            "args": ["-c", "ls"],
            "cwd": "/p",
            "outputByteLimit": 9,
            "env": [{"name": "PAGER", "value": "cat"}, {"name": "GIT_PAGER", "value": "cat"}],
        },
    ),
    "terminal/output": (lambda c: c.terminal_output("t"), {"terminalId": "t"}),
    "terminal/wait_for_exit": (lambda c: c.wait_for_terminal("t"), {"terminalId": "t"}),
    "terminal/kill": (lambda c: c.kill_terminal("t"), {"terminalId": "t"}),
    "terminal/release": (lambda c: c.release_terminal("t"), {"terminalId": "t"}),
    "session/request_permission": (
        lambda c: c.ask({"toolCallId": "c"}, []),
        {"toolCall": {"toolCallId": "c"}, "options": []},
    ),
}

GOOD: list[tuple[str, Any, Any]] = [
    ("fs/read_text_file", {"content": "text"}, "text"),
    ("fs/write_text_file", {}, None),
    ("fs/write_text_file", None, None),
    ("terminal/create", {"terminalId": "t1"}, "t1"),
    (
        "terminal/output",
        {"output": "x", "truncated": False},
        {"output": "x", "truncated": False},
    ),
    (
        "terminal/output",
        {"output": "x", "truncated": True, "exitStatus": None, "_meta": {}},
        {"output": "x", "truncated": True},
    ),
    (
        "terminal/output",
        {"output": "", "truncated": False, "exitStatus": {"exitCode": 1}},
        {"output": "", "truncated": False, "exitStatus": {"exitCode": 1, "signal": None}},
    ),
    ("terminal/wait_for_exit", {"exitCode": 0}, {"exitCode": 0, "signal": None}),
    ("terminal/wait_for_exit", {"signal": "SIGKILL"}, {"exitCode": None, "signal": "SIGKILL"}),
    ("terminal/wait_for_exit", {}, {"exitCode": None, "signal": None}),
    ("terminal/kill", None, None),
    ("terminal/release", {}, None),
    (
        "session/request_permission",
        {"outcome": {"outcome": "selected", "optionId": "x"}},
        "x",
    ),
    ("session/request_permission", {"outcome": {"outcome": "cancelled"}}, None),
]

BAD: list[tuple[str, list[Any]]] = [
    ("fs/read_text_file", [None, [], {}, {"content": None}, {"content": 1}]),
    ("terminal/create", [None, {}, {"terminalId": 1}, {"terminalId": ""}, "t1"]),
    (
        "terminal/output",
        [
            None,
            {"output": "x"},
            {"truncated": True},
            {"output": None, "truncated": False},
            {"output": "x", "truncated": "no"},
            {"output": "x", "truncated": False, "exitStatus": 0},
            {"output": "x", "truncated": False, "exitStatus": {"exitCode": "0"}},
        ],
    ),
    ("terminal/wait_for_exit", [None, 0, [], {"exitCode": True}, {"exitCode": 1.5}, {"signal": 9}]),
    (
        "session/request_permission",
        [None, {}, {"outcome": "selected"}, {"outcome": {"outcome": "selected"}}],
    ),
]


async def call(method: str, wire: Wire, **options: Any) -> Any:
    with anyio.fail_after(5):
        return await CALLS[method][0](wire.client(**options))


@pytest.mark.parametrize(("method", "answer", "result"), GOOD)
async def test_a_request_has_its_session_and_gives_what_was_answered(
    method: str, answer: Any, result: Any
) -> None:
    wire = Wire(answer)
    assert await call(method, wire) == result
    assert wire.requests == [(method, {"sessionId": "s1", **CALLS[method][1]})]


@pytest.mark.parametrize(
    ("method", "answer"), [(method, answer) for method, bad in BAD for answer in bad]
)
async def test_an_answer_that_makes_no_sense_is_the_client_s_error(
    method: str, answer: Any
) -> None:
    with pytest.raises(ClientError):
        await call(method, Wire(answer))


@pytest.mark.parametrize("method", CALLS)
async def test_a_request_that_fails_is_the_client_s_error_without_its_text(method: str) -> None:
    with pytest.raises(ClientError) as caught:
        await call(method, Wire(ConnectionError("detail")))
    assert str(caught.value) == f"{method} failed"


@pytest.mark.parametrize(
    ("message", "data", "reason"),
    [
        ("Not in\nthis project", None, "Not in this project"),
        ("Internal error", {"details": "it is private"}, "Internal error (it is private)"),
        ("Internal error", "it is private", "Internal error (it is private)"),
        ("it is private", {"details": "private", "more": 1}, "it is private"),
        ("", {"details": ["x"]}, ""),
        ("a" * 100 + " " + "b" * 400, None, "a" * 100 + " …"),
        (" x" * 10_000_000, None, "x " * 200 + "…"),
    ],
)
async def test_a_refusal_has_the_client_s_reason_on_one_bounded_line(
    message: str, data: Any, reason: str
) -> None:
    with pytest.raises(ClientError) as caught:
        await call("fs/read_text_file", Wire(RequestError(-32603, message, data)))
    assert caught.value.reason == reason
    assert not isinstance(caught.value, NotOffered)


@pytest.mark.parametrize("method", CALLS)
async def test_a_method_that_the_client_does_not_have_is_no_refusal(method: str) -> None:
    with pytest.raises(NotOffered):
        await call(method, Wire(RequestError.method_not_found(method)))


@pytest.mark.parametrize("method", CALLS)
async def test_a_request_that_is_cancelled_ends_at_once(method: str) -> None:
    wire = Wire(...)
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call, method, wire)
            await wire.asked.wait()
            tasks.cancel_scope.cancel()
    assert wire.cancelled


def test_it_offers_what_it_was_told_the_client_offers() -> None:
    flags = ("reads_files", "writes_files", "has_terminals")
    assert not any(getattr(Wire().client(), flag) for flag in flags)
    for flag in flags:
        client = Wire().client(**{flag: True})
        assert [getattr(client, other) for other in flags] == [other == flag for other in flags]


async def test_a_terminal_gets_the_variables_that_the_session_sets() -> None:
    wire = Wire({"terminalId": "t"})
    await call("terminal/create", wire, terminal_environment={"OPENAI_API_KEY": ""})
    assert {"name": "OPENAI_API_KEY", "value": ""} in wire.requests[0][1]["env"]
    assert {"name": "PAGER", "value": "cat"} in wire.requests[0][1]["env"]


async def test_marks_for_the_bridge_stand_beside_the_update() -> None:
    told: list[Any] = []

    async def notify(method: str, params: dict[str, Any]) -> None:
        told.append(params)

    client = SessionClient("s1", request=Wire().request, notify=notify)
    await client.update(notice("Wait."))
    await client.update({"sessionUpdate": "plan", "entries": []})
    said, plain = told
    assert said["_meta"] == {"acp_bridge": {"notice": True}}
    assert "_meta" not in said["update"]
    assert plain == {"sessionId": "s1", "update": {"sessionUpdate": "plan", "entries": []}}
