"""How a command ended is shown as its agent tells it, each in its own way; a guess never is."""

import re
from typing import Any

import pytest

from acp_bridge.core.protocol import Json
from acp_bridge.terminal.view.lines import Renderer
from acp_bridge.terminal.view.look import Look
from acp_bridge.terminal.view.markdown import markdown
from acp_bridge.terminal.view.transcript import Transcript


def text(words: str) -> list[Json]:
    return [{"type": "content", "content": {"type": "text", "text": words}}]


def updates(*ends: Json, **fields: Any) -> list[Json]:
    call = {"toolCallId": "1", "title": "make test", "kind": "execute", **fields}
    said = [{**call, "sessionUpdate": "tool_call", "status": "in_progress"}]
    said += [{"toolCallId": "1", "sessionUpdate": "tool_call_update", **end} for end in ends]
    return [{"update": each} for each in said]


def shown(*ends: Json, **fields: Any) -> str:
    """The card as a terminal shows it, without its colours."""
    transcript = Transcript()
    for params in updates(*ends, **fields):
        transcript.add_update(params)
    blocks = [*transcript.take_finished(), *transcript.tail()]
    return re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(Renderer(Look()).lines(blocks, 80))).strip()


TOLD: dict[str, tuple[Json, Json]] = {
    "built-in, cursor": (
        {"status": "completed", "rawOutput": {"exitCode": 3}},
        {"status": "completed", "rawOutput": {"exitCode": 0}},
    ),
    "codex-acp": (
        {"status": "failed", "rawOutput": {"exit_code": 3}},
        {"status": "completed", "rawOutput": {"exit_code": 0}},
    ),
    "opencode": (
        {"status": "completed", "rawOutput": {"output": "", "metadata": {"exit": 3}}},
        {"status": "completed", "rawOutput": {"output": "", "metadata": {"exit": 0}}},
    ),
    "claude-agent-acp, with terminals": (
        {
            "status": "failed",
            "rawOutput": "Exit code 3\nno",
            "_meta": {"terminal_exit": {"exit_code": 1, "signal": None}},
        },
        {"status": "completed", "_meta": {"terminal_exit": {"exit_code": 0, "signal": None}}},
    ),
}


@pytest.mark.parametrize(("failed", "succeeded"), TOLD.values(), ids=list(TOLD))
def test_a_command_that_failed_says_its_exit_code_and_only_one_that_succeeded_has_a_tick(
    failed: Json, succeeded: Json
) -> None:
    assert shown(failed).startswith("✗ make test  exit code 3")
    assert shown(succeeded).startswith("✓ make test")
    assert "exit code" not in shown(succeeded)


@pytest.mark.parametrize(
    "output",
    [
        "Exit code 3\nno such file",
        "Command failed: 'make test'\nReturn code: 3\nStderr: no",
        "a\nb\nc\n\n\nCommand failed with exit code: 3.",
        "a\nb\nc\nd\n\nCommand exited with code 3",
    ],
)
def test_the_code_that_an_agent_writes_is_read_of_a_call_that_it_calls_failed(output: str) -> None:
    assert shown({"status": "failed", "content": text(output)}).startswith(
        "✗ make test  exit code 3"
    )
    assert shown({"status": "failed", "rawOutput": output}).startswith("✗ make test  exit code 3")


@pytest.mark.parametrize("output", ["exit code 0", "Exit code 1", "all is well"])
def test_a_command_of_which_nobody_says_how_it_ended_has_no_tick(output: str) -> None:
    assert shown({"status": "completed", "content": text(output)}).startswith("■ make test\n")
    other = shown({"status": "completed"}, kind="other", rawInput={"command": "make test"})
    assert other == "■ make test"
    page = markdown(updates({"status": "completed", "content": text(output)}))
    assert "(execute, ended)" in page


def test_a_call_that_runs_no_command_has_its_tick() -> None:
    assert shown({"status": "completed"}, kind="read") == "✓ make test"
    assert shown({"status": "completed"}, kind="edit", rawInput={"command": "view"})[0] == "✓"


def test_a_command_that_a_signal_ended_says_so() -> None:
    killed = {"status": "completed", "rawOutput": {"exitCode": None, "signal": "SIGKILL"}}
    assert shown(killed) == "✗ make test  ended by SIGKILL"


def test_markdown_says_the_exit_code_too() -> None:
    page = markdown(updates({"status": "completed", "rawOutput": {"exitCode": 3}}))
    assert page == "**Tool** `make test` (execute, failed, exit code 3)"


def test_of_a_command_the_end_of_its_output_is_shown_while_it_runs_and_after() -> None:
    lines = "\n".join(f"line {number}" for number in range(30))
    for end in ({}, {"status": "completed"}, {"status": "failed", "rawOutput": {"exitCode": 1}}):
        card = shown({"content": text(lines), **end})
        assert "… 22 earlier lines (Ctrl-O shows all)\n  line 22\n" in card
        assert card.endswith("line 29")
    long = shown({"content": text("line\n" * 100_000 + "the end")})
    assert "… 99993 earlier lines" in long
    assert long.endswith("the end")


def test_an_output_that_is_no_content_is_shown_wherever_its_agent_sends_it() -> None:
    for raw in ("no", {"aggregated_output": "no"}, {"output": "no"}, {"stdout": "no"}):
        assert shown({"status": "failed", "rawOutput": raw}) == "✗ make test\n  no"


def test_whatever_an_agent_sends_breaks_nothing() -> None:
    for raw in (
        None,
        1,
        [1],
        [{"text": 1}],
        {"exitCode": True},
        {"metadata": 1},
        {"exitCode": "1"},
    ):
        odd = {"status": "failed", "rawOutput": raw, "_meta": 1, "content": [{"content": 1}]}
        assert shown(odd, kind=1) == "✗ make test"
