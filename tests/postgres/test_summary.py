"""Summaries of sessions in the database: they tell what the sessions' files tell, or nothing."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from psycopg import AsyncConnection

from acp_bridge.core.journal.file import Write
from acp_bridge.core.journal.records import file_name
from acp_bridge.core.journal.search import Asked, search
from acp_bridge.core.journal.turns import Used
from acp_bridge.core.records import replace
from acp_bridge.core.settings import DatabaseUrl
from acp_bridge.postgres import log, summary, tables
from acp_bridge.postgres.connection import Database
from acp_bridge.postgres.index import CopiedIndex
from tests.postgres.session_files import INFO, SESSION, Rows, execute, made

#: what is said in sessions, a list for each: texts that one message each has.
SAID = [
    ["the parser fails", "Empty lines, and the Parser"],
    ["the parser", "fails on empty lines"],
    ["Résumé of ÇA", "nai\u0308ve", "İstanbul ß ﬁ"],
    ["漢字かな交じり文", "mixed 漢字 and words", "ไทย"],
    ["foo_bar-baz.py %_ \\ 100%", 'it\'s "quoted" {a,b} NULL'],
    ["x" * 30_000 + "\n" + "tail end"],
    ["lone \ud800 surrogate", "a\tb\r\nc", ""],
    ["²Ⅷ ١٢ 12", "🙂 smile"],
]
NAME = f"{SESSION}.db"
ASKED = [
    *("parser", "pars", "PARSER fails", '"empty lines"', '"lines empty"', "empty fails", "lin emp"),
    *(
        "resume",
        "résumé ca",
        "naive",
        "istanbul",
        "fi",
        "ss",
        "ß",
        "漢字",
        "字か",
        '"漢字 and"',
        "漢",
    ),
    *(
        "foo_bar",
        "bar-ba",
        "baz.p",
        '"bar baz"',
        "100%",
        "%",
        "_",
        "\\",
        "it's",
        '"',
        "quoted null",
    ),
    *(
        "tail",
        "xxx",
        "lone",
        '"a b c"',
        "²",
        "12",
        "🙂",
        "smile 🙂",
        "ไทย",
        "nothing at all",
        "",
        "e",
    ),
]


def message(text: str) -> bytes:
    content = {"type": "text", "text": text}
    update = {"sessionUpdate": "agent_message_chunk", "content": content}
    return json.dumps({"update": update}).encode()


def rows_of(texts: list[str]) -> Rows:
    """A session of which the first row is merged for good, and the rest is not."""
    return {"updates": [(4 + at, at, message(text)) for at, text in enumerate(texts)]}


@pytest.fixture
async def connection(database: DatabaseUrl) -> AsyncIterator[log.Connection]:
    async with Database(database) as opened, opened.connection() as connection:
        yield connection


async def summed_up(connection: log.Connection, path: Path, session_id: str = SESSION) -> None:
    """Store a session's file, and sum it up."""
    await log.store(connection, replace(INFO, session_id=session_id), path, "me")
    await summary.put(connection, {path.stem: (1, summary.sum_up(path))})


async def test_the_database_finds_what_an_index_of_the_files_finds(
    connection: log.Connection, tmp_path: Path
) -> None:
    paths = {}
    for number, texts in enumerate(SAID):
        session_id = f"session{number}"
        info = replace(INFO, session_id=session_id)
        paths[session_id] = made(
            tmp_path / "sessions" / f"{file_name(session_id)}.db", rows_of(texts), info=info
        )
        await summed_up(connection, paths[session_id], session_id)
    some = 0
    for text in ASKED:
        expected = search(tmp_path, paths, text, lambda *_: None)
        asked = Asked.read(text)
        if asked.query:
            found = await summary.said(connection, asked)
            ids = {path.stem: session_id for session_id, path in paths.items()}
            assert found.told.keys() == found.summed == ids.keys()
            told = {ids[name]: piece for name, piece in found.told.items() if piece is not None}
            assert {each: asked.place(piece) for each, piece in told.items()} == expected, text
        some += bool(expected)
    assert some > 25


async def test_what_prompts_that_wait_say_is_found_and_the_usage_told(
    connection: log.Connection, tmp_path: Path
) -> None:
    params = '{"prompt": [{"type": "text", "text": "later please"}]}'
    rows: Rows = {
        "prompts": [
            (3, "p", "done", "{}", '{"usage": {"totalTokens": 7}}'),
            (7, "q", "held", *"00"),
        ],
        "prompt_params": [(3, "{}"), (7, params)],
        "settings": [("turnBegan:3", '"2026-11-27T10:00:00.000000Z"'), ("usage:3", '{"a": 1.5}')],
    }
    await summed_up(connection, made(tmp_path / "sessions" / NAME, rows))
    assert (await summary.said(connection, Asked.read("later"))).told == {SESSION: "later please"}
    expected = Used([(3, "2026-11-27T10:00:00.000000Z", {"totalTokens": 7})], [(3, {"a": 1.5})])
    (found,) = (await summary.used(connection)).told.values()
    assert json.dumps(found) == json.dumps(expected)


async def is_summed_up(connection: log.Connection) -> bool:
    said = await summary.said(connection, Asked.read("parser"))
    used = await summary.used(connection)
    assert said.summed == used.summed
    return bool(said.summed)


async def columns(connection: log.Connection) -> list[tuple[object, ...]]:
    cursor = await connection.execute(b"SELECT used, pieces, words FROM acp_bridge.sessions")
    return await cursor.fetchall()


async def test_a_write_takes_the_summary_away(connection: log.Connection, tmp_path: Path) -> None:
    await summed_up(connection, made(tmp_path / "sessions" / NAME, rows_of(SAID[0])))
    assert await is_summed_up(connection)
    row = log.row_of(1, Write((), 1, (message("more"),)))
    assert await log.put(connection, SESSION, "me", 1, [row], sure=False, prompted=False)
    assert not await is_summed_up(connection)
    assert await columns(connection) == [(None, None, None)]


async def test_a_write_that_knows_of_no_summary_makes_it_count_no_more(
    connection: log.Connection, tmp_path: Path
) -> None:
    await summed_up(connection, made(tmp_path / "sessions" / NAME, rows_of(SAID[0])))
    await connection.execute(b"UPDATE acp_bridge.sessions SET applied = applied + 1")
    assert not await is_summed_up(connection)


async def test_a_base_of_more_writes_makes_the_summary_count_no_more(
    connection: log.Connection, tmp_path: Path
) -> None:
    path = made(tmp_path / "sessions" / NAME, rows_of(SAID[0]))
    await summed_up(connection, path)
    execute(path, "INSERT INTO settings VALUES ('journal:applied', '5')")
    assert await log.rebase(connection, SESSION, path, "me", 1) == 5
    assert not await is_summed_up(connection)


@pytest.mark.parametrize("known", [True, False])
async def test_a_deleted_session_leaves_nothing_of_its_summary(
    connection: log.Connection, database: DatabaseUrl, tmp_path: Path, known: bool
) -> None:
    await summed_up(connection, made(tmp_path / "sessions" / NAME, rows_of(SAID[0])))
    assert await is_summed_up(connection)
    async with Database(database) as other:
        index = CopiedIndex(tmp_path / "index.db", other, ["me"])
        try:
            await index.remove(SESSION, known=known)
        finally:
            await index.close()
    assert not await is_summed_up(connection)
    assert await columns(connection) == [(None, None, None)]


async def test_a_session_from_before_there_were_summaries_has_none_and_can_be_summed_up(
    database: DatabaseUrl, database_url: str, tmp_path: Path
) -> None:
    path = made(tmp_path / "sessions" / NAME, rows_of(SAID[0]))
    async with await AsyncConnection.connect(database_url, autocommit=True) as before:
        await tables.migrate(before, tables.MIGRATIONS[:2])
        await log.store(before, INFO, path, "me")
    async with Database(database) as opened, opened.connection() as connection:
        assert not await is_summed_up(connection)
        await summary.put(connection, {path.stem: (1, summary.sum_up(path))})
        assert await is_summed_up(connection)


async def test_a_summary_of_another_state_is_not_put(
    connection: log.Connection, tmp_path: Path
) -> None:
    path = made(tmp_path / "sessions" / NAME, rows_of(SAID[0]))
    await log.store(connection, INFO, path, "me")
    summed = summary.sum_up(path)
    await summary.put(connection, {path.stem: (2, summed)})  # another has opened it since
    await summary.put(connection, {path.stem: (1, summed._replace(n=1))})
    assert not await is_summed_up(connection)
    await connection.execute(b"UPDATE acp_bridge.sessions SET deleted = true")
    await summary.put(connection, {path.stem: (1, summed)})
    assert await columns(connection) == [(None, None, None)]


@pytest.mark.parametrize("texts", [["a\0b"], ["long " * 300_000]], ids=["NUL", "long"])
async def test_what_the_database_cant_keep_is_left_to_the_file(
    connection: log.Connection, tmp_path: Path, texts: list[str]
) -> None:
    await summed_up(connection, made(tmp_path / "sessions" / NAME, rows_of(texts)))
    found = await summary.said(connection, Asked.read("long"))
    assert (found.summed, found.told) == ({SESSION}, {})
    assert (await summary.used(connection)).told == {SESSION: Used([], [])}
