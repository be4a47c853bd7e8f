"""The command `acp-bridge`."""

import sys

if sys.version_info < (3, 11):  # noqa: UP036 - a clone may be run by any Python
    sys.stderr.write(f"acp-bridge needs Python 3.11 to 3.14; this is {sys.version.split()[0]}.\n")
    sys.exit(2)

import acp_bridge
from acp_bridge.core.runtime import signals

#: how many allocations come before a run of the garbage collector, which finds little: messages are
#: freed by reference counts, and what is imported stays.
COLLECT_AFTER = 50_000


def main() -> int:
    """Run the command that `sys.argv` names; returns its exit code."""
    if sys.platform == "win32":
        sys.stderr.write("acp-bridge does not run on Windows; use it inside WSL.\n")
        return 2
    if not hasattr(acp_bridge, "__version__"):
        sys.stderr.write(
            "acp-bridge: the other package of this name on the index has overwritten files of this"
            " one: uninstall both here, and install this one from its clone, by pipx install . or"
            " uv tool install .\n"
        )
        return 2
    # Before the other imports, which take most of the start. A command begins with its name.
    command = sys.argv[1:2] and not sys.argv[1].startswith("-")
    signals.leave_at_once(signals.INTERRUPTED if command else 0)
    try:
        import gc

        gc.set_threshold(COLLECT_AFTER)
        if not command:
            gc.disable()  # until all is imported that serves (`stdio.loaded`)
        # Every command can speak to a bridge; what is forked here is private, too (invariant P17).
        from acp_bridge.core.agents import guard

        guard.keep_private()
        guard.take_keys()
        from acp_bridge.terminal.cli import run

        return run(sys.argv[1:])
    finally:
        signals.ignore()


if __name__ == "__main__":
    sys.exit(main())
