"""Of what an agent wrote, the lines are told that say most; of its error, what its data say."""

import pytest

from acp_bridge.core import errors
from acp_bridge.core.agents.failed_start import Attempt, telling
from acp_bridge.core.wire.jsonrpc import RpcError


def told(*lines: str) -> list[str]:
    return [line.strip() for line in telling(lines, lambda text: text.replace("hush", "***"))]


STOPS = ["INFO stop"] * 4


@pytest.mark.parametrize(
    "tells",
    [
        "error: no key",
        "agent: unknown option --acp",
        "[12:00:00] FATAL no key",
        "2026-01-01T00:00:00.000Z agent[12] ERROR no key",
        '{"time":1,"level":"error","msg":"no key"}',
        '{"level":50,"msg":"no key"}',
    ],
)
def test_a_line_that_says_what_went_wrong_stands_before_the_last_three(tells: str) -> None:
    assert told("start", tells, *STOPS) == [tells, "...", *STOPS[:3]]


@pytest.mark.parametrize("quiet", ["no errors found", '{"level":30,"msg":"x"}', "  --error X"])
def test_a_line_that_only_speaks_of_errors_does_not(quiet: str) -> None:
    assert told("start", quiet, *STOPS) == ["start", "...", *STOPS[:3]]


def test_the_first_line_is_left_out_if_one_of_the_last_three_says_what_went_wrong() -> None:
    lines = ["Traceback (most recent call last):", "at a", "at b", "RuntimeError: no key"]
    assert told(*lines) == lines[1:]


def test_lines_are_as_a_terminal_shows_them_and_masked_as_they_are_shown() -> None:
    assert told("10%\r20%\r\x1b[1mhu\x1b[0msh\x1b]0;title\x07!\r", " ", "\x07") == ["***!", "\\x07"]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ("no quota", "no quota"),
        ({"details": "no quota", "message": "x"}, "no quota"),
        ({"message": "no quota", "kept": 1}, "no quota"),
        ({"details": {"reason": "no quota"}}, '{"details":{"reason":"no quota"}}'),
        ([{"path": ["cwd"]}], '[{"path":["cwd"]}]'),
        ({"kept": 1}, ""),
        ({"details": ""}, ""),
        (None, ""),
        (5, ""),
    ],
)
def test_what_the_data_of_an_error_say_is_found_in_each_form(data: object, said: str) -> None:
    assert errors.details(data) == said


def test_data_that_are_too_deep_say_nothing() -> None:
    deep: list[object] = ["x"]
    for _ in range(100_000):
        deep = [deep]
    assert errors.details(deep) == ""


def test_the_log_of_an_agent_of_ours_is_not_told_beside_its_error() -> None:
    refusal = RpcError.received(-32603, "Internal error", {"details": "the disk is full"})
    for ours in (False, True):
        attempt = Attempt(("agent",), "agent", ours=ours)
        attempt.note_stderr("OSError: [Errno 28]")
        trouble = attempt.refused(refusal)
        assert trouble.what.endswith("with an error: Internal error: the disk is full")
        assert ("OSError" in trouble.details) is not ours
