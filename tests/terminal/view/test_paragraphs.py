import random

import pytest

from acp_bridge.terminal.view.paragraphs import Paragraphs


def finished(*pieces: str) -> tuple[list[str], str]:
    paragraphs = Paragraphs()
    found = [each for piece in pieces for each in paragraphs.add(piece)]
    return [each.strip("\n") for each in found], paragraphs.rest


def test_a_paragraph_is_finished_when_the_next_one_begins() -> None:
    assert finished("one\ntwo\n\nthr") == (["one\ntwo"], "thr")


def test_an_empty_line_alone_finishes_nothing_since_an_indented_one_may_follow() -> None:
    assert finished("1. one\n\n") == ([], "1. one\n\n")
    assert finished("1. one\n\n", "   more\n\nnext") == (["1. one\n\n   more"], "next")


def test_empty_lines_in_a_code_block_do_not_divide_it() -> None:
    code = "```py\na\n\nb\n```\n"
    assert finished(code) == ([code.strip("\n")], "")


def test_a_fence_is_closed_by_one_as_long_and_not_by_a_shorter_one() -> None:
    assert finished("````\n```\n\nx\n````\n") == (["````\n```\n\nx\n````"], "")


def test_what_comes_in_pieces_is_divided_as_what_comes_at_once() -> None:
    text = "# T\n\npara\nmore\n\n- a\n\n  b\n- c\n\n```py\nx\n\n\ny\n```\nafter\n\n\n\nend\n\n"
    at_once = finished(text)
    source = random.Random(1)
    for _ in range(50):
        cuts = sorted(source.sample(range(len(text)), 6))
        pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
        assert finished(*pieces) == at_once


def test_a_long_code_block_is_divided_and_goes_on_as_code() -> None:
    lines = "".join(f"line {number}\n" for number in range(2_000))
    found, rest = finished(f"```py\n{lines}")
    assert len(found) > 1
    assert all(each.startswith("```py\n") and each.endswith("\n```") for each in found)
    assert rest.startswith("```py\n")
    inner = [each.removeprefix("```py\n").removesuffix("\n```") for each in found]
    whole = "\n".join(inner) + "\n" + rest.removeprefix("```py\n")
    assert whole == lines


@pytest.mark.parametrize("text", ["x" * 100_000, "```" + "y" * 50_000, "```\n" + "z" * 50_000])
def test_the_rest_is_short_even_when_no_line_ever_ends(text: str) -> None:
    paragraphs = Paragraphs()
    paragraphs.add(text)
    assert len(paragraphs.rest) <= 8_200
