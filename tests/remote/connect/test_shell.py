"""An editor, the shell and a real WebSocket that drops: in this process, with seeds."""

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import anyio
import pytest

from acp_bridge.core.protocol import Json
from acp_bridge.core.wire.stdio import Reader, Writer
from acp_bridge.core.wire.streams import Streams
from acp_bridge.remote.connect import shell
from acp_bridge.remote.connect.folders import Folders
from acp_bridge.remote.connect.line import connected
from acp_bridge.remote.connect.logins import Login, Where
from acp_bridge.remote.connect.machine import Machine
from acp_bridge.remote.connect.router import Place, Router
from acp_bridge.remote.connect.shell import Reach, Refused, Shell
from acp_bridge.sharing.bridge_client.tasks import beside
from tests.remote.connect.places import Far
from tests.remote.connect.site import TOKEN, Site, cutter, site
from tests.support.client import RecordingClient

NO_PAIRS = Folders([])
#: No server has this data folder.
NOWHERE = Path("/nowhere")


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shell, "SHORTEST", 0.0)
    monkeypatch.setattr(shell, "LONGEST", 0.0)


class Silent:
    """A line to somebody who takes all that is said, and says nothing."""

    async def read(self) -> bytes:
        await anyio.sleep_forever()
        return b""

    async def run(self) -> None:
        await anyio.sleep_forever()

    def write(self, data: bytes) -> None:
        pass

    def close(self) -> None:
        pass


def _reach(where: Where, token: str, second: Place | None) -> Reach:
    @asynccontextmanager
    async def reach(place: Place) -> AsyncIterator[Streams]:
        if place == second:
            silent: Any = Silent()
            yield silent, silent
            return
        async with connected(where, Login(token), NOWHERE) as line:
            yield line, line

    return reach


@asynccontextmanager
async def editor(
    port: int,
    token: str = TOKEN,
    folders: Folders = NO_PAIRS,
    refused: str | None = None,
    second: Place | None = None,
) -> AsyncIterator[RecordingClient]:
    """Give an editor whose agent is `connect`, which ends with the editor or is refused.

    `second`: a place where nobody says anything.
    """
    numbers = Random(port)
    where = Where("127.0.0.1", port, "/acp", secure=False)

    def make(name: str, questions: Iterator[int]) -> Machine:
        return Machine("a-name-of-sixteen", name, lambda: f"key {numbers.random()}", questions)

    router = Router(Place(where.url, "host"), make, lambda _: second or "nothing")

    (to_us, from_editor), (to_editor, from_us) = os.pipe(), os.pipe()
    reach, streams = _reach(where, token, second), (Reader(to_us), Writer(from_us))
    it = Shell(router, streams, reach, folders, lambda *_: None)
    with anyio.fail_after(30):
        async with beside() as tasks, RecordingClient(to_editor, from_editor) as client:
            ended = anyio.Event()

            async def run() -> None:
                why = None
                try:
                    await it.run()
                except Refused as exc:
                    why = str(exc)
                assert why == refused
                ended.set()

            tasks.start_soon(run)
            yield client
            client.close_stdin()
            await ended.wait()


def said(client: RecordingClient, session: str) -> str:
    return "".join(each for each in client.texts(session) if "[acp-bridge]" not in each)


def words_of(site: Site, session: str) -> str:
    entries = site.server.sessions[session].entries
    return "".join(text for kind, text in entries if kind == "agent_message_chunk")


@pytest.mark.hazard("N2.1")
@pytest.mark.parametrize("seed", range(8))
async def test_over_a_line_that_is_cut_after_some_bytes_each_word_and_answer_comes_once(
    seed: int,
) -> None:
    async with site(seed) as there, cutter(there.port, seed, cuts=20) as line:  # noqa: SIM117
        async with editor(line.port) as client:
            await client.initialize({})
            session = await _new(client)
            asked = []
            for number in range(30):
                asked.append(client.send_prompt(f"words {number}", session))
                if number % 5 == 0:
                    await client.request("session/list", {})
            for each in asked:
                answer = await client.answer_to(each, within=20)
                assert answer["result"] == {"stopReason": "end_turn"}
            there.tell()
            await client.until_recorded(lambda: said(client, session) == words_of(there, session))
            answers = [len(client.recording.answers(each)) for each in asked]
            assert answers == [1] * len(asked)
            ran = [each for each in there.server.runs if each.startswith("words")]
            assert ran == [f"words {number}" for number in range(30)]
            assert there.lines > 1


async def _new(client: RecordingClient) -> str:
    """Make a session; one whose answer is lost is made anew, as an editor's user would."""
    while True:
        params = {"cwd": "/w", "mcpServers": []}
        answer = await client.answer_to(client.send_request("session/new", params))
        if "result" in answer:
            client.session_id = answer["result"]["sessionId"]
            return client.session_id
        assert "is not sent again" in answer["error"]["message"]


async def test_a_token_that_is_refused_ends_it_and_what_is_open_is_answered() -> None:
    why = "the token is not known"
    async with site() as there, editor(there.port, token="another", refused=why) as client:
        answer = await client.answer_to(client.send_request("initialize", {}))
        assert "no line to host" in answer["error"]["message"]


async def test_without_a_line_the_sessions_say_so_and_requests_that_are_sent_once_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with site() as there, editor(there.port) as client:
        await client.initialize({})
        session = await _new(client)
        monkeypatch.setattr(shell, "SAID", 0.01)
        monkeypatch.setattr(shell, "WAITS", 0.02)
        there.token = "others"
        monkeypatch.setattr(shell, "_REFUSED", 0)
        there.cut()
        await client.until_text("The line to host is down")
        answer = await client.answer_to(client.send_request("session/new", {}))
        assert "no line to host" in answer["error"]["message"]
        waits = client.send_prompt("later", session)
        there.token = TOKEN
        await client.until_text("The line to host is back")
        assert (await client.answer_to(waits))["result"] == {"stopReason": "end_turn"}


async def test_a_place_that_was_followed_to_and_says_nothing_is_not_waited_for_without_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with site(1) as there:
        there.server = first = Far("https://first.example")
        first.refers = Far("https://second.example")
        async with editor(there.port, second=Place("second", "second")) as client:
            await client.initialize({})
            monkeypatch.setattr(shell, "WAITS", 0.05)
            asked = client.send_request("session/load", {"sessionId": "s", "cwd": "/w"})
            error = (await client.answer_to(asked))["error"]
            assert error["message"] == "there is no line to second: it does not answer"


async def test_a_line_that_is_longer_than_a_server_takes_is_an_error_and_cuts_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shell, "_LONGEST_LINE", 3000)
    async with site() as there, editor(there.port) as client:
        await client.initialize({})
        session = await _new(client)
        lines = there.lines
        answer = await client.answer_to(client.send_prompt("x" * 4000, session))
        assert "longer than" in answer["error"]["message"]
        answer = await client.answer_to(client.send_prompt("short", session))
        assert answer["result"] == {"stopReason": "end_turn"}
        assert there.lines == lines


async def test_paths_are_those_of_each_machine() -> None:
    folders = Folders([("/here/src", "/there/src")])
    seen: list[Json] = []
    async with site() as there:
        take = there.server.take

        def note(message: Json) -> None:
            seen.append(message)
            take(message)

        there.server.take = note  # type: ignore[method-assign]
        async with editor(there.port, folders=folders) as client:
            await client.initialize({})
            await client.new_session("/here/src/project")
    assert [each["params"]["cwd"] for each in seen if each["method"] == "session/new"] == [
        "/there/src/project"
    ]
