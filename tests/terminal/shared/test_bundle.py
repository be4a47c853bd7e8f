"""A session as one file: what it has, what is refused, and what is masked in it."""

import json
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from acp_bridge.core.journal import Journal, PromptState, SessionJournal
from acp_bridge.core.journal.place import Cursor, From, WrongCursor
from acp_bridge.core.journal.records import PromptRow
from acp_bridge.core.protocol import with_own_meta
from acp_bridge.core.runtime.redacting import redactor
from acp_bridge.terminal.shared import bundle
from acp_bridge.terminal.shared.bundle import (
    Bundle,
    NotABundle,
    read,
    read_session,
    with_masked,
    written,
)
from tests.core.journal.conftest import SESSION
from tests.core.journal.conftest import home as home
from tests.core.journal.conftest import session as session
from tests.core.journal.sayings import chunk, lines, tool, transcript

OTHER = "0" * 31 + "2"


def prompt(*blocks: Any, **more: Any) -> dict[str, Any]:
    return {"prompt": [{"type": "text", "text": each} for each in blocks], **more}


def summed(*values: Any) -> bytes:
    """A file whose sum is right."""
    data = b"".join(json.dumps(each).encode() + b"\n" for each in values)
    return data + json.dumps({"sum": sha256(data).hexdigest()}).encode() + b"\n"


def head(**changed: Any) -> dict[str, Any]:
    told = {"format": "acp-bridge session", "version": 1, "agent": "demo"}
    return {**told, "agentInfo": None, "title": None, **changed}


def exported(home: Path, session: SessionJournal) -> Bundle:
    data = b"".join(written(read_session(Journal(home).path(SESSION), session.info)))
    return read(data)


async def imported(journal: Journal, taken: Bundle) -> SessionJournal:
    session = await journal.create(OTHER, cwd="/elsewhere", agent=taken.agent, prompted=False)
    await session.take_in(bundle.statements(taken))
    return session


async def told(session: SessionJournal) -> None:
    """A turn that has ended, one that runs, and what is said outside of turns."""
    session.record(0, lines(chunk("before\udce9", "m0")))
    for number in (1, 2):
        seq = session.accept(f"p{number}", prompt(f"please {number}", "and"))
        session.start_turn(seq)
        session.record(seq, lines(chunk("half ", "m1"), chunk("whole", "m1"), tool("t")))
        session.record(seq, lines(chunk("more", "m1", "agent_thought_chunk")))
    session.end_prompt(1, {"result": {}}, {"stopReason": "end_turn"})
    session.add_ids(["t", "odd\udce9"])


@pytest.mark.hazard("K10")
async def test_the_transcript_of_the_import_is_that_of_the_export(
    home: Path, journal: Journal, session: SessionJournal
) -> None:
    await told(session)
    other = await imported(journal, exported(home, session))
    assert await transcript(other) == await transcript(session)
    assert other.used_ids() == session.used_ids()
    assert other.turns_finished() == 1
    assert other.info.session_id == OTHER
    (sent,) = other.prompts(PromptState.SENT)
    assert sent.seq == 2
    assert other.accept("new", prompt("next")) == 3


@pytest.mark.parametrize("length", [300, 5000])
def test_a_session_is_taken_whose_agent_gave_it_a_long_title(length: int) -> None:
    given = Bundle("@agentclientprotocol/codex-acp", "@agentclientprotocol/codex-acp", "x" * length)
    title = read(b"".join(written(given))).title
    assert title == "x" * min(length, 1000)


@pytest.mark.parametrize("length", [301, 131_072, 131_073])
def test_a_session_is_taken_whose_agent_has_long_names(length: int) -> None:
    info = read(b"".join(written(Bundle("a" * 131_072, "x" * length)))).agent_info
    assert info == ("x" * length if length <= 131_072 else None)


@pytest.mark.hazard("N5.4")
async def test_a_cursor_of_the_exported_session_is_refused_on_the_import(
    home: Path, journal: Journal, session: SessionJournal
) -> None:
    await told(session)
    place = From(SESSION, None)
    for params in await transcript(session):
        place.divide(params)
    other = await imported(journal, exported(home, session))
    cursor = Cursor.read(str(place.end().cursor))
    again = From(OTHER, cursor)
    with pytest.raises(WrongCursor):  # noqa: PT012 - at its place, or at the end
        for params in await transcript(other):
            again.divide(params)
        again.end()


@pytest.mark.hazard("R13.7")
async def test_prompts_that_waited_are_left_over_as_words_alone_in_their_order(
    home: Path, journal: Journal, session: SessionJournal
) -> None:
    own = {"delivery": "interrupt", "promptKey": "k"}
    first = session.accept("p1", with_own_meta(prompt("first", sessionId="s"), own))
    second = session.accept("p2", prompt("second", _meta={"claudeCode": {"options": {}}}))
    session.accept("p3", with_own_meta(prompt("a hook's"), {"feedback": True}))
    session.reorder([second, first])
    other = await imported(journal, exported(home, session))
    rows = other.prompts()
    assert [row.state for row in rows] == [PromptState.LEFT_OVER] * 2
    assert [row.params for row in rows] == [prompt("second"), prompt("first")]
    assert other.receipt("k") is None


@pytest.mark.parametrize("how", ["end", "sum", "line", "byte", "more"])
async def test_a_file_that_was_cut_or_changed_is_refused(
    home: Path, session: SessionJournal, how: str
) -> None:
    await told(session)
    data = b"".join(written(read_session(Journal(home).path(SESSION), session.info)))
    each = data.splitlines(keepends=True)
    changed = {
        "end": data[:-1],
        "sum": b"".join(each[:-1]),
        "line": b"".join([*each[:2], *each[3:]]),
        "byte": data.replace(b"whole", b"whale", 1),
        "more": data + b"{}\n",
    }[how]
    assert changed != data
    with pytest.raises(NotABundle, match="cut or changed"):
        read(changed)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "no session"),
        (b"\x89PNG\n" * 9, "no session"),
        (b"[]\n", "no session"),
        (summed(head(version=2)), "newer acp-bridge"),
        *((summed(head(version=each)), "no session") for each in ("1", 0, -1, True, 1.0)),
        (summed(head(title="x" * 1001)), "line 1 "),
        (summed(head(agent="x" * 131_073)), "line 1 "),
        (summed(head(agent=None)), "line 1 "),
    ],
)
def test_what_is_no_session_of_a_known_version_is_refused(data: bytes, why: str) -> None:
    with pytest.raises(NotABundle, match=why):
        read(data)


TIME = "2026-01-02T03:04:05.000006Z"
NOTE = {"note": "turnBegan:1", "value": TIME}
WORDS = {"prompt": 1, "id": "p", "state": "done", "words": prompt("a")}


@pytest.mark.parametrize(
    "value",
    [
        1,
        {},
        {"cwd": "/etc"},
        {"settings": {"chosen": []}},
        {"turn": 0, "lines": "[]"},
        {"turn": 0, "lines": "{"},
        {"turn": 0, "lines": "{}\ud800"},
        {"turn": 7, "lines": ""},
        {"turn": 0, "lines": '{"prompt":2}'},
        {"turn": 0, "lines": '{"update":{"sessionUpdate":"current_mode_update"}}'},
        {"turn": 0, "lines": '{"update":{"sessionUpdate":"config_option_update"}}'},
        {"turn": 0, "lines": '{"update":{"sessionUpdate":[]}}'},
        {"turn": 0, "lines": '{"update":{"sessionUpdate":"plan"},"sessionId":"another"}'},
        {"turn": 0, "lines": '{"update":{"sessionUpdate":"plan"},"_meta":1}'},
        {**WORDS, "prompt": 1},
        {**WORDS, "prompt": 2},
        {**WORDS, "prompt": 0, "id": "q"},
        {**WORDS, "prompt": 1 << 63, "id": "q"},
        {**WORDS, "prompt": 2, "id": "q", "state": "running"},
        {**WORDS, "prompt": 2, "id": "q", "words": {"prompt": "a"}},
        {**WORDS, "prompt": 2, "id": "q", "words": {"prompt": [{"type": 1}]}},
        {**WORDS, "prompt": 2, "id": "q", "outcome": 1},
        {"ids": [1]},
        {"note": "chosen", "value": {}},
        {"note": "turnBegan:2", "value": TIME},
        {"note": "turnBegan:1", "value": "now"},
        {"note": "usage:1", "value": [1]},
        {"note": "usage:1", "value": {"agent": "x" * 10_000}},
        {"note": "usage:0.chosen", "value": {}},
        {"memory": []},
    ],
)
def test_an_entry_that_no_session_has_is_refused_and_its_line_named(value: Any) -> None:
    assert read(summed(head(), WORDS, NOTE)).prompts[0].seq == 1
    with pytest.raises(NotABundle, match="line 3 is none of a session"):
        read(summed(head(), WORDS, value))


@pytest.mark.parametrize(("bound", "value"), [("MOST_BYTES", 500), ("MOST_LINES", 4)])
async def test_a_session_beyond_the_bound_is_neither_written_nor_taken(
    home: Path, session: SessionJournal, monkeypatch: pytest.MonkeyPatch, bound: str, value: int
) -> None:
    await told(session)
    whole = read_session(Journal(home).path(SESSION), session.info)
    data = b"".join(written(whole))
    monkeypatch.setattr(bundle, bound, value)
    with pytest.raises(NotABundle, match="larger than"):
        list(written(whole))
    with pytest.raises(NotABundle, match="than a session may"):
        read(data)


SECRET = "q7Zr-4fTa9Lk2Xw"
Put = Callable[[str], Any]


@pytest.mark.parametrize(
    "put",
    [
        lambda secret: [chunk(f"the token: {secret} it was")],
        lambda secret: [chunk(f"sk-{secret[:5]}", "m"), chunk(secret[5:], "m")],
        lambda secret: [{"update": {**tool("t")["update"], "rawInput": {"api_key": secret}}}],
        lambda secret: [{"update": {**tool("t")["update"], "rawInput": ["--token", secret]}}],
        lambda secret: [
            {"update": {**tool("t")["update"], "env": [{"name": "MY_TOKEN", "value": secret}]}}
        ],
        lambda secret: [
            {"update": {**tool("t")["update"], "rawOutput": f'{{"secret": "{secret}"}}'}}
        ],
        lambda secret: [{"update": {**tool("t")["update"], f"ghp_{secret}": 1}}],
        lambda secret: [chunk("-----BEGIN RSA PRIVATE KEY-----\n" + secret)],
        lambda secret: [chunk(f"curl https://me:{secret}@host/")],
        lambda secret: [chunk(f"known {secret} in keys.env")],
    ],
)
async def test_no_secret_of_a_known_form_is_in_a_redacted_file_and_what_it_has_is_whole(
    home: Path, session: SessionJournal, put: Put
) -> None:
    known = [SECRET] if "known" in json.dumps(put("")) else []
    seq = session.accept("p1", prompt(f"use password={SECRET} now"))
    session.start_turn(seq)
    for each in put(SECRET):
        session.record(seq, lines(each))
    session.accept("p2", prompt(f"Authorization: Bearer {SECRET}"))
    session.change_info(title=f"token {SECRET}")
    whole = read_session(Journal(home).path(SESSION), session.info)
    assert SECRET[5:] in b"".join(written(whole)).decode()
    data = b"".join(written(with_masked(whole, redactor(known))))
    assert SECRET[5:].encode() not in data
    assert len(read(data).rows) > 0


def test_no_secret_is_in_the_names_of_a_redacted_file() -> None:
    secret, done = f"sk-{SECRET}", PromptState.DONE
    prompts = [PromptRow(seq, f"{secret}{seq}", prompt("a"), done, None, None) for seq in (1, 2)]
    named = Bundle(f"agent-{secret}", secret, secret, prompts, ids=[secret])
    data = b"".join(written(with_masked(named, redactor([]))))
    assert SECRET.encode() not in data
    assert len(read(data).prompts) == 2


def test_the_bytes_of_an_image_are_left_as_they_are() -> None:
    image = {"type": "image", "data": "x/AKIAabcdefghijkl", "uri": "token=abcdefgh123"}
    assert redactor([])(image) == {**image, "uri": "token=***"}


def test_what_is_nested_too_deep_to_be_looked_through_is_masked_as_a_whole() -> None:
    deep: Any = SECRET
    for _ in range(900):
        deep = {"in": [deep]}
    assert SECRET not in json.dumps(redactor([])({"a": deep, "b": 1}))
