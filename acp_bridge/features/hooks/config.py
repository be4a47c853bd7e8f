"""Reads `hooks.toml`. A file with any error is refused as a whole; the error names the line."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from acp_bridge.core.runtime import toml_text
from acp_bridge.features.hooks.definitions import (
    DEFAULT_TIMEOUT,
    MATCHED,
    MAX_TIMEOUT,
    Hook,
    HookEvent,
)

_KEYS: Final = frozenset({"command", "matcher", "timeout"})


class BadHooks(Exception):
    """The file can't be used; the text says why, and on which line if that is known."""


def parse(text: str, *, project: bool) -> tuple[Hook, ...]:
    """Return the hooks of a file's text, in its order; `project`: the file is a project's.

    Raises BadHooks.
    """
    try:
        tables = toml_text.loads(text)
    except toml_text.BadToml as bad:
        raise BadHooks(str(bad)) from None
    found: list[tuple[int, Hook]] = []
    for name, entries in tables.items():
        if name not in set(HookEvent):
            raise BadHooks(f"{_where(text, name, 0)}there is no event {name!r}")
        event = HookEvent(name)
        if not isinstance(entries, list):
            raise BadHooks(f"{_where(text, name, 0)}write [[{name}]], with two brackets")
        for number, entry in enumerate(entries):
            hook = _hook(event, entry, project, _where(text, name, number))
            found.append((_line(text, name, number), hook))
    return tuple(hook for _, hook in sorted(found, key=lambda one: one[0]))


def _hook(event: HookEvent, entry: object, project: bool, where: str) -> Hook:
    if not isinstance(entry, dict):
        raise BadHooks(f"{where}a hook is a table with a command")
    if unknown := sorted(entry.keys() - _KEYS):
        raise BadHooks(f"{where}there is no key {unknown[0]!r} in a hook")
    command, matcher = _command(entry, where), entry.get("matcher", "")
    timeout = entry.get("timeout", DEFAULT_TIMEOUT)
    if not isinstance(matcher, str):
        raise BadHooks(f"{where}matcher is a text")
    if matcher and event not in MATCHED:
        raise BadHooks(f"{where}{event} has nothing that a matcher could match")
    if matcher != "*":
        try:
            re.compile(matcher)
        except re.error as error:
            raise BadHooks(f"{where}matcher is no regular expression: {error}") from None
    number = isinstance(timeout, int | float) and not isinstance(timeout, bool)
    if not number or not 0 < timeout <= MAX_TIMEOUT:
        raise BadHooks(f"{where}timeout is a number of seconds, at most {MAX_TIMEOUT:g}")
    return Hook(event, command, matcher, float(timeout), project)


def _command(entry: Mapping[str, Any], where: str) -> str | tuple[str, ...]:
    command: Any = entry.get("command")
    words: list[Any] = command if isinstance(command, list) else [command]
    if not all(isinstance(word, str) and "\0" not in word for word in words):
        raise BadHooks(f"{where}command is missing: a text for the shell, or a list of words")
    if not words or not words[0].strip():
        raise BadHooks(f"{where}command is empty")
    return tuple(words) if isinstance(command, list) else str(command)


def _where(text: str, name: str, number: int) -> str:
    line = _line(text, name, number)
    return f"line {line}: " if line else ""


def _line(text: str, name: str, number: int) -> int:
    """Return the line on which an event's hook of this number begins; 0 if it is not found."""
    quoted = rf"""["']?{re.escape(name)}["']?"""
    heads = [
        line
        for line, content in enumerate(text.splitlines(), 1)
        if re.match(rf"\s*(\[{{1,2}}\s*{quoted}\s*\]|{quoted}\s*=)", content)
    ]
    return heads[min(number, len(heads) - 1)] if heads else 0
