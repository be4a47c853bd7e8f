"""Removes secrets from a report: text that looks like one, and the secrets that are known."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from acp_bridge.core.keys import file
from acp_bridge.core.runtime import log

_SECRET_NAME: Final = re.compile(
    r"(KEY(S|\d+)?|_PAT|_PASS|_PWD|AUTH)(_|$)|APIKEY|TOKEN|SECRET|PASSW(OR)?D|PASSPHRASE"
    r"|CREDENTIAL|AUTHORIZATION",
    re.IGNORECASE,
)
#: variables with such a name say where a secret is, not what it is.
_PLACE_NAME: Final = re.compile(r"_(FILE|PATH|DIR|SOCK|HOME|HOST|NAME|USER|TYPE)$", re.IGNORECASE)
#: characters; masking shorter values would hide ordinary words.
_SHORTEST: Final = 8
_MASK: Final = "***"


class Mask:
    """Masks secrets in texts.

    The path `home` is shortened to `~`, since reports are shown to others.
    """

    def __init__(self, secrets: Iterable[str], home: str = "") -> None:
        lines = {line.strip() for secret in secrets for line in (secret, *secret.splitlines())}
        # Longest first: one may contain another.
        self._secrets = sorted((each for each in lines if len(each) >= _SHORTEST), key=len)[::-1]
        self._home = home if len(home) > 1 else ""

    @classmethod
    def of(
        cls, env: Mapping[str, str], data_folder: Path | None, command: Sequence[str] = ()
    ) -> Mask:
        """Return the mask for all secrets in an environment, a command's arguments and keys.env.

        `data_folder`: where keys.env is; None to leave it out.
        """
        named = [
            value
            for name, value in env.items()
            if _SECRET_NAME.search(name) and not _PLACE_NAME.search(name)
        ]
        secrets = [
            *named,
            *_in_arguments(command),
            *(file.values(data_folder) if data_folder else []),
        ]
        return cls(secrets, str(Path(env.get("HOME", ""))))

    def text(self, text: str) -> str:
        """Return a text with its secrets masked."""
        for secret in self._secrets:
            text = text.replace(secret, _MASK)
        text = log.masked(text)
        if self._home:
            text = re.sub(rf"{re.escape(self._home)}(?=/|\b)", "~", text)
        return text

    def value(self, value: Any) -> Any:
        """Return a JSON value with the secrets masked in all its strings, member names included."""
        match value:
            case str():
                return self.text(value)
            case dict():
                return {self.text(str(key)): self.value(each) for key, each in value.items()}
            case list() | tuple():
                return [self.value(each) for each in value]
        return value


def _in_arguments(words: Sequence[str]) -> Iterator[str]:
    """Yield the values of options and variables whose name says that they are secret."""
    for word, following in zip(words, [*words[1:], ""], strict=False):
        name, given, value = word.partition("=")
        if _SECRET_NAME.search(name.replace("-", "_")):
            yield value if given else following
