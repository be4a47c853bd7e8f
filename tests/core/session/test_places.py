"""The places of what a session records: they are found by reading, and kept up from then on."""

import pytest

from acp_bridge.core.journal import SessionJournal
from acp_bridge.core.journal.place import Place
from acp_bridge.core.session.transcript.places import Noted, Places
from acp_bridge.core.wire.jsonrpc import encode
from tests.core.journal.sayings import chunk

pytestmark = pytest.mark.hazard("N5")


def place(*texts: str) -> Place:
    """Return the place behind these texts."""
    found = Place("s")
    for text in texts:
        found.add(chunk(text))
    return found


def cursor(*texts: str) -> str:
    return str(place(*texts).cursor)


def told(noted: Noted) -> str | None:
    return noted.mark.cursor if noted.mark else None


class Recording:
    """A session's journal, and the places in it."""

    def __init__(self, journal: SessionJournal) -> None:
        self.journal = journal
        journal.record(1, encode(chunk("before")))
        self.places = Places("s", journal)
        self.places.start()

    def says(self, *texts: str) -> list[Noted]:
        self.journal.record(1, b"".join(encode(chunk(text)) for text in texts))
        return self.places.take()


async def test_each_update_of_a_row_has_the_place_behind_it(journal: SessionJournal) -> None:
    it = Recording(journal)
    await it.places.find()
    assert it.places.cursor == cursor("before")
    noted = it.says("a", "b")
    assert [told(each) for each in noted] == [cursor("before", "a"), cursor("before", "a", "b")]
    assert it.places.take() == []


async def test_what_is_recorded_while_the_journal_is_read_has_its_place_when_that_is_done(
    journal: SessionJournal,
) -> None:
    it = Recording(journal)
    first = it.places.begin()
    (one,) = it.says("a")
    second = it.places.begin()
    (two,) = it.says("b")
    assert (told(one), told(two), it.places.cursor) == (None, None, None)
    it.places.done(second, place("before", "a"))
    assert (told(one), told(two)) == (None, cursor("before", "a", "b"))
    (three,) = it.says("c")
    assert it.places.cursor == told(three) == cursor("before", "a", "b", "c")
    it.places.done(first, place("before"))
    assert (told(one), told(two)) == (cursor("before", "a"), cursor("before", "a", "b"))
    assert it.places.cursor == told(three)


async def test_a_reading_that_breaks_off_leaves_the_place_to_the_next_one(
    journal: SessionJournal,
) -> None:
    it = Recording(journal)
    reading = it.places.begin()
    (one,) = it.says("a")
    it.places.drop(reading)
    it.places.done(reading, place("before"))
    assert (told(one), it.places.cursor) == (None, None)
    await it.places.find()
    assert it.places.cursor == cursor("before", "a")


async def test_a_line_that_no_replay_shows_moves_no_place(journal: SessionJournal) -> None:
    it = Recording(journal)
    await it.places.find()
    journal.record(1, b"{broken\n" + encode(chunk("a")))
    assert [told(each) for each in it.places.take()] == [cursor("before"), cursor("before", "a")]
    await it.places.find()
    other = Places("s", journal)
    await other.find()
    assert other.cursor == it.places.cursor


async def test_nothing_is_counted_when_nobody_wants_to_know(journal: SessionJournal) -> None:
    it = Recording(journal)
    await it.places.find()
    it.places.stop()
    assert it.says("a") == []
    assert it.places.cursor is None
