"""`acp-bridge sessions` and `show`: what is listed, which session is meant, what is printed."""

import json
import os
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from acp_bridge.core.agents import lease
from acp_bridge.core.journal import Journal
from acp_bridge.terminal.shared import searching
from acp_bridge.terminal.shared.known import short_ids
from tests.core.journal.sayings import chunk, lines
from tests.terminal.shared.conftest import Said

FIRST, SECOND, THIRD = "abcd" + "1" * 28, "abce" + "2" * 28, "f" * 32


async def keep(journal: Journal, session_id: str, cwd: Path, title: str, *words: str) -> None:
    """A session of one turn with these messages, which stays open."""
    session = await journal.create(session_id, cwd=str(cwd), agent="codex-acp")
    seq = session.accept(f"p{session_id}", {"prompt": [{"type": "text", "text": "please"}]})
    session.start_turn(seq)
    for number, text in enumerate(words):
        session.record(seq, lines(chunk(text, f"m{number}")))
    await journal.touch(session_id, title=title)


async def test_sessions_are_listed_the_last_one_first(
    said: Said, journal: Journal, tmp_path: Path
) -> None:
    assert said("sessions") == (0, "No sessions.\n", "")
    await keep(journal, FIRST, tmp_path / "project", "Parser\x1b[31m")
    await keep(journal, SECOND, tmp_path, "Lexer")
    code, out, _ = said("sessions")
    head, second, first = out.splitlines()
    assert code == 0
    assert head.split() == ["ID", "USED", "AGENT", "FOLDER", "TITLE"]
    assert second.split()[::5] == ["abce2222", "Lexer"]
    assert first.startswith("abcd1111  2")
    assert first.endswith(f"codex-acp  {tmp_path}/project  Parser\\x1b[31m")


async def test_sessions_are_found_by_folder_and_by_text(
    said: Said, journal: Journal, tmp_path: Path
) -> None:
    await keep(journal, FIRST, tmp_path / "project", "Parser")
    await keep(journal, SECOND, tmp_path, "Lexer")
    (tmp_path / "link").symlink_to(tmp_path / "project")

    def ids(*words: str) -> list[str]:
        return [
            json.loads(line)["sessionId"]
            for line in said("sessions", "--json", *words)[1:2][0].splitlines()
        ]

    assert ids() == [SECOND, FIRST]
    assert ids("--cwd", ".") == ids("--cwd", str(tmp_path / "link")) == [FIRST]
    assert ids("--search", "LEX") == ids("--search", "abce") == [SECOND]
    assert ids("--search", "codex") == [SECOND, FIRST]
    assert ids("--search", "LEX", "--cwd", ".") == []


async def test_sessions_of_the_last_time_are_listed_and_no_more_than_are_wanted(
    said: Said, journal: Journal, tmp_path: Path
) -> None:
    for session_id, title in ((FIRST, "Parser"), (SECOND, "Lexer"), (THIRD, "Printer")):
        await keep(journal, session_id, tmp_path, title, "said")
    await journal.close()
    _aged(tmp_path, FIRST, "2000-01-01T00:00:00.000000Z")

    def ids(*words: str) -> list[str]:
        code, out, err = said("sessions", "--json", *words)
        assert (code, err) == (0, "")
        return [json.loads(line)["sessionId"] for line in out.splitlines()]

    assert ids("--since", "7d") == ids("--since", "12h") == [THIRD, SECOND]
    assert ids("--limit", "1") == [THIRD]
    assert ids("--limit", "5") == [THIRD, SECOND, FIRST]
    assert ids("--limit", "1", "--search", "lex") == [SECOND]
    assert ids("--limit", "2", "--search", "said") == [THIRD, SECOND]
    table = said("sessions", "--limit", "2")[1].splitlines()
    assert len(table) == 4
    assert table[-1] == "1 session more: --limit shows more."
    for wrong in (("--since", "soon"), ("--limit", "0"), ("--limit", "x"), ("--limit", "-3")):
        code, out, err = said("sessions", *wrong)
        assert (code, out) == (2, "")
        assert err.startswith(f"acp-bridge sessions: {wrong[0]}: ")


def _aged(folder: Path, session_id: str, at: str) -> None:
    """Let the index say that a session was used last at this time."""
    with sqlite3.connect(folder / "home" / "index.db") as index:
        index.execute("UPDATE sessions SET updated_at = ? WHERE session_id = ?", (at, session_id))


async def test_sessions_are_found_by_what_was_said_in_them_each_with_the_place(
    said: Said, journal: Journal, tmp_path: Path
) -> None:
    await keep(journal, FIRST, tmp_path / "project", "Parser", "on empty\nlines\x1b[31m it fails")
    await keep(journal, SECOND, tmp_path, "Empty lines")
    code, out, err = said("sessions", "--search", '"empty lines"')
    _, first, place = out.splitlines()
    assert (code, err) == (0, "")
    assert first.startswith("abcd1111")
    assert place == "    on empty lines\\x1b[31m it fails"
    _, second, first, place = said("sessions", "--search", "empty lines")[1].splitlines()
    assert second.startswith("abce2222")
    assert (first[:8], place[:12]) == ("abcd1111", "    on empty")
    listed = said("sessions", "--search", "empty lines", "--json")[1].splitlines()
    assert [json.loads(line)["said"] for line in listed] == [
        None,
        "on empty\nlines\x1b[31m it fails",
    ]
    assert said("sessions", "--search", "fails", "--cwd", "..")[1] == "No sessions.\n"


async def test_a_search_that_takes_long_says_on_stderr_how_far_it_is(
    said: Said, journal: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await keep(journal, FIRST, tmp_path, "Parser")
    await keep(journal, SECOND, tmp_path, "Lexer")
    monkeypatch.setattr(searching, "_QUIET", 0)
    assert said("sessions", "--json", "--search", "nothing") == (
        0,
        "",
        "acp-bridge sessions: reading what was said, 0 of 2 sessions\n",
    )


async def test_json_is_what_was_kept_and_not_made_harmless(
    said: Said, journal: Journal, tmp_path: Path
) -> None:
    await keep(journal, FIRST, tmp_path, "a\x1b", "b\x1b")
    listed = json.loads(said("sessions", "--json")[1])
    assert listed.pop("updatedAt").endswith("Z")
    assert listed == {
        "sessionId": FIRST,
        "title": "a\x1b",
        "cwd": str(tmp_path),
        "agent": "codex-acp",
    }
    shown = [json.loads(line) for line in said("show", "--json", FIRST)[1].splitlines()]
    assert [each["sessionId"] for each in shown] == [FIRST, FIRST]
    assert shown[1]["update"] == chunk("b\x1b", "m0")["update"]


async def test_decisions_are_listed_with_the_login_of_who_has_made_them(
    said: Said, journal: Journal, tmp_path: Path
) -> None:
    await keep(journal, FIRST, tmp_path, "Parser")
    live = await journal.open(FIRST)
    for card, name in (("one", {}), ("two", {"name": "phone\x1b"})):
        update = {"sessionUpdate": "tool_call", "toolCallId": card, "title": f"make {card}"}
        decided = {"decision": "allow", "by": "client", "option": "allow_once", **name}
        params: dict[str, Any] = {"update": update, "_meta": {"acp_bridge": {"decided": decided}}}
        live.record(1, lines(params))
    code, out, _ = said("show", "abcd", "--decisions")
    assert code == 0
    assert [" ".join(line.split()) for line in out.splitlines()[1:]] == [
        "allow client make one allow_once",
        "allow client phone\\x1b make two allow_once",
    ]


async def test_a_session_that_runs_is_shown_as_far_as_it_is(
    said: Said, journal: Journal, tmp_path: Path
) -> None:
    await keep(journal, FIRST, tmp_path, "Parser", "one \x1b[1m", "two")
    live = await journal.open(FIRST)
    live.accept("next", {"prompt": [{"type": "text", "text": "then\x07 this"}]})
    lock = await lease.acquire(journal.lock_path(FIRST), 0)
    code, out, _ = said("show", "abcd")
    os.close(lock)
    assert code == 0
    assert out.startswith(f"# Parser\n\nSession `{FIRST}` of codex-acp in `{tmp_path}`, last used ")
    assert out.partition(".\n\n")[2] == (
        "## User\n\nplease\n\n## Agent\n\none \\x1b[1m\n\ntwo\n\n"
        "## Waiting\n\n- 2: then\\x07 this (waiting)\n"
    )


async def test_what_waited_when_a_bridge_was_killed_is_shown_as_left_over(
    said: Said, journal: Journal, tmp_path: Path
) -> None:
    await keep(journal, FIRST, tmp_path, "Parser", "one")
    (await journal.open(FIRST)).accept("next", {"prompt": [{"type": "text", "text": "then"}]})
    lock = await lease.acquire(journal.lock_path(FIRST), 0)
    assert ": then (waiting)" in said("show", FIRST)[1]
    os.close(lock)
    assert ": then (left over)" in said("show", FIRST)[1]


async def test_without_an_id_the_last_session_of_this_folder_is_shown(
    said: Said, journal: Journal, tmp_path: Path
) -> None:
    assert said("show") == (1, "", "acp-bridge show: no session was used in this folder\n")
    await keep(journal, FIRST, tmp_path / "project", "Here")
    await keep(journal, SECOND, tmp_path, "There")
    assert said("show")[1].startswith("# Here\n")


async def test_an_id_that_means_several_sessions_or_none_is_told(
    said: Said, journal: Journal, tmp_path: Path
) -> None:
    await keep(journal, FIRST, tmp_path, "One\x1b")
    await keep(journal, SECOND, tmp_path, "Two")
    code, out, err = said("show", "abc")
    assert (code, out) == (1, "")
    assert err == (
        f"acp-bridge show: 'abc' may mean several sessions:\n  {SECOND}  Two\n  {FIRST}  One\\x1b\n"
    )
    assert said("show", "\x1b")[2] == (
        "acp-bridge show: no session has an id that begins with '\\x1b'\n"
    )
    assert said("show", "abce")[0] == 0


async def test_a_session_that_can_not_be_read_is_told_and_one_that_is_damaged_is_shown(
    said: Said, journal: Journal, tmp_path: Path
) -> None:
    await keep(journal, FIRST, tmp_path, "One", *("." * 500 + str(n) for n in range(20)))
    await journal.close()
    path = tmp_path / "home" / "sessions" / f"{FIRST}.db"
    data = bytearray(path.read_bytes())
    at = data.find(b".17") // 1024 * 1024
    data[at : at + 1024] = b"\xa5" * 1024
    path.write_bytes(data)
    code, out, _ = said("show", FIRST)
    assert code == 0
    assert out.count("." * 500) >= 17
    path.write_bytes(b"no database" * 1000)
    code, out, err = said("show", FIRST)
    assert (code, out) == (1, "")
    assert err.startswith("acp-bridge show: session abcd1111 can't be read: the journal failed")
    assert "; `acp-bridge doctor` says where its file " in err


@pytest.mark.parametrize("gone", [True, False])
async def test_a_session_whose_file_is_gone_or_empty_is_named_with_what_says_where_it_should_be(
    said: Said, journal: Journal, tmp_path: Path, gone: bool
) -> None:
    await keep(journal, FIRST, tmp_path, "One", "words")
    await journal.close()
    path = tmp_path / "home" / "sessions" / f"{FIRST}.db"
    path.unlink()
    if not gone:
        path.touch()
    code, out, err = said("show", FIRST)
    assert (code, out) == (1, "")
    assert "its file is gone or empty; `acp-bridge doctor` says where" in err


async def test_reading_leaves_the_home_as_it_was(
    said: Said, journal: Journal, tmp_path: Path
) -> None:
    await keep(journal, FIRST, tmp_path, "One", "text")
    await journal.close()

    def there() -> dict[Path, Any]:
        return {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    before = there()
    assert [said(*words)[0] for words in (["sessions"], ["show", FIRST])] == [0, 0]
    assert there() == before


def test_ids_are_shown_as_short_as_they_can_be_told_apart() -> None:
    assert short_ids([FIRST, SECOND, THIRD]) == {
        FIRST: FIRST[:8],
        SECOND: SECOND[:8],
        THIRD: THIRD[:8],
    }
    alike = ["a" * 20 + "1", "a" * 20 + "2", "a" * 12 + "b"]
    assert [*short_ids(alike).values()] == [alike[0], alike[1], "a" * 12 + "b"]
    assert short_ids(["abc", "abcdefghijkl"]) == {"abc": "abc", "abcdefghijkl": "abcdefgh"}


async def test_a_session_is_written_as_html_into_a_file_that_is_not_there_yet(
    said: Said, journal: Journal, tmp_path: Path
) -> None:
    await keep(journal, FIRST, tmp_path, "Parser <b>", "one **two**", "<script>\x1b</script>")
    file = tmp_path / "project/session.html"
    assert said("show", "abcd", "--html", "session.html") == (0, "", "")
    assert file.stat().st_mode & 0o777 == 0o600
    html = file.read_text("utf-8")
    assert "<h1>Parser &lt;b&gt;</h1>" in html
    assert "<p>one <strong>two</strong></p>" in html
    assert "<p>&lt;script&gt;\\x1b&lt;/script&gt;</p>" in html
    assert "--paper:" in html
    code, _, why = said("show", "abcd", "--html", "session.html")
    assert (code, why) == (
        1,
        "acp-bridge show: session.html is there already: name another file\n",
    )
    assert file.read_text("utf-8") == html
