"""What decides fails closed: rules and hooks that can't be read, and parts that raise."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from acp_bridge.core.clients.abilities import ClientAbilities
from acp_bridge.core.protocol import READ_TEXT_FILE
from acp_bridge.features.hooks import trust
from acp_bridge.features.hooks.find import find, look
from acp_bridge.features.hooks.places import RECORDS
from acp_bridge.features.rules import decide, session_rules
from tests.features.rules.test_rules import ALLOW, RULES, Ruled, ruled

pytestmark = pytest.mark.hazard("A1", "C18")


def _loop(at: Path) -> None:
    at.symlink_to(at.name)


def _too_large(at: Path) -> None:
    at.write_bytes(b"#" * (1024 * 1024 + 1))


#: what can stand in the place of a file that decides, so that nobody can read it.
UNREADABLE: dict[str, Callable[[Path], object]] = {
    "a folder": Path.mkdir,
    "a pipe": os.mkfifo,
    "a link that leads nowhere": lambda at: at.symlink_to("nowhere"),
    "links in a circle": _loop,
    "a disk that fails": lambda at: at.symlink_to("/proc/self/mem"),
    "no text": lambda at: at.write_bytes(b'deny = ["Bash(rm \xff)"]'),
    "too large": _too_large,
}
each_unreadable = pytest.mark.parametrize("puts", UNREADABLE.values(), ids=UNREADABLE)


async def _asks_persons_alone(it: Ruled) -> None:
    """A person is asked, whom no rule, no hook and no client with a rule of its own replaces."""
    assert await it.runs("ls") == "asked"
    it.here.client.client.abilities = ClientAbilities({"_meta": {"acp_bridge": {"observer": True}}})
    assert await it.runs("ls") == "no"
    own = {"fs": {"readTextFile": True}, "_meta": {"acp_bridge": {"ownTurnsOnly": True}}}
    it.here.client.client.abilities = ClientAbilities(own)
    assert await it.runs("ls") == "no"


async def _reads_nothing_unasked(it: Ruled) -> None:
    """What the agent does through the client, where no person is asked, is refused."""
    it.here.client.client.abilities = ClientAbilities({"fs": {"readTextFile": True}})
    assert await it.does(READ_TEXT_FILE, path=str(it.work / ".env")) != "passed on"


@pytest.mark.hazard("A1.13")
@each_unreadable
@pytest.mark.parametrize("hooks", [(), (ALLOW,)])
async def test_the_users_rules_that_can_not_be_read_leave_all_to_a_person(
    tmp_path: Path, puts: Callable[[Path], object], hooks: tuple[str, ...]
) -> None:
    (tmp_path / "home").mkdir()
    puts(tmp_path / "home/permissions.toml")
    async with ruled(tmp_path, None, *hooks) as it:
        await _asks_persons_alone(it)
        await _reads_nothing_unasked(it)
        assert "permissions.toml" in "".join(it.notices())


@pytest.mark.hazard("A1.13")
@each_unreadable
async def test_a_projects_rules_that_can_not_be_read_leave_all_to_a_person(
    tmp_path: Path, puts: Callable[[Path], object]
) -> None:
    (tmp_path / "work/.acp_bridge").mkdir(parents=True)
    puts(tmp_path / "work/.acp_bridge/permissions.toml")
    async with ruled(tmp_path) as it:
        await _asks_persons_alone(it)
        await _reads_nothing_unasked(it)


@each_unreadable
async def test_rules_that_can_not_be_read_any_more_still_refuse_what_they_refused(
    tmp_path: Path, puts: Callable[[Path], object]
) -> None:
    async with ruled(tmp_path) as it:
        (tmp_path / "home/permissions.toml").unlink()
        puts(tmp_path / "home/permissions.toml")
        assert await it.runs("rm x") == "no"
        await _asks_persons_alone(it)


async def test_a_folder_of_rules_into_which_nobody_may_look_leaves_all_to_a_person(
    tmp_path: Path,
) -> None:
    _loop(tmp_path / "config")
    other = {"rules": tmp_path / "config/permissions.toml"}
    async with ruled(tmp_path, None, settings=other) as it:
        await _asks_persons_alone(it)
        await _reads_nothing_unasked(it)


async def test_a_folder_of_a_projects_rules_into_which_nobody_may_look_leaves_all_to_a_person(
    tmp_path: Path,
) -> None:
    (tmp_path / "work").mkdir()
    _loop(tmp_path / "work/.acp_bridge")
    async with ruled(tmp_path, None) as it:
        await _asks_persons_alone(it)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read all")
@pytest.mark.parametrize("closed", ["home/permissions.toml", "home"])
async def test_rules_that_the_user_may_not_read_leave_all_to_a_person(
    tmp_path: Path, closed: str
) -> None:
    async with ruled(tmp_path) as it:
        (tmp_path / closed).chmod(0)
        try:
            await _asks_persons_alone(it)
        finally:
            (tmp_path / closed).chmod(0o700)


def fails(*args: object, **more: object) -> Any:
    raise RuntimeError("/secret")


@pytest.fixture
def errors_cleared(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    yield
    assert [r for r in caplog.get_records("call") if r.levelno >= logging.ERROR]
    caplog.clear()


@pytest.mark.hazard("A1.13")
@pytest.mark.usefixtures("errors_cleared")
@pytest.mark.parametrize(
    ("part", "name"),
    [
        (decide, "judge"),
        (decide, "failed_checks"),
        (session_rules, "SessionRules"),
        (trust, "mark"),
        (session_rules, "call_of"),
    ],
)
async def test_a_judge_that_raises_leaves_all_to_a_person(
    tmp_path: Path, part: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(part, name, fails)
    async with ruled(tmp_path, RULES, ALLOW) as it:
        assert await it.runs("rm x") == "asked"
        (said,) = it.notices()
        assert "Your rules do not work now: the rules can't judge it" in said
        await _asks_persons_alone(it)
        assert len([each for each in it.notices() if "do not work now" in each]) == 1


@pytest.mark.usefixtures("errors_cleared")
@pytest.mark.parametrize(
    "missing",
    [
        "tree_sitter",
        "acp_bridge.features.rules.session_rules acp_bridge.features.rules.definitions",
        "acp_bridge.features.rules.session_rules",
    ],
)
async def test_a_part_that_can_not_be_imported_leaves_all_to_a_person(
    tmp_path: Path, missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [each for each in sys.modules if each.startswith("acp_bridge.features.rules.")]:
        for each in vars(sys.modules[name]).values():
            if hasattr(each, "cache_clear"):
                each.cache_clear()
    for name in missing.split():
        monkeypatch.setitem(sys.modules, name, None)
    async with ruled(tmp_path, RULES, ALLOW) as it:
        await _asks_persons_alone(it)
        await _reads_nothing_unasked(it)


async def test_rules_without_a_thread_to_read_them_in_leave_all_to_a_person(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def no_thread(*args: object, **more: object) -> Any:
        raise RuntimeError("can't start new thread")

    async with ruled(tmp_path, RULES, ALLOW) as it:
        monkeypatch.setattr(anyio.to_thread, "run_sync", no_thread)
        await _asks_persons_alone(it)
        await _reads_nothing_unasked(it)
        monkeypatch.undo()


# --- hooks -------------------------------------------------------------------------------------


@pytest.mark.hazard("C18.8")
@each_unreadable
@pytest.mark.parametrize("place", ["home/hooks.toml", "work/.acp_bridge/hooks.toml"])
async def test_hooks_that_can_not_be_read_are_missed(
    tmp_path: Path, puts: Callable[[Path], object], place: str
) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "work/.acp_bridge").mkdir(parents=True)
    puts(tmp_path / place)
    found = find(tmp_path / "home", str(tmp_path / "work"))
    assert found is not None
    assert found.notices
    assert found.person_asked is place.startswith("home")  # a project's are off until trusted


@pytest.mark.parametrize("place", ["home", "work/.acp_bridge"])
def test_a_folder_of_hooks_into_which_nobody_may_look_has_hooks_that_are_missed(
    tmp_path: Path, place: str
) -> None:
    (tmp_path / "work").mkdir()
    _loop(tmp_path / place)
    found = find(tmp_path / "home", str(tmp_path / "work"))
    assert found is not None
    assert found.notices


@pytest.mark.hazard("C18.8")
def test_trust_in_hooks_that_can_not_be_looked_up_leaves_all_to_a_person(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "work/.acp_bridge").mkdir(parents=True)
    (tmp_path / "work/.acp_bridge/hooks.toml").write_text("[[Stop]]\ncommand = 'true'\n")
    _loop(tmp_path / "home" / RECORDS)
    found = find(tmp_path / "home", str(tmp_path / "work"))
    assert found is not None
    assert found.person_asked


async def test_hooks_whose_reader_raises_are_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("acp_bridge.features.hooks.find.find", fails)
    found = await look(tmp_path, str(tmp_path))
    assert found is not None
    assert found.person_asked
    assert "/secret" not in "".join(found.notices)
    caplog.clear()


@pytest.mark.hazard("C18.8")
@pytest.mark.parametrize("rules", [None, 'allow = ["Bash"]'])
async def test_where_hooks_are_missed_a_person_alone_may_allow(
    tmp_path: Path, rules: str | None
) -> None:
    async with ruled(tmp_path, rules, person_asked=True) as it:
        await _asks_persons_alone(it)
