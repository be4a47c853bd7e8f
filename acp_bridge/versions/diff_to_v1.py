"""Diffs of version 2 as version 1 has them. SANS-IO.

A diff of version 1 has a file's whole text before and after a change; one of version 2 has a list
of changes and a patch, which need not contain either text. So a file that is added becomes a diff,
and everything else a text: what happens to which file, and the patch.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from acp_bridge.core.protocol import Json, as_object, objects
from acp_bridge.versions import v2
from acp_bridge.versions.blocks_to_v1 import fenced, text_content

_NEW_FILE: Final = re.compile(r"^@@ -0,0 \+1(?:,\d+)? @@.*$")
_HUNK: Final = re.compile(r"^@@ -\d+(?:,(\d{1,9}))? \+\d+(?:,(\d{1,9}))? @@")
#: the lines of a patch that name a file.
_HEADER: Final = re.compile(
    r"^(?:diff --git .* b/|(?:rename|copy) (?:from|to) )(.+)$"
    r"|^(?:---|\+\+\+) (?:[ab]/)?([^\t\n]+)"
)
_UNENDED: Final = "\\ No newline at end of file"
_BEGIN: Final = "diff --git "


def diff_to_v1(diff: Json) -> list[Json]:
    """Return the items of a tool call's content in version 1 that show a diff of version 2."""
    patch = as_object(diff.get("patch"))
    text = patch.get("text")
    whole = text if isinstance(text, str) else ""
    is_git = patch.get("format") == v2.GIT_PATCH
    sections = _sections(whole) if is_git else []
    shown: list[Json] = []
    rest: list[Json] = []
    for change in objects(diff.get("changes")):
        section = _section_of(change, sections)
        added = _added(section) if change.get("operation") == "add" and section else None
        if added is None or section is None:
            rest.append(change)
            continue
        sections.remove(section)
        shown.append(
            {"type": "diff", "path": change.get("path"), "oldText": None, "newText": added}
        )
    if rest:
        left = "\n".join("\n".join(each) for each in sections) if is_git else whole
        shown.append(text_content(_told(rest, left, "diff" if is_git else "")))
    return shown


def paths_of(diff: Json) -> list[str]:
    """Return every path that a diff names, in order."""
    return list(dict.fromkeys(_paths(diff)))


def is_understood(diff: Json) -> bool:
    """Return True if each change of a diff has a known operation and the paths it needs."""
    changes = diff.get("changes")
    return isinstance(changes, list) and all(map(_is_known, changes))


def _is_known(change: object) -> bool:
    match change:
        case {"operation": "add" | "delete" | "modify", "path": str()}:
            return True
        case {"operation": "move" | "copy", "path": str(), "oldPath": str()}:
            return True
    return False


def _paths(diff: Json) -> Iterator[str]:
    changes = objects(diff.get("changes"))
    told = [each for c in changes for n in ("oldPath", "path") if isinstance(each := c.get(n), str)]
    yield from told
    text = as_object(diff.get("patch")).get("text")
    for name in _in_patch(text if isinstance(text, str) else ""):
        if not any(_is_end(name, path) for path in told):
            # Whether the name is relative to the session's folder is not told.
            yield name
            yield f"/{name.lstrip('/')}"


def _in_patch(patch: str) -> Iterator[str]:
    """Yield the name of each file that a patch changes, as its headers have it."""
    old = new = 0  # lines of the hunk that are still to come
    for line in patch.split("\n"):
        if (old > 0 or new > 0) and line[:1] in ("", " ", "+", "-", "\\"):
            old -= line[:1] in ("-", " ", "")
            new -= line[:1] in ("+", " ", "")
        elif hunk := _HUNK.match(line):
            old, new = (int(each or 1) for each in hunk.groups())
        elif (header := _HEADER.match(line)) and (name := header[1] or header[2]) != "/dev/null":
            yield name


def _told(changes: list[Json], patch: str, language: str) -> str:
    """Return the text that says what happens to which file, with the patch."""
    lines = "\n".join(_line(change) for change in changes)
    return f"{lines}\n\n{fenced(patch, language)}" if patch.strip() else lines


def _line(change: Json) -> str:
    operation, path, old = (change.get(name) for name in ("operation", "path", "oldPath"))
    return f"{operation} {old} -> {path}" if isinstance(old, str) else f"{operation} {path}"


def _sections(patch: str) -> list[list[str]]:
    """Return the parts of a git patch, one for each file, as lists of lines."""
    found: list[list[str]] = []
    for line in patch.split("\n"):
        if line.startswith(_BEGIN) or not found:
            found.append([])
        found[-1].append(line)
    return found


def _section_of(change: Json, sections: list[list[str]]) -> list[str] | None:
    """Return the one part of a patch about a change's file; None if there are none or several."""
    path = change.get("path")
    if not isinstance(path, str):
        return None
    named = [each for each in sections if _is_about(each, path)]
    return named[0] if len(named) == 1 else None


def _is_about(section: list[str], path: str) -> bool:
    """Return True if the first line of a part of a patch names the file of an absolute `path`."""
    _, found, name = section[0].rpartition(" b/")
    return bool(found) and _is_end(name, path)


def _is_end(name: str, path: str) -> bool:
    """Return True if the last parts of an absolute path are `name`."""
    return f"/{path.lstrip('/')}".endswith(f"/{name.lstrip('/')}")


def _added(section: list[str]) -> str | None:
    """Return the text of a file that is new in a part of a patch; None if it is not new."""
    body = next((at for at, line in enumerate(section) if line.startswith("@@")), None)
    if body is None:
        is_new = any(line.startswith("new file mode") for line in section)
        odd = any(line.startswith(("GIT binary", "Binary files", "similarity")) for line in section)
        return "" if is_new and not odd else None
    lines = section[body + 1 :]
    while lines and not lines[-1]:
        lines.pop()
    ended = not lines or lines[-1] != _UNENDED
    lines = lines if ended else lines[:-1]
    if not _NEW_FILE.match(section[body]) or not all(line.startswith("+") for line in lines):
        return None
    return "\n".join(line[1:] for line in lines) + ("\n" if ended and lines else "")
