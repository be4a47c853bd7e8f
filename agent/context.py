"""The system prompt of a session."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


async def system_prompt(cwd: Path, roots: Sequence[Path]) -> str:
    return f"You are a coding agent. You work in {cwd}."
