"""`acp-bridge permissions check`: says how the user's rules decide about a command or a path."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from acp_bridge.cli.harmless import exact
from acp_bridge.cli.options import data_folder
from acp_bridge.cli.parser import CommandParser
from acp_bridge.cli.printing import fail, print_text
from acp_bridge.policy.definitions import Judgement, Tool
from acp_bridge.policy.places import OWN_FILE, PROJECT_FILE
from acp_bridge.policy.session_rules import SessionRules

_ABOUT: Final = """\
Say how the rules in permissions.toml decide about a command, or about a path that an agent wants to
change or read. The first word that is printed is the decision: allow, ask or deny. Behind it stands
the rule, with its line, or why none decides. Hooks are not asked; docs/permissions.md has more."""
_AFTER: Final = """\
exit code: 0 the rules were read, whatever they say, 1 there are none or they can't be read, 2 wrong
usage."""


def parser() -> CommandParser:
    """Return the parser of the arguments of `acp-bridge permissions`."""
    usage = 'acp-bridge permissions check ("COMMAND" | --edit PATH | --read PATH)'
    examples = [
        'acp-bridge permissions check "git status && rm x"',
        "acp-bridge permissions check --edit src/a.py --agent codex-acp",
    ]
    parser = CommandParser("permissions", usage, _ABOUT, examples, _AFTER, column=22)
    parser.add_argument("check", metavar="check", choices=["check"])
    parser.add_argument("bash", metavar="COMMAND", nargs="?")
    parser.add_argument("--edit", metavar="PATH", help="about changing this file")
    parser.add_argument("--read", metavar="PATH", help="about reading this file")
    parser.add_argument("--agent", metavar="NAME", default="", help="the agent that would ask")
    parser.add_argument(
        "--folder",
        metavar="FOLDER",
        default=".",
        help="the folder of the session (default: this folder)",
    )
    rules = os.environ.get("ACP_BRIDGE_RULES")
    parser.add_argument(
        "--rules", metavar="FILE", default=rules, help="another file of rules (ACP_BRIDGE_RULES)"
    )
    parser.add_home("where permissions.toml is (ACP_BRIDGE_HOME)")
    return parser


def main(arguments: Sequence[str]) -> int:
    """Run `acp-bridge permissions`; returns the exit code.

    Raises SystemExit for wrong usage and for help.
    """
    reader = parser()
    given = reader.parse_args(arguments)
    asked = {Tool.BASH: given.bash, Tool.EDIT: given.edit, Tool.READ: given.read}
    named = [(tool, text) for tool, text in asked.items() if text is not None]
    if len(named) != 1:
        reader.error('give one of "COMMAND", --edit PATH and --read PATH')
    home = data_folder(given.home)
    own = Path(given.rules).expanduser().absolute() if given.rules else home / OWN_FILE
    folder = os.path.abspath(os.path.expanduser(given.folder))
    rules = SessionRules(own, Path(folder, PROJECT_FILE), home, folder, given.agent)
    tool, text = named[0]
    if tool is Tool.BASH:
        judged, _ = rules.judge_command(text)
    else:
        judged, _ = rules.judge_file(text, writes=tool is Tool.EDIT)
    for path, mistake in rules.mistakes:
        return fail("permissions", f"{path}: {mistake}")
    if not rules.are_there:
        return fail("permissions", f"there is no {own}")
    return print_text(f"{exact(_said(judged))}\n")


def _said(judged: Judgement) -> str:
    """Return the decision and, behind it, the rules or the reason that it follows from."""
    decisive = judged.deny or judged.ask
    if decisive:
        return f"{judged.action}: {decisive}" + (f"; {judged.why}" if judged.why else "")
    if judged.allowed and not judged.protected:
        return f"{judged.action}: {', '.join(map(str, judged.allowed))}"
    return f"{judged.action}: {judged.why}"
