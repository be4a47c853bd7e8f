"""Text in code fences."""

import pytest

from agent.content.fences import fenced, split_closing_fence


@pytest.mark.parametrize(
    ("text", "fence"),
    [("plain", "```"), ("a `b` c\n", "```"), ("```\ncode\n```", "````"), ("`````", "``````")],
)
def test_a_fence_is_longer_than_any_fence_of_the_text(text: str, fence: str) -> None:
    assert fenced(text) == f"{fence}\n{text.removesuffix(chr(10))}\n{fence}"


@pytest.mark.parametrize("text", ["output", "```\nin it\n```", ""])
def test_a_closing_fence_is_split_off_and_put_back_without_a_change(text: str) -> None:
    body, fence = split_closing_fence(fenced(text))
    assert fence.strip("\n`") == ""
    assert body + fence == fenced(text)
    assert body.endswith(text)


def test_a_text_without_a_closing_fence_is_left_whole() -> None:
    assert split_closing_fence("half ``` of it") == ("half ``` of it", "")
