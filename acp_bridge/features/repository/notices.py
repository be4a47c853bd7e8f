"""How the repository of a folder stands, and what a session says if it stood otherwise. SANS-IO."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from acp_bridge.core.updates.wording import code

#: how many digits of a commit's id are shown.
_SHORT = 12


@dataclass(frozen=True, slots=True)
class Standing:
    """How a repository stands; without a commit and a branch there is no repository."""

    #: the id of the commit that is checked out; empty before the first one.
    commit: str = ""
    branch: str = ""
    #: True if tracked files have changes that are not committed; None: that is not known.
    changed: bool | None = None

    @classmethod
    def of(cls, kept: Mapping[str, Any]) -> Standing | None:
        """Return the standing that was stored as the JSON object `kept`; None if that is none."""
        changed = kept.get("changed")
        match kept:
            case {"commit": str(commit), "branch": str(branch)}:
                return cls(commit, branch, changed if isinstance(changed, bool) else None)
        return None

    @property
    def kept(self) -> dict[str, Any]:
        """The standing as a JSON object to be stored."""
        return asdict(self)

    def is_other(self, than: Standing) -> bool:
        """Return True if this standing differs from `than`, as far as both are known."""
        if (self.commit, self.branch) != (than.commit, than.branch):
            return True
        return None not in (self.changed, than.changed) and self.changed is not than.changed

    def __str__(self) -> str:
        """Return the standing in words: commit, branch, and whether tracked files are changed."""
        if not (self.commit or self.branch):
            return "no repository"
        commit = f"commit `{code(self.commit[:_SHORT])}`" if self.commit else "no commit yet"
        branch = f"branch `{code(self.branch)}`" if self.branch else "no branch"
        how = {True: ", tracked files changed", False: ", no tracked file changed", None: ""}
        return f"{commit} on {branch}{how[self.changed]}"


def stands_otherwise(machine: str, there: Standing, here: Standing) -> str:
    """Return the notice that the folder is not as the last turn left it on another machine."""
    return (
        "[acp-bridge] The repository of the working folder stands otherwise here than when the last"
        f" turn ended on `{code(machine)}`. There: {there}. Here: {here}."
    )
