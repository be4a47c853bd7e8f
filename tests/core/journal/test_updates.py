"""Updates: recorded before they are shown, replayed as they were, compacted without a trace."""

import tracemalloc
from typing import Any

import pytest

from acp_bridge.core.journal import Journal, JournalError, SessionJournal
from acp_bridge.core.journal import session as session_module
from acp_bridge.core.journal.file import Write
from acp_bridge.core.journal.history import read_slice
from tests.core.journal.sayings import Params, chunk, lines, text_of, tool, transcript


def row_count(session: SessionJournal) -> int:
    return int(session._file.value("SELECT count(*) FROM updates"))


def say(session: SessionJournal, turn: int, words: int, message: str | None = None) -> None:
    for number in range(words):
        session.record(turn, lines(chunk(f"{number} ", message)))


def told(words: int) -> str:
    return "".join(f"{number} " for number in range(words))


@pytest.mark.hazard("K1.3", "T2")
async def test_what_was_recorded_is_there_without_any_sync(
    journal: Journal, session: SessionJournal
) -> None:
    session.record(0, lines(tool("a"), tool("b")))
    session.record(1, lines(chunk("x")))
    other = Journal(journal.path("").parent.parent)  # as another process sees the file
    seen = await other.open(session.info.session_id)
    assert await transcript(seen) == [tool("a"), tool("b"), chunk("x")]
    await other.close()


@pytest.mark.hazard("T2.6")
async def test_a_row_is_superseded_only_as_it_was_when_it_was_written(
    session: SessionJournal,
) -> None:
    for name in ("a", "b", "a"):
        session.record(1, lines(tool(name)))
    session.record(1, lines(tool("c")), [(1, lines(tool("a"))), (2, lines(tool("a")))])
    assert await transcript(session) == [tool("b"), tool("a"), tool("c")]
    assert session.last_row == 4


@pytest.mark.hazard("T3.1")
async def test_an_unknown_update_comes_back_equal(session: SessionJournal) -> None:
    odd = {"update": {"sessionUpdate": "novelty", "n": [1, 1.5, None, True, "\x00\ud83d"]}}
    session.record(1, lines({**odd, "_meta": {"deep": {"er": []}}}))
    assert await transcript(session) == [{**odd, "_meta": {"deep": {"er": []}}}]


@pytest.mark.hazard("R1.1")
async def test_a_replay_sends_messages_not_tokens_and_the_same_each_time(
    session: SessionJournal,
) -> None:
    say(session, 1, 1000)
    session.record(1, lines(tool("a")))
    say(session, 1, 10)
    shown = await transcript(session)
    assert shown == [chunk(told(1000)), tool("a"), chunk(told(10))]
    before = row_count(session)
    assert await transcript(session) == shown
    assert row_count(session) == before


@pytest.mark.hazard("R1.1")
async def test_compaction_changes_the_rows_and_not_the_transcript(
    journal: Journal, session: SessionJournal
) -> None:
    say(session, 1, 1000, "m1")
    say(session, 1, 1000, "m2")
    session.record(0, lines(tool("between")))
    say(session, 2, 1000)
    shown = await transcript(session)
    await session.compact(2)
    assert row_count(session) < 30
    assert await transcript(session) == shown
    await session.close()
    again = await journal.open(session.info.session_id)
    assert await transcript(again) == shown


async def test_a_turn_that_still_runs_is_not_compacted(session: SessionJournal) -> None:
    say(session, 1, 10)
    say(session, 2, 10)
    await session.compact(1)
    assert row_count(session) == 1 + 10


async def test_what_a_crash_left_uncompacted_is_compacted_with_the_next_turn(
    journal: Journal, session: SessionJournal
) -> None:
    say(session, 1, 10)
    await session.close()
    again = await journal.open(session.info.session_id)
    say(again, 2, 10)
    await again.compact(2)
    assert row_count(again) == 2
    assert await transcript(again) == [chunk(told(10)), chunk(told(10))]


async def test_every_turn_is_compacted_at_its_end(session: SessionJournal) -> None:
    for turn in range(1, 4):
        say(session, turn, 300)
        await session.compact(turn)
        assert row_count(session) == 2 * turn
    assert await transcript(session) == [chunk(told(300))] * 3


async def test_compacting_again_changes_nothing(session: SessionJournal) -> None:
    say(session, 1, 600)
    await session.compact(1)
    before = row_count(session), await transcript(session)
    await session.compact(1)
    assert (row_count(session), await transcript(session)) == before


@pytest.mark.hazard("R1.1", "K2")
@pytest.mark.parametrize("steps", range(5))
async def test_a_compaction_cut_off_after_any_step_leaves_the_same_transcript(
    journal: Journal, session: SessionJournal, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    say(session, 1, 900)
    shown = await transcript(session)
    left = iter(range(steps))

    def stop_after(*args: Any) -> object:
        if next(left, None) is None:
            raise JournalError("cut off")
        return read_slice(*args)

    with monkeypatch.context() as patch:
        patch.setattr(session_module, "read_slice", stop_after)
        if steps < 4:
            with pytest.raises(JournalError):
                await session.compact(1)
        else:
            await session.compact(1)
    await session.close()
    again = await journal.open(session.info.session_id)
    assert await transcript(again) == shown
    await again.compact(1)
    assert row_count(again) == 4
    assert await transcript(again) == shown


async def test_a_replay_shows_what_was_there_when_it_began(session: SessionJournal) -> None:
    say(session, 1, 2000)
    replay = session.replay()
    pages: list[list[Params]] = [await anext(replay, [])]
    say(session, 1, 5)
    pages += [page async for page in replay]
    assert [text_of(params) for page in pages for params in page] == [told(2000)]


async def test_compaction_waits_until_no_replay_reads_the_rows(session: SessionJournal) -> None:
    for _ in range(400):
        session.record(1, lines(tool("a"), chunk("x")))
    replay = session.replay()
    pages = [await anext(replay)]
    await session.compact(1)
    assert row_count(session) == 400
    pages += [page async for page in replay]
    assert sum(map(len, pages)) == 800
    await session.compact(1)
    assert row_count(session) < 5


#: adds a row as often as the first value says.
_REPEATED = (
    "INSERT INTO updates(turn, lines) WITH RECURSIVE n(i) AS"
    " (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?) SELECT ?, ? FROM n"
)


def fill(session: SessionJournal, messages: int, tokens: int) -> None:
    """Record so many tokens of so many messages, in one transaction to be quick."""
    said = (lines(chunk("token ", f"m{message}")) for message in range(messages))
    session._file.write(Write(tuple((_REPEATED, (tokens, 1, each)) for each in said)))


@pytest.mark.hazard("K4")
async def test_thirty_thousand_records_replay_as_three_thousand_messages(
    session: SessionJournal,
) -> None:
    fill(session, 3_000, 11)
    shown = [params["update"]["messageId"] for params in await transcript(session)]
    assert shown == [f"m{message}" for message in range(3_000)]


@pytest.mark.hazard("K4.1")
async def test_a_log_of_more_than_a_hundred_thousand_records_is_compacted_to_its_end(
    session: SessionJournal,
) -> None:
    fill(session, 11, 10_000)
    await session.compact(1)
    assert row_count(session) < 110_000 / 100
    assert [text_of(each) for each in await transcript(session)] == ["token " * 10_000] * 11


@pytest.mark.hazard("R6.2")
async def test_a_replay_of_a_long_session_takes_no_more_memory_than_of_a_short_one(
    session: SessionJournal,
) -> None:
    peaks = []
    for _ in range(2):
        fill(session, 3_000, 1)
        tracemalloc.start()
        try:
            async for _page in session.replay():
                pass
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    assert peaks[1] < peaks[0] * 1.2
    assert peaks[1] < 4_000_000


async def test_a_line_of_ten_megabytes_is_kept_whole(session: SessionJournal) -> None:
    big = chunk("x" * 10_000_000)
    session.record(1, lines(big, tool("a")))
    await session.compact(1)
    assert await transcript(session) == [big, tool("a")]


async def test_settings_and_used_ids_are_kept(journal: Journal, session: SessionJournal) -> None:
    session.set("mode", {"modeId": "ask"})
    session.set("mode", ["plan", None, 1.5])
    session.add_ids(["a", "b", "\ud83d"])
    session.add_ids(["b", "c"])
    session.add_ids([])
    await session.close()
    again = await journal.open(session.info.session_id)
    assert (again.get("mode"), again.get("other")) == (["plan", None, 1.5], None)
    assert again.used_ids() == {"a", "b", "c", "\ud83d"}
