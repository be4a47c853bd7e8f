"""`acp-bridge` without a command: serve the client on stdin and stdout.

The bridge itself is imported last: neither `--help` nor a wrong option waits for it.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence
from typing import Final

from acp_bridge import log
from acp_bridge.agents import guard
from acp_bridge.cli.options import Options, parse
from acp_bridge.settings import Settings

#: seconds. A worker thread that merges the journal must not hold the event loop up for 5 ms, the
#: interpreter's default.
_SWITCH_INTERVAL: Final = 0.0005
#: objects. Messages die by their reference counts, so cycles are looked for rarely.
_COLLECT_AFTER: Final = 50_000

_AT_A_TERMINAL: Final = (
    "acp-bridge speaks ACP on stdin and stdout: an editor starts it."
    " 'acp-bridge demo' shows it working; Ctrl-D ends.\n"
)


def main(arguments: Sequence[str]) -> int:
    """Serve until the client is gone; returns the exit code."""
    guard.keep_private()
    try:
        options = parse(arguments, os.environ)
    except SystemExit as exc:
        return exc.code if isinstance(exc.code, int) else 2
    if not _open_log(options):
        return 2
    if sys.stdin is not None and sys.stdin.isatty():
        sys.stderr.write(_AT_A_TERMINAL)
    return _serve(options.settings)


def _open_log(options: Options) -> bool:
    level = options.log_level or ("info" if options.log_file else "warning")
    try:
        log.configure(level, options.log_file)
    except OSError as exc:
        sys.stderr.write(f"acp-bridge: the log file can't be written: {exc.strerror}\n")
        return False
    return True


def _serve(settings: Settings) -> int:
    sys.setswitchinterval(_SWITCH_INTERVAL)
    import anyio

    from acp_bridge import bridge
    from acp_bridge.wire.stdio import claim_stdio

    try:
        stdin, stdout = claim_stdio()
    except OSError as exc:
        sys.stderr.write(f"acp-bridge: {exc.strerror}\n")
        return 2
    gc.freeze()  # modules are never collected
    gc.set_threshold(_COLLECT_AFTER)
    anyio.run(bridge.serve, settings, stdin, stdout)
    return 0
