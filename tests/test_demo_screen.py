"""What the demo prints."""

from collections.abc import Callable, Iterator
from io import StringIO

from acp_bridge.demo.recording import Unexpected
from acp_bridge.demo.screen import WIDTH, Screen


def printed(
    say: Callable[[Screen], None], *, colour: bool = False, live: bool = False
) -> Iterator[str]:
    out = StringIO()
    say(Screen(out, colour=colour, live=live))
    return iter(out.getvalue().splitlines())


def everything(screen: Screen) -> None:
    screen.say("Hello. " * 20)
    screen.step(6, "bridge killed")
    screen.waiting("the answer to 'Remember?'")
    screen.passed("a title that goes on and on", "and a detail, until it is too long", 12.345)
    screen.failed("a check", Unexpected("words " * 50, "\x1b[2J \u2603 " + "x" * 5000))


def test_lines_fit_into_80_columns_and_carry_no_escape_codes_of_anybody() -> None:
    lines = list(printed(everything))
    assert max(map(len, lines)) <= WIDTH
    assert all(line.isascii() and line.isprintable() for line in lines)


def test_a_line_gives_the_step_the_time_and_the_check() -> None:
    def say(screen: Screen) -> None:
        screen.step(2, "cancel")
        screen.passed("the answer", "", 0.0123)
        screen.passed("the next", "works", 2.5)

    first, second = printed(say)
    assert first.split() == ["ok", "2", "cancel", "12", "ms", "the", "answer"]
    assert second.split() == ["ok", "2", "cancel", "2.50", "s", "the", "next:", "works"]


def test_a_failure_says_what_was_expected_and_what_was_seen() -> None:
    def say(screen: Screen) -> None:
        screen.step(3, "interrupt")
        screen.failed("cancels", Unexpected("1", "2"))
        assert (screen.checks, screen.failures) == (1, 1)

    lines = [line.split() for line in printed(say)]
    assert lines == [["FAIL", "3", "interrupt", "cancels"], ["expected:", "1"], ["seen:", "2"]]


def test_colour_and_the_line_of_what_is_awaited_are_for_terminals() -> None:
    live = "\n".join(printed(everything, live=True))
    assert "waiting for the answer" in live
    assert "\x1b[3" not in live
    assert "\x1b[32mok" in "\n".join(printed(everything, colour=True, live=True))
