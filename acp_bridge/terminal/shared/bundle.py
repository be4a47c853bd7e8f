"""A session as one file that can be taken elsewhere: lines of JSON, with a sum in the last one.

Sans-IO but for `read_session`, which reads a session's file beside its bridge. Invariants
- A bundle that was cut or changed, is of a newer form, or too large, is refused whole.
- It has the transcript, the prompts, and the times and usage of turns, nothing that decides
  anything: no folder, mode, option or permission, and only the words of a prompt that is to run
  (invariant R13).
- The rows of the transcript are those of the session's file, so it is the same to the byte, unless
  secrets were masked in it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from acp_bridge.core.journal import prompt_rows, turns
from acp_bridge.core.journal.connection import connect, journal_errors
from acp_bridge.core.journal.file import INSERT_ROW, Statement
from acp_bridge.core.journal.history import Row, all_rows
from acp_bridge.core.journal.merge import merged
from acp_bridge.core.journal.prompt_rows import ORDER, prompt_of
from acp_bridge.core.journal.records import PromptRow, PromptState, SessionInfo
from acp_bridge.core.protocol import FEEDBACK, STATE, Json, is_feedback, with_own_meta
from acp_bridge.core.records import replace
from acp_bridge.core.wire.jsonrpc import dumps, encode, read_object

FORMAT: Final = "acp-bridge session"
VERSION: Final = 1
#: the most bytes and lines of a bundle.
MOST_BYTES: Final = 256 * 1024 * 1024
MOST_LINES: Final = 1_000_000
#: the most ids in one line.
_IDS: Final = 1000
#: the most characters of an agent's name, which is as long as a word of a command line may be, and
#: of a title: an agent may call itself, or a session, anything of any length.
_NAME: Final = 128 * 1024
_TITLE: Final = 1000
_CHILD: Final = re.compile(r":\d{1,6}")
_USED: Final = "SELECT id FROM used_ids ORDER BY id"
_LEFT_OVER: Final = (PromptState.WAITING, PromptState.LEFT_OVER)

Mask = Callable[[Any], Any]


class NotABundle(Exception):
    """A file is refused as a bundle, or none can be written; the text tells the user why."""


@dataclass(frozen=True, slots=True)
class Bundle:
    """The contents of a bundle: the transcript, prompts and notes of one session."""

    agent: str
    agent_info: str | None = None
    title: str | None = None
    prompts: list[PromptRow] = field(default_factory=list)
    #: the turn and the lines of each row of the transcript.
    rows: list[tuple[int, bytes]] = field(default_factory=list)
    #: the ids that the session has shown.
    ids: list[str] = field(default_factory=list)
    #: when turns ran and what agents told of their usage, as `turns.notes` has it.
    notes: dict[str, object] = field(default_factory=dict)
    #: what the built-in agent remembers, in its own form.
    memory: list[Json] = field(default_factory=list)


# -- from a session ------------------------------------------------------------------------


def read_session(path: Path, info: SessionInfo) -> Bundle:
    """Return a bundle of the session file `path` as it is at one moment. Raises JournalError.

    The names of the session and its agent are those in `info`.
    """
    with journal_errors(), closing(connect(path, wait=5, read_only=True)) as db:
        db.execute("BEGIN")
        rows = all_rows(db)
        found = [row for row in prompt_rows.read(db, ()) if not _waits_of_hook(row)]
        numbers = {row.seq for row in found}
        notes = turns.notes(db, numbers)
        ids = [each.decode("utf-8", "surrogatepass") for (each,) in db.execute(_USED)]
    prompts = [*map(_bare, found)]
    kept = [_kept(row, numbers) for row in rows]
    return Bundle(info.agent, info.agent_info, info.title, prompts, kept, ids, notes)


def _waits_of_hook(row: PromptRow) -> bool:
    return row.state in _LEFT_OVER and is_feedback(row.params)


def _bare(row: PromptRow) -> PromptRow:
    """Return a prompt whose only parameters are its words, and the mark if a hook has said them.

    A prompt that is to run loses that mark.
    """
    words = {"prompt": row.params.get("prompt")}
    mark = is_feedback(row.params) and row.state not in _LEFT_OVER
    return replace(row, params=with_own_meta(words, {FEEDBACK: True}) if mark else words)


def _kept(row: Row, numbers: set[int]) -> tuple[int, bytes]:
    """Return a row's turn, 0 if it is none of `numbers`, and its lines but for damaged ones."""
    lines = [line for line in row.lines.split(b"\n") if _fits(read_object(line), numbers)]
    return row.turn if row.turn in numbers else 0, b"\n".join(lines)


def _fits(params: Json | None, numbers: set[int]) -> bool:
    """Return True for a line of a transcript: an update, or one that stands for a prompt's words.

    That prompt must be one of `numbers`.
    """
    if params is None:
        return False
    if (seq := prompt_of(params)) is not None:
        return seq in numbers
    update, child = params.get("update"), params.get("sessionId", ":0")
    kind = update.get("sessionUpdate") if isinstance(update, dict) else None
    named = isinstance(child, str) and _CHILD.fullmatch(child) is not None
    meta = isinstance(params.get("_meta", {}), dict)
    return isinstance(kind, str) and kind not in STATE and named and meta


def with_masked(bundle: Bundle, mask: Mask) -> Bundle:
    """Return the bundle with `mask` applied to every text; chunks of a message are joined first."""

    def masked_row(row: PromptRow) -> PromptRow:
        told = mask(row.outcome), mask(row.agent_outcome)
        is_secret = mask(row.prompt_id) != row.prompt_id
        row = replace(row, params=mask(row.params), outcome=told[0], agent_outcome=told[1])
        return replace(row, prompt_id=f"*** {row.seq}") if is_secret else row

    rows = []
    for turn, same in groupby(bundle.rows, key=lambda row: row[0]):
        said = [entry.params for entry in merged(same) if entry.params is not None]
        rows.append((turn, b"\n".join(dumps(mask(params)) for params in said)))
    return replace(
        bundle,
        agent=mask(bundle.agent),
        agent_info=mask(bundle.agent_info),
        title=mask(bundle.title),
        prompts=[*map(masked_row, bundle.prompts)],
        rows=rows,
        ids=mask(bundle.ids),
        notes={key: mask(value) for key, value in bundle.notes.items()},
        memory=[mask(record) for record in bundle.memory],
    )


def written(bundle: Bundle) -> Iterator[bytes]:
    """Give the lines of a bundle's file, the sum last. Raises NotABundle if it gets too large."""
    total, size, count = sha256(), 0, 0
    for value in _values(bundle):
        line = encode(value)
        total.update(line)
        size, count = size + len(line), count + 1
        if size > MOST_BYTES or count >= MOST_LINES:
            raise NotABundle(f"the session is larger than a file may be ({_bound()})")
        yield line
    yield encode({"sum": total.hexdigest()})


def _values(bundle: Bundle) -> Iterator[Json]:
    title = bundle.title and bundle.title[:_TITLE]
    info = None if len(bundle.agent_info or "") > _NAME else bundle.agent_info
    head = {"agent": bundle.agent, "agentInfo": info, "title": title}
    yield {"format": FORMAT, "version": VERSION, **head}
    for row in bundle.prompts:
        told = {"outcome": row.outcome, "agentOutcome": row.agent_outcome}
        named = {"prompt": row.seq, "id": row.prompt_id, "state": str(row.state)}
        yield {**named, "words": row.params, **told}
    for turn, lines in bundle.rows:
        yield {"turn": turn, "lines": lines.decode(errors="surrogateescape")}
    for at in range(0, len(bundle.ids), _IDS):
        yield {"ids": bundle.ids[at : at + _IDS]}
    for key, value in bundle.notes.items():
        yield {"note": key, "value": value}
    for record in bundle.memory:
        yield {"memory": record}


def _bound() -> str:
    return f"{MOST_BYTES >> 20} MiB and {MOST_LINES:,} entries"


# -- from a file ---------------------------------------------------------------------------


def read(data: bytes) -> Bundle:
    """Return the bundle that the bytes of a file hold. Raises NotABundle if they hold none."""
    if len(data) > MOST_BYTES:
        raise NotABundle(f"it is larger than a session may be ({_bound()})")
    lines = data.split(b"\n")
    head = read_object(lines[0]) or {}
    version = head.get("version")
    if head.get("format") != FORMAT or type(version) is not int or version < 1:
        raise NotABundle("it is no session that acp-bridge has exported")
    if version > VERSION:
        raise NotABundle(
            f"it is of a newer acp-bridge (version {version}, this one knows {VERSION})"
        )
    before, _, last = data.removesuffix(b"\n").rpartition(b"\n")
    if read_object(last) != {"sum": sha256(before + b"\n").hexdigest()} or lines[-1]:
        raise NotABundle("it was cut or changed: its sum is not that of what is in it")
    if len(lines) > MOST_LINES:
        raise NotABundle(f"it has more entries than a session may have ({_bound()})")
    return _Reader(head).read(lines[1:-2])


class _Reader:
    """Makes a Bundle of the head of a file and of the lines between it and the sum."""

    def __init__(self, head: Json) -> None:
        agent, info, title = (head.get(name) for name in ("agent", "agentInfo", "title"))
        if not (isinstance(agent, str) and isinstance(info, str | None)):
            raise _odd(1)
        if not isinstance(title, str | None) or len(title or "") > _TITLE:
            raise _odd(1)
        if max(len(agent), len(info or "")) > _NAME:
            raise _odd(1)
        self._bundle = Bundle(agent, info, title)
        self._numbers: set[int] = set()
        self._ids: set[str] = set()

    def read(self, lines: list[bytes]) -> Bundle:
        """Return the bundle with what the lines hold. Raises NotABundle for one that is wrong."""
        for number, line in enumerate(lines, 2):
            value = read_object(line)
            if value is None or not self._take(value):
                raise _odd(number)
        return self._bundle

    def _take(self, value: Json) -> bool:
        bundle = self._bundle
        match value:
            case {"prompt": int(seq), "id": str(prompt_id), "state": str(state)}:
                return self._prompt(seq, prompt_id, state, value)
            case {"turn": int(turn), "lines": str(text)}:
                return self._row(turn, text)
            case {"ids": [*ids]} if all(isinstance(each, str) for each in ids):
                bundle.ids.extend(map(str, ids))
                return True
            case {"note": str(key), "value": told} if turns.is_note(key, told, self._numbers):
                bundle.notes[key] = told
                return True
            case {"memory": dict(record)}:
                bundle.memory.append(record)
                return True
        return False

    def _prompt(self, seq: int, prompt_id: str, state: str, value: Json) -> bool:
        words, outcome, own = (value.get(name) for name in ("words", "outcome", "agentOutcome"))
        new = 0 < seq < 1 << 50 and seq not in self._numbers and prompt_id not in self._ids
        if not new or state not in PromptState.__members__.values():
            return False
        if not isinstance(words, dict) or not _are_blocks(words.get("prompt")):
            return False
        if not isinstance(outcome, dict | None) or not isinstance(own, dict | None):
            return False
        self._numbers.add(seq)
        self._ids.add(prompt_id)
        row = PromptRow(seq, prompt_id, words, PromptState(state), outcome, own)
        self._bundle.prompts.append(_bare(row))
        return True

    def _row(self, turn: int, text: str) -> bool:
        try:
            lines = text.encode(errors="surrogateescape")
        except UnicodeError:
            return False
        self._bundle.rows.append((turn, lines))
        said = (read_object(line) for line in lines.split(b"\n") if line)
        of_turn = turn == 0 or turn in self._numbers
        return of_turn and all(_fits(params, self._numbers) for params in said)


def _are_blocks(blocks: object) -> bool:
    """Return True if `blocks` is a list of content blocks, as a prompt has it."""
    return isinstance(blocks, list) and all(
        isinstance(block, dict) and isinstance(block.get("type"), str) for block in blocks
    )


def _odd(line: int) -> NotABundle:
    return NotABundle(f"line {line} is none of a session")


def statements(bundle: Bundle) -> Iterator[Statement]:
    """Give the SQL statements that put a bundle into the file of a new session.

    Prompts that waited are left over there, in the same order.
    """
    for row in bundle.prompts:
        state = PromptState.LEFT_OVER if row.state in _LEFT_OVER else row.state
        told = (row.outcome, row.agent_outcome)
        texts = [None if each is None else dumps(each).decode() for each in told]
        values = (row.seq, row.prompt_id, state, *texts)
        yield "INSERT INTO prompts VALUES (?, ?, ?, ?, ?)", values
        yield "INSERT INTO prompt_params VALUES (?, ?)", (row.seq, dumps(row.params).decode())
    for turn, lines in bundle.rows:
        yield INSERT_ROW, (turn, lines)
    for each in bundle.ids:
        used = each.encode("utf-8", "surrogatepass")
        yield "INSERT OR IGNORE INTO used_ids VALUES (?)", (used,)
    waited = [row.seq for row in bundle.prompts if row.state in _LEFT_OVER]
    yield from turns.taken_over(
        bundle.notes, [row.seq for row in bundle.prompts if row.seq not in waited]
    )
    yield "INSERT INTO settings VALUES (?, ?)", (ORDER, dumps(waited).decode())


def updates(bundle: Bundle) -> Iterator[Json]:
    """Give the updates of the transcript as they were recorded, without the words of prompts."""
    for _, lines in bundle.rows:
        for line in lines.split(b"\n"):
            params = read_object(line)
            if params is not None and prompt_of(params) is None:
                yield params
