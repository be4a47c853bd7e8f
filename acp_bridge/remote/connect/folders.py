"""Translates paths in messages between this machine and a remote one. Sans-IO.

- Only members that are paths by the protocol change; texts of people and models never do.
- The longest of the folders that a path is below counts; a path below none stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias
from urllib.parse import quote, unquote

from acp_bridge.core.protocol import Json
from acp_bridge.core.wire.jsonrpc import Message

#: members that hold a path, wherever the protocol has them: a session, a diff, a request for a
#: file or a terminal.
_PATHS: Final = ("cwd", "path", "oldPath", "newPath")
_ROOTS: Final = "additionalDirectories"
_FILE: Final = "file://"
#: members whose value may hold a path, at any depth.
_HOLDERS: Final = (
    *("prompt", "update", "toolCall", "subject", "content", "locations", "changes", "resource"),
    *("sessions", "diff"),
)

#: returns a path on the other machine for one on this, or the other way round.
Change: TypeAlias = Callable[[str], str]


class Folders:
    """Pairs of folders: one on this machine, and the same one on the remote machine."""

    def __init__(self, pairs: Sequence[tuple[str, str]]) -> None:
        """`pairs`: absolute paths of one folder, on this machine and on the remote one."""
        here = [(_clean(local), _clean(remote)) for local, remote in pairs]
        there = [(remote, local) for local, remote in here]
        self._out = sorted(here, key=lambda pair: -len(pair[0]))
        self._in = sorted(there, key=lambda pair: -len(pair[0]))

    def outward(self, message: Message) -> Message:
        """Return a message of the editor's with the paths of the remote machine."""
        return (
            self._changed(message, lambda path: _moved(path, self._out)) if self._out else message
        )

    def inward(self, message: Message) -> Message:
        """Return a message for the editor with the paths of this machine."""
        return self._changed(message, lambda path: _moved(path, self._in)) if self._in else message

    def _changed(self, message: Message, change: Change) -> Message:
        kept = dict(message)
        for name in ("params", "result"):
            if isinstance(message.get(name), dict):
                kept[name] = _holder(message[name], change)
        return kept


def _holder(value: Any, change: Change) -> Any:
    """Return an object, or a list of them, with `change` applied to all paths in it."""
    if isinstance(value, list):
        return [_holder(each, change) for each in value]
    if not isinstance(value, dict):
        return value
    changed: Json = dict(value)
    for name in _PATHS:
        if isinstance(path := value.get(name), str):
            changed[name] = change(path)
    if isinstance(roots := value.get(_ROOTS), list):
        changed[_ROOTS] = [change(each) if isinstance(each, str) else each for each in roots]
    if isinstance(uri := value.get("uri"), str):
        changed["uri"] = _link(uri, change)
    for name in _HOLDERS:
        if name in value:
            changed[name] = _holder(value[name], change)
    return changed


def _link(uri: str, change: Change) -> str:
    """Return a `file://` link with `change` applied to its path; any other stays as it is."""
    if not uri.startswith(f"{_FILE}/"):
        return uri
    path, mark, rest = uri.removeprefix(_FILE).partition("#")
    before = unquote(path)
    after = change(before)
    return uri if after == before else f"{_FILE}{quote(after)}{mark}{rest}"


def _moved(path: str, pairs: Sequence[tuple[str, str]]) -> str:
    for before, after in pairs:
        if path == before or path.startswith(f"{before}/"):
            return after + path[len(before) :] or "/"
    return path


def _clean(path: str) -> str:
    return path.rstrip("/")
