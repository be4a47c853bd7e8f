"""Looks up keys and base URLs of providers, in the environment first, then in a file.

Invariants
- Nothing is remembered between two lookups: a key written into the file is found at once.
- An empty value counts as none.
- A file that anybody may write, or another user's, is not used, because a base URL of theirs would
  get the keys; if others may read the file, the log warns once.
"""

from __future__ import annotations

import logging
import os
import stat
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from functools import cached_property
from pathlib import Path

from msgspec import Struct

from agent.providers import aws
from agent.providers.known_providers import Provider

_log = logging.getLogger(__name__)


class Access(Struct, frozen=True):
    """A provider's key and base URL at one moment."""

    #: the name of the provider, for the user
    name: str
    #: the variable that should hold the key; empty if the provider may need none
    key_variable: str
    key: str | None
    #: the variable that holds the base URL, or would; empty if the provider's own counts
    base_url_variable: str
    base_url: str | None
    #: the file in which a key may be, for messages
    keys_file: str = "keys.env"
    #: further parameters for LiteLLM, with their values
    parameters: tuple[tuple[str, str], ...] = ()

    def __repr__(self) -> str:
        """Names the provider alone: no log gets a key, or an address with a password."""
        return f"Access({self.name!r})"

    @property
    def lacks_key(self) -> bool:
        """True if a key is missing; with the user's own base URL none may be needed."""
        return bool(self.key_variable) and self.key is None and self.base_url is None

    @property
    def strange(self) -> str | None:
        """A sentence on a character that no key or base URL has, and no request could carry.

        Such come from a word processor or a web page: a curly quote, a space of no width.
        """
        for name, value in ((self.key_variable, self.key), *self.parameters):
            if found := next((c for c in value or "" if not "\x20" <= c <= "\x7e"), ""):
                return _strange("key", name, found)
        for found in self.base_url or "":  # a host may have a name in any language
            if unicodedata.category(found) in _IN_NO_ADDRESS:
                return _strange("base URL", self.base_url_variable, found)
        return None


#: control characters, those without a width, and quotation marks
_IN_NO_ADDRESS = frozenset(["Cc", "Cf", "Pi", "Pf", "Zl", "Zp"])


def _strange(what: str, name: str, found: str) -> str:
    return f"The {what} in {name} has a strange character, {_described(found)}: set it again."


def _described(character: str) -> str:
    name = unicodedata.name(character, "").lower()
    return f"U+{ord(character):04X}{', ' if name else ''}{name}"


class FileUse(Enum):
    """Whether the file of keys exists and is used."""

    MISSING = "missing"
    USED = "used"
    #: used, though others than its owner may read it
    EXPOSED = "exposed"
    #: not used: anybody may write it, or it is another user's
    REFUSED = "refused"
    UNREADABLE = "unreadable"


class Keys:
    """The places of keys: `env`, then `file`. `on_key` is called with every key that is found."""

    def __init__(
        self, file: Path, env: Mapping[str, str], on_key: Callable[[str], None] | None = None
    ) -> None:
        self._file = file
        self._env = env
        self._on_key = on_key
        self._warned: set[tuple[int, str]] = set()

    def look(self) -> Look:
        """Returns a lookup for this moment; it reads the file at most once, when it is needed."""
        return Look(self._file, self._env, self._on_key, self._warned)

    def access(self, provider: Provider) -> Access:
        return self.look().access(provider)


class Look:
    """Keys and base URLs as they are at one moment.

    `warned`: the warnings that were logged, each with the pid of the process that logged it.
    """

    def __init__(
        self,
        file: Path,
        env: Mapping[str, str],
        on_key: Callable[[str], None] | None,
        warned: set[tuple[int, str]],
    ) -> None:
        self._file = file
        self._env = env
        self._on_key = on_key
        self._warned = warned

    def find(self, names: Iterable[str]) -> tuple[str, str] | None:
        """Returns the first of the variables that has a value, and the value; None if none has."""
        names = tuple(names)
        return _first(names, self._env) or _first(names, self._lines)

    def key(self, provider: Provider) -> tuple[str, str] | None:
        found = self.find(provider.keys)
        if found and self._on_key:
            self._on_key(found[1])
        return found

    def access(self, provider: Provider) -> Access:
        key = self.key(provider)
        base_url = self.find(provider.base_urls)
        if base_url is None and provider.address:
            base_url = provider.base_urls[0], provider.address
        wanted = "" if provider.has_other_ways else next(iter(provider.keys), "")
        return Access(
            name=provider.name,
            key_variable=key[0] if key else wanted,
            key=key[1] if key else None,
            base_url_variable=base_url[0] if base_url else "",
            base_url=base_url[1].rstrip("/") if base_url else None,
            keys_file=str(self._file),
            parameters=self._parameters(provider.id),
        )

    def _parameters(self, provider: str) -> tuple[tuple[str, str], ...]:
        if provider not in aws.PROVIDERS:  # read the file only if it is needed
            return ()
        return aws.parameters(provider, self._env, self._lines)

    @property
    def file_use(self) -> FileUse:
        return self._content[0]

    @property
    def in_file(self) -> Sequence[str]:
        """The names that have a value in the file; none if the file is not used."""
        return [name for name, value in self._lines.items() if (value or "").strip()]

    @property
    def _lines(self) -> Mapping[str, str | None]:
        return self._content[1]

    @cached_property
    def _content(self) -> tuple[FileUse, Mapping[str, str | None]]:
        """Reads the file; returns whether it is used, and the values in its lines by their names.

        Quotes mean what they mean in a shell, and `$` is an ordinary character.
        """
        from dotenv import dotenv_values

        try:
            # Opening a pipe would wait for a writer.
            if not stat.S_ISREG(self._file.stat().st_mode):
                raise ValueError(f"{self._file} is no regular file")
            with self._file.open(encoding="utf-8") as lines:
                use = self._use(os.fstat(lines.fileno()))
                counts = use is not FileUse.REFUSED
                return use, dotenv_values(stream=lines, interpolate=False) if counts else {}
        except FileNotFoundError:
            return FileUse.MISSING, {}
        except (OSError, ValueError) as error:
            _log.warning("the file of keys can't be read: %s", error)
            return FileUse.UNREADABLE, {}

    def _use(self, status: os.stat_result) -> FileUse:
        # A file writable for its group is accepted: users often have a group of their own.
        if status.st_uid not in (os.geteuid(), 0) or status.st_mode & 0o002:
            self._warn("%s is not used: anybody may write it. Run chmod 600 on it.")
            return FileUse.REFUSED
        if status.st_mode & 0o066:
            self._warn("%s holds keys, and others may read it. Run chmod 600 on it.")
            return FileUse.EXPOSED
        return FileUse.USED

    def _warn(self, sentence: str) -> None:
        told = os.getpid(), sentence  # a forked agent's log is not its parent's
        if told not in self._warned:
            self._warned.add(told)
            _log.warning(sentence, self._file)


def _first(names: Iterable[str], place: Mapping[str, str | None]) -> tuple[str, str] | None:
    for name in names:
        if value := (place.get(name) or "").strip():
            return name, value
    return None
