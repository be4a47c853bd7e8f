"""An output that grows, of which each update tells all: what clients get, and what it costs."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import accumulate
from pathlib import Path

import pytest

from acp_bridge.core.runtime import waits
from acp_bridge.core.wire.jsonrpc import encode
from tests.core.bridge.resuming import Follower, cursor_in, recorded, updates
from tests.core.bridge.test_lagging import LIMIT, Slow, slow
from tests.core.sessions.agent import Json
from tests.core.sessions.bench import Served
from tests.core.sessions.world import SETUP

#: what the output is after each of 1,500 updates; in the end it has 55 kB.
OUTPUTS = list(accumulate(f"{number:05} {'x' * 30}\n" for number in range(1500)))
SIZE = len(OUTPUTS[-1])


def grown(text: str, card: str = "t") -> Json:
    """The update by which codex-acp tells a command's output so far."""
    content = [{"type": "content", "content": {"type": "text", "text": f"```sh\n{text}\n```\n"}}]
    return {"sessionUpdate": "tool_call_update", "toolCallId": card, "content": content}


def told(client: Served) -> list[str]:
    """What a client was told since the prompt: texts, and of each card its last letter or line."""
    found: list[str] = []
    for params in updates(client):
        match params["update"]:
            case {"toolCallId": str(card), "content": [{"content": {"text": str(text)}}]}:
                found.append(f"{card} {text[6:-5]}")
            case {"sessionUpdate": "agent_message_chunk", "content": {"text": str(text)}}:
                found += [] if "[acp-bridge]" in text else [text]
    return found


@asynccontextmanager
async def working(home: Path, *cards: str) -> AsyncIterator[Slow]:
    """A session whose turn has begun, with these tool calls."""
    async with slow(home) as here:
        await here.prompt()
        for card in cards or "t":
            here.shows(sessionUpdate="tool_call", toolCallId=card, title="make", status="pending")
        yield here


async def loaded_by(here: Slow) -> Served:
    """Return a client that has loaded the session."""
    client = await here.it.joined()
    await client.ask("session/load", {**SETUP, "sessionId": here.id})
    return client


def size_of(client: Served) -> int:
    return sum(len(encode(message)) for message in client.messages)


def size_of_files(home: Path) -> int:
    return sum(path.stat().st_size for path in home.glob("sessions/*.db*"))


@pytest.fixture(autouse=True)
def writes_at_once_or_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time at which an output is written again does not come by itself."""
    monkeypatch.setattr(waits, "GROWING", 3600)


@pytest.mark.hazard("T2.6")
async def test_1500_updates_reach_a_client_that_keeps_up_and_cost_little_in_file_and_load(
    tmp_path: Path,
) -> None:
    async with working(tmp_path) as here:
        journal = here.it.bridge._sessions.live[here.id].journal
        row = journal.last_row
        for text in OUTPUTS:
            here.shows(**grown(text))
        assert told(here.it.editor) == [f"t {text}" for text in OUTPUTS]
        assert journal.last_row == row + 1
        client = await loaded_by(here)
        assert told(client) == [f"t {OUTPUTS[-1]}"]
        assert size_of(client) < 2 * SIZE
        here.shows(sessionUpdate="tool_call_update", toolCallId="t", status="completed")
        await here.end()
        client = await loaded_by(here)
        assert told(client) == [f"t {OUTPUTS[-1]}"]
        assert size_of(client) < 2 * SIZE
    assert size_of_files(tmp_path) < 3 * SIZE


@pytest.mark.hazard("T2.6")
async def test_one_that_is_written_again_and_again_takes_the_place_of_what_was_written(
    tmp_path: Path,
) -> None:
    async with working(tmp_path) as here:
        transcript = here.it.bridge._sessions.live[here.id].transcript
        for text in OUTPUTS[::50]:
            here.shows(**grown(text))
            transcript.flush()
        await here.end()
        assert size_of(await loaded_by(here)) < 2 * SIZE
    assert size_of_files(tmp_path) < 3 * SIZE


@pytest.mark.hazard("V4.9")
@pytest.mark.parametrize("joined", [True, False])
async def test_a_client_that_is_behind_is_sent_the_last_one_before_what_follows(
    tmp_path: Path, joined: bool
) -> None:
    async with working(tmp_path) as here:
        client = await here.it.attached(here.id) if joined else here.it.editor
        here.shows(**grown("a"))
        client.way.stuck = LIMIT
        for text in ("ab", "abc", "abcd"):
            here.shows(**grown(text))
        assert told(client) == ["t a"]
        here.says("said")
        here.shows(**grown("abcde"))
        assert told(client) == ["t a", "t abcd", "said"]
        client.way.take_all()
        here.shows(**grown("abcdef"))
        assert told(client) == ["t a", "t abcd", "said", "t abcde", "t abcdef"]
        await here.end()


@pytest.mark.hazard("V4.9")
async def test_a_client_that_is_behind_is_sent_the_last_one_before_the_end_of_the_turn(
    tmp_path: Path,
) -> None:
    async with working(tmp_path) as here:
        here.it.editor.way.stuck = LIMIT
        for text in OUTPUTS:
            here.shows(**grown(text))
        assert told(here.it.editor) == []
        await here.end()
        assert told(here.it.editor) == [f"t {OUTPUTS[-1]}"]


@pytest.mark.hazard("V4.9")
async def test_a_client_that_reads_on_from_the_journal_gets_the_last_one(tmp_path: Path) -> None:
    async with working(tmp_path) as here:
        client = await here.behind()
        for text in OUTPUTS:
            here.shows(**grown(text))
        here.says("said")
        await here.read_on()
        await here.reads(client)
        assert told(client) == [f"t {OUTPUTS[-1]}", "said"]
        assert size_of(client) < 2 * SIZE
        here.shows(**grown(OUTPUTS[-1] + "y"))
        assert told(client)[2:] == [f"t {OUTPUTS[-1]}y"]
        await here.end()


@pytest.mark.hazard("V4.9")
async def test_a_client_that_has_caught_up_lacks_nothing_that_was_held_then(tmp_path: Path) -> None:
    async with working(tmp_path) as here:
        client = await here.behind()
        for text in ("a", "ab", "abc"):
            here.shows(**grown(text))
        await here.reads(client)
        assert told(client) == ["t abc"]


@pytest.mark.hazard("N5.7")
@pytest.mark.parametrize("lost", range(7))
async def test_a_client_that_comes_back_in_the_middle_has_the_last_one_and_each_letter_once(
    tmp_path: Path, lost: int
) -> None:
    async with working(tmp_path) as here:
        client = await Follower.come(here.it, here.id)
        await client.client.result(client.asked)
        for text in ("a", "ab"):
            here.shows(**grown(text))
        here.says("one")
        for text in ("abc", "abcd"):
            here.shows(**grown(text))
        here.says("two")
        assert all(map(cursor_in, filter(recorded, updates(client.client))))
        await client.cut_off(lost)
        await client.client.result(client.asked)
        here.shows(**grown("abcde"))
        seen = [each["update"] for each in client.seen]
        assert letters(seen) == "onetwo"
        assert seen[-1] == grown("abcde")
        assert told(await loaded_by(here)) == ["onetwo", "t abcde"]
        await here.end()
        again = await here.back(client.cursor)
        assert grown("abcde") in [each["update"] for each in updates(again)]


def letters(seen: list[Json]) -> str:
    chunks = [each for each in seen if each["sessionUpdate"] == "agent_message_chunk"]
    return "".join(each["content"]["text"] for each in chunks)


@pytest.mark.hazard("T2.6")
async def test_two_that_grow_at_once_are_each_kept_as_they_were_last(tmp_path: Path) -> None:
    async with working(tmp_path, "t", "u") as here:
        client = await here.it.attached(here.id)
        client.way.stuck = LIMIT
        for text in ("a", "ab", "abc"):
            here.shows(**grown(text, "t"))
            here.shows(**grown(text, "u"))
        assert told(here.it.editor) == ["t a", "u a", "t ab", "u ab", "t abc", "u abc"]
        here.says("said")
        assert told(client) == ["t abc", "u abc", "said"]
        assert told(await loaded_by(here)) == ["t abc", "u abc", "said"]
        await here.end()


@pytest.mark.hazard("T2.6")
async def test_an_output_in_whose_place_another_comes_is_kept_and_sent(tmp_path: Path) -> None:
    async with working(tmp_path) as here:
        client = await here.it.attached(here.id)
        client.way.stuck = LIMIT
        for text in ("a", "ab", "x", "xy", "b"):
            here.shows(**grown(text))
        await here.end()
        assert told(client) == ["t ab", "t xy", "t b"]
        assert told(await loaded_by(here)) == ["t ab", "t xy", "t b"]


@pytest.mark.hazard("T2.6")
async def test_what_a_load_was_not_shown_any_more_comes_behind_it(tmp_path: Path) -> None:
    async with working(tmp_path) as here:
        here.shows(**grown("a"))
        client = await here.it.joined()
        client.way.stuck = 32 * LIMIT
        asked = client.send("session/load", {**SETUP, "sessionId": here.id})
        here.says("said")
        for text in ("ab", "abc"):
            here.shows(**grown(text))
        client.way.take_all()
        await client.result(asked)
        here.says("more")
        assert told(client)[-2:] == ["t abc", "more"]
        await here.end()
