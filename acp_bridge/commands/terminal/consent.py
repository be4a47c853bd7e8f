"""Asks the person at the terminal a yes/no question; only `yes` and `y` mean yes."""

from __future__ import annotations

import os
from typing import Final

from acp_bridge.cli.printing import print_text
from acp_bridge.wire.stdio import Reader

#: bytes; how much of an answer is read.
_MOST: Final = 1000


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
