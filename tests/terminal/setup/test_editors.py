"""What `acp-bridge setup` prints for each editor is what docs/editors.md has."""

import re
import shlex
import string
from pathlib import Path

import pytest

from acp_bridge.terminal.setup.editor import Launch
from acp_bridge.terminal.setup.editors import EDITORS
from acp_bridge.terminal.setup.jsonc import parse

ROOT = Path(__file__).parents[3]
FENCE = re.compile(r"^```\w*\n(.*?)^```", re.MULTILINE | re.DOTALL)
#: The installation that the documents speak of.
PROGRAM = "/home/you/.local/bin/acp-bridge"
BUILT_IN = Launch(PROGRAM)
BRIDGED = Launch(PROGRAM, ("--", "codex-acp"), "codex-acp")
#: Everything that somebody may quote wrongly.
ODD = """a b"c\\d'e$f`g\th;i"""


def section(name: str) -> str:
    """The part of the document that shows `acp-bridge setup NAME`."""
    text = (ROOT / "docs" / "editors.md").read_text("utf-8")
    (found,) = (part for part in text.split("\n## ") if f"`acp-bridge setup {name}`" in part)
    return found


@pytest.mark.parametrize("name", EDITORS)
def test_the_documents_have_what_is_printed(name: str) -> None:
    editor, shown = EDITORS[name], section(name)
    assert shown.startswith(f"{editor.title}\n")
    fences = FENCE.findall(shown)
    assert editor.snippet(BUILT_IN) in fences
    assert set(fences) <= {editor.snippet(BUILT_IN), editor.snippet(BRIDGED)}


@pytest.mark.parametrize("name", EDITORS)
def test_the_documents_name_the_file_where_it_goes(name: str) -> None:
    file = EDITORS[name].file({"HOME": "/home/you"})
    assert file is None or f"`{file.replace('/home/you', '~')}`" in section(name)


@pytest.mark.parametrize("name", EDITORS)
def test_it_is_either_written_or_the_reason_is_said(name: str) -> None:
    editor = EDITORS[name]
    assert (editor.entry is None) == bool(editor.why_not)
    if editor.entry is not None:
        assert parse(editor.snippet(BRIDGED)) == editor.entry(BRIDGED).document()


def test_the_folder_of_settings_may_be_another_but_no_relative_one() -> None:
    for name, below in (("zed", "zed/settings.json"), ("avante", "nvim/init.lua")):
        file = EDITORS[name].file
        assert file({"HOME": "/h", "XDG_CONFIG_HOME": "/c"}) == f"/c/{below}"
        assert file({"HOME": "/h", "XDG_CONFIG_HOME": "c"}) == f"/h/.config/{below}"


@pytest.mark.parametrize(
    ("there", "read"),
    [
        (["a/.emacs.d/", "a/.emacs"], ".emacs"),
        (["a/.emacs.el", "a/.emacs"], ".emacs.el"),
        (["a/.config/emacs/init.el", "a/.emacs.d/"], ".emacs.d/init.el"),
        (["a/.config/emacs/"], ".config/emacs/init.el"),
        ([], ".emacs.d/init.el"),
    ],
)
def test_the_file_is_the_one_that_emacs_reads(there: list[str], read: str, tmp_path: Path) -> None:
    make(tmp_path, there)
    home = tmp_path / "a"
    assert EDITORS["agent-shell"].file({"HOME": str(home)}) == str(home / read)


@pytest.mark.parametrize(
    ("there", "read"),
    [
        (["init.vim"], "plugin/acp-bridge.lua"),
        (["init.vim", "init.lua"], "init.lua"),
        (["init.lua"], "init.lua"),
    ],
)
@pytest.mark.parametrize("name", ["codecompanion", "avante"])
def test_the_file_is_one_that_neovim_reads(
    name: str, there: list[str], read: str, tmp_path: Path
) -> None:
    make(tmp_path / "nvim", there)
    assert EDITORS[name].file({"XDG_CONFIG_HOME": str(tmp_path)}) == str(tmp_path / "nvim" / read)


def make(folder: Path, names: list[str]) -> None:
    """Make these files, and those that end with a slash as folders."""
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).mkdir() if name.endswith("/") else (folder / name).touch()


def test_two_agents_are_two_entries() -> None:
    for editor in EDITORS.values():
        if editor.entry is not None:
            assert editor.entry(BUILT_IN).path != editor.entry(BRIDGED).path


@pytest.mark.parametrize("name", ["codecompanion", "avante"])
def test_an_odd_word_is_one_string_of_lua(name: str) -> None:
    words = strings(EDITORS[name].snippet(Launch("/p q", ("--", ODD), "odd")), lua=True)
    assert {"/p q", ODD} <= set(words)


def test_an_odd_word_is_one_string_of_emacs_lisp() -> None:
    words = strings(EDITORS["agent-shell"].snippet(Launch("/p q", ("--", ODD), "odd")), lua=False)
    assert {"/p q", ODD} <= set(words)


def test_an_odd_word_reaches_the_shell_that_toad_starts() -> None:
    words = shlex.split(EDITORS["toad"].snippet(Launch("/p q", (ODD,), "o")))
    *start, command, folder = words
    assert (start, folder) == (["toad", "acp", "-t", "o, bridged"], ".")
    assert shlex.split(command) == ["/p q", ODD]


def test_an_identifier_is_one_in_every_language() -> None:
    launch = Launch("/p", ("--", "x"), "Ünder_score/agent@1.2")
    assert set(launch.identifier("_")) <= {*string.ascii_lowercase, *string.digits, "_"}
    assert launch.identifier("-") == "acp-bridge-nder-score-agent-1-2"


def strings(code: str, *, lua: bool) -> list[str]:
    """The strings of a piece of code, read by the language's own rules."""
    found = re.findall(r'"((?:[^"\\]|\\.)*)"', code, re.DOTALL)
    if not lua:
        return [re.sub(r"\\(.)", r"\1", each) for each in found]
    return [
        re.sub(r"\\(\d{3}|.)", lambda m: chr(int(m[1])) if m[1].isdigit() else m[1], each)
        for each in found
    ]
