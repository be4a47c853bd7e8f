"""How the repository of a folder stands, and what a session says if it stood otherwise. SANS-IO."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from acp_bridge.updates.wording import code

#: the digits of a commit's id that are shown.
_SHORT = 12


@dataclass(frozen=True, slots=True)
class Standing:
    """How a repository stands; with neither a commit nor a branch there is none."""

    #: the id of the commit that is checked out; empty before the first one.
    commit: str = ""
    branch: str = ""
    #: files that are tracked have changes which are not committed; None: that is not known.
    changed: bool | None = None

    @classmethod
    def of(cls, kept: Mapping[str, Any]) -> Standing | None:
        """Return what was kept as `kept`; None if that holds no such thing."""
        changed = kept.get("changed")
        match kept:
            case {"commit": str(commit), "branch": str(branch)}:
                return cls(commit, branch, changed if isinstance(changed, bool) else None)
        return None

    @property
    def kept(self) -> dict[str, Any]:
        """The same as a JSON object."""
        return asdict(self)

    def is_other(self, than: Standing) -> bool:
        """Return whether it differs, as far as is known."""
        if (self.commit, self.branch) != (than.commit, than.branch):
            return True
        return None not in (self.changed, than.changed) and self.changed is not than.changed

    def __str__(self) -> str:
        """Return it in words."""
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
