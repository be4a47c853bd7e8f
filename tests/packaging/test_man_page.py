"""The man page in packaging/ is what the help says now, and a reader of man pages takes it."""

import shutil
import subprocess
import tomllib

import pytest

from acp_bridge.cli.described import commands
from acp_bridge.cli.help_text import Entry, Example, Heading, Paragraph, parts_of, usage_of
from tests.packaging.man_page import FILE, page

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
  --short ID       another: 'x'
  --bare, --help

exit code: 0 done.
"""


def test_the_page_is_up_to_date() -> None:
    assert FILE.read_text("utf-8") == page(), "say: make man"


def test_the_page_is_installed_where_man_looks() -> None:
    project = tomllib.loads((FILE.parents[1] / "pyproject.toml").read_text("utf-8"))
    shared = project["tool"]["hatch"]["build"]["targets"]["wheel"]["shared-data"]
    assert shared == {"packaging/acp-bridge.1": "share/man/man1/acp-bridge.1"}


def test_a_help_text_has_these_parts() -> None:
    assert usage_of(HELP) == ["acp-bridge x [ID]", "acp-bridge x --list"]
    assert list(parts_of(HELP)) == [
        Paragraph("What it does, in two lines."),
        Example("acp-bridge x 3f2a | less"),
        Heading("Things", 1),
        Heading("of one kind", 2),
        Entry("--long-option this|that", "its text, in two lines"),
        Entry("--short ID", "another: 'x'"),
        Entry("--bare, --help", ""),
        Paragraph("exit code: 0 done."),
    ]


def test_no_word_of_any_help_is_lost() -> None:
    for command in commands():
        words = " ".join(usage_of(command.help)).split()
        for part in parts_of(command.help):
            words += (
                f"{part.name} {part.text}".split()
                if isinstance(part, Entry)
                else (part.text.split())
            )
            words[-1] += ":" if isinstance(part, Heading) and part.level == 1 else ""
        assert words == command.help.removeprefix("usage:").split()


@pytest.mark.process
@pytest.mark.parametrize(
    "command", [("mandoc", "-T", "lint", "-W", "error"), ("groff", "-man", "-ww", "-z")]
)
def test_a_reader_of_man_pages_finds_nothing_wrong(command: tuple[str, ...]) -> None:
    if shutil.which(command[0]) is None:
        pytest.skip(f"there is no {command[0]} here")
    done = subprocess.run(
        [*command, str(FILE)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stdout, done.stderr) == ("", "")
