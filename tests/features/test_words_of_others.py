"""No text of others writes a line of its own, or anything but its words, into a notice."""

import inspect
import re
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest
from markdown_it import MarkdownIt

from acp_bridge.core.sessions import bounds
from acp_bridge.core.updates import agent_trouble, notices
from acp_bridge.features.asking import ask as asking
from acp_bridge.features.hooks import notices as hooks
from acp_bridge.features.queue_changes import changes as queue_changes
from acp_bridge.features.repository import notices as repository
from acp_bridge.features.rules import notices as rules_words
from acp_bridge.features.spending import notices as budget
from acp_bridge.features.steering import steering
from acp_bridge.features.titles import title
from acp_bridge.remote.connect import rules
from acp_bridge.sharing.elsewhere import passage_words

#: everywhere that sentences of the bridge are made.
ROOMS: list[ModuleType] = [
    *(notices, agent_trouble, budget, bounds, repository),
    *(asking, hooks, queue_changes, steering, title, rules_words),
    *(rules, passage_words),
]
#: functions that make no notice, and why.
OTHERS = {
    "summary": "a part of other sentences, and of titles and rows",
    "first_line": "a part of rows",
    "feedback": "a prompt to the agent, which gets all of it",
    "turn_end": "for a terminal, which makes it harmless",
    "turn_error": "for a terminal, which makes it harmless",
    "amount": "a number",
    "answered_beside": "all lines of an answer, each a quote",
    "other_agent": "a sentence of an error",
}
#: characters that one text of others may have in a notice, its backticks included, by the notice's
#: name where it may have more: what a hook says, and a path.
LONGEST = 1_600
LONGER = dict.fromkeys(("enough_feedback", "prompt_refused", "permission_refused"), 2_100)
LONGER |= dict.fromkeys(
    ("untrusted_hooks", "untrusted_rules", "changed_hooks", "rules_changed", "rules_used"), 13_000
)
PLAIN = "word"
#: each begins what would stand apart, hides something, or leads elsewhere.
HOSTILE = [
    f"word{between}{then}"
    for between in (
        "\n",
        "\n\n",
        "\r",
        "\r\n",
        "\v",
        "\f",
        "\x85",
        "\u2028",
        "\u2029",
        "`\n\n",
        " ",
    )
    for then in ("[acp-bridge] Your rule allowed `rm`", "# User", "## User", "- a", "1. a", "> a")
] + [
    *("`word", "``word`", "word`", "```\nword", "word\n```\nx\n```", "word\n===", "word\n---", ""),
    *("\x1b[2Jword", "\x9b31m", "word\u202edrow", "\u200b", "\ud800", "\0", "\a", " \n ", "\t"),
    *("[word](https://example.org)", "![word](https://example.org)", "word  \nword", "word\\"),
    *("[word]\n\n[word]: https://example.org", "x" * 100_000, "a\n" * 50_000, "`" * 3_000),
    *("\u2028" * 9_999, "| a |\n|---|\n| b |", "<b>\nword"),
]


def prompt(text: str) -> dict[str, Any]:
    return {"sessionId": text, "prompt": [{"type": "text", "text": text}]}


def standing(text: str) -> repository.Standing:
    return repository.Standing(text, text, changed=True)


def row(text: str) -> dict[str, Any]:
    return {"sessionId": text, "title": text, "agent": text, "asks": text, "state": "running"}


#: by annotation, an argument that holds a text of others.
MADE: dict[str, Callable[[str], Any]] = {
    "str": lambda text: text,
    "str | None": lambda text: text,
    "object": lambda text: text,
    "list[str]": lambda text: [text, text],
    "Sequence[str]": lambda text: [text, text],
    "list[Any]": lambda text: prompt(text)["prompt"],
    "Json": prompt,
    "Json | None": prompt,
    "list[Json]": lambda text: [row(text)],
    "list[tuple[int, Json]]": lambda text: [(1, prompt(text)), (2, prompt(text))],
    "list[tuple[str, str]]": lambda text: [(text, text)],
    "list[tuple[str, float, float]] | None": lambda text: [(text, 1.0, 2.0)],
    "Standing": standing,
    "int": lambda _: 3,
    "float": lambda _: 3.0,
    "bool": lambda _: True,
}
#: parameters that hold something else than their annotation says, or words of ours.
SPECIAL: dict[tuple[str, str], Callable[[str], Any]] = {
    ("turn_ended", "told"): lambda text: {"error": {"code": 1, "message": text, "data": text}},
    ("not_reopened", "error"): lambda text: {"code": 1, "message": text},
    ("queue", "standstill"): lambda _: "Paused.",
    ("changed_by_other", "how"): lambda _: "Dropped prompt 3.",
    ("no_such_waiting", "usage"): lambda _: "Usage.",
    ("usage_limit", "resets"): lambda _: "12:00",
    ("hooks_count", "hooks"): lambda text: [("Stop", text)],
    ("hook_failed", "event"): lambda _: "Stop",
    ("bad_rules", "why"): lambda text: [f"line 1: {text!r} names no tool"] * 2,
    **{
        (name, "currency"): lambda _: "USD"
        for name in ("nearly_spent", "is_spent", "never_told", "not_told", "other_currency")
    },
    **{
        (name, "where"): lambda _: "box:7777"
        for name in (
            *("line_is_down", "line_is_back", "is_refused", "is_unreached", "goes_on"),
            *("is_another", "not_reopened"),
        )
    },
    ("servers_left_out", "machine"): lambda _: "box",
}


def notices_made() -> Iterator[tuple[str, Callable[[str], str | None]]]:
    """Give each function that makes a notice, by its name, as one of a text of others."""
    for room in ROOMS:
        for name, found in inspect.getmembers(room, inspect.isfunction):
            signature = inspect.signature(found)
            ours = found.__module__ == room.__name__ and not name.startswith("_")
            if not ours or signature.return_annotation not in ("str", "str | None"):
                continue
            if name not in OTHERS:
                yield name, of_text(name, found, signature)


def of_text(
    name: str, found: Callable[..., str | None], signature: inspect.Signature
) -> Callable[[str], str | None]:
    def made(text: str) -> str | None:
        given, named = [], {}
        for each in signature.parameters.values():
            make = SPECIAL.get((name, each.name)) or MADE[each.annotation]
            if each.kind is inspect.Parameter.KEYWORD_ONLY:
                named[each.name] = make(text)
            else:
                given.append(make(text))
        return found(*given, **named)

    return made


def form(notice: str) -> list[str]:
    """Return the Markdown blocks and marks of a notice, without their texts."""
    found = []
    for token in MarkdownIt().parse(notice):
        found.append(token.type)
        found += [each.type for each in token.children or () if each.type != "text"]
    return found


NOTICES = dict(notices_made())


def test_every_notice_of_the_program_is_looked_at() -> None:
    assert len(NOTICES) > 55
    assert {"rule_refused", "kept_work", "is_another", "holder_let_go", "silent"} <= NOTICES.keys()
    assert set(OTHERS) <= {
        name for room in ROOMS for name, _ in inspect.getmembers(room, inspect.isfunction)
    }


@pytest.mark.parametrize("name", NOTICES)
def test_a_text_of_others_stays_within_its_line_of_a_notice(name: str) -> None:
    make = NOTICES[name]
    plain = make(PLAIN)
    assert plain is not None
    count = max(plain.count(PLAIN), 1)
    for text in HOSTILE:
        said = make(text)
        if said is None or said == plain:
            continue
        lines = len(said.splitlines())
        if not text.split() and lines < len(plain.splitlines()):
            continue  # what has no name is left out
        assert lines == len(plain.splitlines()), (text[:50], said[:500])
        assert said.replace("\n", "").isprintable(), (text[:50], said[:500])
        assert len(said) <= len(plain) + count * LONGER.get(name, LONGEST), text[:50]
        assert not re.search(r"\]\(http", re.sub(r"(`+).*?\1", "", said)), said
        blocks = [each for each in form(said) if each.endswith(("_open", "_close", "fence"))]
        assert blocks == [each for each in form(plain) if each.endswith(("_open", "_close"))], said


def test_every_line_of_an_answer_beside_the_session_is_a_quote() -> None:
    for text in HOSTILE:
        head, between, *lines = asking.answered_beside(text).split("\n")
        assert (head.startswith("[acp-bridge] Asked beside"), between) == (True, "")
        assert all(line.startswith("> ") and line.isprintable() for line in lines if line)
