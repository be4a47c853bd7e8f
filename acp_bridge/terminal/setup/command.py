"""`acp-bridge setup`: shows or writes the settings by which an editor starts this installation."""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from acp_bridge.core.agents.known_agents import advice_for
from acp_bridge.core.runtime.own_commands import OWN_COMMANDS
from acp_bridge.terminal.cli import options
from acp_bridge.terminal.cli.harmless import one_line
from acp_bridge.terminal.cli.naming import agent_name
from acp_bridge.terminal.cli.parser import CommandParser
from acp_bridge.terminal.cli.printing import fail, print_text
from acp_bridge.terminal.cli.serving_parser import OPTIONS, words_of
from acp_bridge.terminal.setup import installation
from acp_bridge.terminal.setup.editor import Editor, Launch
from acp_bridge.terminal.setup.editors import EDITORS, fitting
from acp_bridge.terminal.setup.settings_file import NotWritten, Written, write

_ABOUT: Final = f"""\
Print what makes an editor start this acp-bridge as its agent: what goes into its settings, with
this installation's path, where that goes, and what you do in the editor then. EDITOR is one of
{", ".join(EDITORS)}."""
_AFTER: Final = """\
With a command after -- it is that agent that runs behind the bridge, under a name of its own in
the editor. The options of 'acp-bridge' itself may be given too, such as --model, --keep and
--home; the editor hands them on.

exit code: 0 printed, or written, 1 not written, or there is nothing to start, 2 wrong usage."""

#: The options in the order in which they are written into an editor's settings. Don't change it:
#: what an earlier version has written must compare equal.
_ORDER: Final = (
    *("delivery", "on-cancel", "drain-timeout", "reload-after-cancel", "request-timeout", "model"),
    *("openhands", "openhands-profile", "agent-name", "rules", "home", "log-file", "log-level"),
    *("sleep-after", "spare", "keep", "listen", "cancel-silent-after", "resume-at-reset"),
    *("agent-protocol", "trace", "budget", "journal", "lease", "start-timeout"),
    *("login-shell-path", "process-per-session"),
)


def main(arguments: Sequence[str]) -> int:
    """Run `acp-bridge setup`; returns the exit code.

    Raises SystemExit for wrong usage and for help.
    """
    words, agent = options.split(arguments)
    given = parser().parse_args(words)
    try:
        launch = _launch(given, agent)
    except installation.NotInstalled as why:
        return fail("setup", why)
    editor: Editor = EDITORS[given.editor]
    if not given.write:
        return print_text(_shown(editor, launch, hint=_writing(editor, launch, given.editor)))
    if editor.entry is None:
        print_text(_shown(editor, launch))
        return fail("setup", f"not written. {editor.why_not}")
    file = editor.file(os.environ)
    assert file is not None, "what is JSON is a file"
    try:
        return print_text(_told(write(Path(file), editor.entry(launch)), file, editor, launch))
    except NotWritten as why:
        print_text(_shown(editor, launch))
        return fail("setup", why)


def parser() -> CommandParser:
    """Return the parser of the arguments of `acp-bridge setup`."""
    parser = CommandParser(
        "setup",
        "acp-bridge setup EDITOR [--write] [OPTIONS] [-- COMMAND ARGS...]",
        _ABOUT,
        ["acp-bridge setup zed", "acp-bridge setup zed --write -- codex-acp"],
        _AFTER,
    )
    parser.add_argument("editor", metavar="EDITOR", choices=tuple(EDITORS), type=_known)
    parser.add_argument(
        "--write",
        action="store_true",
        help="write it, where the settings are plain JSON (zed, jetbrains, acpx): a backup is\n"
        "made first, and everything else in the file stays, comments too. For the others\n"
        "it says why not",
    )
    unlisted = parser.add_argument_group()
    for option in OPTIONS.values():
        option.add_to(unlisted, {})
    return parser


def _known(word: str) -> str:
    """Return the editor's name in the table for `word`; raises ArgumentTypeError with a hint."""
    if word not in EDITORS:
        try:
            program = installation.program()
        except installation.NotInstalled:
            program = "acp-bridge"
        told = f"no editor is called {word!r} here; {fitting(word, program)}"
        raise argparse.ArgumentTypeError(told)
    return word


def _launch(given: argparse.Namespace, agent: list[str] | None) -> Launch:
    """Return the command line that the editor is to start. Raises NotInstalled, SystemExit."""
    for option in OPTIONS.values():
        value = getattr(given, option.attribute)
        if value is not None and option.value in ("FOLDER", "FILE"):
            # The editor's working folder is another one.
            setattr(given, option.attribute, os.path.abspath(os.path.expanduser(value)))
    words = words_of(given, [OPTIONS[name] for name in _ORDER])
    if agent is not None:
        words += ["--", *_fixed(agent)]
    options.parse(words, {})  # exits with a message if they are wrong
    if any("\ud800" <= letter <= "\udfff" for letter in "".join(words)):
        parser().error("settings are text: one of the arguments is none")
    named = agent_name(agent) if agent else None
    return Launch(installation.program(), tuple(words), named)


def _fixed(agent: list[str]) -> list[str]:
    """Return the agent's command with a relative path of its program made absolute."""
    first = agent[0] if agent else ""
    if "/" in first and not os.path.isabs(first) and os.path.exists(first):
        return [os.path.abspath(first), *agent[1:]]
    return agent


def _shown(editor: Editor, launch: Launch, hint: str = "") -> str:
    """Return the text for a person that says what to paste into which file, and what to do then."""
    file = editor.file(os.environ)
    there = file is not None and os.path.exists(file)
    if file is None:
        where = "In a terminal, in the folder of your project:"
    else:
        where = f"Into {one_line(file)}{', beside what is there' if there else ''}:"
    parts = [editor.title, where, editor.snippet(launch).rstrip()]
    if there and editor.beside:
        parts.append(f"Note: {editor.beside}")
    parts += [f"Then: {editor.then(launch)}", *_notes(launch)]
    return "\n\n".join([*parts, hint] if hint else parts) + "\n"


def _writing(editor: Editor, launch: Launch, name: str) -> str:
    """Return a sentence with the command that writes the settings; "" if it can't write them."""
    if editor.entry is None:
        return ""
    command = shlex.join(["acp-bridge", "setup", name, "--write", *launch.args])
    return f"This writes it, with a backup first: {one_line(command)}"


def _told(written: Written, file: str, editor: Editor, launch: Launch) -> str:
    """Return the text for a person that says what was changed in a settings file."""
    shown = one_line(file)
    if not written.changed:
        done = f"{shown} has it already: nothing was changed."
    elif written.backup is None:
        done = f"Written: {shown}, which is new."
    else:
        done = f"Written: {shown}\nAs it was: {one_line(str(written.backup))}"
    return "\n\n".join([done, f"Then: {editor.then(launch)}", *_notes(launch)]) + "\n"


def _notes(launch: Launch) -> list[str]:
    """Return notes on what may fail in the editor: no key, a path in a cache, no such command."""
    found = []
    if launch.agent is None and "--openhands" not in launch.args:
        found.append(
            "Note: an editor that the desktop started lacks the keys of your shell:"
            f" '{OWN_COMMANDS.line('key')}' keeps one for it."
        )
    if installation.is_passing(launch.program):
        found.append(
            f"Note: {one_line(launch.program)} is in a cache, and may be thrown away:"
            " install it from its clone (pipx install . or uv tool install .) and run this again."
        )
    if launch.agent:
        command = launch.args[launch.args.index("--") + 1 :]
        missing = shutil.which(command[0]) is None
        if missing:
            found.append(f"Note: there is no command {one_line(command[0])} here.")
        if advice := advice_for(command, missing=missing):
            found.append(f"Note: {one_line(advice)}.")
    return found
