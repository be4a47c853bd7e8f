"""Finds words in what was said in sessions, by an index beside their files: SQLite's FTS5.

Invariants
- Commands make it when somebody searches; no bridge ever waits for it. Sessions are read beside
  their bridges, and nothing of their files is changed.
- It is a copy: where it is damaged or of another version, it is made again.
- What was deleted, or edited away, leaves the file's bytes too: a session's text when the session
  is deleted, at the latest with the next search.
- `search.lock` is held while the file is open, which is never while a session is read.

What stands up to a session's merged row does not change any more: it is read once. What follows,
and the prompts that wait, is read again when the session's file has changed.
"""

import logging
import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final, NamedTuple, Self, TypeVar

from acp_bridge.core.journal import prompt_rows
from acp_bridge.core.journal.connection import connect, journal_errors
from acp_bridge.core.journal.errors import JournalError
from acp_bridge.core.journal.files import sure_stamp
from acp_bridge.core.journal.history import Row, all_rows, snapshot
from acp_bridge.core.journal.index import locked
from acp_bridge.core.journal.merge import merged
from acp_bridge.core.journal.prompt_rows import prompt_of, words_in
from acp_bridge.core.journal.records import PromptState
from acp_bridge.core.journal.schema import make_file
from acp_bridge.core.protocol import CONTEXT, MESSAGES, as_object, own_meta, words_of

#: the name of the file in the data folder.
SEARCHED: Final = "search.db"
_VERSION: Final = 2
_TABLES: Final = """
    CREATE TABLE sessions(
        id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, stamp TEXT, last INTEGER, sum TEXT
    );
    CREATE TABLE pieces(
        id INTEGER PRIMARY KEY, session INTEGER NOT NULL, stays INTEGER NOT NULL, prompt INTEGER
    );
    CREATE INDEX of_session ON pieces(session, stays);
    CREATE VIRTUAL TABLE said USING fts5(text, tokenize = 'unicode61 remove_diacritics 2');
"""
#: a table for the words of texts, one after the other.
_WORDS: Final = """
    CREATE VIRTUAL TABLE said USING fts5(text, tokenize = 'unicode61 remove_diacritics 2');
    CREATE VIRTUAL TABLE words USING fts5vocab(said, instance);
"""
_IN_ORDER: Final = (
    "SELECT doc, group_concat(term, ' ') FROM (SELECT doc, term FROM words ORDER BY doc, offset)"
    " GROUP BY doc"
)
#: the most characters of a piece; a longer message is several pieces, cut at the end of a line.
_PIECE: Final = 20_000
#: the most sessions, or characters, that are written at once.
_AT_ONCE: Final = 50
_CHARACTERS: Final = 4_000_000
_ROW: Final = "SELECT coalesce(CAST(lines AS BLOB), x'') FROM updates WHERE id = ?"
#: Thai, Lao, Burmese, Khmer, Chinese and Japanese stand without spaces between their words: in the
#: index each of their characters is a word, between two `_SPACE`, which are no part of any word.
_UNSPACED: Final = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
    "\U00020000-\U0003ffff]"
)
_BETWEEN: Final = re.compile(rf"(?={_UNSPACED.pattern})|(?<={_UNSPACED.pattern})(?=\w)")
_SPACE: Final = "\u200b"
#: characters that are shown before a place and from it on.
_BEFORE: Final = 40
_BEHIND: Final = 120

logger = logging.getLogger(__name__)
T = TypeVar("T")


class Piece(NamedTuple):
    """A text that was said; `prompt`: the number of the prompt whose words it is."""

    prompt: int | None
    text: str


@dataclass(frozen=True, slots=True)
class Known:
    """How far a session was read: up to the row `last`, whose lines had the sum `sum`.

    `stamp`: the stamp that its file had when it was read.
    """

    stamp: str = ""
    last: int = 0
    sum: str = ""


@dataclass(frozen=True, slots=True)
class Read:
    """The pieces that were read of a session's file, and how far the session is `known` by that.

    `anew`: it was read from its beginning. `stays`: the pieces that don't change any more.
    """

    path: Path
    known: Known
    anew: bool
    stays: list[Piece]
    may_change: list[Piece]

    @property
    def size(self) -> int:
        """The number of characters."""
        return sum(len(piece.text) for piece in (*self.stays, *self.may_change))


@dataclass(frozen=True, slots=True)
class Asked:
    """What is searched for: phrases, and beginnings of words."""

    phrases: list[str]
    words: list[str]

    @classmethod
    def read(cls, text: str) -> Self:
        """Read what a person has given: what stands in quotes is a phrase, all else are words."""
        parts = text.encode(errors="replace").decode().split('"')
        phrases = parts[1 : len(parts) - 1 : 2]
        words = " ".join([*parts[::2], *([] if len(parts) % 2 else parts[-1:])]).split()
        return cls([*filter(_has_word, phrases)], [*filter(_has_word, words)])

    @property
    def query(self) -> str:
        """The query for FTS5: all phrases and words, in quotes, so that nothing is its syntax."""
        phrases, words = map(_spaced, self.phrases), map(_spaced, self.words)
        return " AND ".join([*map('"{}"'.format, phrases), *map('"{}"*'.format, words)])

    @property
    def terms(self) -> list[str]:
        """What all stands in the `words_in_order` of a text exactly if the query finds the text.

        It is none if the query finds no text at all, since a phrase or word of it has no words.
        """
        found = words_in_order([*map(_spaced, (*self.phrases, *self.words))])
        count = len(self.phrases)
        terms = [*found[:count], *(each.rstrip() for each in found[count:])]
        return terms if all(each.strip() for each in terms) else []

    def place(self, text: str) -> str:
        """Return an excerpt of a text around the first phrase or word that stands in it.

        If none does, since FTS5 has found another form of it, return the beginning of the text.
        """
        text = text.replace(_SPACE, "")
        for term in (*self.phrases, *self.words):
            words = r"\W+".join(map(re.escape, re.findall(r"\w+", term)))
            begins = "" if _UNSPACED.match(words) else r"\b"
            if found := re.search(f"{begins}{words}", text, re.IGNORECASE):
                before = text[max(0, found.start() - _BEFORE) : found.start()]
                if found.start() > _BEFORE:
                    before = "..." + (before.partition(" ")[2] or before)
                return before + _beginning(text[found.start() :])
        return _beginning(text)


def _spaced(text: str) -> str:
    """Return a text with `_SPACE` before and behind each character of `_UNSPACED`."""
    return _BETWEEN.sub(_SPACE, text) if _UNSPACED.search(text) else text


def _beginning(text: str) -> str:
    if len(text) <= _BEHIND:
        return text
    return (text[:_BEHIND].rpartition(" ")[0] or text[:_BEHIND]) + "..."


def _has_word(text: str) -> bool:
    return any(char.isalnum() for char in text)


def search(
    home: Path, paths: Mapping[str, Path], text: str, progress: Callable[[int, int], None]
) -> dict[str, str]:
    """Return the sessions of which one piece has all words of a text, each with an excerpt of it.

    `paths`: the files of all sessions by their ids. What was said since the last search is read
    first: `progress` is called with the number of sessions read, and of those to read.

    Raises JournalError: it can't be searched; the text says why.
    """
    file = home.absolute() / SEARCHED
    asked = Asked.read(text)
    if not asked.query or not (paths or file.exists()):
        return {}
    try:
        try:
            found = _search(file, paths, asked, progress)
        except sqlite3.DatabaseError as error:
            if not _is_damage(error):
                raise
            with locked(file):
                _remove(file)
            found = _search(file, paths, asked, progress)
    except BlockingIOError as error:
        raise JournalError("another search writes the index; try again") from error
    except (sqlite3.Error, OSError) as error:
        raise JournalError(f"what was said can't be searched: {error}") from error
    names = {path.stem: session_id for session_id, path in paths.items()}
    return {names[name]: place for name, place in found.items() if name in names}


def forget(file: Path, path: Path) -> None:
    """Take what was said in a deleted session out of the index. Never raises.

    `file` is the index, `path` the session's file. Where it fails, the next search does it.
    """
    if not file.exists():
        return
    try:
        _use(file, lambda db: _drop(db, lambda name: name != path.stem))
    except (sqlite3.Error, OSError) as error:
        logger.warning("journal: a deleted session is still in %s: %s", file.name, error)


def _search(
    file: Path, paths: Mapping[str, Path], asked: Asked, progress: Callable[[int, int], None]
) -> dict[str, str]:
    names = {path.stem for path in paths.values()}
    known = _use(file, lambda db: _drop(db, names.__contains__))
    for part in _parts(_read_changed(known, paths.values(), progress)):
        _use(file, partial(_write, part))
    return _use(file, partial(_places, asked))


# -- reading sessions ----------------------------------------------------------------------


def _read_changed(
    known: Mapping[str, Known], paths: Iterable[Path], progress: Callable[[int, int], None]
) -> Iterator[Read]:
    """Read the sessions whose files have changed; one that can't be read hides no other (K2)."""
    stamps = {path: stamp for path in paths if (stamp := _stamp(path)) is not None}
    read = {path: known.get(path.stem, Known()) for path in stamps}
    changed = [path for path in stamps if not stamps[path] or read[path].stamp != stamps[path]]
    for number, path in enumerate(changed):
        progress(number, len(changed))
        with suppress(JournalError):
            yield _read(path, read[path], stamps[path])
    progress(len(changed), len(changed))


def _stamp(path: Path) -> str | None:
    """Return what `sure_stamp` does, None also for a file that can't be looked at."""
    try:
        return sure_stamp(path)
    except JournalError:
        return None


def _read(path: Path, known: Known, stamp: str) -> Read:
    """Return what a session's file has behind what is known of it. Raises JournalError."""
    with journal_errors(), closing(connect(path, wait=5, read_only=True)) as db:
        merged_to = _merged_to(db)
        last = db.execute(_ROW, (known.last,)).fetchone()
        anew = not last or _sum(last[0]) != known.sum
        rows = snapshot(path, 0 if anew else known.last)
        stay = [row for row in rows if row.id <= merged_to]
        stays, may_change = _divided(db, stay, rows[len(stay) :])
    if stay:
        known = Known(stamp, stay[-1].id, _sum(stay[-1].lines))
    else:
        known = Known(stamp) if anew else Known(stamp, known.last, known.sum)
    return Read(path, known, anew, stays, may_change)


def said_in(db: sqlite3.Connection) -> list[str]:
    """Return the texts of all pieces of a session's file, in the order in which the index has them.

    Raises sqlite3.Error.
    """
    merged_to, rows = _merged_to(db), all_rows(db)
    stay = [row for row in rows if row.id <= merged_to]
    stays, may_change = _divided(db, stay, rows[len(stay) :])
    return [piece.text for piece in (*stays, *may_change)]


def words_in_order(texts: list[str]) -> list[str]:
    """Return for each text the words that FTS5 sees in it, each between spaces; "" if none."""
    words = [""] * len(texts)
    with closing(sqlite3.connect(":memory:")) as db:
        db.executescript(_WORDS)
        db.executemany("INSERT INTO said(rowid, text) VALUES (?, ?)", enumerate(texts))
        for number, found in db.execute(_IN_ORDER):
            words[number] = f" {found} "
    return words


def _merged_to(db: sqlite3.Connection) -> int:
    found = db.execute("SELECT merged_to FROM session").fetchone()
    return int(found[0] or 0) if found else 0


def _divided(
    db: sqlite3.Connection, stay: list[Row], rest: list[Row]
) -> tuple[list[Piece], list[Piece]]:
    """Return the pieces of rows that stay as they are, and those of the rest and what waits."""
    return [*_said(db, stay)], [*_said(db, rest), *_waiting(db)]


def _sum(lines: bytes) -> str:
    return blake2b(lines, digest_size=16).hexdigest()


def _said(db: sqlite3.Connection, rows: list[Row]) -> Iterator[Piece]:
    for entry in merged((row.turn, row.lines) for row in rows):
        if entry.params is None:
            continue
        if (seq := prompt_of(entry.params)) is None:
            yield from _pieces(entry.params)
        else:
            yield from _words(seq, words_in(db, [seq]).get(seq, []))


def _waiting(db: sqlite3.Connection) -> Iterator[Piece]:
    for row in prompt_rows.read(db, (PromptState.WAITING, PromptState.LEFT_OVER)):
        yield from _words(row.seq, words_of(row.params))


def _words(seq: int, words: list[dict[str, Any]]) -> Iterator[Piece]:
    for each in words:
        for piece in _pieces(each):
            yield piece._replace(prompt=seq)


def _pieces(params: dict[str, Any]) -> Iterator[Piece]:
    update = as_object(params.get("update"))
    text = as_object(update.get("content")).get("text")
    if update.get("sessionUpdate") not in MESSAGES or own_meta(params).get(CONTEXT):
        return
    rest = text.encode(errors="replace").decode() if isinstance(text, str) else ""
    while rest:
        end = len(rest) if len(rest) <= _PIECE else rest.rfind("\n", 0, _PIECE) + 1 or _PIECE
        yield Piece(None, _spaced(rest[:end]))
        rest = rest[end:]


def _parts(read: Iterable[Read]) -> Iterator[list[Read]]:
    """Give what was read in lists that are written at once.

    Each has `_AT_ONCE` sessions or a few more than `_CHARACTERS` characters at most.
    """
    part: list[Read] = []
    size = 0
    for each in read:
        part.append(each)
        size += each.size
        if len(part) == _AT_ONCE or size > _CHARACTERS:
            yield part
            part, size = [], 0
    if part:
        yield part


# -- the file ------------------------------------------------------------------------------


def _use(file: Path, work: Callable[[sqlite3.Connection], T]) -> T:
    """Open the index and return what `work` makes of it, under its lock and in one transaction.

    Raises sqlite3.Error, OSError.
    """
    with locked(file), closing(_open(file)) as db:
        db.execute("BEGIN IMMEDIATE")
        done = work(db)
        db.execute("COMMIT")
        return done


def _open(file: Path) -> sqlite3.Connection:
    """Open the index, which is made if it is missing or of another version. Its lock is held."""
    if file.exists():
        db = _connected(file)
        try:
            if db.execute("PRAGMA user_version").fetchone() == (_VERSION,):
                return db
        except BaseException:
            db.close()
            raise
        db.close()
        _remove(file)
    make_file(file)
    db = _connected(file)
    try:
        db.executescript(f"BEGIN; {_TABLES} PRAGMA user_version={_VERSION}; COMMIT;")
    except BaseException:
        db.close()
        raise
    return db


def _connected(file: Path) -> sqlite3.Connection:
    db = connect(file, wait=5)
    db.execute("PRAGMA secure_delete=ON").close()
    return db


def _remove(file: Path) -> None:
    """Remove the index, SQLite's journal of it first: that would be played into the next index."""
    for each in (file.with_name(f"{file.name}-journal"), file):
        each.unlink(missing_ok=True)


def _is_damage(error: sqlite3.DatabaseError) -> bool:
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    return code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR)


def _drop(db: sqlite3.Connection, stays: Callable[[str], bool]) -> dict[str, Known]:
    """Take the sessions out of the index whose file's name `stays` refuses.

    Returns how far the others are known, by that name.
    """
    known = {}
    gone = []
    for number, name, *read in db.execute("SELECT id, name, stamp, last, sum FROM sessions"):
        if stays(name):
            known[name] = Known(*read)
        else:
            gone.append((number,))
    for number in gone:
        _delete(db, db.execute("SELECT id FROM pieces WHERE session = ?", number).fetchall())
    db.executemany("DELETE FROM sessions WHERE id = ?", gone)
    if gone:
        _leave_nothing(db)
    return known


def _write(part: list[Read], db: sqlite3.Connection) -> None:
    """Write the pieces that were read in the place of older ones.

    If an older text is gone, and is not the beginning of a new one, it leaves the file's bytes.
    """
    went = False
    for read in part:
        if not read.path.is_file():  # it was deleted meanwhile
            continue
        name, known = read.path.stem, read.known
        db.execute("INSERT INTO sessions(name) VALUES (?) ON CONFLICT DO NOTHING", (name,))
        (session,) = db.execute("SELECT id FROM sessions WHERE name = ?", (name,)).fetchone()
        db.execute(
            "UPDATE sessions SET stamp = ?, last = ?, sum = ? WHERE id = ?",
            (known.stamp, known.last, known.sum, session),
        )
        before = _replaced(db, session, read)
        new = [piece.text for piece in (*read.stays, *read.may_change)]
        went = went or any(not _stands_in(text, new) for _, text in before)
        _delete(db, [(number,) for number, _ in before])
        _insert(db, session, read)
    if went:
        _leave_nothing(db)


def _replaced(db: sqlite3.Connection, session: int, read: Read) -> list[tuple[int, str]]:
    """Return number and text of each piece in the index that is replaced by what was read."""
    prompts = {piece.prompt for piece in (*read.stays, *read.may_change)} - {None}
    rows = db.execute(
        "SELECT pieces.id, text, prompt, stays FROM pieces JOIN said ON said.rowid = pieces.id"
        " WHERE session = ? AND (? OR NOT stays OR prompt IS NOT NULL)",
        (session, read.anew),
    )
    return [
        (number, text)
        for number, text, prompt, stays in rows
        if read.anew or not stays or prompt in prompts
    ]


def _stands_in(text: str, new: list[str]) -> bool:
    return any(each.startswith(text) for each in new)


def _insert(db: sqlite3.Connection, session: int, read: Read) -> None:
    for stays, pieces in ((1, read.stays), (0, read.may_change)):
        for piece in pieces:
            row = (session, stays, piece.prompt)
            added = db.execute("INSERT INTO pieces(session, stays, prompt) VALUES (?, ?, ?)", row)
            db.execute("INSERT INTO said(rowid, text) VALUES (?, ?)", (added.lastrowid, piece.text))


def _delete(db: sqlite3.Connection, numbers: list[tuple[int]]) -> None:
    db.executemany("DELETE FROM said WHERE rowid = ?", numbers)
    db.executemany("DELETE FROM pieces WHERE id = ?", numbers)


def _leave_nothing(db: sqlite3.Connection) -> None:
    """Have FTS5 write its index of words anew: deleted ones stand there until then."""
    db.execute("INSERT INTO said(said) VALUES ('optimize')")


def _places(asked: Asked, db: sqlite3.Connection) -> dict[str, str]:
    """Return an excerpt of the newest piece with a match, by the file's name of its session."""
    newest = db.execute(
        "SELECT name, max(pieces.id) FROM said JOIN pieces ON pieces.id = said.rowid"
        " JOIN sessions ON sessions.id = session WHERE said MATCH ? GROUP BY sessions.id",
        (asked.query,),
    ).fetchall()
    sql = "SELECT text FROM said WHERE rowid = ?"
    return {name: asked.place(db.execute(sql, (number,)).fetchone()[0]) for name, number in newest}
