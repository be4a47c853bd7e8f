"""`make pictures`: records the demo and `chat`, and draws docs/pictures from the recordings.

`--draw` only draws, from the recordings that there are.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio

from tests.pictures import cast, record
from tests.pictures.cast import Cast
from tests.pictures.svg import draw

PICTURES = record.ROOT / "docs" / "pictures"
#: the project of the picture, which the README lets people try themselves.
EXAMPLE = record.ROOT / "fixtures" / "example"
CHAT = ("chat", "--model", "scripted:answers")
PROMPT = "parser.py fails on empty lines, fix it"


async def demo(folder: Path) -> Cast:
    """Record `acp-bridge demo`."""
    async with record.recording(["demo"], folder, folder, (80, 28)) as there:
        await there.process.wait()
        await there.sees("checks passed")
    return there.cast("acp-bridge demo", {})


async def chat(folder: Path) -> Cast:
    """Record a conversation: an edit is asked for and allowed, and the next prompt waits."""
    project = folder / "project"
    shutil.copytree(EXAMPLE, project)
    async with record.recording(CHAT, project, folder, (80, 30)) as there:
        await there.sees("»")
        await there.types(PROMPT)
        await there.sees("1 or y")
        await there.presses("y")
        await there.presses("\r")
        await there.sees("left")
        await there.types("and a line for the changelog")
        await there.sees("waits: and a line")
        await there.sees("Shall I add it?")
        await there.presses("\x04")
        await there.process.wait()
    return there.cast("acp-bridge chat", {str(project): "~/project"})


RECORDINGS: dict[str, Callable[[Path], Awaitable[Cast]]] = {"demo": demo, "chat": chat}


def main() -> int:
    """Record, unless told not to, and draw; returns the exit code."""
    for name, made in RECORDINGS.items():
        file = PICTURES / f"{name}.cast"
        if "--draw" not in sys.argv[1:]:
            with tempfile.TemporaryDirectory(prefix="acp-bridge-picture-") as folder:
                cast.write(anyio.run(made, Path(os.path.realpath(folder))), file)
        picture = draw(cast.read(file))
        file.with_suffix(".svg").write_text(picture, "utf-8")
        print(f"docs/pictures/{name}.svg: {len(picture) // 1024} kB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
