"""The user's own rules, changed while a session is open."""

from __future__ import annotations

from pathlib import Path

import pytest

from acp_bridge.core.clients.abilities import ClientAbilities
from acp_bridge.core.protocol import READ_TEXT_FILE
from acp_bridge.features.hooks import trust
from acp_bridge.features.rules.found import FoundRules
from acp_bridge.features.rules.opened import used_record
from acp_bridge.features.rules.places import OWN_FILE, USED
from tests.features.rules.test_rules import RULES, Ruled, ruled

pytestmark = pytest.mark.hazard("A3")

WIDER = 'deny = ["Bash(mv *)"]\nallow = ["Bash(ls *)", "Bash(make *)"]\n'


def _file(tmp_path: Path) -> Path:
    return tmp_path / "home/permissions.toml"


def _uses(tmp_path: Path, content: str) -> None:
    """The user says, as by `permissions use`, that this content counts in open sessions."""
    files = {OWN_FILE: trust.digest(content.encode())}
    trust.write_record(tmp_path / "home", trust.Record(str(_file(tmp_path)), files), USED)


async def _opened_now(it: Ruled, command: str) -> str:
    """What the rules say of a command in a session that is opened now."""
    rules = FoundRules(it.here.context.settings, str(it.work))
    return (await rules.judge_command(command)).action.value


@pytest.mark.hazard("A3.1")
async def test_what_the_file_newly_denies_counts_and_what_it_newly_allows_does_not(
    tmp_path: Path,
) -> None:
    async with ruled(tmp_path) as it:
        _file(tmp_path).write_text(WIDER)
        assert await it.runs("mv x y") == "no"
        assert await it.runs("make") == "asked"
        assert await it.runs("ls") == "yes"
        assert await it.runs("git log") == "asked"  # allowed no more
        assert await it.runs("rm x") == "no"  # denied no more
        assert await _opened_now(it, "make") == "allow"
        assert await _opened_now(it, "rm x") == "ask"


@pytest.mark.hazard("A3.5")
async def test_each_session_says_once_what_does_not_count_yet_and_how_it_does(
    tmp_path: Path,
) -> None:
    async with ruled(tmp_path) as it:
        _file(tmp_path).write_text(f'unattended = "wait"\n{WIDER}')
        await it.runs("make")
        await it.runs("make x")
        (said,) = it.notices()
        assert "has changed since this session was opened" in said
        for each in ("allow Bash(make *)", "removed deny Bash(rm *)", "removed ask Bash(git push"):
            assert each in said
        assert "`acp-bridge permissions use`" in said
        assert "Bash(ls *)" not in said
        _file(tmp_path).write_text(RULES + '[[only]]\nagent = "x"\nallow = ["Bash(make *)"]\n')
        await it.runs("make")
        assert "`allow Bash(make *) (x)`" in it.notices()[-1]
        _file(tmp_path).write_text('deny = ["Bash"]\n' + RULES.partition("\n")[2])
        count = len(it.notices())
        assert await it.runs("make") == "no"
        assert "permissions.toml` has changed" in "".join(it.notices()[count:])


async def test_a_change_that_only_tightens_is_not_told(tmp_path: Path) -> None:
    async with ruled(tmp_path) as it:
        _file(tmp_path).write_text(RULES.replace('"Bash(rm *)"', '"Bash(rm *)", "Bash(make *)"'))
        assert await it.runs("make") == "no"
        assert "has changed" not in "".join(it.notices())


@pytest.mark.hazard("A3.2")
async def test_the_users_word_on_a_terminal_lets_the_file_count_as_it_is(tmp_path: Path) -> None:
    async with ruled(tmp_path) as it:
        _file(tmp_path).write_text(WIDER)
        assert await it.runs("make") == "asked"
        _uses(tmp_path, WIDER)
        assert await it.runs("make") == "yes"
        assert "`acp-bridge permissions use` applied" in it.notices()[-1]
        assert "`allow Bash(make *)`" in it.notices()[-1]
        assert await it.runs("rm x") == "asked"
        assert await it.runs("mv x y") == "no"
        _file(tmp_path).write_text(WIDER.replace("make *", 'make *)", "Bash(rm *'))
        assert await it.runs("rm x") == "asked"
        assert await it.runs("make") == "yes"


@pytest.mark.hazard("A3.4")
async def test_an_earlier_word_of_the_users_is_not_taken_for_one_about_this_change(
    tmp_path: Path,
) -> None:
    (tmp_path / "home").mkdir()
    _uses(tmp_path, WIDER)
    async with ruled(tmp_path) as it:
        _file(tmp_path).write_text(WIDER)
        assert await it.runs("make") == "asked"
        _uses(tmp_path, RULES)
        assert await it.runs("make") == "asked"
        _uses(tmp_path, WIDER)
        assert await it.runs("make") == "yes"
        _file(tmp_path).write_text(RULES)
        assert await it.runs("make") == "asked"
        _uses(tmp_path, RULES)
        assert await it.runs("git log") == "yes"
        _file(tmp_path).write_text(WIDER)
        assert await it.runs("make") == "asked"
        record = used_record(tmp_path / "home", _file(tmp_path))
        record.write_text("{")
        assert await it.runs("make") == "asked"


async def test_a_file_that_comes_while_the_session_is_open_allows_nothing_yet(
    tmp_path: Path,
) -> None:
    async with ruled(tmp_path, None) as it:
        assert await it.runs("ls") == "asked"
        _file(tmp_path).write_text(RULES)
        assert await it.runs("ls") == "asked"
        assert await it.runs("rm x") == "no"
        _uses(tmp_path, RULES)
        assert await it.runs("ls") == "yes"


async def test_what_a_file_has_denied_stays_denied_when_it_is_gone(tmp_path: Path) -> None:
    async with ruled(tmp_path, f'unattended = "deny"\n{RULES}') as it:
        _file(tmp_path).unlink()
        assert await it.runs("rm x") == "no"
        assert await it.runs("ls") == "asked"
        assert "removed deny Bash(rm *)" in "".join(it.notices())
        it.here.client.client.abilities = ClientAbilities({"fs": {"readTextFile": True}})
        error = await it.does(READ_TEXT_FILE, path=str(it.work / ".env"))
        assert error != "passed on"
        it.here.client.client.abilities = ClientAbilities(
            {"_meta": {"acp_bridge": {"observer": True}}}
        )
        assert await it.runs("make") == "no"


async def test_a_default_that_denies_holds_against_what_a_change_would_ask(
    tmp_path: Path,
) -> None:
    async with ruled(tmp_path, f'default = "deny"\n{RULES}') as it:
        assert await it.runs("make") == "no"
        _file(tmp_path).write_text(f'default = "ask"\n{WIDER}ask = ["Bash(cp *)"]\n')
        assert await it.runs("make") == "no"
        assert "was added after this session was opened" in it.notices()[-1]
        assert await it.runs("cp x y") == "no"
        assert await it.runs("git push") == "asked"
        assert await it.runs("ls") == "yes"
        assert "removed default = deny" in "".join(it.notices())


async def test_a_file_that_is_mended_counts_once_the_user_says_so(tmp_path: Path) -> None:
    async with ruled(tmp_path, "allow = [") as it:
        assert await it.runs("ls") == "asked"
        _file(tmp_path).write_text(RULES)
        assert await it.runs("ls") == "asked"
        assert await it.runs("rm x") == "no"
        _uses(tmp_path, RULES)
        assert await it.runs("ls") == "yes"


async def test_each_example_that_comes_out_otherwise_is_named_and_nothing_is_allowed(
    tmp_path: Path,
) -> None:
    checks = "".join(f'[[check]]\nbash = "make {at}"\ndecision = "allow"\n' for at in range(12))
    async with ruled(tmp_path, RULES + checks) as it:
        assert await it.runs("ls") == "asked"
        (said,) = it.notices()
        assert await it.runs("rm x") == "no"
        it.here.client.client.abilities = ClientAbilities({"fs": {"readTextFile": True}})
        assert await it.does(READ_TEXT_FILE, path=str(it.work / "a")) == "passed on"
        assert await it.does(READ_TEXT_FILE, path=str(it.work / ".env")) != "passed on"
        for at in range(12):
            assert f"\n- line {6 + 3 * at - 1}: 'make {at}' is decided ask, not allow" in said


async def test_a_file_that_the_user_has_named_is_named_in_the_command_too(tmp_path: Path) -> None:
    other = tmp_path / "my rules.toml"
    other.write_text(RULES)
    async with ruled(tmp_path, None, settings={"rules": other}) as it:
        other.write_text(WIDER)
        assert await it.runs("make") == "asked"
        assert f"`acp-bridge permissions use --rules '{other}'`" in it.notices()[-1]
