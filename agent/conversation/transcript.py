"""A session on disk: lines of JSON, appended during a turn and read as a whole by a load.

Invariants
- The operating system has a record before `append` returns, so that what is shown after it survives
  the death of the process (invariants K1, T2). It need not survive a loss of power.
- A load writes nothing. A cut or broken line hides no other line (invariant K2), and what follows a
  cut line is appended on a line of its own.
- A choice or an "always" answer that could not be written is written before the next record that
  can be, so that a load finds no more rights than the session has.
- A file that was deleted, by whatever process, does not come back: only `create` makes one.
- Only the owner can read the files. One process appends at a time; the bridge ensures that.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path

from msgspec import Struct
from pydantic_core import from_json, to_json

from agent.content.blocks import text_of
from agent.conversation.decisions import DECISIONS, is_inherited
from agent.conversation.entries import Record
from agent.conversation.history import History, title_of

_SESSION_ID = re.compile(r"[A-Za-z0-9_-]{1,100}")
#: how many records `list_sessions` reads in search of a session's first prompt: without decisions,
#: and in all
_HEAD, _LINES = 8, 1000
#: the beginnings of the records of a title and of a prompt
_TITLE, _PROMPT = b'{"t":"title"', b'{"t":"user"'
#: how many prompts after the first one a made title may come
_TITLED_BY = 2


class UnknownSession(Exception):
    """There is no transcript of that session."""


class SessionInfo(Struct, frozen=True):
    id: str
    cwd: str
    title: str
    updated_at: str


class Transcript:
    """The history of an open session, and the file to which its records are appended."""

    def __init__(self, path: Path | None, history: History, *, cut: bool = False) -> None:
        """Without a `path`, records change the history and are not written.

        `cut`: the file ends with a line that was cut off.
        """
        self.history = history
        self._path = path
        self._fd = -1
        self._cut = cut
        #: lines that could not be written yet and must be
        self._owed: list[bytes] = []

    @classmethod
    def create(cls, folder: Path, session_id: str, cwd: str) -> Transcript:
        """Creates the file of a new session. Raises OSError."""
        # Private: the folder holds keys.env.
        folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        folder.mkdir(exist_ok=True, mode=0o700)
        transcript = cls(folder / f"{session_id}.jsonl", History())
        transcript._open(folder / f"{session_id}.jsonl", os.O_CREAT)
        transcript.append({"t": "session", "v": 1, "id": session_id, "cwd": cwd})
        return transcript

    @classmethod
    def fork(cls, folder: Path, session_id: str, new_id: str, cwd: str) -> Transcript:
        """Creates the file of a new session with a copy of an old one's records.

        Its "always allow" answers are left out. Blocks the thread. Raises UnknownSession, or
        OSError; no new file is left then.
        """
        try:
            source = path_of(folder, session_id).open("rb")
        except FileNotFoundError:
            raise UnknownSession(session_id) from None
        try:
            with source:
                created = cls.create(folder, new_id, cwd)
                for line in source:
                    record = parse(line)
                    if record and record.get("t") != "session" and is_inherited(record):
                        created.append(record)
        except OSError:
            delete_session(folder, new_id)
            raise
        return created

    @classmethod
    def load(cls, folder: Path, session_id: str) -> Transcript:
        """Reads a transcript from disk. Raises UnknownSession, or OSError if it can't be read."""
        path = path_of(folder, session_id)
        history = History()
        line = b"\n"
        try:
            with path.open("rb") as file:
                for line in file:
                    if (record := parse(line)) is not None:
                        history.fold(record)
        except FileNotFoundError:
            raise UnknownSession(session_id) from None
        return cls(path, history, cut=not line.endswith(b"\n"))

    @classmethod
    def copy(cls, folder: Path, session_id: str) -> Transcript:
        """Reads a transcript from disk as a copy, whose later records are not written.

        Blocks the thread. Raises as `load` does.
        """
        return cls(None, cls.load(folder, session_id).history)

    def append(self, record: Record) -> None:
        """Adds a record to the history, then writes it.

        Raises OSError if it can't be written, FileNotFoundError if the file was deleted; the
        history has the record even then.
        """
        self.history.fold(record)
        if self._path is None:
            return
        self._owed.append(dump(record))
        try:
            while self._owed:
                self._write(self._path, self._owed[0])
                del self._owed[0]
        except OSError:
            if record.get("t") not in DECISIONS:
                del self._owed[-1]
            raise

    def _write(self, path: Path, line: bytes) -> None:
        if self._fd < 0:
            self._open(path)
        if self._cut:
            line = b"\n" + line
        self._cut = True
        while line:
            line = line[os.write(self._fd, line) :]
        self._cut = False

    def _open(self, path: Path, flags: int = 0) -> None:
        flags |= os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC
        self._fd = os.open(path, flags, 0o600)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def list_sessions(folder: Path) -> list[SessionInfo]:
    """Returns the sessions that have a prompt, the newest first."""
    found: list[tuple[float, SessionInfo]] = []
    for path in folder.glob("*.jsonl"):
        # One file that can't be read, or was just deleted, must not hide the others.
        with contextlib.suppress(OSError):
            changed = path.stat().st_mtime
            if (info := _head(path, changed)) is not None:
                found.append((changed, info))
    found.sort(key=lambda pair: pair[0], reverse=True)
    return [info for _, info in found]


def delete_session(folder: Path, session_id: str) -> None:
    """Deletes the session's transcript if there is one. Raises OSError."""
    if _SESSION_ID.fullmatch(session_id):
        (folder / f"{session_id}.jsonl").unlink(missing_ok=True)


def path_of(folder: Path, session_id: str) -> Path:
    """Returns the path of a session's file. Raises UnknownSession for an id that none can have."""
    if not _SESSION_ID.fullmatch(session_id):
        raise UnknownSession(session_id)
    return folder / f"{session_id}.jsonl"


def _head(path: Path, changed: float) -> SessionInfo | None:
    with path.open("rb") as file:
        parsed = (parse(line) for line in islice(file, _LINES))
        told = (record for record in parsed if record is None or record.get("t") not in DECISIONS)
        records = list(islice(told, _HEAD))
    cwd: str | None = None
    for record in records:
        match record:
            case {"t": "session", "cwd": str(where)}:
                cwd = where
            case {"t": "user", "blocks": [*blocks]} if cwd is not None:
                updated_at = datetime.fromtimestamp(changed, UTC).isoformat()
                title = _made_title(path) or title_of(text_of(blocks))
                return SessionInfo(path.stem, cwd, title, updated_at)
    return None


def _made_title(path: Path) -> str | None:
    """Returns the title that a model has made after the first turn; None if none has."""
    prompts = 0
    with path.open("rb") as file:
        for line in file:
            if line.startswith(_TITLE):
                title = (parse(line) or {}).get("text")
                return title if isinstance(title, str) else None
            prompts += line.startswith(_PROMPT)
            if prompts > _TITLED_BY:
                break
    return None


def parse(line: bytes) -> Record | None:
    """Returns the record in a line; None if it holds none."""
    try:
        record = from_json(line)
    except ValueError:  # a cut line, or lone surrogates, which from_json refuses
        try:
            record = json.loads(line)
        except ValueError:
            return None
    return record if isinstance(record, dict) else None


def dump(record: Record) -> bytes:
    """Returns a record as a line."""
    try:
        return to_json(record, inf_nan_mode="null") + b"\n"
    except ValueError:  # lone surrogates, which to_json refuses
        return json.dumps(record).encode() + b"\n"
