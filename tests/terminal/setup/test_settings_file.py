"""An entry in a settings file: a backup first, everything else kept, the second time nothing."""

import os
import stat
from pathlib import Path
from typing import Any

import pytest

from acp_bridge.terminal.setup import settings_file
from acp_bridge.terminal.setup.editor import Entry
from acp_bridge.terminal.setup.jsonc import parse
from acp_bridge.terminal.setup.settings_file import NotWritten, write

OURS = Entry(("agent_servers", "acp-bridge"), {"command": "/bin/acp-bridge", "args": [], "env": {}})


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "settings.json"
    file.write_text('{"theme": "One", "agent_servers": {"other": {"command": "x"}}} // mine\n')
    return file


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def ours(file: Path) -> Any:
    return parse(file.read_text())["agent_servers"]["acp-bridge"]


def test_what_stood_there_is_in_the_backup_and_still_in_the_file(file: Path) -> None:
    before = file.read_text()
    written = write(file, OURS)
    assert written.changed
    assert written.backup == file.with_name("settings.json.before-acp-bridge")
    assert written.backup.read_text() == before
    after = parse(file.read_text())
    assert (after["theme"], after["agent_servers"]["other"]) == ("One", {"command": "x"})
    assert after["agent_servers"]["acp-bridge"] == OURS.value
    assert file.read_text().endswith("} // mine\n")


def test_the_second_time_nothing_is_changed(file: Path) -> None:
    write(file, OURS)
    known, found = file.stat(), names(file.parent)
    written = write(file, OURS)
    assert not written.changed
    assert written.backup is None
    assert (file.stat().st_ino, file.stat().st_mtime_ns) == (known.st_ino, known.st_mtime_ns)
    assert names(file.parent) == found


def test_a_file_that_its_owner_has_made_read_only_is_left_alone(file: Path) -> None:
    before = file.read_bytes()
    file.chmod(0o444)
    with pytest.raises(NotWritten, match="it is read-only"):
        write(file, OURS)
    assert (file.read_bytes(), names(file.parent)) == (before, [file.name])


def test_a_file_that_is_not_there_is_made_with_its_folders_and_for_its_owner_alone(
    tmp_path: Path,
) -> None:
    file = tmp_path / "a" / "b" / "settings.json"
    written = write(file, OURS)
    assert (written.changed, written.backup) == (True, None)
    assert parse(file.read_text()) == OURS.document()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert names(file.parent) == ["settings.json"]


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o664])
def test_the_file_and_its_backup_keep_the_rights(file: Path, mode: int) -> None:
    file.chmod(mode)
    backup = write(file, OURS).backup
    assert backup is not None
    assert [stat.S_IMODE(path.stat().st_mode) for path in (file, backup)] == [mode, mode]


def test_an_earlier_backup_is_never_written_over(file: Path) -> None:
    first = write(file, OURS).backup
    assert first is not None
    kept = first.read_text()
    file.write_text("{}")
    second = write(file, OURS).backup
    assert second == file.with_name("settings.json.before-acp-bridge-2")
    assert (first.read_text(), second.read_text()) == (kept, "{}")


@pytest.mark.parametrize("there", [True, False])
def test_a_link_stays_one_and_what_it_leads_to_is_written(file: Path, there: bool) -> None:
    link = file.parent / "editor" / "settings.json"
    link.parent.mkdir()
    link.symlink_to("../settings.json")
    if not there:
        file.unlink()
    write(link, OURS)
    assert os.readlink(link) == "../settings.json"
    assert ours(file) == OURS.value
    assert names(link.parent) == ["settings.json"]


def test_what_the_person_has_added_to_the_entry_stays(file: Path) -> None:
    file.write_text(
        '{"agent_servers": {"acp-bridge": {"command": "/old", "args": ["x"],'
        ' "env": {"KEY": "1"}, /* mine */ "default_mode": "plan"}}}'
    )
    write(file, OURS)
    assert ours(file) == {**OURS.value, "env": {"KEY": "1"}, "default_mode": "plan"}
    assert "/* mine */" in file.read_text()
    assert not write(file, OURS).changed


def test_an_older_form_of_the_entry_gives_way(file: Path) -> None:
    argv = Entry(("agents", "a"), {"argv": ["/bin/a"]}, instead_of=frozenset({"command", "args"}))
    file.write_text('{"agents": {"a": {"command": "/old", "args": [], "note": 1}, "b": 2}}')
    write(file, argv)
    assert parse(file.read_text()) == {"agents": {"a": {"note": 1, "argv": ["/bin/a"]}, "b": 2}}


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"{'a': 1}", "no JSON: line 1"),
        (b'{"agent_servers": 1}', "'agent_servers' is no object"),
        (b"[]", "holds no object"),
        (b'{"a": "\xff"}', "not UTF-8"),
    ],
)
def test_what_can_not_be_changed_is_left_alone_and_the_reason_is_said(
    file: Path, content: bytes, why: str
) -> None:
    file.write_bytes(content)
    with pytest.raises(NotWritten, match=why):
        write(file, OURS)
    assert file.read_bytes() == content
    assert names(file.parent) == ["settings.json"]


def test_a_folder_and_a_pipe_are_no_settings_files(tmp_path: Path) -> None:
    pipe, folder = tmp_path / "pipe", tmp_path / "folder"
    os.mkfifo(pipe)
    folder.mkdir()
    for path in (pipe, folder):
        with pytest.raises(NotWritten):
            write(path, OURS)
    assert names(tmp_path) == ["folder", "pipe"]


def test_links_that_lead_in_a_circle_are_said(tmp_path: Path) -> None:
    link = tmp_path / "settings.json"
    link.symlink_to(link.name)
    with pytest.raises(NotWritten):
        write(link, OURS)
    assert link.is_symlink()


def test_an_editor_that_saves_meanwhile_wins(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = settings_file._store

    def save_in_between(descriptor: int, content: bytes, mode: int) -> None:
        store(descriptor, content, mode)
        file.write_text('{"saved": true}')

    monkeypatch.setattr(settings_file, "_store", save_in_between)
    with pytest.raises(NotWritten, match="changed meanwhile"):
        write(file, OURS)
    assert file.read_text() == '{"saved": true}'
    assert names(file.parent) == ["settings.json", "settings.json.before-acp-bridge"]


@pytest.mark.parametrize("failing", ["write", "fsync", "replace"])
def test_a_disk_that_fails_leaves_the_file_as_it_was(
    file: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    before = file.read_bytes()
    monkeypatch.setattr(os, failing, fail)
    with pytest.raises(NotWritten, match="No space left"):
        write(file, OURS)
    assert file.read_bytes() == before
    assert not [name for name in names(file.parent) if name.startswith(".")]
