"""Plugs in all that serving plugs in, for the tests of a folder: `from ... import all_plugged`."""

import pytest

from acp_bridge.core.ends import Ends
from acp_bridge.serving import PLUGINS
from acp_bridge.sharing.elsewhere.passages import Passages
from acp_bridge.versions.ends import agent_of_version_2, client_of_version_2
from tests.core import plugged


@pytest.fixture(autouse=True)
def all_plugged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plug in everything."""
    ends = Ends(client=client_of_version_2, agent=agent_of_version_2)
    monkeypatch.setattr(plugged, "PLUGGED", plugged.Plugged(PLUGINS, ends, Passages))
