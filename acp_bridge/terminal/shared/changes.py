"""What a kept session changed, as a patch from its tool calls, compared with its folder."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from acp_bridge.core.journal import SessionInfo
from acp_bridge.core.protocol import Json
from acp_bridge.terminal.cli.harmless import exact, harmless
from acp_bridge.terminal.shared.files import NOT_KNOWN, within, work_of
from acp_bridge.terminal.shared.folder import Git, content
from acp_bridge.terminal.view.blocks import Diff
from acp_bridge.terminal.view.patch import hunks, patch
from acp_bridge.terminal.view.session_diff import UNKNOWN, Content, FileChanges, fits, folded
from acp_bridge.terminal.view.work import Ran, Work


@dataclass(slots=True)
class _File:
    """The changes of one file that tool calls tell; `wanted`: for each, if it is to be shown."""

    diffs: list[Diff] = field(default_factory=list)
    wanted: list[bool] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Changed:
    """The changes of one file, and what the folder has of it."""

    path: str
    changes: FileChanges
    #: how the folder's file differs from what the session has left; "" if it does not.
    differs: str = ""


@dataclass(frozen=True, slots=True)
class Changes:
    """What a session, or one turn of it, changed, and what may be missing in that."""

    files: list[Changed]
    #: commands that may have changed more: those that ran, and those of which that is not known.
    commands: list[str]
    unknown: list[str]
    #: files of calls that have changed them and don't tell how.
    untold: list[str]
    #: files that git sees changed, and no call of the session names.
    others: list[str]


def changes(home: Path, info: SessionInfo, turn: int | None) -> Changes:
    """Return the changes of one turn of a session; None: of all turns. Raises JournalError."""
    did = work_of(home, info)
    folder = Path(os.path.realpath(info.cwd or "/"))
    git = Git(folder)
    seen, files = set(git.changed()), _files(did, turn, folder)
    committed = git.committed(files)
    found = [
        _changed(path, file, folder, committed.get(path, UNKNOWN)) for path, file in files.items()
    ]
    untold, commands, unknown = (dict[str, None]() for _ in range(3))
    for done in did.of(turn):
        if done.changes and not done.diffs:
            untold.update((within(path, info.cwd), None) for path in done.paths)
        commands.update(dict.fromkeys(done.commands(Ran.YES)))
        unknown.update(dict.fromkeys(done.commands(Ran.UNKNOWN)))
    known = {_real(path, str(folder)) for done in did.done if done.changes for path in done.paths}
    others = sorted(seen - known) if turn is None else []
    return Changes(
        [each for each in found if each.changes.changes or each.changes.fragments],
        list(commands),
        [command for command in unknown if command not in commands],
        list(untold),
        [within(str(path), str(folder)) for path in others],
    )


def changes_text(found: Changes) -> str:
    """Return the changes as a patch; what is no part of it stands in lines that begin with `#`."""
    notes: list[str] = []
    if not any(each.changes.changes or each.changes.fragments for each in found.files):
        notes.append("No tool call tells of a change.")
    notes += [f"{each.path}: {each.differs}" for each in found.files if each.differs]
    notes += [f"{path}: changed by a tool call that does not tell how" for path in found.untold]
    notes += [f"{path}: changed, and no tool call names it" for path in found.others]
    if found.commands:
        notes += ["Commands that were run, and may have changed more:"]
        notes += [f"  {command}" for command in found.commands]
    if found.unknown:
        notes += ["Commands that might have run:"]
        notes += [f"  {command} {NOT_KNOWN}" for command in found.unknown]
    shown: list[str] = []
    for each in found.files:
        patch_of = list(_patch(each))
        shown += map(_harmless, patch_of)
        if any(line != _harmless(line) for line in patch_of):
            notes.append(f"{each.path}: its patch has escapes for characters that are not shown")
    lines = [f"# {exact(note)}" for note in notes] + shown
    for each in found.files:
        for fragment in each.changes.fragments:
            lines += _marked(each.path, fragment)
    return "\n".join(lines) + "\n"


def changes_as_json(found: Changes, session_id: str) -> Iterator[Json]:
    """Give an object for each changed file, and a last one for what may be missing."""
    for each in found.files:
        yield {
            "sessionId": session_id,
            "path": each.path,
            "patch": "".join(f"{line}\n" for line in _patch(each)),
            "fragments": [
                {"oldText": diff.old, "newText": diff.new} for diff in each.changes.fragments
            ],
            "differs": each.differs or None,
        }
    yield {
        "sessionId": session_id,
        "commands": found.commands,
        **({"unknown": found.unknown} if found.unknown else {}),
        "untold": found.untold,
        "others": found.others,
    }


def _files(did: Work, turn: int | None, folder: Path) -> dict[Path, _File]:
    """Return by path the files that were changed in `turn` (None: in any), with all their changes.

    They are sorted as git sorts them.
    """
    files: dict[Path, _File] = {}
    for done in did.done:
        for diff in done.diffs if done.completed else ():
            file = files.setdefault(_real(diff.path, str(folder)), _File())
            file.diffs.append(diff)
            file.wanted.append(turn in (None, done.turn))
    meant = [path for path, file in files.items() if any(file.wanted)]
    meant.sort(key=lambda path: str(path).encode(errors="surrogatepass"))
    return {path: files[path] for path in meant}


@lru_cache(maxsize=4096)
def _real(path: str, folder: str) -> Path:
    """Return the real path of a file; a relative `path` begins in `folder`."""
    path = os.path.join(folder, path)
    try:
        return Path(os.path.realpath(path))
    except ValueError:  # a NUL in a path that an agent tells
        return Path(path)


def _changed(path: Path, file: _File, folder: Path, committed: Content) -> Changed:
    """Return the changes of a file; `committed`: its content in the last commit, if known."""
    now = content(path)
    found = folded(file.diffs, file.wanted, now, committed)
    differs = _difference(file.diffs, found, now)
    if not differs and committed is not UNKNOWN and all(file.wanted):
        differs = _difference_to_commit(found, now, committed)
    return Changed(within(str(path), str(folder)), found, differs)


def _difference(diffs: Sequence[Diff], found: FileChanges, now: Content) -> str:
    if now is UNKNOWN:
        return "it can't be read as a text, so it was not compared"
    if now is None and diffs[-1].new:
        return "the folder has no such file any more"
    if not fits(diffs, now):
        return "the folder has it otherwise than the last of its changes left it"
    if found.fragments or len(found.changes) > 1:
        return "not all of its changes follow from each other, or have a clear place"
    return ""


def _difference_to_commit(found: FileChanges, now: Content, committed: Content) -> str:
    if found.changes and now == committed:
        return "git shows no change: it is as in the last commit"
    if found.changes and found.changes[0].before != committed:
        return "git shows another change: not all since the last commit is the session's"
    return ""


def _patch(each: Changed) -> Iterator[str]:
    """Give the lines of the patch of a file."""
    path = each.path.lstrip("/")
    for change in each.changes.changes:
        yield from patch(path, change.before, change.after)


def _harmless(line: str) -> str:
    """Return a line with dangerous characters escaped, but for a carriage return at its end."""
    return harmless(line.removesuffix("\r")) + "\r" * line.endswith("\r")


def _marked(path: str, fragment: Diff) -> Iterator[str]:
    """Give a fragment without a place as lines that begin with `#`: it is no part of the patch."""
    yield f"# {exact(path)}: a fragment without a place"
    for line in hunks(fragment.old or "", fragment.new):
        if not line.startswith("@@"):
            yield f"#   {harmless(line)}"
