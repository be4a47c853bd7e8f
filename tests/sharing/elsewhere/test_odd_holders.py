"""A bridge that holds a session and dies at some step, or says odd things: one answer each."""

import json
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import pytest

from acp_bridge.core.agents import lease
from acp_bridge.core.agents.holder import Holder, write_holder
from acp_bridge.core.records import replace
from tests.core.sessions.agent import Json, until
from tests.core.sessions.bench import Bench, bench
from tests.core.sessions.world import SETUP

pytestmark = pytest.mark.hazard("V8")

HELLO: Json = {"protocolVersion": 1, "agentCapabilities": {}}


@pytest.fixture
def home(short: Path) -> Path:
    return short


class OddHolder:
    """Holds a session's lock, and says what a test lets it say."""

    def __init__(self, lock_file: Path, path: Path) -> None:
        self.lock_file = lock_file
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(path))
        self.listener.listen(8)
        self.listener.setblocking(False)
        self.path = path
        #: by method, the lines that are sent for it; `ID` is its id. None: it dies instead. As
        #: "hangs up" it ends that connection.
        self.says: dict[str, list[str] | None] = {}
        self.got: list[Json] = []
        self.connections: list[socket.socket] = []
        self.lock = -1

    async def hold(self) -> None:
        self.lock = await lease.acquire(self.lock_file, 0)
        write_holder(self.lock, Holder(str(self.path), 1, "agent"))

    def dies(self) -> None:
        for each in (self.listener, *self.connections):
            if each.fileno() >= 0:
                anyio.notify_closing(each)
                each.close()
        if self.lock >= 0:
            os.close(self.lock)
            self.lock = -1

    async def run(self) -> None:
        async with anyio.create_task_group() as tasks:
            while True:
                with suppress(anyio.ClosedResourceError, OSError, ValueError):
                    await anyio.wait_readable(self.listener)
                    connection, _ = self.listener.accept()
                    self.connections.append(connection)
                    tasks.start_soon(self._serve, connection)
                if self.lock < 0:
                    return

    async def _serve(self, connection: socket.socket) -> None:
        data = b""
        with suppress(anyio.ClosedResourceError, OSError, ValueError):  # `dies` may close it
            connection.setblocking(False)
            if self.says.get("connect", []) is None:
                self.dies()
                return
            while True:
                await anyio.wait_readable(connection)
                if not (piece := connection.recv(1 << 16)):
                    return
                *lines, data = (data + piece).split(b"\n")
                for line in lines:
                    self._answer(connection, json.loads(line))

    def _answer(self, connection: socket.socket, message: Json) -> None:
        self.got.append(message)
        lines = self.says.get(message.get("method", "answer"), [])
        for line in lines if lines is not None else ():
            if line == "hangs up":
                connection.shutdown(socket.SHUT_RDWR)
                return
            connection.send(line.replace("ID", json.dumps(message.get("id"))).encode() + b"\n")
            if line == "dies":
                self.dies()
                return
        if lines is None:
            self.dies()


def said(**message: Any) -> str:
    return json.dumps({"jsonrpc": "2.0", **message}).replace('"ID"', "ID")


@asynccontextmanager
async def held(home: Path, **more: Any) -> AsyncIterator[tuple[Bench, OddHolder, str]]:
    """A bridge, and a session of its journal that somebody odd holds."""
    async with bench(home, **{"lease_timeout": 5, **more}) as it:
        session_id = await it.new()
        await it.editor.stop_reason(it.editor.prompt(session_id, "hello"))
        await it.editor.ask("session/close", {"sessionId": session_id})
        it.editor.out.take()
        odd = OddHolder(it.context.journal.lock_path(session_id), home / "odd")
        await odd.hold()
        odd.says["initialize"] = [said(id="ID", result=HELLO)]
        it.context.tasks.start_soon(odd.run)
        try:
            yield it, odd, session_id
        finally:
            odd.dies()


def update(session_id: str, text: str) -> str:
    content = {"type": "text", "text": text}
    shown = {"sessionUpdate": "agent_message_chunk", "content": content}
    return said(method="session/update", params={"sessionId": session_id, "update": shown})


@pytest.mark.hazard("V8.11")
@pytest.mark.parametrize("step", ["connect", "initialize", "session/load"])
async def test_a_holder_that_dies_before_it_shows_anything_costs_a_load_nothing(
    home: Path, step: str
) -> None:
    async with held(home) as (it, odd, session_id):
        odd.says[step] = None
        await it.editor.ask("session/load", {**SETUP, "sessionId": session_id})
        assert it.editor.texts(session_id) == ["hello", "echo hello"]


async def test_a_holder_that_dies_in_its_replay_fails_the_load_once_and_the_next_one_works(
    home: Path,
) -> None:
    async with held(home) as (it, odd, session_id):
        odd.says["session/load"] = [update(session_id, "hel"), "dies"]
        load = it.editor.send("session/load", {**SETUP, "sessionId": session_id})
        assert "has ended" in (await it.editor.refusal(load)).message
        assert it.editor.texts(session_id) == ["hel"]
        await it.editor.ask("session/load", {**SETUP, "sessionId": session_id})
        assert it.editor.texts(session_id) == ["hel", "hello", "echo hello"]
        assert len(it.editor.answers(load)) == 1


@pytest.mark.hazard("V8.11")
async def test_a_holder_that_dies_behind_its_answer_leaves_the_session_open_here(
    home: Path,
) -> None:
    async with held(home) as (it, odd, session_id):
        odd.says["session/load"] = [said(id="ID", result={}), "dies"]
        await it.editor.ask("session/load", {**SETUP, "sessionId": session_id})
        await until(lambda: session_id in it.bridge._sessions.live)
        prompt = it.editor.prompt(session_id, "goes on")
        assert await it.editor.stop_reason(prompt) == "end_turn"
        assert it.editor.texts(session_id) == ["echo goes on"]


@pytest.mark.hazard("V8.10")
async def test_a_question_of_a_holder_that_dies_is_taken_back(home: Path) -> None:
    async with held(home) as (it, odd, session_id):
        ask = said(id="q", method="session/request_permission", params={"sessionId": session_id})
        odd.says["session/load"] = [said(id="ID", result={}), ask]
        await it.editor.ask("session/load", {**SETUP, "sessionId": session_id})
        await until(lambda: it.editor.asked("session/request_permission"))
        (question,) = it.editor.asked("session/request_permission")
        odd.dies()
        await until(lambda: it.editor.asked("$/cancel_request"))
        assert it.editor.asked("$/cancel_request")[0]["params"] == {"requestId": question["id"]}


@pytest.mark.parametrize(
    "answer",
    [
        "garbage",
        "[]",
        said(id="ID", result=[]),
        said(id="ID", result={"agentCapabilities": 1}),
        said(id="ID", error={"code": -1, "message": "no"}),
        said(id=None, error={"code": -32600, "message": "agents may not connect"}),
    ],
)
async def test_a_holder_that_does_not_speak_as_a_bridge_is_one_that_can_not_be_reached(
    home: Path, answer: str
) -> None:
    async with held(home, lease_timeout=0, reach_timeout=0.05) as (it, odd, session_id):
        odd.says["initialize"] = [answer]
        load = it.editor.send("session/load", {**SETUP, "sessionId": session_id})
        assert "open in another acp-bridge" in (await it.editor.refusal(load)).message


async def test_odd_answers_and_requests_of_a_holder_hurt_nothing_else(home: Path) -> None:
    async with held(home) as (it, odd, session_id):
        twice = said(id="ID", result={"stopReason": "end_turn"})
        odd.says["session/load"] = [said(id="ID", result=None), said(id=99, result={}), "{}"]
        odd.says["session/prompt"] = [twice, twice, said(method="$/cancel_request", params={})]
        await it.editor.ask("session/load", {**SETUP, "sessionId": session_id})
        prompt = it.editor.prompt(session_id, "one")
        assert await it.editor.stop_reason(prompt) == "end_turn"
        assert len(it.editor.answers(prompt)) == 1
        await it.new()


async def test_the_request_s_id_in_what_a_holder_tells_is_the_client_s_own(home: Path) -> None:
    async with held(home) as (it, odd, session_id):
        told = said(method="_acp_bridge/accepted", params={"requestId": "ID", "promptId": "p"})
        odd.says["session/load"] = [said(id="ID", result={})]
        odd.says["session/prompt"] = [told, said(id="ID", result={"stopReason": "end_turn"})]
        await it.editor.ask("session/load", {**SETUP, "sessionId": session_id})
        block = {"sessionId": session_id, "prompt": [{"type": "text", "text": "one"}]}
        assert await it.editor.stop_reason(it.editor.send("session/prompt", block, "mine"))
        (accepted,) = it.editor.asked("_acp_bridge/accepted")
        assert accepted["params"] == {"requestId": "mine", "promptId": "p"}


async def test_a_holder_that_lets_the_client_go_says_why_and_the_session_can_be_loaded_again(
    home: Path,
) -> None:
    async with held(home) as (it, odd, session_id):
        go = said(method="_acp_bridge/let_go", params={"reason": "too slow"})
        odd.says["session/load"] = [said(id="ID", result={})]
        odd.says["session/prompt"] = [go, "hangs up"]
        await it.editor.ask("session/load", {**SETUP, "sessionId": session_id})
        prompt = it.editor.prompt(session_id, "one")
        assert (await it.editor.refusal(prompt)).message == "too slow"
        await until(lambda: any("too slow" in text for text in it.editor.texts(session_id)))
        block = {"sessionId": session_id, "prompt": [{"type": "text", "text": "two"}]}
        assert (await it.editor.refused("session/prompt", block)).code == -32002
        await it.editor.ask("session/load", {**SETUP, "sessionId": session_id})


async def test_a_close_that_the_holder_does_not_answer_ends_all_the_same(home: Path) -> None:
    async with held(home) as (it, odd, session_id):
        odd.says["session/load"] = [said(id="ID", result={})]
        await it.editor.ask("session/load", {**SETUP, "sessionId": session_id})
        # From now on: the load took its time, and so does what gives a silent holder up.
        it.context.settings = replace(it.context.settings, reach_timeout=0.05)
        error = await it.editor.refused("session/close", {"sessionId": session_id})
        assert "does not read" in error.message
        block = {"sessionId": session_id, "prompt": [{"type": "text", "text": "one"}]}
        assert (await it.editor.refused("session/prompt", block)).code == -32002


async def test_a_holder_that_dies_while_the_client_closes_leaves_nothing_open_here(
    home: Path,
) -> None:
    async with held(home) as (it, odd, session_id):
        odd.says["session/load"] = [said(id="ID", result={})]
        odd.says["session/close"] = None
        await it.editor.ask("session/load", {**SETUP, "sessionId": session_id})
        error = await it.editor.refused("session/close", {"sessionId": session_id})
        assert "has ended" in error.message
        await until(lambda: not it.passages.continued)
        assert it.bridge._sessions.live == {}
        await it.editor.ask("session/load", {**SETUP, "sessionId": session_id})


# --- one that is silent: stopped, say --------------------------------------------------------

LIVE = "_acp_bridge/live"


@asynccontextmanager
async def passed_through(home: Path) -> AsyncIterator[tuple[Bench, OddHolder, str]]:
    """A session that the client has from somebody who answers the load, and not much more."""
    async with held(home, reach_timeout=0.2) as (it, odd, session_id):
        odd.says["session/load"] = [said(id="ID", result={})]
        await it.editor.ask("session/load", {**SETUP, "sessionId": session_id})
        yield it, odd, session_id


def got(odd: OddHolder, method: str) -> list[Json]:
    return [message for message in odd.got if message.get("method") == method]


@pytest.mark.hazard("C1", "Q9", "V8.7")
@pytest.mark.parametrize("stop", ["session/cancel", "$/cancel_request", None])
async def test_what_a_silent_holder_was_sent_comes_to_an_end_with_or_without_a_stop(
    home: Path, stop: str | None
) -> None:
    async with passed_through(home) as (it, _, session_id):
        prompt = it.editor.prompt(session_id, "one")
        setting = it.editor.send("session/set_mode", {"sessionId": session_id, "modeId": "x"})
        if stop:
            it.editor.notify(stop, {"sessionId": session_id, "requestId": prompt})
        for request in (prompt, setting):
            assert "does not answer" in (await it.editor.refusal(request)).message
            assert len(it.editor.answers(request)) == 1
        await until(lambda: any("not shown here" in text for text in it.editor.texts(session_id)))
        later = it.editor.prompt(session_id, "two")
        assert (await it.editor.refusal(later)).code == -32002


@pytest.mark.hazard("V8.7")
@pytest.mark.parametrize("shown", [True, False])
async def test_a_load_comes_to_an_end_where_the_holder_falls_silent(
    home: Path, shown: bool
) -> None:
    async with passed_through(home) as (it, odd, session_id):
        odd.says["session/load"] = [update(session_id, "hel")] if shown else []
        load = it.editor.send("session/load", {**SETUP, "sessionId": session_id})
        assert "does not answer" in (await it.editor.refusal(load)).message
        await it.editor.refusal(it.editor.prompt(session_id, "two"))
        assert len(it.editor.answers(load)) == 1


@pytest.mark.hazard("V8.9")
async def test_one_that_lives_is_waited_for_however_long_its_turn_and_its_load_take(
    home: Path,
) -> None:
    async with passed_through(home) as (it, odd, session_id):
        odd.says[LIVE] = [said(id="ID", result={"sessions": []})]
        odd.says["session/load"] = [update(session_id, "hel")]
        load = it.editor.send("session/load", {**SETUP, "sessionId": session_id})
        await until(lambda: len(got(odd, LIVE)) > 1)  # while a load is not answered
        prompt = it.editor.prompt(session_id, "one")
        before = len(got(odd, LIVE))
        it.editor.notify("session/cancel", {"sessionId": session_id})
        await until(lambda: len(got(odd, LIVE)) > before + 1)
        assert it.editor.answers(load) == it.editor.answers(prompt) == []


@pytest.mark.hazard("V8.8")
async def test_only_a_prompt_that_a_silent_holder_may_not_have_read_is_taken_back(
    home: Path,
) -> None:
    async with passed_through(home) as (it, odd, session_id):
        odd.says[LIVE] = [said(id="ID", result={"sessions": []})]
        asked = len(got(odd, LIVE))
        it.editor.prompt(session_id, "read")
        await until(lambda: len(got(odd, LIVE)) > asked)
        (passage,) = it.passages.held.values()
        await until(lambda: got(odd, "session/prompt"))  # a question may have come before it
        await until(lambda: passage._life.has_read > got(odd, "session/prompt")[0]["id"])
        del odd.says[LIVE]
        it.editor.prompt(session_id, "/queue wait")  # taken back, it would stop the turn
        unread = it.editor.prompt(session_id, "unread")
        await it.editor.refusal(unread)
        await until(lambda: got(odd, "$/cancel_request"))
        (taken_back,) = got(odd, "$/cancel_request")
        assert taken_back["params"] == {"requestId": got(odd, "session/prompt")[-1]["id"]}
