"""The command `acp-bridge`."""

import sys

from acp_bridge import signals


def main() -> int:
    """Run the command; returns its exit code."""
    if sys.platform == "win32":
        sys.stderr.write("acp-bridge does not run on Windows; use it inside WSL.\n")
        return 2
    signals.leave_at_once()  # before the other imports, which take most of the start
    try:
        from acp_bridge.cli import run

        return run(sys.argv[1:])
    finally:
        signals.ignore()


if __name__ == "__main__":
    sys.exit(main())
