"""What the end of a hook means."""

import json
from typing import Any

import pytest

from acp_bridge.features.hooks.definitions import HookEvent
from acp_bridge.features.hooks.verdict import NO_REASON, Permission, Ran, Verdict, decide, interpret

PROMPT, STOP, ASKED = HookEvent.PROMPT, HookEvent.TURN_END, HookEvent.PERMISSION
START = HookEvent.SESSION_START
ALLOW, DENY = Verdict(permission=Permission.ALLOW), Verdict(permission=Permission.DENY, reason="r")
ASK, FAILED = Verdict(permission=Permission.ASK), Verdict(problem="x")


def printed(event: HookEvent, said: Any, code: int = 0) -> Verdict:
    text = said if isinstance(said, str) else json.dumps(said)
    return interpret(event, Ran(code, text))


@pytest.mark.parametrize(
    ("event", "said", "verdict"),
    [
        (PROMPT, "", Verdict()),
        (PROMPT, "more\n", Verdict(context="more")),
        (START, "more", Verdict(context="more")),
        (STOP, "all is well", Verdict()),
        (HookEvent.WAITING, "x", Verdict()),
        (PROMPT, {"hookSpecificOutput": {"additionalContext": "c"}}, Verdict(context="c")),
        (START, {"additionalContext": "c"}, Verdict(context="c")),
        (PROMPT, {"decision": "block", "reason": "no"}, Verdict(block="no")),
        (PROMPT, {"decision": "block"}, Verdict(block=NO_REASON)),
        (PROMPT, {"continue": False, "stopReason": "enough"}, Verdict(block="enough")),
        (PROMPT, {"decision": "approve"}, Verdict()),
        (STOP, {"decision": "block", "reason": "again"}, Verdict(block="again")),
        (STOP, {"decision": "block", "reason": "again", "continue": False}, Verdict()),
        (STOP, {}, Verdict()),
        (ASKED, {}, Verdict()),
        (ASKED, {"hookSpecificOutput": {"permissionDecision": "ask"}}, None),
        (HookEvent.DEATH, {"x": 1}, Verdict()),
    ],
)
def test_what_a_hook_that_ended_well_has_said(
    event: HookEvent, said: Any, verdict: Verdict | None
) -> None:
    expected = verdict or Verdict(permission=Permission.ASK, reason=NO_REASON)
    assert printed(event, said) == expected


@pytest.mark.parametrize(
    "said",
    [
        {"hookSpecificOutput": {"permissionDecision": "deny", "permissionDecisionReason": "r"}},
        {"permissionDecision": "deny", "reason": "r"},
        {"permissionDecision": "deny", "permissionDecisionReason": "r", "reason": "other"},
        {"hookSpecificOutput": {"decision": {"behavior": "deny", "message": "r"}}},
        {"decision": "block", "reason": "r"},
        {"continue": False, "permissionDecision": "allow", "reason": "r"},
    ],
)
def test_a_permission_is_refused_in_each_form_that_hooks_are_written_in(said: Any) -> None:
    assert printed(ASKED, said) == DENY


@pytest.mark.parametrize(
    "said",
    [
        {"hookSpecificOutput": {"permissionDecision": "allow"}},
        {"permissionDecision": "allow"},
        {"hookSpecificOutput": {"decision": {"behavior": "allow"}}},
        {"decision": "approve"},
    ],
)
def test_a_permission_is_given_in_each_form_that_hooks_are_written_in(said: Any) -> None:
    assert printed(ASKED, said).permission is Permission.ALLOW


@pytest.mark.hazard("C18.7")
@pytest.mark.parametrize(
    ("said", "strictest"),
    [
        ({"permissionDecision": "allow", "decision": "block"}, Permission.DENY),
        ({"permissionDecision": "deny", "decision": "approve"}, Permission.DENY),
        (
            {"permissionDecision": "deny", "hookSpecificOutput": {"permissionDecision": "allow"}},
            Permission.DENY,
        ),
        (
            {"permissionDecision": "ask", "hookSpecificOutput": {"permissionDecision": "allow"}},
            Permission.ASK,
        ),
        (
            {"decision": "block", "hookSpecificOutput": {"decision": {"behavior": "allow"}}},
            Permission.DENY,
        ),
    ],
)
def test_of_decisions_that_contradict_each_other_the_strictest_counts(
    said: Any, strictest: Permission
) -> None:
    assert printed(ASKED, said).permission is strictest


@pytest.mark.hazard("C18.2")
@pytest.mark.parametrize(
    "said",
    [
        "allow",
        "yes",
        "[]",
        '"allow"',
        "{",
        '{"permissionDecision": "allow"',
        {"permissionDecision": "Allow"},
        {"permissionDecision": True},
        {"permissionDecision": ["allow"]},
        {"decision": {"behavior": "sure"}},
        {"decision": 1},
        {"hookSpecificOutput": [{"permissionDecision": "allow"}]},
        {"permissionDecision": "allow", "reason": 5},
        '{"a":' * 5000,
    ],
)
def test_nonsense_allows_nothing(said: Any) -> None:
    verdict = printed(ASKED, said)
    assert verdict.permission is None
    assert verdict.problem
    assert decide([verdict, ALLOW])[0] is Permission.ASK


@pytest.mark.parametrize(
    ("event", "said", "problem"),
    [
        (ASKED, "yes", "its output is no JSON object"),
        (STOP, "{", "its output is no JSON object"),
        (STOP, {"hookSpecificOutput": []}, "hookSpecificOutput is no object"),
        (STOP, {"decision": "stop"}, "decision is 'stop', and not 'block'"),
        (STOP, {"decision": "block"}, "decision is 'block', and no reason is given"),
        (STOP, {"reason": 5}, "reason is no text"),
        (
            ASKED,
            {"permissionDecision": "sure"},
            "permissionDecision is 'sure', and not 'allow', 'deny' or 'ask'",
        ),
    ],
)
def test_what_is_not_understood_is_said(event: HookEvent, said: Any, problem: str) -> None:
    assert printed(event, said) == Verdict(problem=problem)


@pytest.mark.hazard("C18.7")
@pytest.mark.parametrize("code", [1, 3, 127, 255])
def test_a_hook_that_fails_has_said_nothing_whatever_it_printed(code: int) -> None:
    verdict = interpret(ASKED, Ran(code, json.dumps({"permissionDecision": "allow"}), "oh\nno"))
    assert verdict == Verdict(problem=f"exit code {code}: oh")
    assert interpret(STOP, Ran(code)) == Verdict(problem=f"exit code {code}")
    long = interpret(STOP, Ran(code, stderr="x" * 201))
    assert long == Verdict(problem=f"exit code {code}: {'x' * 200}")
    timed_out = Ran(0, json.dumps({"permissionDecision": "allow"}), problem="it was killed")
    assert interpret(ASKED, timed_out) == Verdict(problem="it was killed")


def test_an_output_that_is_cut_counts_only_where_its_beginning_does() -> None:
    assert interpret(PROMPT, Ran(0, "x" * 20_000, cut=True)).context == "x" * 10_000
    assert interpret(PROMPT, Ran(0, '{"a": "', cut=True)).problem == "it printed too much"
    assert interpret(ASKED, Ran(0, "", cut=True)).problem is None
    assert interpret(STOP, Ran(0, "x", cut=True)) == Verdict()


@pytest.mark.parametrize(
    ("event", "stderr", "verdict"),
    [
        (PROMPT, " no\n", Verdict(block="no")),
        (PROMPT, "", Verdict(block=NO_REASON)),
        (STOP, "again", Verdict(block="again")),
        (STOP, "", Verdict(problem="exit code 2, and no text on stderr")),
        (ASKED, "r", DENY),
        (HookEvent.WAITING, "x" * 201, Verdict(problem=f"exit code 2: {'x' * 200}")),
        (HookEvent.WAITING, "", Verdict(problem="exit code 2")),
    ],
)
def test_exit_code_2_says_no_with_the_text_on_stderr(
    event: HookEvent, stderr: str, verdict: Verdict
) -> None:
    assert interpret(event, Ran(2, '{"permissionDecision": "allow"}', stderr)) == verdict


@pytest.mark.hazard("C18.7")
@pytest.mark.parametrize(
    ("verdicts", "decision"),
    [
        ([], None),
        ([Verdict()], None),
        ([ALLOW], Permission.ALLOW),
        ([ALLOW, Verdict()], Permission.ALLOW),
        ([ALLOW, ASK], Permission.ASK),
        ([ALLOW, FAILED], Permission.ASK),
        ([FAILED, DENY], Permission.DENY),
        ([ALLOW, DENY], Permission.DENY),
        ([ASK, DENY], Permission.DENY),
    ],
)
def test_of_several_hooks_the_strictest_word_counts(
    verdicts: list[Verdict], decision: Permission | None
) -> None:
    assert decide(verdicts) == (decision, "r" if decision is Permission.DENY else "")
