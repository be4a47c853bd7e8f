"""The man page, made from the help of acp-bridge and of its commands.

python -m tests.packaging.man_page
"""

from collections.abc import Iterator
from pathlib import Path

from acp_bridge import __version__
from acp_bridge.terminal.cli.commands import COMMANDS
from acp_bridge.terminal.cli.parser import Entry, Example, Heading, Paragraph, Parser, Part
from acp_bridge.terminal.cli.serving_parser import parser

FILE = Path(__file__).parents[2] / "packaging" / "acp-bridge.1"
_ABOUT = "stands between an editor and its coding agent"


def page() -> str:
    """The page, as roff with the macros of man."""
    serving = parser({})
    lines = [
        f'.TH ACP\\-BRIDGE 1 "" "acp\\-bridge {_plain(__version__)}" "User Commands"',
        *(".SH NAME", f"acp\\-bridge \\- {_ABOUT}", ".SH SYNOPSIS"),
        *_usage(serving),
        ".SH DESCRIPTION",
        *_body(serving),
    ]
    for name, command in COMMANDS.items():
        own = command.parser()
        lines += [f".SH ACP\\-BRIDGE {_plain(name.upper())}", *_usage(own), *_body(own)]
    return "\n".join(lines) + "\n"


def _usage(parser: Parser) -> Iterator[str]:
    for line in (parser.usage or "").split("\n"):
        yield from (".nf", f"\\fB{_plain(line)}\\fR", ".fi")


def _body(parser: Parser) -> Iterator[str]:
    """The parts in order; examples that follow each other stand together."""
    example = False
    for part in parser.parts():
        if isinstance(part, Example) != example:
            example = not example
            yield from (".PP", ".RS 4", ".nf") if example else (".fi", ".RE")
        yield from _lines(part)
    if example:
        yield from (".fi", ".RE")


def _lines(part: Part) -> Iterator[str]:
    match part:
        case Paragraph(text):
            yield from (".PP", _plain(text))
        case Heading(text, 1):
            yield f'.SS "{_plain(text)}"'
        case Heading(text, _):
            yield from (".PP", f"\\fI{_plain(text)}\\fR")
        case Entry(name, text):
            yield from (".TP", f"\\fB{_plain(name)}\\fR", *([_plain(text)] if text else []))
        case Example(text):
            yield _plain(text)


def _plain(text: str) -> str:
    """The text without its lines, and without what roff would take for its own."""
    text = " ".join(text.split("\n"))
    text = text.replace("\\", "\\e").replace("-", "\\-").replace('"', "\\(dq")
    return f"\\&{text}" if text.startswith((".", "'")) else text


if __name__ == "__main__":
    FILE.write_text(page())
