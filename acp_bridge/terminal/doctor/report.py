"""Makes a report of the findings, as text or JSON, and the exit code. No I/O."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from acp_bridge import __version__
from acp_bridge.core.keys.masking import Mask
from acp_bridge.core.protocol import Json
from acp_bridge.terminal.cli.harmless import harmless, one_line
from acp_bridge.terminal.doctor.findings import Finding, Level

_ORDER: Final = (Level.OK, Level.WARNING, Level.ERROR)
_MARGIN: Final = 11
#: width of the report in columns where stdout is no terminal.
_WIDTH: Final = 100
_WARNINGS, _ERRORS = 1, 2


@dataclass(frozen=True, slots=True)
class Section:
    """The findings of one area."""

    area: str
    findings: tuple[Finding, ...]


def worst(sections: Sequence[Section]) -> Level:
    """Return the worst level of all findings; OK if there are none."""
    levels = [finding.level for section in sections for finding in section.findings]
    return max(levels, key=_ORDER.index, default=Level.OK)


def exit_code(sections: Sequence[Section], *, strict: bool) -> int:
    """Return 2 if there is an error, 1 if there is a warning and `strict` is set, else 0."""
    match worst(sections):
        case Level.ERROR:
            return _ERRORS
        case Level.WARNING if strict:
            return _WARNINGS
    return 0


def as_text(section: Section, mask: Mask, columns: int | None) -> str:
    """Return the lines of one area, masked and wrapped to the terminal's columns."""
    width = max(40, min(columns or _WIDTH, _WIDTH))
    lines = [section.area]
    for finding in section.findings:
        lines += _wrapped(f"  {finding.level.value:<8} ", mask.text(finding.text), width)
        if finding.next:
            lines += _wrapped(f"{'->':>{_MARGIN - 1}} ", mask.text(finding.next), width)
    return "".join(f"{line}\n" for line in lines)


def _wrapped(head: str, text: str, width: int) -> list[str]:
    """Return a text as lines of at most `width` columns, indented; `head` starts the first one.

    Line breaks in the text are kept.
    """
    lines: list[str] = []
    for line in harmless(text).splitlines() or [""]:
        inside = line.expandtabs(4)
        indent = " " * (_MARGIN + len(inside) - len(inside.lstrip()))
        lines += textwrap.wrap(
            inside.strip(),
            width,
            initial_indent=indent,
            subsequent_indent=indent,
            break_long_words=False,
            break_on_hyphens=False,
        )
    return [head + lines[0][_MARGIN:], *lines[1:]] if lines else [head.rstrip()]


def summary(sections: Sequence[Section]) -> str:
    """Return the last line of the report: how many errors and warnings there are."""
    levels = [finding.level for section in sections for finding in section.findings]
    counts = [(levels.count(Level.ERROR), "error"), (levels.count(Level.WARNING), "warning")]
    told = [f"{count} {what}{'' if count == 1 else 's'}" for count, what in counts if count]
    return f"{', '.join(told)}.\n" if told else "All is well.\n"


def as_json(sections: Sequence[Section], mask: Mask, *, strict: bool) -> Json:
    """Return the report as JSON (docs/commands.md has its members)."""
    return {
        "version": __version__,
        "level": worst(sections).value,
        "exitCode": exit_code(sections, strict=strict),
        "findings": [
            {
                "area": section.area,
                "level": finding.level.value,
                "text": one_line(mask.text(finding.text)),
                "next": one_line(mask.text(finding.next)) or None,
                "data": mask.value(finding.data),
            }
            for section in sections
            for finding in section.findings
        ],
    }
