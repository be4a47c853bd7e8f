"""Asks the person at the terminal a yes/no question; only `yes` and `y` mean yes.

Invariant: nothing that needs a yes is done because nobody could be asked.
"""

from __future__ import annotations

import os
import sys
from typing import Final

from acp_bridge.core.wire.stdio import Reader
from acp_bridge.terminal.cli.printing import print_text

#: bytes; how much of an answer is read.
_MOST: Final = 1000


def nobody_to_ask(instead: str, *streams: str) -> str | None:
    """Return why nobody can be asked, in words for the user; None if somebody can.

    `instead`: the option that says yes beforehand; `streams`: the names of those of `sys` that must
    be terminals.
    """
    found = (getattr(sys, name) for name in streams)
    if all(stream is not None and stream.isatty() for stream in found):
        return None
    return f"nobody can say yes where {' or '.join(streams)} is no terminal: give it {instead}"


async def says_yes(question: str) -> bool:
    """Ask a question and read one line; True for yes. The end of the input means no."""
    print_text(f"{question} [yes/no] ")
    reader = Reader(os.dup(0))
    said = b""
    try:
        while b"\n" not in said and len(said) < _MOST:
            piece = await reader.read()
            if not piece:
                break
            said += piece
    finally:
        reader.close()
        if b"\n" not in said:
            print_text("\n")
    return said.strip().lower() in (b"y", b"yes")
