"""The patch of a file leads from what it was to what it is, whatever stands in it."""

import re

from hypothesis import given
from hypothesis import strategies as st

from acp_bridge.terminal.view import patch
from acp_bridge.terminal.view.blocks import Diff
from acp_bridge.terminal.view.session_diff import UNKNOWN, Change, folded

LINES = st.lists(st.sampled_from(["a", "b", "", "c\r", "d\x0ce", "+", "-", "@@"]), max_size=30)
TEXTS = st.builds(lambda lines, end: "\n".join(lines) + end, LINES, st.sampled_from(["", "\n"]))


def applied(before: str, lines: list[str]) -> str:
    """What `patch` makes of a text."""
    old, new, at = re.findall("[^\n]*\n|[^\n]+", before), list[str](), 0
    for number, line in enumerate(lines):
        bare = lines[number + 1 : number + 2] == ["\\ No newline at end of file"]
        text = line[1:] + ("" if bare else "\n")
        if found := re.match(r"@@ -(\d+)(?:,(\d+))? \+", line):
            start = int(found[1]) - (found[2] != "0")
            new, at = new + old[at:start], start
        elif line[0] in " -":
            assert old[at] == text
            at += 1
        if line[0] in "+ ":
            new.append(text)
    return "".join(new + old[at:])


@given(TEXTS, TEXTS)
def test_a_patch_makes_the_one_text_of_the_other(before: str, after: str) -> None:
    lines = list(patch.hunks(before, after))
    assert applied(before, lines) == after
    assert bool(lines) == (before != after)


def test_a_long_change_is_one_hunk_and_is_not_compared_line_by_line() -> None:
    before = "".join(f"{number}\n" for number in range(9_000))
    after = before.replace("3\n", "x\n")
    lines = list(patch.hunks(before, after))
    assert [each for each in lines if each.startswith("@@")] == ["@@ -1,8997 +1,8997 @@"]
    assert applied(before, lines) == after
    assert list(patch.hunks(before, before)) == []


@given(st.lists(st.tuples(st.integers(0, 9), st.booleans()), min_size=1, max_size=12))
def test_changes_that_have_a_place_fold_into_one_from_the_first_text_to_the_last(
    steps: list[tuple[int, bool]],
) -> None:
    first = now = "".join(f"line {number}\n" for number in range(10))
    diffs = []
    for made, (line, whole) in enumerate(steps):
        old = now.split("\n")[line]
        new = f"line {line} {made} changed"
        after = now.replace(f"{old}\n", f"{new}\n")
        diffs.append(Diff("f", now, after) if whole else Diff("f", f"{old}\n", f"{new}\n"))
        now = after
    found = folded(diffs, [True] * len(diffs), now)
    assert (found.changes, found.fragments) == ([Change(first, now)], [])


def test_what_is_not_clear_is_a_fragment_unless_the_first_text_is_known() -> None:
    first, now = "x\nb\na\n", "x\na\na\n"
    diff = Diff("f", "b\n", "a\n")
    assert folded([diff], [True], now).fragments == [diff]
    assert folded([diff], [True], now, first).changes == [Change(first, now)]
    assert folded([diff], [True], now, "other").fragments == [diff]
    assert folded([diff], [True], UNKNOWN).fragments == [diff]
    assert folded([Diff("f", "b", "")], [True], "x").fragments
    assert folded([Diff("f", "b", "aa")], [True], "aaa").fragments


def test_a_file_that_was_changed_by_something_else_between_has_two_changes() -> None:
    one, two = Diff("f", None, "1"), Diff("f", "2", "3")
    found = folded([one, two], [True, True], "3")
    assert found.changes == [Change(None, "1"), Change("2", "3")]


def test_a_file_that_is_written_anew_was_there_before() -> None:
    one, two = Diff("f", None, "1"), Diff("f", None, "2")
    assert folded([one, two], [True, True], "2").changes == [Change(None, "2")]
    assert folded([one, two], [False, True], "2").changes == [Change("1", "2")]
    assert folded([one, Diff("f", "1", "")], [True, True], None).changes == []
