"""The name of an agent, found in the command that starts it."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

#: commands that start another one, which then gives the name.
_LAUNCHERS: Final = frozenset({"npx", "bunx", "uvx", "pipx", "node", "bun", "deno", "env"})
#: an option, a setting, or an address, which may hold a password.
_NO_NAME: Final = re.compile(r"-|.*(=|://)")


def agent_name(command: Sequence[str]) -> str:
    """Return the name under which an agent's sessions are kept: its program without the options.

    So another option does not hide the sessions, and no secret of a command line is stored.
    """
    name = Path(command[0]).name
    if name in _LAUNCHERS or name.startswith("python"):
        words = [word for word in command[1:] if not _NO_NAME.match(word)]
        if words:
            return Path(words[0]).name if words[0].startswith(("/", ".")) else words[0]
    return name
