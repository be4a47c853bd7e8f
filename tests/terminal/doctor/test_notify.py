"""How the user is notified, and what keeps that from working, without the address."""

from pathlib import Path

import pytest

from acp_bridge.core.settings import NOTIFY_FILE
from acp_bridge.features.notify import desktop
from acp_bridge.terminal.doctor import notify
from acp_bridge.terminal.doctor.examination import CHECKS
from tests.terminal.doctor.subjects import levels, subject, texts

TOPIC = "ntfy:https://ntfy.example/s3cret"


async def test_where_no_file_is_that_is_well(tmp_path: Path) -> None:
    found = await notify.check(subject(tmp_path))
    assert (levels(found), "none" in texts(found)) == (["ok"], True)
    assert (notify.AREA, notify.check) in CHECKS


async def test_the_ways_are_named_and_no_address(tmp_path: Path) -> None:
    file = tmp_path / NOTIFY_FILE
    file.write_text(f'notify = ["bell", "{TOPIC}"]')
    file.chmod(0o600)
    found = await notify.check(subject(tmp_path))
    assert levels(found) == ["ok"]
    assert "has bell, ntfy" in texts(found)
    assert found[0].data == {"ways": ["bell", "ntfy"]}
    assert "ntfy.example" not in texts(found)


async def test_a_desktop_without_its_program_and_a_file_that_others_read_are_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(desktop, "is_there", lambda env: False)
    file = tmp_path / NOTIFY_FILE
    file.write_text(f'notify = ["desktop", "{TOPIC}"]')
    file.chmod(0o644)
    found = await notify.check(subject(tmp_path))
    assert levels(found) == ["ok", "warning", "warning"]
    assert f"the program {desktop.program()} is not there" in texts(found)
    assert f"chmod 600 {file}" in texts(found)


@pytest.mark.parametrize(
    ("content", "mode", "why"),
    [
        ('notify = ["s3cret"]', 0o600, "one of notify is not"),
        ('notify = ["bell"]', 0o602, "anybody may write"),
    ],
)
async def test_a_file_that_no_bridge_would_take_is_an_error_with_the_reason(
    tmp_path: Path, content: str, mode: int, why: str
) -> None:
    (tmp_path / NOTIFY_FILE).write_text(content)
    (tmp_path / NOTIFY_FILE).chmod(mode)
    found = await notify.check(subject(tmp_path))
    assert (levels(found), why in texts(found)) == (["error"], True)
    assert "s3cret" not in texts(found)
