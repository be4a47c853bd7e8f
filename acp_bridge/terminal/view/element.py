"""Builds HTML. A text that is no `Markup` is escaped when it is put into an element. SANS-IO.

Only this room makes `Markup` of a plain text (`tests/test_house.py`). A function that returns
`Markup` can't forget to escape: mypy refuses an f-string or a sum in its place.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Final

from acp_bridge.terminal.cli.harmless import harmless

#: elements that have no end tag.
_EMPTY: Final = ("img",)


class Markup(str):
    """HTML whose texts are escaped."""

    __slots__ = ()


def text(of: str) -> Markup:
    """Return a text as HTML that shows it, with what can't be seen escaped."""
    return Markup(escape(harmless(of)))


def joined(parts: Iterable[str], between: str = "") -> Markup:
    """Return parts one after the other. A part that is no `Markup` becomes one by `text`."""
    return Markup(between.join(each if isinstance(each, Markup) else text(each) for each in parts))


def element(tag: str, *inside: str, **attributes: str | int | None) -> Markup:
    """Return an element around parts, as `joined` takes them.

    In the name of an attribute `_` stands for `-`; a `_` at the end is dropped (`class_`). An
    attribute that is None or False is left out, and True is one without a value.
    """
    begin = f"<{tag}"
    for name, value in attributes.items():
        if value is not None and value is not False:
            begin += f" {name.rstrip('_').replace('_', '-')}"
            begin += "" if value is True else f'="{escape(str(value))}"'
    end = "" if tag in _EMPTY else f"</{tag}>"
    return Markup(f"{begin}>{joined(inside)}{end}")
