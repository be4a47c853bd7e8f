"""`acp-bridge cost`: sums up the tokens and costs that agents told in the kept sessions.

With `--limits` it shows the limits of the accounts instead, as the agents of live bridges report.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from functools import partial
from typing import Final

import anyio

from acp_bridge.core.runtime import log
from acp_bridge.terminal.cli.options import data_folder
from acp_bridge.terminal.cli.parser import CommandParser
from acp_bridge.terminal.cli.printing import columns, fail, print_json, print_text
from acp_bridge.terminal.shared import known
from acp_bridge.terminal.shared.costs import WAYS, costs, costs_as_json, costs_table
from acp_bridge.terminal.shared.since import add_since, since_of
from acp_bridge.terminal.shared.stored import Kept, at_kept

_ABOUT: Final = """\
Sum up what the kept sessions have used: the tokens and costs that their agents told. Figures of
which nobody knows if they are of a turn or totals are named and never summed. A cost is the
agent's own estimate and no bill. Nothing is started, and nothing is changed.
With --limits it shows the limits of your accounts, as the agents of running bridges report them:
how much is used, what is left, and when a limit resets. An agent that sleeps may be started."""


def parser() -> CommandParser:
    """Return the parser of the arguments of `acp-bridge cost`."""
    parser = CommandParser(
        "cost",
        "acp-bridge cost [--since TIME] [--by WHAT | --limits] [--json]",
        _ABOUT,
        ["acp-bridge cost --since 7d --by model", "acp-bridge cost --limits"],
        "exit code: 0 done, 1 the sessions can't be read, 2 wrong usage.",
    )
    add_since(parser, "turns that began")
    parser.add_argument(
        "--by",
        metavar="WHAT",
        choices=WAYS,
        default="agent",
        help="a line for each agent (the default), folder, session, day or\nmodel",
    )
    parser.add_argument("--limits", action="store_true", help="the limits of your accounts instead")
    parser.add_argument("--json", action="store_true", help="an object for each line")
    parser.add_home()
    parser.add_journal()
    return parser


def main(arguments: Sequence[str]) -> int:
    """Run `acp-bridge cost`; returns the exit code."""
    log.configure("error", None)
    reader = parser()
    given = reader.parse_args(arguments)
    if given.limits:
        return _limits(given)
    since = since_of(reader, given.since)
    return at_kept("cost", given, partial(_cost, given, since))


def _limits(given: Namespace) -> int:
    from acp_bridge.terminal.shared.limits import limits_of_all, limits_text

    try:
        answers = anyio.run(limits_of_all, data_folder(given.home))
    except known.NotFound as why:
        return fail("cost", why)
    if given.json:
        return print_json(
            {"agent": agent, "limits" if isinstance(said, dict) else "error": said}
            for agent, said in answers
        )
    return print_text(limits_text(answers, columns()))


def _cost(given: Namespace, since: str, kept: Kept) -> int:
    try:
        listed = known.listing(kept.home)
    except known.NotFound as why:
        return fail("cost", why)
    used_in = kept.usage(info.session_id for info in listed if info.updated_at >= since)
    counted = costs(listed, given.by, since, used_in)
    if given.json:
        return print_json(costs_as_json(counted))
    return print_text(costs_table(counted, columns()))
