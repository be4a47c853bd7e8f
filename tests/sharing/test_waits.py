"""A wait of a command depends on one of the bridge that the command has started."""

from acp_bridge.core.runtime import waits
from acp_bridge.sharing.bridge_client import own_process


def test_a_command_waits_longer_for_its_own_bridge_than_that_takes_to_end() -> None:
    assert waits.ENDED < own_process.END
