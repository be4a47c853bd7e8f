"""Takes the PATH of the user's login shell (`--login-shell-path`).

An editor that was started from the desktop may have a PATH without node or the agent.
"""

import os
import subprocess
from typing import Final

from acp_bridge.core.runtime import log

#: seconds that the shell may take to read the user's files.
_WITHIN: Final = 10.0


def take_path() -> None:
    """Give this process, and so the agent, the PATH of the login shell; logs why it can't."""
    shell = os.environ.get("SHELL") or "/bin/sh"
    command = [shell, "-l", "-i", "-c", "env"]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_WITHIN,
            start_new_session=True,  # it must not take the terminal of a chat
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as why:
        log.logger.warning("the login shell does not tell its PATH: %s", type(why).__name__)
        return
    lines = done.stdout.decode(errors="surrogateescape").splitlines()
    paths = [line.removeprefix("PATH=") for line in lines if line.startswith("PATH=")]
    if paths and paths[-1]:
        os.environ["PATH"] = paths[-1]
    else:
        log.logger.warning("the login shell does not tell its PATH")
