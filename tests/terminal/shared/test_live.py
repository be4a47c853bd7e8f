"""All bridges are asked at once; a session is found among what lives and what is kept."""

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from acp_bridge.core.agents import lease
from acp_bridge.core.journal import Journal
from acp_bridge.core.protocol import Json
from acp_bridge.core.wire.jsonrpc import RpcError
from acp_bridge.sharing.bridge_client import by_socket
from acp_bridge.sharing.bridge_client.connection import Connection
from acp_bridge.sharing.bridge_client.listener import Listener
from acp_bridge.sharing.listening.run_files import LiveBridge
from acp_bridge.terminal.commands import live as ps
from acp_bridge.terminal.shared import live
from acp_bridge.terminal.shared.known import NotFound
from acp_bridge.terminal.shared.live import Answer, Asleep, Here, LiveSession, ask_all
from tests.sharing.bridge_client.fake_bridge import FakeBridge, connection_to

FIRST, SECOND, THIRD = "abcd" + "1" * 28, "abce" + "2" * 28, "f" * 32
#: for bridges that answer; one that does not is given no time at all.
LONG = 5.0


def bridge(pid: int) -> LiveBridge:
    return LiveBridge(pid, "host", f"/run/{pid}", 1, "codex-acp", "0.1.0")


def about(session_id: str, **more: Any) -> Json:
    return {"sessionId": session_id, "cwd": "/w", "agent": "codex-acp", "state": "idle", **more}


class Home:
    """Bridges by pid; None stands for one that can't be reached."""

    def __init__(self, **bridges: FakeBridge | None) -> None:
        self._bridges = {int(name.removeprefix("p")): each for name, each in bridges.items()}
        self.bridges = [bridge(pid) for pid in self._bridges]

    @asynccontextmanager
    async def connect(
        self, path: str, listener: Listener, log: Path | None = None
    ) -> AsyncIterator[Connection]:
        fake = self._bridges[int(path.removeprefix("/run/"))]
        if fake is None:
            raise ConnectionRefusedError(111, "Connection refused")
        async with connection_to(fake, listener) as connection:
            yield connection

    async def running(self, home: Path) -> list[LiveBridge]:
        return self.bridges

    @contextmanager
    def _reached(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(by_socket, "over_socket", self.connect)
            patch.setattr(live, "bridges_of", self.running)
            yield

    async def ask_all(self, within: float) -> list[Answer]:
        with self._reached():
            return await ask_all(self.bridges, within)

    async def find(self, kept: Path, given: str) -> LiveSession:
        with self._reached():
            return await Here(kept).find(given)

    async def in_folder(self, kept: Path, folder: Path) -> str:
        with self._reached():
            return await Here(kept).in_folder(folder)


def having(*sessions: Json) -> FakeBridge:
    return FakeBridge(**{"_acp_bridge/live": {"sessions": list(sessions)}})


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """One look is enough, however busy the machine is: a bridge here answers once."""
    monkeypatch.setattr(live, "GLANCE", LONG)


async def test_a_bridge_that_is_silent_hides_no_other() -> None:
    home = Home(
        p1=having(about(FIRST)),
        p2=FakeBridge(initialize=None),
        p3=None,
        p4=FakeBridge(**{"_acp_bridge/live": RpcError(-32601, "method not found")}),
        p5=having(),
    )
    with anyio.fail_after(5):
        answers = await home.ask_all(0.2)
    assert [answer.sessions for answer in answers] == [[about(FIRST)], None, None, None, []]


async def test_to_ask_what_lives_is_to_be_asked_nothing() -> None:
    fake = having()
    home = Home(p1=fake)
    await home.ask_all(LONG)
    abilities = fake.calls[0].params["clientCapabilities"]
    assert abilities == {"_meta": {"acp_bridge": {"observer": True}}}


async def test_what_a_bridge_lists_and_is_no_session_is_left_out() -> None:
    odd: list[Any] = [1, {}, {"sessionId": 5}, about(FIRST)]
    home = Home(p1=having(*odd), p2=FakeBridge(**{"_acp_bridge/live": 7}))
    answers = await home.ask_all(LONG)
    assert [answer.sessions for answer in answers] == [[about(FIRST)], []]


@pytest.fixture
async def kept(tmp_path: Path) -> Path:
    """A home in which two sessions are kept."""
    journal = Journal(tmp_path)
    for session_id in (FIRST, SECOND):
        await journal.create(session_id, cwd="/w", agent="a")
    await journal.close()
    return tmp_path


async def test_a_live_session_is_found_with_its_bridge(kept: Path) -> None:
    for given, session_id, pid in (("ff", THIRD, 2), (FIRST, FIRST, 1)):
        home = Home(p1=having(about(FIRST)), p2=having(about(THIRD, title="new")))
        found = await home.find(kept, given)
        assert (found.session_id, found.bridge.pid) == (session_id, pid)


async def test_without_an_id_a_session_that_lives_in_the_folder_goes_before_one_used_later(
    kept: Path,
) -> None:
    here = Path("/w")
    for bridges, expected in (
        (Home(p1=having(about(FIRST), about(THIRD, cwd="/elsewhere"))), FIRST),
        (Home(p1=having(about(THIRD)), p2=None), THIRD),
        (Home(p1=having(about(FIRST)), p2=having(about(SECOND))), SECOND),
        (Home(p1=having(about(THIRD, cwd="/elsewhere"))), SECOND),
    ):
        chosen = await bridges.in_folder(kept, here)
        assert chosen == expected
    with pytest.raises(NotFound, match="no session was used in this folder"):
        await Home().in_folder(kept, Path("/nowhere"))


async def test_what_is_kept_and_not_live_sleeps(kept: Path) -> None:
    home = Home(p1=having(about(FIRST)))
    with pytest.raises(Asleep) as asleep:
        await home.find(kept, "abce")
    assert asleep.value.session_id == SECOND


async def test_of_what_a_bridge_has_that_can_not_be_asked_it_is_not_said_that_it_sleeps(
    kept: Path,
) -> None:
    lock = await lease.acquire(Journal(kept).lock_path(SECOND), 1)
    try:
        with pytest.raises(Asleep, match="is open in an acp-bridge that can't be asked"):
            await Home().find(kept, SECOND)
    finally:
        os.close(lock)
    with pytest.raises(Asleep, match="is not live"):
        await Home().find(kept, SECOND)


async def test_an_id_is_ambiguous_among_live_and_kept_sessions_together(kept: Path) -> None:
    for given, told in (("abc", "may mean several sessions"), ("x", "begins with 'x'")):
        home = Home(p1=having(about(FIRST)))
        with pytest.raises(NotFound, match=told):
            await home.find(kept, given)


async def test_a_session_is_not_said_to_sleep_while_a_bridge_is_silent(kept: Path) -> None:
    home = Home(p1=having(about(FIRST)), p7=None)
    with pytest.raises(NotFound, match="process 7 is not answering"):
        await home.find(kept, "abce")
    home = Home(p1=having(about(FIRST)), p7=None)
    assert (await home.find(kept, "abcd")).session_id == FIRST


# what is shown


def test_sessions_are_shown_with_what_they_do_and_what_is_asked() -> None:
    running = about(FIRST, state="running", seconds=3700, waiting=2, clients=1, title="Parser")
    asking = about(THIRD, state="permission", seconds=59, waiting=0, clients=2, asks="rm \x1b[1m x")
    answers = [Answer(bridge(1), [running]), Answer(bridge(2), [asking]), Answer(bridge(3), None)]
    assert ps.as_text(answers, None).splitlines() == [
        "ID        STATE          FOR  WAITING  CLIENTS  AGENT      FOLDER  TITLE",
        "abcd1111  running        1h   2        1        codex-acp  /w      Parser",
        "ffffffff  permission     59s  0        2        codex-acp  /w",
        "-         not answering                         codex-acp          process 3 on host",
        "",
        "ffffffff asks: rm \\x1b[1m x (acp-bridge approve ffffffff, or deny)",
    ]
    assert [*ps.as_json(answers)] == [
        running,
        asking,
        {"state": "not answering", "agent": "codex-acp", "pid": 3},
    ]


@pytest.mark.hazard("V9")
def test_what_is_asked_is_not_cut_to_the_width_of_the_terminal() -> None:
    asks = "List files: command: " + "x" * 200 + " … 3 more lines"
    text = ps.as_text([Answer(bridge(1), [about(THIRD, asks=asks)])], 40)
    assert text.endswith(f"ffffffff asks: {asks} (acp-bridge approve ffffffff, or deny)\n")


def test_where_nothing_lives_this_is_said() -> None:
    assert ps.as_text([], None) == ps.as_text([Answer(bridge(1), [])], 80) == "No live sessions.\n"


def test_what_a_bridge_says_oddly_is_shown_as_far_as_it_goes() -> None:
    odd: Json = {"sessionId": "\x1b", "seconds": "long", "state": 7, "title": ["\x07"]}
    odd["asks"] = None
    shown = ps.as_text([Answer(bridge(1), [odd])], None)
    assert not set("\x1b\x07") & set(shown)


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0, "0s"), (59.9, "59s"), (60, "1m"), (7300, "2h"), (200_000, "2d")]
)
def test_a_time_is_one_number(seconds: float, shown: str) -> None:
    assert ps.duration(seconds) == shown
