"""The man page in packaging/ is what the help says now, and a reader of man pages takes it."""

import shutil
import subprocess
import tomllib

import pytest

from acp_bridge.terminal.cli import serving_parser
from acp_bridge.terminal.cli.commands import COMMANDS
from acp_bridge.terminal.cli.parser import Entry, Heading
from tests.packaging.man_page import FILE, page


def test_the_page_is_up_to_date() -> None:
    assert FILE.read_text("utf-8") == page(), "say: make man"


def test_the_page_is_installed_where_man_looks() -> None:
    project = tomllib.loads((FILE.parents[1] / "pyproject.toml").read_text("utf-8"))
    shared = project["tool"]["hatch"]["build"]["targets"]["wheel"]["shared-data"]
    assert shared == {"packaging/acp-bridge.1": "share/man/man1/acp-bridge.1"}


def test_no_word_of_any_help_is_lost_in_its_parts() -> None:
    for parser in (serving_parser.parser({}), *(each.parser() for each in COMMANDS.values())):
        words = (parser.usage or "").split()
        for part in parser.parts():
            said = f"{part.name} {part.text}" if isinstance(part, Entry) else part.text
            words += said.split()
            words[-1] += ":" if isinstance(part, Heading) and part.level == 1 else ""
        assert words == parser.format_help().removeprefix("usage:").split()


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
