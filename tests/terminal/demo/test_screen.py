"""What the demo prints."""

from collections.abc import Callable
from io import StringIO

from acp_bridge.terminal.demo.recording import Finding, Unexpected
from acp_bridge.terminal.demo.screen import WIDTH, Screen


def printed(say: Callable[[Screen], None], *, colour: bool = False, live: bool = False) -> str:
    out = StringIO()
    say(Screen(out, colour=colour, live=live))
    return out.getvalue()


def good() -> Finding:
    return Finding(12.345, "and a detail, until it is much too long")


def bad() -> Finding:
    raise Unexpected("words " * 50, "\x1b[2J \u2603 \r\n\a" + "x" * 5000)


def everything(screen: Screen) -> None:
    section = screen.section(6, "bridge killed")
    section.waiting("the answer to '\x1b[2J'")
    section.check("a title that goes on and on", good)
    section.check("a check", bad)
    section.fail("not tried")
    section.quote("log:", "a log with \x1b and so on" * 10)
    section.close()


def test_lines_fit_into_80_columns_and_carry_no_escape_codes_of_anybody() -> None:
    lines = printed(everything).splitlines()
    assert max(map(len, lines)) <= WIDTH
    assert all(line.isascii() and line.isprintable() for line in lines)


def test_a_line_gives_the_step_the_time_and_the_check() -> None:
    def say(screen: Screen) -> None:
        section = screen.section(2, "cancel")
        section.check("the answer", lambda: Finding(0.0123, ""))
        section.check("the next", lambda: Finding(2.5, "works"))

    assert printed(say).splitlines() == [
        "ok   2 cancel           12 ms  the answer",
        "ok   2 cancel          2.50 s  the next: works",
    ]


def test_a_failure_says_what_was_expected_and_what_was_seen() -> None:
    def say(screen: Screen) -> None:
        screen.section(3, "interrupt").fail("cancels", Unexpected("1", "2"))
        assert (screen.checks, screen.failures) == (1, 1)

    lines = [line.split() for line in printed(say).splitlines()]
    assert lines == [["FAIL", "3", "interrupt", "cancels"], ["expected:", "1"], ["seen:", "2"]]


def test_steps_that_run_beside_each_other_are_printed_in_order_and_at_once_if_they_may() -> None:
    out = StringIO()
    screen = Screen(out)
    first, second, third = (screen.section(n, "step") for n in (1, 2, 3))

    def steps_printed() -> str:
        return "".join(line[5] for line in out.getvalue().splitlines())

    third.check("c", lambda: Finding(1, ""))
    third.close()
    second.check("b", lambda: Finding(1, ""))
    assert steps_printed() == ""
    first.check("a", lambda: Finding(1, ""))
    assert steps_printed() == "1"
    first.close()
    assert steps_printed() == "12"
    second.check("b", lambda: Finding(1, ""))
    assert steps_printed() == "122"
    second.close()
    assert steps_printed() == "1223"


def test_colour_and_the_line_of_what_is_awaited_are_for_terminals() -> None:
    live = printed(everything, live=True)
    assert "waiting for the answer" in live
    assert "\x1b[3" not in live
    assert "\x1b[2J" not in live
    assert "\x1b[32mok" in printed(everything, colour=True, live=True)
    assert "waiting" not in printed(everything)
