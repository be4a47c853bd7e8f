"""Tells which sessions are an agent's, by its name or by the name that it gives itself."""

import re
from typing import Final, NamedTuple

#: a version at the end of a name, or before its suffix: `agent-1.2.3`, `agent_v0.16.0-beta.1.jar`.
_VERSION: Final = re.compile(
    r"(?:^|[-_@.])v?\d+(?:\.\d+)+(?:[-+.][0-9A-Za-z]+)*?(?=$|\.(?:jar|js|mjs|cjs|py|sh|AppImage)$)"
)
#: a package's name, up to npm's @VERSION or to what pip and uv allow behind a name.
_PACKAGE: Final = re.compile(r"@?[^@=<>~!;\[\s]+")


def without_version(name: str) -> str:
    """Return the name of a package without its version, so that it survives upgrades.

    A name that is nothing but a version stays as it is.
    """
    found = _PACKAGE.match(name)
    return file_without_version(found[0] if found else name)


def file_without_version(name: str) -> str:
    """Return the name of a file or a folder without its version; any character may stand in it."""
    return _VERSION.sub("", name) or name


class AgentIdentity(NamedTuple):
    """The names by which the sessions of this bridge's agent are known."""

    name: str
    #: names under which earlier versions of the bridge kept this agent's sessions.
    former: frozenset[str] = frozenset()
    #: the name that the agent gives itself in `agentInfo`; None if it has none, or does not count.
    info: str | None = None

    def owns(self, name: str, info: str | None) -> bool:
        """Return True for a session that was kept under this name and this `agentInfo`."""
        if name == self.name or (info is not None and info == self.info):
            return True
        return bool({name, without_version(name)} & {self.name, *self.former})
