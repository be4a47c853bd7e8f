"""Draws a recording as one SVG that plays by CSS; where nothing plays, it shows the last frame.

A row that stays the same over several frames is drawn once, and is visible for so long.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from tests.pictures.cast import Cast, Frame, frames
from tests.pictures.screen import Row, Run, Style

#: pixels: a character's width and height, the size of the font, the rim, the bar with the title.
_WIDTH, _HEIGHT, _FONT, _RIM, _BAR = 8, 18, 13, 14, 30
_PAPER, _INK, _FRAME = "#14171c", "#d5d9e0", "#2a2f38"
_COLOURS = (
    *("#3b4048", "#e06c75", "#7fc77c", "#d9b25f", "#6aa5f0", "#c58ae6", "#5fbfc8", "#c8ccd4"),
    *("#7d8590", "#f08a92", "#9be094", "#f0cf7f", "#8fc0ff", "#dcaaf7", "#80dde5", "#ffffff"),
)
_FAMILY = (
    "ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono','Liberation Mono',monospace"
)


@dataclass(frozen=True, slots=True)
class _Spell:
    """A row as it is from one time to another, in seconds."""

    row: Row
    start: float
    end: float


def draw(cast: Cast) -> str:
    """Return the picture."""
    shown, length = frames(cast)
    width, height = cast.columns * _WIDTH + 2 * _RIM, cast.rows * _HEIGHT + _BAR + _RIM
    body: list[str] = []
    rules: dict[str, str] = {}
    label = escape(cast.title, {'"': "&quot;"})
    for number in range(cast.rows):
        for spell in _spells(shown, number, length):
            name = _name(spell, length, rules)
            body.append(_drawn(spell.row, number, name))
    style = "".join(f"@keyframes {name}{{{steps}}}" for name, steps in rules.items())
    classes = "".join(
        f".{name}{{animation:{name} {length:.2f}s step-end infinite}}" for name in rules
    )
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" \
height="{height}" xml:space="preserve" role="img" aria-label="{label}">
<style>text{{font:{_FONT}px {_FAMILY};white-space:pre;fill:{_INK}}}{_classes()}\
{style}{classes}.o{{visibility:hidden}}\
@media(prefers-reduced-motion:reduce){{*{{animation:none!important}}}}</style>
<rect width="{width}" height="{height}" rx="8" fill="{_PAPER}" stroke="{_FRAME}"/>
<circle cx="18" cy="15" r="5" fill="{_FRAME}"/><circle cx="34" cy="15" r="5" fill="{_FRAME}"/>\
<circle cx="50" cy="15" r="5" fill="{_FRAME}"/>
<text x="{width // 2}" y="19" text-anchor="middle" class="c8">{escape(cast.title)}</text>
<g transform="translate({_RIM},{_BAR})">
{"".join(body)}</g>
</svg>
"""


def _spells(shown: Sequence[Frame], number: int, length: float) -> list[_Spell]:
    """Return what stands in a row, one after the other; blank rows are left out."""
    found: list[_Spell] = []
    ends = [*(frame.start for frame in shown[1:]), length]
    for frame, end in zip(shown, ends, strict=True):
        row = frame.rows[number] if number < len(frame.rows) else ()
        if found and found[-1].row == row and found[-1].end == frame.start:
            found[-1] = _Spell(row, found[-1].start, end)
        else:
            found.append(_Spell(row, frame.start, end))
    return [spell for spell in found if spell.row]


def _name(spell: _Spell, length: float, rules: dict[str, str]) -> str:
    """Return the class of a spell, with its rule; "" if it is seen all the time."""
    if spell.start <= 0 and spell.end >= length:
        return ""
    first, last = (round(10000 * time / length) for time in (spell.start, spell.end))
    name = f"k{first}_{last}"
    steps = f"0%{{visibility:{'hidden' if first else 'visible'}}}"
    steps += f"{first / 100:g}%{{visibility:visible}}" if first else ""
    steps += f"{last / 100:g}%{{visibility:hidden}}" if last < 10000 else ""
    rules[name] = steps
    return name if last == 10000 else f"{name} o"


def _drawn(row: Row, number: int, name: str) -> str:
    pieces = "".join(_run(run, number) for run in row)
    return f'<g class="{name}">{pieces}</g>\n' if name else f"{pieces}\n"


def _run(run: Run, number: int) -> str:
    x, y, width = run.column * _WIDTH, number * _HEIGHT, run.width * _WIDTH
    style, ground = run.style, run.style.background
    behind = ""
    if style.reverse or ground is not None:
        fill = _INK if ground is None else _COLOURS[ground]
        behind = f'<rect x="{x}" y="{y}" width="{width}" height="{_HEIGHT}" fill="{fill}"/>'
    if not run.text.strip():
        return behind
    names = _names(style)
    given = f' class="{names}"' if names else ""
    return (
        f'{behind}<text x="{x}" y="{y + 13}" textLength="{width}"{given}>{escape(run.text)}</text>'
    )


def _names(style: Style) -> str:
    names = [] if style.colour is None else [f"c{style.colour}"]
    flags = (style.bold, style.dim, style.italic, style.underlined, style.reverse)
    return " ".join([*names, *(name for name, on in zip("bdiur", flags, strict=True) if on)])


def _classes() -> str:
    colours = "".join(f".c{number}{{fill:{colour}}}" for number, colour in enumerate(_COLOURS))
    return (
        f"{colours}.b{{font-weight:bold}}.d{{opacity:.6}}.i{{font-style:italic}}"
        f".u{{text-decoration:underline}}.r{{fill:{_PAPER}}}"
    )
