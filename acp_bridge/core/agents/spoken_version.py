"""Which version of ACP is spoken with an agent: what the user chose, and what the agent has.

- A process keeps its version. What one process has refused no other is asked.
- Version 1 comes first, unless the user has chosen version 2, or has chosen none and the first
  client speaks it; the other one is for an agent that does not have the first.
- An agent that is asked for version 2 may answer in version 1: then that is spoken.
"""

from __future__ import annotations

from typing import Final

from acp_bridge.core.agents.process import StartFailed
from acp_bridge.core.protocol import VERSION, VERSION_2, ErrorCode
from acp_bridge.core.settings import AgentProtocol
from acp_bridge.core.wire.jsonrpc import RpcError

#: the errors by which an agent refuses version 1 as such; strict ones call it a wrong parameter.
_REFUSALS: Final = (ErrorCode.UNSUPPORTED_VERSION, ErrorCode.INVALID_PARAMS)
_BOTH: Final = VERSION + VERSION_2


class OtherVersion(StartFailed):
    """The agent does not have the version that it was asked for: another process is to be started.

    `refusal`: its error, None if it has answered with another version.
    """

    def __init__(self, refusal: RpcError | None) -> None:
        super().__init__("the agent speaks another version of ACP", permanent=False)
        self.refusal = refusal


class SpokenVersion:
    """The version that the agent's processes are asked for."""

    def __init__(self, chosen: AgentProtocol = AgentProtocol.AUTO) -> None:
        """`chosen`: the user's choice. Nothing is known of the agent yet."""
        self._first = VERSION_2 if chosen is AgentProtocol.V2 else VERSION
        self._alone = chosen is AgentProtocol.V1
        self._follows = chosen is AgentProtocol.AUTO
        self._refused: set[int] = set()
        #: the version that the next process is asked for.
        self.asks = self._first

    def follow_client(self) -> None:
        """Ask for version 2 first, as the first client speaks it, unless the user chose one."""
        if self._follows:
            self._first = self.asks = VERSION_2

    def settle(self, spoken: int) -> None:
        """Note the version that a process has agreed to: the next one is asked for that."""
        self._refused.clear()
        self.asks = spoken

    def refused(self, asked: int, refusal: RpcError | None) -> StartFailed | RpcError:
        """Note that an agent has not agreed to a version; returns what is to be raised.

        `refusal`: its error, None if it has answered with another version.
        """
        other = _BOTH - asked
        if refusal is not None and not may_be_of_version(asked, refusal):
            return refusal
        if not self._alone and other not in self._refused:
            self._refused.add(asked)
            self.asks = other
            return OtherVersion(refusal)
        self._refused.clear()
        self.asks = self._first
        return refusal or StartFailed(
            f"the agent does not speak ACP version {self._first}", permanent=True
        )


def is_of_version_1(result: object) -> bool:
    """Return True if an answer to `initialize` is one of version 1, whatever it was asked for.

    Some agents of version 1 repeat whatever version they are asked for.
    """
    if not isinstance(result, dict):
        return False
    return result.get("protocolVersion") == VERSION or "agentCapabilities" in result


def may_be_of_version(asked: int, refusal: RpcError) -> bool:
    """Return True if an error may mean that the agent does not have the version `asked`."""
    if asked == VERSION_2:
        return refusal.code != ErrorCode.AUTH_REQUIRED
    return refusal.code in _REFUSALS
