"""The parser of the arguments of `acp-bridge` and of its commands, with their help.

A person wrote the sentences of the help and broke their lines. They are printed like that unless
the terminal is too narrow. The man page and the shells' completion are made from the same parts.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import IO, Final, NamedTuple, NoReturn

from acp_bridge.core.runtime.own_commands import OWN_COMMANDS

#: the column in which the text of an option begins in a narrow terminal.
_NARROW: Final = 8
#: columns; the help is never laid out narrower than this.
_NARROWEST: Final = 40


class Paragraph(NamedTuple):
    """A text that may be wrapped as a whole."""

    text: str


class Heading(NamedTuple):
    """A line above entries; `level` is 1, or 2 for one within a group."""

    text: str
    level: int


class Entry(NamedTuple):
    """An option or a command with its explanation in lines; the explanation of some is empty."""

    name: str
    text: str


class Example(NamedTuple):
    """A command line as a user would type it; never wrapped."""

    text: str


Part = Paragraph | Heading | Entry | Example


class DataFolder(argparse.Action):
    """The option `--home`: the commands that this process shows name the folder, too."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: object,
        option_string: str | None = None,
    ) -> None:
        """Store the folder, and note it for `OWN_COMMANDS`."""
        from acp_bridge.terminal.cli.serving_parser import OfEnvironment

        setattr(namespace, self.dest, values)
        if values and not isinstance(values, OfEnvironment):
            OWN_COMMANDS.use_home(os.path.abspath(os.path.expanduser(str(values))))


class Parser(argparse.ArgumentParser):
    """An argparse parser with this project's help; errors are one line on stderr and exit code 2.

    The help has the usage (a line for each way to call); `about`; the `listing`; every option with
    a `help` text, in the order of definition and below the title of its group; and `after`. Options
    in a group without a title are not listed. Texts of options begin in `column`.
    """

    def __init__(
        self,
        program: str,
        usage: str,
        about: str,
        listing: Sequence[Part] = (),
        after: str = "",
        *,
        column: int,
    ) -> None:
        super().__init__(program, usage, about, after, add_help=False, allow_abbrev=False)
        self._listing, self._column = listing, column
        #: options that this parser refuses, each with what the user can do instead.
        self.refused: Mapping[str, str] = {}

    def parts(self) -> Iterator[Part]:
        """Yield the parts of the help below the usage, in order."""
        return chain.from_iterable(self._sections())

    def _sections(self) -> Iterator[Sequence[Part]]:
        """Yield the parts in sections, which the help separates by an empty line."""
        yield [Paragraph(text) for text in (self.description or "").split("\n\n")]
        yield self._listing
        first, second, *titled = self._action_groups  # argparse has the first two itself
        yield [*_entries(first._group_actions), *_entries(second._group_actions)]
        for group in titled:
            if group.title:
                yield [Heading(group.title, 2), *_entries(group._group_actions)]
        yield [Paragraph(text) for text in (self.epilog or "").split("\n\n")]

    def help_for(self, columns: int | None) -> str:
        """Return the help with lines that fit a terminal of `columns`; None: as it was written."""
        text = self._laid_out(None)
        if columns is None or all(len(line) < columns for line in text.split("\n")):
            return text
        return self._laid_out(max(columns - 1, _NARROWEST))

    def _laid_out(self, width: int | None) -> str:
        """Return the help wrapped to `width` columns; None: with the lines as they were written."""
        lines = f"usage: {self.usage}".replace("\n", f"\n{' ' * 7}").split("\n")
        if width is not None:
            lines = [_wrapped(line, width, 2 * _NARROW) for line in lines]
        before: Part | None = None
        for section in self._sections():
            for at, part in enumerate(section):
                if before is None or _stands_apart(before, part, begins=at == 0):
                    lines.append("")
                written = _written(part, self._column)
                lines.append(written if width is None else _fitted(part, self._column, width))
                before = part
        return "\n".join(lines) + "\n"

    def format_help(self) -> str:
        """Return the help with the lines as they were written, whatever the terminal's width."""
        return self.help_for(None)

    def add_home(self, about: str = "where sessions are kept (ACP_BRIDGE_HOME)") -> None:
        """Add the option `--home`; its default is the environment variable ACP_BRIDGE_HOME."""
        from acp_bridge.terminal.cli.serving_parser import OfEnvironment

        found = os.environ.get("ACP_BRIDGE_HOME")
        self.add_argument(
            "--home",
            metavar="FOLDER",
            default=OfEnvironment(found) if found else None,
            help=about,
            action=DataFolder,
        )

    def add_journal(self) -> None:
        """Add the option `--journal`, whose default is the variable ACP_BRIDGE_JOURNAL."""
        from acp_bridge.terminal.cli.serving_parser import OfEnvironment

        found = os.environ.get("ACP_BRIDGE_JOURNAL")
        self.add_argument(
            "--journal",
            metavar="URL",
            default=OfEnvironment(found) if found else None,
            help="read the sessions of this database (ACP_BRIDGE_JOURNAL)",
        )

    def print_help(self, file: IO[str] | None = None) -> None:  # type: ignore[override]
        """Print the help to stdout; raises SystemExit with the exit code of the printing."""
        from acp_bridge.terminal.cli.printing import columns, print_text

        raise SystemExit(print_text(self.help_for(columns())))

    def parse_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: None = None
    ) -> argparse.Namespace:
        """Return the parsed arguments; raises SystemExit(2) if one of them is unknown."""
        words = None if args is None else self.with_switches(args)
        given, rest = self.parse_known_args(words, namespace)
        if rest:
            self.error(self._unknown(given, rest))
        return given

    def with_switches(self, args: Sequence[str]) -> list[str]:
        """Return the arguments with `=on` at each switch that has no value.

        Then the argument behind the switch is not its value, but a prompt, say.
        """
        switches = {
            name
            for action in self._actions
            if action.const == "on"
            for name in action.option_strings
        }
        words = list(args)
        for at, word in enumerate(words):
            if word in switches and words[at + 1 : at + 2] not in (["on"], ["off"]):
                words[at] = f"{word}=on"
        return words

    def _unknown(self, given: argparse.Namespace, rest: Sequence[str]) -> str:
        """Return what is wrong with the arguments `rest`, which the parser has no use for."""
        for word in rest:
            name = word.partition("=")[0]
            if name in self.refused:
                return f"{name}: {self.refused[name]}"
        prompt = getattr(given, "prompt", None)
        if prompt is not None and not any(word.startswith("-") for word in rest):
            whole = " ".join([prompt, *rest])
            return f"the prompt needs quotes around it: {_quoted(whole)}"
        return f"unrecognized arguments: {' '.join(rest)}{self.meant(rest[0])}"

    def meant(self, word: str) -> str:
        """Return a hint for an unknown option that is nearly one of this parser's, else ""."""
        if not word.startswith("--"):
            return ""
        from difflib import get_close_matches

        shown = (action.option_strings for action in self._actions if action.help is not None)
        names = {name[2:]: name for name in chain.from_iterable(shown) if name.startswith("--")}
        close = get_close_matches(word[2:].partition("=")[0], names, 1, 0.7)
        return f"; did you mean {names[close[0]]}?" if close else ""

    def error(self, message: str) -> NoReturn:
        """Print what is wrong with the arguments to stderr; raises SystemExit(2)."""
        fail(message, self.prog)


class CommandParser(Parser):
    """The parser of one command of `acp-bridge`; its help lists examples."""

    def __init__(
        self,
        command: str,
        usage: str,
        about: str,
        examples: Sequence[str],
        after: str,
        *,
        column: int = 19,
    ) -> None:
        listing = tuple(map(Example, examples))
        super().__init__(f"acp-bridge {command}", usage, about, listing, after, column=column)
        #: the name of the command.
        self.name = command
        self.add_argument("-h", dest="help", action="help")
        self.add_argument("--help", action="help", help="show this")


def fail(message: str, program: str = "acp-bridge") -> NoReturn:
    """Print what is wrong with a program's arguments to stderr; raises SystemExit(2)."""
    from acp_bridge.terminal.cli.harmless import exact
    from acp_bridge.terminal.cli.printing import say_on_stderr

    say_on_stderr(f"{program}: {exact(message)}\nTry '{program} --help'.\n")
    raise SystemExit(2)


def _quoted(text: str) -> str:
    """Return the text as one argument for a shell, in double quotes where that is enough."""
    import shlex  # a bridge that starts has no use for it

    return shlex.quote(text) if set(text) & set('"$`\\!\n') else f'"{text}"'


def _entries(actions: Sequence[argparse.Action]) -> Iterator[Entry]:
    """Yield an entry for each option with a help text, and one that joins the options with "".

    The option that shows the help comes last of those with a text; options whose help is None are
    left out.
    """
    for action in sorted(actions, key=lambda action: action.dest == "help"):
        if action.help:
            yield Entry(_name(action), action.help)
    if bare := [_name(action) for action in actions if action.help == ""]:
        yield Entry(", ".join(bare), "")


def _name(action: argparse.Action) -> str:
    """Return an option as the help shows it, `-o, --option VALUE`; a positional's value alone."""
    value = action.metavar if isinstance(action.metavar, str) else ""
    if not action.option_strings:
        return value
    value = f"[{value}]" if action.nargs == "?" else value
    return f"{', '.join(action.option_strings)} {value}".rstrip()


def _stands_apart(before: Part, part: Part, *, begins: bool) -> bool:
    """Return True if an empty line goes between two parts; `begins`: a section begins there."""
    match before, part:
        case (Heading(), _) | (_, Heading(level=2)):
            return False
        case (Entry(), Entry()) | (Example(), Example()):
            return begins
        case _:
            return True


def _written(part: Part, column: int) -> str:
    """Return the lines of a part, as a person broke them."""
    match part:
        case Paragraph(text):
            return text
        case Heading(text, level):
            return f"{text}:" if level == 1 else f" {text}"
        case Example(text) | Entry(text, ""):
            return f"  {text}"
        case Entry(name, text):
            head = f"  {name}".ljust(column)
            gap = "\n" + " " * column
            beside = "" if len(head.rstrip()) < column else gap
            return head + beside + text.replace("\n", gap)


def _fitted(part: Part, column: int, width: int) -> str:
    """Return a part wrapped to `width` columns; examples and bare names are not wrapped."""
    written = _written(part, column)
    match part:
        case Example() | Entry(_, ""):
            return written
        case Entry(name, text):
            head = f"  {name}".ljust(column)
            column = column if width - column >= _NARROWEST // 2 else _NARROW
            if len(head.rstrip()) < column:
                return _wrapped(f"  {name}".ljust(column) + text, width, column)
            return f"{head}\n{_wrapped(' ' * column + text, width, column)}"
        case _:
            return _wrapped(written, width)


def _wrapped(text: str, width: int, deep: int = 0) -> str:
    import textwrap  # no start of a bridge waits for it

    return textwrap.fill(
        text, width, subsequent_indent=" " * deep, break_long_words=False, break_on_hyphens=False
    )
