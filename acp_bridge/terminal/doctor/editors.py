"""Checks editors' settings: whether they name acp-bridge, and whether its path still works.

JSON settings are parsed, comments allowed; settings that are programs (Lua, Emacs Lisp) are
searched for paths. The environments in them are not shown: they may hold keys.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final

from acp_bridge.core.protocol import Json
from acp_bridge.terminal.doctor.findings import (
    Finding,
    Silent,
    Subject,
    error,
    from_disk,
    ok,
    warning,
)
from acp_bridge.terminal.doctor.installation import own_command
from acp_bridge.terminal.setup.editor import in_config, in_home
from acp_bridge.terminal.setup.editors import EDITORS
from acp_bridge.terminal.setup.installation import COMMANDS
from acp_bridge.terminal.setup.jsonc import Malformed, parse

AREA: Final = "editors"
_HOW: Final = f"acp-bridge setup EDITOR says what goes where: {', '.join(EDITORS)}"
#: how many files of a program's folder are searched, and how many bytes of each.
_MOST_FILES, _MOST_BYTES = 500, 500_000
_PATH: Final = re.compile(r"""["']((?:~?/)[^"'\n]*/(?:acp-bridge|acp-stdio-bridge))["']""")


@dataclass(frozen=True, slots=True)
class Settings:
    """The place of an editor's settings: a file, or a folder whose files are all searched."""

    #: the editor's name for `acp-bridge setup`; "" if that does not know it.
    name: str
    #: the editor's own name.
    editor: str
    path: Path
    #: the suffix of the files, where settings are a program; "" for a JSON file.
    program: str = ""


def places(env: Mapping[str, str]) -> list[Settings]:
    """Return the places where editors keep their settings (docs/editors.md)."""
    found = [
        Settings(name, editor.title, Path(file))
        for name, editor in EDITORS.items()
        if editor.entry and (file := editor.file(env))
    ]
    flatpak = Path(in_home(env, ".var/app/dev.zed.Zed/config/zed/settings.json"))
    found.append(Settings("zed", "Zed (Flatpak)", flatpak))
    found.append(Settings("", "Neovim", Path(in_config(env, "nvim")), ".lua"))
    emacs = [in_home(env, name) for name in (".emacs.el", ".emacs", ".emacs.d/init.el")]
    emacs += [in_config(env, "emacs/init.el"), in_config(env, "doom/config.el")]
    return [*found, *(Settings("", "Emacs", Path(file), ".el") for file in emacs)]


async def check(subject: Subject) -> list[Finding]:
    """Check the settings of editors; return the findings."""
    try:
        return await from_disk(lambda: look(subject.env))
    except Silent as silent:
        return [warning(f"the settings of editors can't be looked at: {silent}")]


def look(env: Mapping[str, str]) -> list[Finding]:
    """Check the editors' settings that exist on the disk; return the findings."""
    found = [
        finding
        for settings in places(env)
        if settings.path.exists()
        for finding in (_program if settings.program else _json)(settings, env)
    ]
    return found or [ok("no settings of an editor that is known", _HOW)]


def _json(settings: Settings, env: Mapping[str, str]) -> list[Finding]:
    try:
        document = parse(settings.path.read_text("utf-8"))
    except OSError as failed:
        return [warning(f"{settings.editor}: {settings.path} can't be read: {failed.strerror}")]
    except (Malformed, UnicodeDecodeError) as failed:
        why = "it is not UTF-8" if isinstance(failed, UnicodeDecodeError) else failed
        return [warning(f"{settings.editor}: {settings.path} can't be read: {why}")]
    ours = [words for words in commands(document) if is_ours(words)]
    if not ours:
        how = f"acp-bridge setup {settings.name} says what goes there"
        return [ok(f"{settings.editor}: {settings.path} does not have acp-bridge", how)]
    place = f"{settings.editor} ({settings.path})"
    return [finding for words in ours for finding in judged(place, words, env)]


def commands(document: Any) -> Iterator[list[str]]:
    """Yield the command line of each agent that parsed JSON settings of an editor have."""
    for member in ("agent_servers", "agents"):
        entries = document.get(member) if isinstance(document, dict) else None
        for entry in entries.values() if isinstance(entries, dict) else ():
            as_text = member == "agents"  # acpx has a whole command line as text
            if isinstance(entry, dict) and (words := _words(entry, as_text=as_text)):
                yield words


def _words(entry: Json, *, as_text: bool) -> list[str]:
    """Return the command line of an entry; [] if it has none that can be read.

    `as_text`: a command without arguments is a command line, as for a shell.
    """
    argv = entry.get("argv")
    if not isinstance(argv, list):
        command = entry.get("command")
        if isinstance(command, dict):  # an older form of Zed's
            entry, command = command, command.get("path")
        args = entry.get("args")
        if as_text and args is None and isinstance(command, str):
            with suppress(ValueError):  # an open quote
                return shlex.split(command)
        argv = [command, *(args if isinstance(args, list) else [])]
    return argv if argv and all(isinstance(each, str) for each in argv) and argv[0] else []


def is_ours(words: list[str]) -> bool:
    """Return True if a command line starts acp-bridge, directly or by a launcher such as `uvx`."""
    own, _, _ = _divided(words)
    starts = {Path(each).name.partition("@")[0].partition("[")[0] for each in own}
    return not starts.isdisjoint({*COMMANDS, "acp_bridge"})


def _divided(words: list[str]) -> tuple[list[str], bool, list[str]]:
    at = words.index("--") if "--" in words else len(words)
    return words[:at], at < len(words), words[at + 1 :]


def judged(place: str, words: list[str], env: Mapping[str, str]) -> list[Finding]:
    """Return findings on whether a command line's programs exist: acp-bridge and the agent.

    `place`: the settings, as the findings name them.
    """
    own, dashes, agent = _divided(words)
    found = [_judged(place, own[0], env, own=True)]
    return found + ([_judged(place, agent[0], env, own=False)] if dashes and agent else [])


def _judged(place: str, program: str, env: Mapping[str, str], *, own: bool) -> Finding:
    what = "acp-bridge" if own else "the agent"
    if "/" in program:
        if os.path.isfile(program) and os.access(program, os.X_OK):
            return ok(f"{place}: {program} is there", program=program)
        better = own_command() if own else None
        return error(
            f"{place}: {program} is not there, or is not executable, so {what} does not start",
            f"put {better} in its place" if better else "correct the path",
            program=program,
        )
    at = shutil.which(program, path=env.get("PATH", ""))
    if at is not None:
        text = f"{place}: {program} is {at} here"
        return ok(f"{text}; if the editor does not find it, give it that path", program=program)
    return warning(
        f"{place}: {program} is not found in this PATH",
        "give the whole path, unless the editor has another PATH",
        program=program,
    )


def _program(settings: Settings, env: Mapping[str, str]) -> list[Finding]:
    found: dict[str, Path] = {}
    for file in islice(_files(settings), _MOST_FILES):
        for path in paths_in(file):
            found.setdefault(os.path.expanduser(path), file)
    return [
        finding
        for path, file in found.items()
        for finding in judged(f"{settings.editor} ({file})", [path], env)
    ]


def _files(settings: Settings) -> Iterator[Path]:
    if settings.path.is_file():
        yield settings.path
        return
    for folder, _, names in os.walk(settings.path):
        yield from (Path(folder, name) for name in sorted(names) if name.endswith(settings.program))


def paths_in(file: Path) -> list[str]:
    """Return the paths of acp-bridge's command that stand in a file of settings, a program."""
    try:
        with file.open("rb") as content:
            return _PATH.findall(content.read(_MOST_BYTES).decode(errors="replace"))
    except OSError:
        return []
