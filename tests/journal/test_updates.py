"""Updates: recorded before they are shown, replayed as they were, compacted without a trace."""

import tracemalloc

import pytest

from acp_bridge.journal import Journal, JournalError, SessionJournal
from acp_bridge.journal import session as session_module
from tests.journal.sayings import chunk, lines, text_of, tool, transcript


def row_count(session: SessionJournal) -> int:
    return int(session._file.value("SELECT count(*) FROM updates"))


def say(session: SessionJournal, turn: int, words: int, message: str | None = None) -> None:
    for number in range(words):
        session.record(turn, lines(chunk(f"{number} ", message)))


def told(words: int) -> str:
    return "".join(f"{number} " for number in range(words))


@pytest.mark.hazard("K1", "T2")
async def test_what_was_recorded_is_there_without_any_sync(
    journal: Journal, session: SessionJournal
) -> None:
    session.record(0, lines(tool("a"), tool("b")))
    session.record(1, lines(chunk("x")))
    other = Journal(journal.path("").parent.parent)  # as another process sees the file
    seen = await other.open(session.info.session_id)
    assert await transcript(seen) == [tool("a"), tool("b"), chunk("x")]
    await other.close()


@pytest.mark.hazard("T3")
async def test_an_unknown_update_comes_back_equal(session: SessionJournal) -> None:
    odd = {"update": {"sessionUpdate": "novelty", "n": [1, 1.5, None, True, "\x00\ud83d"]}}
    session.record(1, lines({**odd, "_meta": {"deep": {"er": []}}}))
    assert await transcript(session) == [{**odd, "_meta": {"deep": {"er": []}}}]


@pytest.mark.hazard("R1")
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


@pytest.mark.hazard("R1")
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


async def test_compacting_again_changes_nothing(session: SessionJournal) -> None:
    say(session, 1, 600)
    await session.compact(1)
    before = row_count(session), await transcript(session)
    await session.compact(1)
    assert (row_count(session), await transcript(session)) == before


@pytest.mark.hazard("R1", "K2")
@pytest.mark.parametrize("steps", range(5))
async def test_a_compaction_cut_off_after_any_step_leaves_the_same_transcript(
    journal: Journal, session: SessionJournal, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    say(session, 1, 900)
    shown = await transcript(session)
    left = iter(range(steps))
    read = session_module.read_slice

    def stop_after(*args: object) -> object:
        if next(left, None) is None:
            raise JournalError("cut off")
        return read(*args)  # type: ignore[arg-type]

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
    pages = [await anext(replay, [])]
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


@pytest.mark.hazard("K4", "R6")
async def test_a_hundred_thousand_records_replay_in_flat_memory(session: SessionJournal) -> None:
    messages, tokens = 10_000, 11
    with session._file.transaction():  # as one, only to be quick about it
        for number in range(messages * tokens):
            session._file.db.execute(
                "INSERT INTO updates(turn, lines) VALUES (1, ?)",
                (lines(chunk("token ", f"m{number // tokens}")),),
            )
    tracemalloc.start()
    try:
        shown = most = 0
        async for page in session.replay():
            shown += len(page)
            most = max(most, tracemalloc.get_traced_memory()[1])
    finally:
        tracemalloc.stop()
    assert shown == messages
    assert most < 8 * 1024 * 1024


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
