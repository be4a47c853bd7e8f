"""`acp-bridge permissions`: says how the user's rules decide, and lets them count as they are."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from acp_bridge.features.hooks.trust import Record, digest, write_record
from acp_bridge.features.rules.config import BadRules
from acp_bridge.features.rules.definitions import Judgement, Place, Tool
from acp_bridge.features.rules.places import OWN_FILE, PROJECT_FILE, USED
from acp_bridge.features.rules.session_rules import SessionRules, load
from acp_bridge.terminal.cli import consent
from acp_bridge.terminal.cli.exits import Exit
from acp_bridge.terminal.cli.harmless import exact
from acp_bridge.terminal.cli.options import data_folder
from acp_bridge.terminal.cli.parser import CommandParser
from acp_bridge.terminal.cli.printing import fail, print_text

_ABOUT: Final = """\
Say how the rules in permissions.toml decide about a command, or about a path that an agent wants to
change or read. The first word that is printed is the decision: allow, ask or deny. Behind it stands
the rule, with its line, or why none decides. Hooks are not asked; docs/permissions.md has more.

New allow rules apply only in sessions that you open later. "use" applies the file as it is now to
open sessions, too. It shows what the file allows, and asks. Only a person at a terminal can say
yes; an agent can't."""
_AFTER: Final = """\
exit code: 0 the rules were read, whatever they say, or count now, 1 there are none, they can't be
read, or you did not say yes, 2 wrong usage."""


def parser() -> CommandParser:
    """Return the parser of the arguments of `acp-bridge permissions`."""
    usage = (
        'acp-bridge permissions check ("COMMAND" | --edit PATH | --read PATH)\n'
        "       acp-bridge permissions use"
    )
    examples = [
        'acp-bridge permissions check "git status && rm x"',
        "acp-bridge permissions check --edit src/a.py --agent codex-acp",
        "acp-bridge permissions use",
    ]
    parser = CommandParser("permissions", usage, _ABOUT, examples, _AFTER, column=22)
    parser.add_argument("what", metavar="check, use", choices=["check", "use"])
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
    home = data_folder(given.home)
    own = Path(given.rules).expanduser().absolute() if given.rules else home / OWN_FILE
    folder = os.path.abspath(os.path.expanduser(given.folder))
    if given.what == "use":
        if named:
            reader.error("use takes no COMMAND and no path")
        return _use(own, home, folder)
    if len(named) != 1:
        reader.error('give one of "COMMAND", --edit PATH and --read PATH')
    rules = SessionRules(own, Path(folder, PROJECT_FILE), home, folder, given.agent)
    tool, text = named[0]
    if tool is Tool.BASH:
        judged, _ = rules.judge_command(text)
    else:
        judged, _ = rules.judge_file(text, writes=tool is Tool.EDIT)
    if rules.mistakes:
        return max([fail("permissions", f"{path}: {why}") for path, why in rules.mistakes])
    if not rules.are_there:
        return fail("permissions", f"there is no {own}")
    return print_text(f"{exact(_said(judged))}\n")


def _use(own: Path, home: Path, folder: str) -> int:
    """Show what the user's file allows, and let it count in open sessions if the person says yes.

    Returns the exit code.
    """
    why, code = consent.hindrance("change which rules count", "let rules count")
    if why:
        return fail("permissions", why, Exit(code))
    try:
        rules, content = load(own, Place(folder, home=os.path.expanduser("~")))
    except BadRules as bad:
        return max([fail("permissions", f"{own}: {each}") for each in bad.each])
    if rules is None or content is None:
        return fail("permissions", f"there is no {own}")
    lines = [f"What {exact(str(own))} allows", "", *(f"  {exact(each)}" for each in rules.allowed)]
    print("\n".join([*lines, *([] if rules.allowed else ["  nothing."]), ""]))
    if not consent.says_yes("Apply the file as it is now to open sessions, too?"):
        print("Nothing has changed: only the whole word yes is consent.")
        return Exit.FAILED
    # The hash of the file as it was shown is recorded: a change meanwhile does not count.
    said = Record(os.path.abspath(own), {OWN_FILE: digest(content)})
    try:
        write_record(home, said, USED)
    except OSError as error:
        return fail("permissions", f"{error.filename or home}: {error.strerror}")
    print("Open sessions use it from their next question on.")
    return Exit.DONE


def _said(judged: Judgement) -> str:
    """Return the decision and, behind it, the rules or the reason that it follows from."""
    decisive = judged.deny or judged.ask
    if decisive:
        return f"{judged.action}: {decisive}" + (f"; {judged.why}" if judged.why else "")
    if judged.allowed and not judged.protected:
        return f"{judged.action}: {', '.join(map(str, judged.allowed))}"
    return f"{judged.action}: {judged.why}"
