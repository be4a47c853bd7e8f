"""A question to the person at the terminal that only `yes`, or `y`, answers with yes."""

from __future__ import annotations

import os
from typing import Final

from acp_bridge.cli.printing import print_text
from acp_bridge.wire.stdio import Reader

#: bytes of an answer that are read at most.
_MOST: Final = 1000


async def says_yes(question: str) -> bool:
    """Ask on the terminal and read one line; the end of the input is a no."""
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
