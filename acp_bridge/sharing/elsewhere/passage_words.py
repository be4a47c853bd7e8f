"""The sentences about sessions that other bridges hold."""

from __future__ import annotations

from typing import Final

from acp_bridge.core.updates.wording import words

HOLDER_ENDED: Final = (
    "the acp-bridge that ran this session has ended; the session is opened here, and what waited"
    " in it is held"
)
HOLDER_DEAF: Final = "the acp-bridge that runs this session does not read"
HOLDER_SILENT: Final = (
    "the acp-bridge that runs this session does not answer; what it had begun may go on there"
)


def other_agent(there: str, here: str) -> str:
    """Return why a session can't be passed through: its bridge has another agent, `there`."""
    return f"the session is open in an acp-bridge with the agent {there!r}, this one has {here!r}"


def other_protocol(there: int, here: int) -> str:
    """Return why a session can't be passed through: its bridge speaks another socket version."""
    return (
        f"the session is open in an acp-bridge of another version: its socket speaks {there},"
        f" this one {here}; end one of them first"
    )


def holder_let_go(why: str) -> str:
    """Return the notice that another bridge shows the client a session no more, and `why`."""
    return (
        f"[acp-bridge] This session is not shown here any more: {words(why)}. Load it again to go"
        " on."
    )


def not_continued(why: str) -> str:
    """Return the notice that a session's bridge has ended, and `why` opening it here failed."""
    return (
        "[acp-bridge] The acp-bridge that ran this session has ended, and the session could not be"
        f" opened here: {words(why)}. Load it again to go on."
    )
