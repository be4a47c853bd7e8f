"""`acp-bridge demo` (being written)."""

from collections.abc import Sequence


def main(arguments: Sequence[str]) -> int:
    """Show the bridge working; returns the exit code."""
    raise SystemExit("not there yet")
