"""The command line: what is set up before the bridge serves, and how an agent is named."""

import sys
from typing import Any

import anyio
import pytest

from acp_bridge import cli
from acp_bridge.wire import stdio


def test_worker_threads_are_made_to_let_go_of_the_loop_soon(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[float] = []

    def run(*args: Any) -> None:
        seen.append(sys.getswitchinterval())

    monkeypatch.setattr(anyio, "run", run)
    monkeypatch.setattr(stdio, "claim_stdio", lambda: (-1, -1))
    before = sys.getswitchinterval()
    try:
        assert cli.run(["--", "agent"]) == 0
    finally:
        sys.setswitchinterval(before)
    assert seen == [pytest.approx(0.0005)]


def test_no_address_is_taken_for_the_name_of_an_agent() -> None:
    words = ["uvx", "--index-url", "https://user:secret@packages.example/simple", "an-agent"]
    assert cli.agent_name(words) == "an-agent"
