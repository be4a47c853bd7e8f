"""Help fits the terminal that it is shown in, and loses no word."""

import re
from contextlib import suppress
from itertools import pairwise

import pytest

from acp_bridge.terminal import cli
from acp_bridge.terminal.cli import printing, serving_parser
from acp_bridge.terminal.cli.commands import COMMANDS
from acp_bridge.terminal.cli.parser import Entry, Example, Heading, Paragraph, Parser

PARSERS = {"": serving_parser.parser({}), **{n: each.parser() for n, each in COMMANDS.items()}}

HELP = """\
usage: acp-bridge x [ID]
       acp-bridge x --list

What it does, in
two lines.

  acp-bridge x 3f2a | less

Things:
 of one kind
  --long-option this|that
                   its text, in
                   two lines
  --short [ID]     another: 'x'
  --bare, --help

exit code: 0 done.
"""


def test_a_help_is_made_of_the_sentences_at_each_option_in_their_groups() -> None:
    parser = Parser(
        "acp-bridge x",
        "acp-bridge x [ID]\nacp-bridge x --list",
        "What it does, in\ntwo lines.",
        [Example("acp-bridge x 3f2a | less"), Heading("Things", 1)],
        "exit code: 0 done.",
        column=19,
    )
    add = parser.add_argument_group("of one kind").add_argument
    add("--long-option", metavar="this|that", help="its text, in\ntwo lines")
    add("--short", nargs="?", metavar="ID", help="another: 'x'")
    add("--unsaid")
    add("--bare", action="store_true", help="")
    add("--help", action="store_true", help="")
    parser.add_argument_group().add_argument("--unlisted", help="not shown")
    assert parser.format_help() == HELP
    assert list(parser.parts()) == [
        Paragraph("What it does, in\ntwo lines."),
        Example("acp-bridge x 3f2a | less"),
        Heading("Things", 1),
        Heading("of one kind", 2),
        Entry("--long-option this|that", "its text, in\ntwo lines"),
        Entry("--short [ID]", "another: 'x'"),
        Entry("--bare, --help", ""),
        Paragraph("exit code: 0 done."),
    ]


@pytest.mark.parametrize("name", PARSERS)
@pytest.mark.parametrize("width", [60, 80])
def test_no_line_is_too_long_but_what_is_typed_and_no_word_is_lost(name: str, width: int) -> None:
    parser = PARSERS[name]
    shown = parser.help_for(width)
    assert shown.split() == parser.format_help().split()
    typed = [part.text for part in parser.parts() if isinstance(part, Example)]
    long = [line for line in shown.splitlines() if len(line) >= width]
    # A word of some length may have no room beside a name.
    assert [line for line in long if line.strip() not in typed and " " in line.strip()] == []


def test_where_there_is_room_or_no_terminal_it_is_as_it_was_written() -> None:
    assert all(each.help_for(200) == each.help_for(None) for each in PARSERS.values())


@pytest.mark.parametrize("name", PARSERS)
def test_no_paragraph_is_broken_in_its_middle(name: str) -> None:
    paragraphs = [part.text for part in PARSERS[name].parts() if isinstance(part, Paragraph)]
    broken = [
        line
        for text in paragraphs
        for line, following in pairwise(text.split("\n"))
        if line and following and not line.endswith((".", ":"))
        if len(f"{line} {following.split()[0]}") <= 80
    ]
    assert broken == []


@pytest.mark.parametrize("name", PARSERS)
def test_the_data_folder_has_no_other_name(name: str) -> None:
    shown = " ".join(PARSERS[name].format_help().split())
    assert re.findall(r"(?:home|data) directory|home folder", shown) == []


def test_the_help_names_both_versions_of_the_protocol() -> None:
    shown = " ".join(PARSERS[""].format_help().split())
    assert "the Agent Client Protocol (versions 1 and 2)" in shown


@pytest.mark.parametrize("words", [["--help"], ["doctor", "--help"]])
def test_it_is_fitted_to_the_terminal(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(printing, "columns", lambda: 80)
    with suppress(SystemExit):  # serving ends so
        cli.run(words)
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) < 80
