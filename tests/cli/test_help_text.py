"""Help fits the terminal that it is shown in, and loses no word."""

from contextlib import suppress

import pytest

from acp_bridge import cli
from acp_bridge.cli import own_bridge
from acp_bridge.cli.described import commands
from acp_bridge.cli.help_text import Entry, Example, fitted, parts_of
from acp_bridge.terminal import printing

HELPS = {command.name: command.help for command in commands()}


@pytest.mark.parametrize("name", HELPS)
@pytest.mark.parametrize("width", [60, 80])
def test_no_line_is_too_long_but_what_is_typed(name: str, width: int) -> None:
    help, shown = HELPS[name], fitted(HELPS[name], width)
    assert shown.split() == help.split()
    typed = [part.text for part in parts_of(help) if isinstance(part, Example)]
    long = [line for line in shown.splitlines() if len(line) >= width]
    # A word of some length may have no room beside a name.
    assert [line for line in long if line.strip() not in typed and " " in line.strip()] == []


@pytest.mark.parametrize("name", HELPS)
def test_its_parts_stay_what_they_are(name: str) -> None:
    whole = [each for each in parts_of(HELPS[name]) if isinstance(each, Entry)]
    assert [each for each in parts_of(fitted(HELPS[name], 80)) if isinstance(each, Entry)] == whole


@pytest.mark.parametrize("width", [None, 200])
def test_where_there_is_room_or_no_terminal_it_is_as_it_was_written(width: int | None) -> None:
    assert all(fitted(help, width) == help for help in HELPS.values())


@pytest.mark.parametrize("words", [["--help"], ["doctor", "--help"]])
def test_it_is_fitted_to_the_terminal(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for module in (printing, own_bridge):
        monkeypatch.setattr(module, "columns", lambda: 80)
    with suppress(SystemExit):  # serving ends so
        cli.run(words)
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) < 80
