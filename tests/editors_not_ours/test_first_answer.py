"""The first answer in each editor, set up with nothing but what `acp-bridge setup` prints."""

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from tests.editors_not_ours import installing
from tests.editors_not_ours.conftest import ANSWER, HERE, Person
from tests.support.terminal import on_a_terminal

pytestmark = pytest.mark.process
Found = TypeVar("Found")


def had(get: Callable[..., Found], *arguments: str) -> Found:
    """What is installed for the test, which is skipped where that can't be."""
    try:
        return get(*arguments)
    except installing.NotHere as why:
        pytest.skip(str(why))


def test_acpx(person: Person, modules: Path) -> None:
    assert "Written: " in person.setup("acpx", "--write")
    assert "nothing was changed" in person.setup("acpx", "--write")
    acpx = ("node", str(modules / "acpx" / "dist" / "cli.js"))
    shown = person.run(*acpx, "--format", "json", "acp-bridge", "exec", "Hello there")
    updates = [json.loads(line).get("params", {}).get("update", {}) for line in shown.splitlines()]
    said = [
        each["content"]["text"]
        for each in updates
        if each.get("sessionUpdate") == "agent_message_chunk"
    ]
    assert "".join(said) == ANSWER


def in_neovim(person: Person, editor: str, *plugins: str) -> str:
    """What a plugin shows that is set up and driven in Neovim, with those that it needs."""
    neovim = had(installing.neovim)
    folders = [had(installing.source, name) for name in plugins]
    init = person.home / ".config" / "nvim" / "init.lua"
    init.parent.mkdir(parents=True)
    paths = "".join(f"vim.opt.runtimepath:append('{folder}')\n" for folder in folders)
    init.write_text(paths + person.printed(editor))
    return person.run(*neovim, "--headless", "-c", f"luafile {HERE / f'{editor}.lua'}")


def test_codecompanion(person: Person) -> None:
    shown = in_neovim(person, "codecompanion", "plenary", "codecompanion")
    assert ANSWER in shown
    assert "CodeCompanion (acp-bridge)" in shown


def test_avante(person: Person) -> None:
    shown = in_neovim(person, "avante", "plenary", "nui", "avante")
    assert ANSWER in shown
    assert "acp-bridge" in shown


def test_agent_shell(person: Person) -> None:
    emacs = had(installing.emacs)
    names = ("shell-maker", "acp", "agent-shell")
    folders = [had(installing.source, name) for name in names]
    init = person.home / ".emacs.d" / "init.el"
    init.parent.mkdir()
    packages = "".join(f'(add-to-list \'load-path "{folder}")\n' for folder in folders)
    init.write_text(packages + person.printed("agent-shell"))
    drive = HERE / "agent_shell.el"
    assert ANSWER in person.run(emacs, "--batch", "-l", str(init), "-l", str(drive))


def test_toad(person: Person) -> None:
    command = person.home / "bin" / "toad"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {shlex.join(had(installing.toad))} "$@"\n')
    command.chmod(0o755)
    env = {
        **person.env,
        "PATH": f"{command.parent}:{person.env['PATH']}",
        "TERM": "xterm-256color",
    }
    typed = person.printed("toad")
    with on_a_terminal(["sh", "-c", typed], person.project, env) as terminal:
        terminal.until("Ask")  # the session's mode
        terminal.type("Hello there")
        terminal.until("Hello there")
        terminal.type("\r")
        terminal.until(ANSWER)
        terminal.type("\x11")  # Ctrl-Q leaves
        terminal.until_the_end()
