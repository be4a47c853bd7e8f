"""What the doctor is to look at in a test."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from acp_bridge.core.keys.masking import Mask
from acp_bridge.core.settings import Settings
from acp_bridge.terminal.doctor.findings import Finding, Subject


def subject(home: Path, command: Sequence[str] = ("agent",), **settings: Any) -> Subject:
    """Another agent than the project's own, on this data folder."""
    env = {"PATH": "/usr/bin:/bin", "HOME": str(home.parent)}
    return Subject(
        Settings(tuple(command), "an-agent", home, **settings),
        own_agent=False,
        model=None,
        hindrance=None,
        env=env,
        mask=Mask([]),
    )


def levels(findings: Sequence[Finding]) -> list[str]:
    return [finding.level.value for finding in findings]


def texts(findings: Sequence[Finding]) -> str:
    return "\n".join(f"{finding.text} -> {finding.next}" for finding in findings)
