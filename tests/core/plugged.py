"""What the bridges and sessions of tests plug in: nothing, as long as no `conftest.py` sets it.

The tests of core run so. Those of features, ends and sharing set all that serving plugs in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from acp_bridge.core.ends import Ends
from acp_bridge.core.session.feature import Plugin
from acp_bridge.core.sessions.elsewhere import Elsewhere, MakeElsewhere


@dataclass(frozen=True)
class Plugged:
    """What is plugged into core."""

    plugins: Sequence[Plugin] = ()
    ends: Ends = field(default_factory=Ends)
    elsewhere: MakeElsewhere = Elsewhere


PLUGGED = Plugged()
