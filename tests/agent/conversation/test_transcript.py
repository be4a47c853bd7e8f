"""The transcript on disk: loads from any prefix, and a load changes nothing."""

import contextlib
import os
import stat
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.conversation.entries import Record
from agent.conversation.transcript import (
    Transcript,
    UnknownSession,
    delete_session,
    list_sessions,
)
from tests.agent.conversation.records import (
    IMAGE,
    call,
    folded,
    reasoning,
    records,
    result,
    text,
    usage,
    user,
)

TURN: list[Record] = [
    {"t": "system", "text": "You are."},
    {"t": "chosen", "option": "mode", "value": "edit"},
    user("list, please", {"type": "image", "mimeType": "image/png", "data": "AAAA"}),
    reasoning("hm"),
    text("One"),
    text(" moment\ud800 é"),
    {"t": "provider", "d": {"signed": ["hm", 1.5, None]}},
    usage(20, 2, 0.1),
    call(1, content=[{"type": "diff", "path": "/p", "newText": "x"}]),
    call(2),
    {"t": "plan", "entries": [{"content": "look"}]},
    result(2, "a b", images=[IMAGE], raw={"exit": 0}),
    {"t": "always", "key": ["edit", False, "", "/p"], "allow": True},
    result(1, "c"),
    {"t": "note", "text": "You go round in circles."},
    {"t": "trim", "cards": ["call-1"]},
    usage(9, 1, None, "summary"),
    {"t": "summary", "text": "so far", "entries": 1},
    text("Done"),
]


def written(folder: Path, records: list[Record], session_id: str = "s1") -> Transcript:
    transcript = Transcript.create(folder, session_id, "/there")
    for record in records:
        transcript.append(record)
    return transcript


def assert_same(loaded: Transcript, live: Transcript) -> None:
    for images in (True, False):
        assert loaded.history.messages(images=images) == live.history.messages(images=images)
    for running in (True, False):
        assert loaded.history.replay(running=running) == live.history.replay(running=running)
    assert loaded.history.spent == live.history.spent
    assert loaded.history.measured == live.history.measured
    assert loaded.history.decisions == live.history.decisions


def file_of(folder: Path) -> Path:
    return folder / "s1.jsonl"


@pytest.mark.hazard("K1.3")
def test_what_was_appended_is_in_the_file_at_once_and_loads_equal(tmp_path: Path) -> None:
    transcript = written(tmp_path, TURN)
    loaded = Transcript.load(tmp_path, "s1")  # the writer has neither flushed nor closed
    assert_same(loaded, transcript)


@pytest.mark.hazard("K2", "R1")
@given(st.lists(records, max_size=20))
def test_whatever_was_appended_loads_equal(found: list[Record]) -> None:
    with TemporaryDirectory() as folder:
        transcript = written(Path(folder), found)
        assert_same(Transcript.load(Path(folder), "s1"), transcript)
        transcript.close()


def test_a_transcript_of_the_first_version_loads(tmp_path: Path) -> None:
    file_of(tmp_path).write_text(
        '{"t":"session","v":1,"id":"s1","cwd":"/there"}\n'
        '{"t":"user","blocks":[{"type":"text","text":"go"}]}\n'
        '{"t":"text","d":"On it"}\n'
        '{"t":"call","id":"c","name":"shell","arguments":"{}","card":'
        '{"toolCallId":"call-1","title":"ls","kind":"execute","rawInput":{}}}\n'
        '{"t":"result","card":"call-1","status":"completed","text":"a","raw":{"exitCode":0}}\n'
    )
    history = Transcript.load(tmp_path, "s1").history
    assert [m["content"] for m in history.messages()] == ["go", "On it", "a"]
    assert history.replay()[-1]["rawOutput"] == {"exitCode": 0}


@pytest.mark.hazard("K2.1")
def test_every_prefix_of_the_file_loads_with_all_its_whole_lines(tmp_path: Path) -> None:
    written(tmp_path, TURN)
    whole = file_of(tmp_path).read_bytes()
    expected = [folded(TURN[:count]).messages() for count in range(len(TURN) + 1)]
    for size in reversed(range(len(whole) + 1)):
        os.truncate(file_of(tmp_path), size)
        lines = whole[:size].count(b"\n")
        if size < len(whole) and whole[size : size + 1] == b"\n":
            lines += 1  # only its newline is missing
        loaded = Transcript.load(tmp_path, "s1")
        assert loaded.history.messages() == expected[max(0, lines - 1)]


@pytest.mark.hazard("K2")
def test_what_follows_a_cut_line_is_not_lost(tmp_path: Path) -> None:
    written(tmp_path, [TURN[2], call(1), result(1, "a b"), text("Done")])
    file_of(tmp_path).write_bytes(file_of(tmp_path).read_bytes()[:-5])
    Transcript.load(tmp_path, "s1").append(user("and then?"))
    messages = Transcript.load(tmp_path, "s1").history.messages()
    assert messages[-1] == {"role": "user", "content": "and then?"}
    assert messages[-2] == {"role": "tool", "tool_call_id": "c1", "content": "a b"}


@pytest.mark.hazard("K2.2")
def test_a_bad_record_hides_no_other(tmp_path: Path) -> None:
    written(tmp_path, [user("go"), text("One")])
    with file_of(tmp_path).open("ab") as file:
        file.write(b'\x00\xff\n[]\n{"t": "text"}\n{"t": "user", "blocks": 7}\n{"t": "new"}\n')
    loaded = Transcript.load(tmp_path, "s1")
    loaded.append({"t": "text", "d": " and all"})
    assert Transcript.load(tmp_path, "s1").history.messages()[-1]["content"] == "One and all"


@pytest.mark.hazard("P12", "R1.4")
def test_a_load_writes_nothing(tmp_path: Path) -> None:
    written(tmp_path, TURN)
    before = file_of(tmp_path).read_bytes(), file_of(tmp_path).stat().st_mtime_ns
    Transcript.load(tmp_path, "s1")
    assert (file_of(tmp_path).read_bytes(), file_of(tmp_path).stat().st_mtime_ns) == before


@pytest.mark.hazard("R2.1")
@pytest.mark.parametrize("session_id", ["nobody", "", "../s1", "s1.jsonl", "a/b", "x" * 101])
def test_an_unknown_session_is_an_error(tmp_path: Path, session_id: str) -> None:
    written(tmp_path / "folder", TURN)
    (tmp_path / "s1.jsonl").write_text("{}")
    with pytest.raises(UnknownSession):
        Transcript.load(tmp_path / "folder", session_id)


def test_the_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    written(tmp_path / "new", TURN)
    assert stat.S_IMODE(file_of(tmp_path / "new").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o700


def test_sessions_are_listed_newest_first_with_a_title_and_without_empty_ones(
    tmp_path: Path,
) -> None:
    import os

    for session_id, prompts in {"old": ["First"], "new": ["Second\nline"], "empty": []}.items():
        records: list[dict[str, Any]] = [user(p) for p in prompts]
        written(tmp_path, records, session_id)
    os.utime(tmp_path / "old.jsonl", (1, 1))
    (tmp_path / "broken.jsonl").write_bytes(b"\xff\n")
    found = list_sessions(tmp_path)
    assert [(s.id, s.title, s.cwd) for s in found] == [
        ("new", "Second", "/there"),
        ("old", "First", "/there"),
    ]
    assert found[1].updated_at == "1970-01-01T00:00:01+00:00"


def test_nothing_is_listed_where_there_is_no_folder(tmp_path: Path) -> None:
    assert list_sessions(tmp_path / "none") == []


def test_deleting_what_is_not_there_is_no_error(tmp_path: Path) -> None:
    written(tmp_path, TURN)
    delete_session(tmp_path, "s1")
    delete_session(tmp_path, "s1")
    delete_session(tmp_path, "../s1")
    assert list_sessions(tmp_path) == []


@pytest.mark.hazard("K6")
@pytest.mark.parametrize("loaded", [True, False])
def test_what_is_recorded_after_a_delete_brings_no_file_back(tmp_path: Path, loaded: bool) -> None:
    transcript = Transcript.create(tmp_path, "s1", "/there")
    if loaded:
        transcript.close()
        transcript = Transcript.load(tmp_path, "s1")
    delete_session(tmp_path, "s1")
    with contextlib.suppress(FileNotFoundError):
        transcript.append(user("late"))
    transcript.close()
    with pytest.raises(FileNotFoundError):
        transcript.append(user("later"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.hazard("K4")
def test_a_long_transcript_loads_as_one_message(tmp_path: Path) -> None:
    count = 120_000
    written(tmp_path, [user("go")])
    with file_of(tmp_path).open("ab") as file:
        file.writelines(b'{"t":"text","d":"w "}\n' for _ in range(count))
    loaded = Transcript.load(tmp_path, "s1")
    assert loaded.history.messages()[-1]["content"] == "w " * count
    assert len(loaded.history.replay()) == 2
