"""The command `acp-bridge`."""

import sys


def main() -> int:
    """Run the command; returns its exit code."""
    if sys.platform == "win32":
        sys.stderr.write("acp-bridge does not run on Windows; use it inside WSL.\n")
        return 2
    from acp_bridge.cli import run

    return run(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
