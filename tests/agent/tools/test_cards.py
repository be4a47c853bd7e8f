"""What a card says of a call: all of it, and nothing that looks like something else."""

from pathlib import Path

from agent.tools.cards import short
from agent.tools.command_grants import grant
from agent.tools.shell import Shell, ShellArgs
from tests.agent.tools.support import session


def test_a_command_s_title_is_all_of_it_with_what_is_not_seen_made_visible() -> None:
    """Whoever is asked about it sees the title: neither a carriage return, an escape sequence nor
    a change of direction may hide a part."""
    command = "git status \r\x1b[2K\u202ermx\n\techo 'Grüße'\u00a0"
    title = Shell().title(ShellArgs(command=command))
    assert title == "`git status \\r\\x1b[2K\\u202ermx\n\techo 'Grüße'\\xa0`"


def test_so_has_a_path_and_what_always_would_allow() -> None:
    assert short("a\x08\u202eb.py") == "a\\x08\\u202eb.py"
    assert grant("rm \u202ex", session(Path("/nowhere"))).name == "exactly `rm \\u202ex`"
