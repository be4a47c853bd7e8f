"""Masks secrets in texts and logs."""

from __future__ import annotations

import logging
import os
import re
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from agent.secrets.values import SHORTEST, forms, secrets_in_file, secrets_of

MASK = "***"


class Secrets:
    """The known secrets, and the masking of texts with them. More may be added at any time."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        self._values: set[str] = set()
        self._forms: set[str] = set()
        #: the forms of secrets by first letter, longest first, because one may contain another
        self._by_letter: dict[str, list[str]] = {}
        #: matches all forms; None after a change, and while there are none
        self._pattern: re.Pattern[str] | None = None
        #: watched files, with the state in which each was read last
        self._files: dict[Path, tuple[int, ...]] = {}
        for value in values:
            self.add(value)

    @classmethod
    def from_environment(cls, env: Mapping[str, str]) -> Secrets:
        secrets = cls()
        for name, value in env.items():
            secrets.add_named(name, value)
        return secrets

    def add(self, value: str) -> None:
        """Adds a value in every form that it may have; ignores values of less than 8 characters."""
        value = value.strip()
        if len(value) < SHORTEST or value in self._values:
            return
        self._values.add(value)
        self._forms.update(forms(value))
        self._pattern = None

    def add_named(self, name: str, value: str) -> None:
        """Adds the secrets in the value of an environment variable, a header or a parameter."""
        for secret in secrets_of(name.replace("-", "_"), value):
            self.add(secret)

    def watch(self, file: Path) -> None:
        """Adds the secrets in a file of NAME=value lines.

        Reads it when masking, if it has changed.
        """
        self._files[file] = ()

    @property
    def longest(self) -> int:
        """The length of the longest form of a secret, in bytes of UTF-8."""
        return max((len(form.encode("utf-8", "replace")) for form in self._forms), default=0)

    def mask(self, text: str) -> str:
        pattern = self._compiled()
        return text if pattern is None else pattern.sub(MASK, text)

    def mask_part(self, text: str, start: int = 0, end: int | None = None) -> str:
        """Returns `text[start:end]` masked; a secret that the cut divides becomes a whole mask.

        Use it wherever a text is cut, since half a secret is not recognised as one.
        """
        end = len(text) if end is None else min(end, len(text))
        pattern = self._compiled()
        pieces: list[str] = []
        at = start
        for found in pattern.finditer(text) if pattern else ():
            if found.start() >= end:
                break
            if found.end() > start:
                pieces += (text[at : found.start()], MASK)
                at = found.end()
        return "".join([*pieces, text[at:end]])

    def mask_json(self, value: Any) -> Any:
        """Returns a copy of a JSON value with its strings masked; keys stay as they are."""
        match value:
            case str():
                return self.mask(value)
            case list() | tuple():
                return [self.mask_json(item) for item in value]
            case dict():
                return {key: self.mask_json(item) for key, item in value.items()}
        return value

    def lost(self, old: str, new: str) -> bool:
        """Returns True if `new` has the mask in place of a secret in `old`.

        A model that saw only the mask would write such a text and destroy the secret.
        """
        return new.count(MASK) > old.count(MASK) and self._count(new) < self._count(old)

    def _count(self, text: str) -> int:
        pattern = self._compiled()
        return 0 if pattern is None else sum(1 for _ in pattern.finditer(text))

    def guard_logs(self) -> None:
        """Masks every log record of this process from now on.

        Records are masked when they are made, because libraries have handlers of their own.
        """
        make = logging.getLogRecordFactory()

        def make_masked(*args: Any, **kwargs: Any) -> logging.LogRecord:
            return self._masked(make(*args, **kwargs))

        logging.setLogRecordFactory(make_masked)

    def so_far(self, text: str) -> str:
        """Returns an unfinished text masked, without an end that may become a secret."""
        pattern = self._compiled()
        certain: list[str] = []
        at = 0
        while True:
            held = self._held(text, at)
            found = pattern.search(text, at) if pattern else None
            # A secret is not certain if a longer one may begin at or before its place.
            if found is None or found.start() >= held:
                return "".join([*certain, text[at:held]])
            certain += (text[at : found.start()], MASK)
            at = found.end()

    def _held(self, text: str, start: int) -> int:
        """Returns the first index from `start` on at which an unfinished secret may begin."""
        longest = max((len(group[0]) for group in self._by_letter.values()), default=0)
        for at in range(max(start, len(text) - longest + 1), len(text)):
            rest = text[at:]
            for form in self._by_letter.get(text[at], ()):
                if len(form) <= len(rest):
                    break
                if form.startswith(rest):
                    return at
        return len(text)

    def _compiled(self) -> re.Pattern[str] | None:
        for file in self._files:
            self._read(file)
        if self._pattern is None and self._forms:
            # Grouped by letter, so that few secrets are compared at each place of a text.
            by_letter: dict[str, list[str]] = {}
            for form in sorted(self._forms, key=len, reverse=True):
                by_letter.setdefault(form[0], []).append(form)
            self._by_letter = by_letter  # assigned when complete: logs are masked in other threads
            self._pattern = re.compile(
                "|".join(
                    f"{re.escape(letter)}(?:{'|'.join(re.escape(form[1:]) for form in group)})"
                    for letter, group in by_letter.items()
                )
            )
        return self._pattern

    def _read(self, file: Path) -> None:
        try:
            status = os.stat(file)
        except OSError:
            return
        stamp = (status.st_mtime_ns, status.st_size, status.st_ino)
        # Opening a pipe would wait for a writer.
        if stamp == self._files[file] or not stat.S_ISREG(status.st_mode):
            return
        from dotenv import dotenv_values

        self._files[file] = stamp
        try:
            with file.open(encoding="utf-8") as lines:
                found = dotenv_values(stream=lines, interpolate=False)
        except (OSError, ValueError):  # the code that looks a key up reports it
            return
        for name, value in found.items():
            for secret in secrets_in_file(name, value or ""):
                self.add(secret)

    def _masked(self, record: logging.LogRecord) -> logging.LogRecord:
        try:
            message = record.getMessage()
        except Exception:  # the arguments do not fit the format; logging reports that itself
            message = f"{record.msg} {record.args}"
        record.msg, record.args = self.mask(message), ()
        if record.exc_info and record.exc_info[1] is not None:
            record.exc_text = self.mask(logging.Formatter().formatException(record.exc_info))
            record.exc_info = None
        if record.stack_info:
            record.stack_info = self.mask(record.stack_info)
        return record
