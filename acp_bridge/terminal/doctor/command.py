"""`acp-bridge doctor`: runs all checks and prints their findings."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Final

import anyio

from acp_bridge.core.agents.environment import HANDED_ON
from acp_bridge.core.keys.masking import Mask
from acp_bridge.core.records import replace
from acp_bridge.core.runtime import log
from acp_bridge.terminal.cli.exits import Exit
from acp_bridge.terminal.cli.options import split
from acp_bridge.terminal.cli.own_agent import hindrance
from acp_bridge.terminal.cli.parser import CommandParser, DataFolder
from acp_bridge.terminal.cli.printing import columns, print_json, print_text
from acp_bridge.terminal.commands.own_bridge import add_options, own_bridge
from acp_bridge.terminal.doctor.examination import examine
from acp_bridge.terminal.doctor.findings import Silent, Subject, from_disk
from acp_bridge.terminal.doctor.report import Section, as_json, as_text, exit_code, summary

_ABOUT: Final = """\
Look at everything that acp-bridge needs, and say of each thing if it is well, and what to do if
not: Python, the data folder and its disk, the sessions and their database, the bridges that run,
keys and the model that follows from them, the agent, and the settings of editors. Nothing is
changed, and no key is shown. The agent is started, asked to introduce itself, and ended; it gets
no session."""
_EXAMPLES: Final = (
    "acp-bridge doctor",
    "acp-bridge doctor -- codex-acp",
    "acp-bridge doctor --json > report.json",
)
_AFTER: Final = """\
The options of 'acp-bridge' itself may be given too: what is looked at is what they would start.

exit code: 0 no error, 1 a warning with --strict, 2 an error, or wrong usage, 130 interrupted."""


def parser() -> CommandParser:
    """Return the parser of the arguments of `acp-bridge doctor`."""
    usage = "acp-bridge doctor [OPTIONS] [-- COMMAND ARGS...]"
    parser = CommandParser("doctor", usage, _ABOUT, _EXAMPLES, _AFTER)
    parser.add_argument("--json", action="store_true", help="write the report as one line of JSON")
    parser.add_argument("--strict", action="store_true", help="a warning counts for the exit code")
    parser.add_argument(
        "--online",
        action="store_true",
        help="send the built-in agent's model one short request, too; without it, nothing goes\n"
        "to the network but what the agent does that is started",
    )
    parser.add_argument(
        "--home", metavar="FOLDER", action=DataFolder, help="the data folder (ACP_BRIDGE_HOME)"
    )
    add_options(parser, but=["home"])
    return parser


def main(arguments: Sequence[str]) -> int:
    """Run `acp-bridge doctor`; returns the exit code.

    Raises SystemExit for wrong usage and for help.
    """
    words, agent = split(arguments)
    reader = parser()
    given = reader.parse_args(words)
    bridge = own_bridge(given, agent)
    settings = bridge.settings
    if settings.journal is not None:
        HANDED_ON.withhold_database()  # the agent is started for a look at it
    own_agent = agent is None
    if given.online and not settings.builtin:
        reader.error("--online asks the built-in agent's model, and no other agent")
    why_not = hindrance(os.environ, bridge.packages, openhands=not settings.builtin)
    subject = Subject(
        settings,
        own_agent=own_agent,
        model=given.model,
        hindrance=why_not if own_agent else None,
        env=os.environ,
        mask=Mask.of(os.environ, None, settings.command),
        online=given.online,
    )
    log.configure("error", None)
    return anyio.run(_examine, subject, given)


async def _examine(subject: Subject, given: argparse.Namespace) -> int:
    settings, sections = subject.settings, list[Section]()
    with suppress(Silent):  # a silent disk becomes a finding of the data folder's check
        of_all = partial(Mask.of, subject.env, settings.home, settings.command)  # reads keys.env
        subject = replace(subject, mask=await from_disk(of_all))
    async for section in examine(subject):
        sections.append(section)
        if not given.json:
            text = as_text(section, subject.mask, columns())
            written = print_text(text if len(sections) == 1 else f"\n{text}")
            if written != Exit.DONE:  # stdout is closed
                return written
    if given.json:
        written = print_json([as_json(sections, subject.mask, strict=given.strict)])
    else:
        written = print_text(f"\n{summary(sections)}")
    return exit_code(sections, strict=given.strict) if written == Exit.DONE else written
