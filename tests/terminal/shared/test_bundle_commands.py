"""`acp-bridge export` and `import`: a file that is whole or not there, a session under a new id."""

import json
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from anyio import to_thread

from acp_bridge.core.agents import lease
from acp_bridge.core.journal import Journal, JournalError
from acp_bridge.terminal.commands import bundle
from acp_bridge.terminal.commands.bundle import import_session
from tests.core.journal.files import mode
from tests.terminal.shared.conftest import Said
from tests.terminal.shared.test_reading_commands import FIRST, keep

Taken = Callable[..., Awaitable[tuple[int, str, str]]]


@pytest.fixture
def taken(said: Said, capsys: pytest.CaptureFixture[str]) -> Taken:
    """Run `import`, which has a loop of its own: its exit code, stdout and stderr."""

    async def taken(*words: str) -> tuple[int, str, str]:
        code = await to_thread.run_sync(import_session, words)
        found = capsys.readouterr()
        return code, found.out, found.err

    return taken


def shown(said: Said, home: Path, session_id: str) -> list[Any]:
    code, out, _ = said("show", "--json", "--home", str(home), session_id)
    assert code == 0
    return [{**json.loads(line), "sessionId": ""} for line in out.splitlines()]


@pytest.mark.hazard("K10.4")
async def test_an_exported_session_is_imported_elsewhere_under_a_new_id_and_folder_each_time(
    said: Said, taken: Taken, journal: Journal, tmp_path: Path
) -> None:
    await keep(journal, FIRST, tmp_path / "project", "Parser", "one \x1b[1m", "two")
    (await journal.open(FIRST)).accept("next", {"prompt": [{"type": "text", "text": "then"}]})
    lock = await lease.acquire(journal.lock_path(FIRST), 0)  # a bridge has it
    assert said("export", "abcd", "file") == (0, "", "")
    os.close(lock)
    assert mode(tmp_path / "project" / "file") == 0o600
    assert str(tmp_path).encode() not in (tmp_path / "project" / "file").read_bytes()
    elsewhere, folder = tmp_path / "elsewhere", tmp_path / "other folder"
    folder.mkdir()
    ids = set()
    for where in ([], ["--folder", str(folder)]):
        code, out, err = await taken("--home", str(elsewhere), *where, "file")
        assert (code, err) == (0, "")
        ids.add(out.strip())
        assert shown(said, elsewhere, out.strip()) == shown(said, tmp_path / "home", FIRST)
    assert len({*ids, FIRST}) == 3
    listed = said("sessions", "--json", "--home", str(elsewhere))[1].splitlines()
    rows = [json.loads(line) for line in listed]
    assert [row["cwd"] for row in rows] == [str(folder), str(tmp_path / "project")]
    assert {(row["title"], row["agent"]) for row in rows} == {("Parser", "codex-acp")}
    assert "- 2: then (left over)" in said("show", "--home", str(elsewhere), out.strip())[1]


async def test_a_file_that_is_there_stays_and_what_cannot_be_written_leaves_nothing(
    said: Said, journal: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await keep(journal, FIRST, tmp_path, "Parser", "one")
    (tmp_path / "project" / "there").write_text("mine")
    for name, why in (("there", "there is there already"), ("no/such", "no/such can't be written")):
        code, _, err = said("export", FIRST, name)
        assert (code, why in err) == (1, True)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert said("export", FIRST, "new")[2] == (
        "acp-bridge export: new can't be written: No space left on device\n"
    )
    assert [each.name for each in (tmp_path / "project").iterdir()] == ["there"]
    assert (tmp_path / "project" / "there").read_text() == "mine"


async def test_any_name_of_a_file_is_taken_or_refused_in_a_sentence(
    said: Said, taken: Taken, journal: Journal, tmp_path: Path
) -> None:
    await keep(journal, FIRST, tmp_path, "Parser", "one")
    for name in ("", ".", "/", ".."):
        assert said("export", FIRST, name)[::2] == (
            1,
            f"acp-bridge export: {name or '.'} is there already: name another file\n",
        )
        assert (await taken(name))[2] == f"acp-bridge import: {name} is not taken: it is no file\n"
    for name in ("~nobody-of-this-name/file", "x" * 256):
        assert said("export", FIRST, name)[2].startswith("acp-bridge export: ")
        assert said("show", FIRST, "--html", name)[2].startswith("acp-bridge show: ")
        assert (await taken(name))[2].startswith("acp-bridge import: ")
    assert said("export", FIRST, "x" * 255) == (0, "", "")
    assert (await taken("x" * 255))[0] == 0


async def test_a_redacted_file_has_no_key_of_the_file_of_keys(
    said: Said, taken: Taken, journal: Journal, tmp_path: Path
) -> None:
    await keep(journal, FIRST, tmp_path, "Parser", "it is q7Zr4fTa9Lk2Xw", "AKIAABCDEFGHIJKL")
    (tmp_path / "home" / "keys.env").write_text("MINE=q7Zr4fTa9Lk2Xw\n")
    assert said("export", "--redact", FIRST, "file") == (0, "", "")
    data = (tmp_path / "project" / "file").read_bytes()
    assert b"it is ***" in data
    assert b"q7Zr4fTa9" not in data
    assert b"ABCDEFGHIJKL" not in data
    code, out, _ = await taken("file")
    assert code == 0
    assert (
        shown(said, tmp_path / "home", out.strip())[1]["update"]["content"]["text"] == "it is ***"
    )


async def test_a_file_that_was_changed_makes_nothing_and_a_sentence_says_why(
    said: Said, taken: Taken, journal: Journal, tmp_path: Path
) -> None:
    await keep(journal, FIRST, tmp_path, "Parser", "one")
    said("export", FIRST, "file")
    (tmp_path / "project" / "file").write_bytes(
        (tmp_path / "project" / "file").read_bytes().replace(b"one", b"two")
    )
    for name, why in (("file", "it was cut or changed"), ("none", "there is no such file")):
        code, out, err = await taken("--home", str(tmp_path / "new"), name)
        assert (code, out) == (1, "")
        assert err.startswith(f"acp-bridge import: {name} is not taken: {why}")
    assert not (tmp_path / "new").exists()
    assert (await taken("--folder", "nowhere", "file"))[::2] == (
        2,
        "acp-bridge import: nowhere is no folder\n",
    )


async def test_an_import_that_cannot_be_kept_leaves_nothing(
    said: Said, taken: Taken, journal: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await keep(journal, FIRST, tmp_path, "Parser", "one")
    said("export", FIRST, "file")

    def fails(_: object) -> None:
        raise JournalError("the disk is full")

    monkeypatch.setattr("acp_bridge.terminal.commands.bundle.statements", fails)
    monkeypatch.setattr(bundle, "put_in", lambda *_: True)
    new = tmp_path / "new"
    code, _, err = await taken("--home", str(new), "file")
    assert (code, err) == (1, "acp-bridge import: the session is not kept: the disk is full\n")
    assert [*(new / "sessions").glob("*.db*")] == []
    assert said("sessions", "--home", str(new))[1] == "No sessions.\n"
