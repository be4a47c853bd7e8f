"""The environment of a hook: the bridge's own, without variables that look like secrets."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from acp_bridge.core.agents.guard import KEY_WORDS
from acp_bridge.core.runtime.log import masked

#: names of variables that hold the place of a secret, or who asks for it, and not the secret.
_PLACE: Final = re.compile(
    r"_(FILE|PATH|DIR|SOCK|HOME|HOST|URL|NAME|USER|TYPE)$|ASKPASS$|^GIT_AUTHOR_"
)
_PLACES: Final = frozenset({"XAUTHORITY"})


def environment(env: Mapping[str, str], cwd: str) -> dict[str, str]:
    """Return the environment of a hook: `env` without what looks like a secret (invariant K7).

    CLAUDE_PROJECT_DIR is the session's folder, since hooks that are written for Claude Code name
    their scripts with it.
    """
    kept = {name: value for name, value in env.items() if not _is_secret(name, value)}
    return {**kept, "CLAUDE_PROJECT_DIR": cwd, "PWD": cwd}


def _is_secret(name: str, value: str) -> bool:
    upper = name.upper()
    looks = any(word.decode() in upper for word in KEY_WORDS)
    if looks and upper not in _PLACES and not _PLACE.search(upper):
        return True
    return masked(value) != value
